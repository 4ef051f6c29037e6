"""Histograms of counts, such as words per text or texts per label, and their bar charts as text."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

BLOCKS = "▏▎▍▌▋▊▉█"
# With the papers' 4 and 8 words, and the 32 words at which encoders truncate.
WORD_STEPS = (0, 1, 3, 5, 7, 9, 13, 17, 33, 100)
LABEL_STEPS = (0, 1, 2, 3, 4, 5, 10, 30, 100)
# Label frequencies span orders of magnitude: two steps per power of ten.
FREQUENCY_STEPS = (0, 1, 2, 3, 10, 30, 100, 300, 1000, 3000, 10_000, 30_000, 100_000)


@dataclass(frozen=True)
class Bucket:
    """The number of values from `first` to `last`, both included. `last` is None in a bucket without upper bound."""

    first: int
    last: int | None
    count: int

    @property
    def name(self) -> str:
        if self.last is None:
            return f"{_short(self.first)}+"
        if self.first == self.last:
            return _short(self.first)
        # Thousands are rounded: 1K–3K ends at 2,999.
        return f"{_short(self.first)}–{_short(self.last if self.last < 1000 else self.last + 1)}"


def histogram(values: np.ndarray, steps: Sequence[int]) -> list[Bucket]:
    """Count the values between one step and the next, without the empty buckets at both ends.

    >>> [(bucket.name, bucket.count) for bucket in histogram(np.array([1, 2, 2, 7]), (0, 1, 2, 3, 10))]
    [('1', 1), ('2', 2), ('3–9', 1)]
    """
    counts = np.bincount(np.searchsorted(steps, values, side="right") - 1, minlength=len(steps)).tolist()
    lasts = [step - 1 for step in steps[1:]] + [None]
    buckets = [Bucket(*bucket) for bucket in zip(steps, lasts, counts, strict=True)]
    filled = [position for position, bucket in enumerate(buckets) if bucket.count]
    return buckets[filled[0] : filled[-1] + 1] if filled else []


def words_per_text(counts: np.ndarray) -> dict[str, Any]:
    """The distribution of words per text, for a JSON file."""
    buckets = [{"name": bucket.name, "count": bucket.count} for bucket in histogram(counts, WORD_STEPS)]
    return {"histogram": buckets, "mean": float(counts.mean()), "median": float(np.median(counts))}


def chart(title: str, buckets: Sequence[Bucket], width: int) -> list[str]:
    """Lines of exactly `width` characters: the name of each bucket, a bar, and its share of all values."""
    name_width = max((len(bucket.name) for bucket in buckets), default=0)
    total = sum(bucket.count for bucket in buckets)
    highest = max((bucket.count for bucket in buckets), default=0)
    bar_width = width - name_width - len(" 100 %") - 1
    lines = [title[:width].ljust(width)]
    for bucket in buckets:
        # In eighths of a character, and at least one of them if there is anything to show.
        eighths = max(round(8 * bar_width * bucket.count / highest), min(bucket.count, 1))
        bar = BLOCKS[-1] * (eighths // 8) + (BLOCKS[eighths % 8 - 1] if eighths % 8 else "")
        percent = "<1 %" if 0 < 200 * bucket.count < total else f"{100 * bucket.count / total:.0f} %"
        lines.append(f"{bucket.name:>{name_width}} {bar:<{bar_width}}{percent:>6}")
    return lines


def side_by_side(charts: Sequence[Sequence[str]], gap: str = "   ") -> list[str]:
    """Charts beside each other, each as wide as its first line."""
    columns = [[line.ljust(len(lines[0])) for line in lines] for lines in charts]
    blank = [" " * len(lines[0]) for lines in charts]
    rows = itertools.zip_longest(*columns)
    return [gap.join(line or empty for line, empty in zip(row, blank, strict=True)).rstrip() for row in rows]


def _short(number: int) -> str:
    return str(number) if number < 1000 else f"{number // 1000}K"
