"""Small histograms of counts: how many words a text has, how many texts a label has; and their bars."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

BLOCKS = "▏▎▍▌▋▊▉█"
# Steps a reader of short texts asks about: the papers' 4 and 8 words, the 32 at which encoders cut.
WORD_STEPS = (0, 1, 3, 5, 7, 9, 13, 17, 33, 100)
LABEL_STEPS = (0, 1, 2, 3, 4, 5, 10, 30, 100)
# Label frequencies span all magnitudes: two steps for every power of ten.
FREQUENCY_STEPS = (0, 1, 2, 3, 10, 30, 100, 300, 1000, 3000, 10_000, 30_000, 100_000)


@dataclass(frozen=True)
class Bucket:
    """How many values lie from `first` to `last`, both included; the last bucket of all may be open."""

    first: int
    last: int | None
    count: int

    @property
    def name(self) -> str:
        if self.last is None:
            return f"{_short(self.first)}+"
        if self.first == self.last:
            return _short(self.first)
        # Thousands are rounded: 1K–3K goes to 2,999.
        return f"{_short(self.first)}–{_short(self.last if self.last < 1000 else self.last + 1)}"


def histogram(values: np.ndarray, steps: Sequence[int]) -> list[Bucket]:
    """Count values, none below the first step, between one step and the next; empty ends are left out.

    >>> [(bucket.name, bucket.count) for bucket in histogram(np.array([1, 2, 2, 7]), (0, 1, 2, 3, 10))]
    [('1', 1), ('2', 2), ('3–9', 1)]
    """
    counts = np.bincount(np.searchsorted(steps, values, side="right") - 1, minlength=len(steps)).tolist()
    lasts = [step - 1 for step in steps[1:]] + [None]
    buckets = [Bucket(*bucket) for bucket in zip(steps, lasts, counts, strict=True)]
    filled = [position for position, bucket in enumerate(buckets) if bucket.count]
    return buckets[filled[0] : filled[-1] + 1] if filled else []


def words_per_text(counts: np.ndarray) -> dict[str, Any]:
    """How many texts have how many words, as JSON holds it."""
    buckets = [{"name": bucket.name, "count": bucket.count} for bucket in histogram(counts, WORD_STEPS)]
    return {"histogram": buckets, "mean": float(counts.mean()), "median": float(np.median(counts))}


def chart(title: str, buckets: Sequence[Bucket], width: int) -> list[str]:
    """Lines of exactly `width` characters: each bucket's name, a bar, and its share of all values."""
    names = max((len(bucket.name) for bucket in buckets), default=0)
    total = sum(bucket.count for bucket in buckets)
    highest = max((bucket.count for bucket in buckets), default=0)
    room = width - names - len(" 100 %") - 1
    lines = [title[:width].ljust(width)]
    for bucket in buckets:
        bar = _bar(bucket.count / highest, room)
        lines.append(f"{bucket.name:>{names}} {bar:<{room}}{_percent(bucket.count, total):>6}")
    return lines


def side_by_side(charts: Sequence[Sequence[str]], gap: str = "   ") -> list[str]:
    """Charts next to each other, each as wide as its first line."""
    columns = [[line.ljust(len(lines[0])) for line in lines] for lines in charts]
    blank = [" " * len(lines[0]) for lines in charts]
    return [
        gap.join(line or empty for line, empty in zip(row, blank, strict=True)).rstrip()
        for row in itertools.zip_longest(*columns)
    ]


def _bar(part: float, room: int) -> str:
    """A bar over this part of the room, in eighths of a character; never nothing where there is something."""
    eighths = max(round(part * room * len(BLOCKS)), 1 if part > 0 else 0)
    full, rest = divmod(eighths, len(BLOCKS))
    return BLOCKS[-1] * full + (BLOCKS[rest - 1] if rest else "")


def _percent(count: int, total: int) -> str:
    return "<1 %" if 0 < 200 * count < total else f"{100 * count / total:.0f} %"


def _short(number: int) -> str:
    return str(number) if number < 1000 else f"{number // 1000}K"
