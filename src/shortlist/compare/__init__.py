"""Comparisons: recipes and other tools trained on the same texts and measured in the same way, each by itself."""

from shortlist.compare.comparison import Settings, compare

__all__ = ["Settings", "compare"]
