"""Comparisons: recipes and other tools, trained and measured in the same way on the same data."""

from shortlist.compare.comparison import Settings, compare

__all__ = ["Settings", "compare"]
