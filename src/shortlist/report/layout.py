"""The geometry of plots: the width of text, scales with round ticks, and places for labels that do not overlap.

Positions are in the plot's units, which are pixels at its natural size.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

FONT_SIZE = 12.0
BOLD = 1.12  # width of bold text relative to normal text


def text_width(content: str, size: float = FONT_SIZE) -> float:
    """Upper estimate of the width of a text; the reader's font is unknown."""
    return size * sum(map(_letter_width, content))


def _letter_width(letter: str) -> float:
    if letter in "iljtf.,:;'|!()[] ":
        return 0.36
    if letter in "mwMW@%":
        return 0.97
    if ord(letter) > 0x2E7F:  # CJK characters are as wide as they are high
        return 1.0
    return 0.72 if letter.isupper() else 0.62


def shorten(content: str, width: float, size: float = FONT_SIZE) -> str:
    """Fit a text into a width. The middle goes first, because names often differ at their ends."""
    if text_width(content, size) <= width:
        return content
    for length in range(len(content) - 1, 0, -1):
        tail = length // 2
        short = content[: length - tail].rstrip() + "…" + content[len(content) - tail :].lstrip()
        if text_width(short, size) <= width:
            return short
    return "…"


class Scale(NamedTuple):
    """Maps values to positions; has ticks at round values."""

    low: float
    high: float
    start: float
    end: float
    ticks: list[tuple[float, str]]
    log: bool = False

    def __call__(self, value: float) -> float:
        low, high = self.low, self.high
        if self.log:
            low, high, value = math.log(low), math.log(high), math.log(value)
        return self.start + (value - low) / ((high - low) or 1) * (self.end - self.start)

    @property
    def spaced_ticks(self) -> list[tuple[float, str]]:
        """The ticks of a horizontal axis, without the labels that would overlap the label before."""
        ticks, free_from = [], -math.inf
        for value, label in self.ticks:
            half = text_width(label) / 2
            fits = self(value) - half > free_from
            ticks.append((value, label if fits else ""))
            free_from = self(value) + half + 4 if fits else free_from
        return ticks


def linear_scale(low: float, high: float, start: float, end: float, count: int = 5, pad: float = 0.0) -> Scale:
    """A linear scale with about `count` ticks. `pad` is the fraction of the range left free at both ends."""
    if high - low <= max(1e-9 * abs(high), 1e-12):  # all values are equal
        margin = abs(high) / 2 if abs(high) > 1e-12 else 0.5
        low, high = low - margin, high + margin
    low, high = low - pad * (high - low), high + pad * (high - low)
    smallest_step = (high - low) / count
    exponent = math.floor(math.log10(smallest_step))
    factor = next(f for f in (1, 2, 2.5, 5, 10) if f * 10.0**exponent >= smallest_step * 0.999)
    step = factor * 10.0**exponent
    digits = max(0, {2.5: 1, 10: -1}.get(factor, 0) - exponent)
    numbers = range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)
    return Scale(low, high, start, end, [(n * step, f"{n * step:,.{digits}f}") for n in numbers])


TIME_UNITS = [("µs", 1e-6), ("ms", 1e-3), ("s", 1.0), ("min", 60.0), ("h", 3600.0), ("", math.inf)]


def duration_scale(low: float, high: float, start: float, end: float) -> Scale:
    """A logarithmic scale of seconds, with ticks such as 10 ms or 1 h."""
    low, high = low / 1.6, high * 1.6

    def ticks(factors: Sequence[int]) -> list[tuple[float, str]]:
        return [
            (size * number, f"{number} {unit}")
            for (unit, size), (_, next_size) in itertools.pairwise(TIME_UNITS)
            for number in (factor * 10**power for power in range(4) for factor in factors)
            if low <= size * number <= high and size * number < 0.999 * next_size
        ]

    coarse = ticks((1,))
    return Scale(low, high, start, end, coarse if len(coarse) >= 3 else ticks((1, 2, 5)), log=True)


class Box(NamedTuple):
    left: float
    top: float
    right: float
    bottom: float

    def overlaps(self, other: Box) -> bool:
        horizontally = self.left < other.right and other.left < self.right
        return horizontally and self.top < other.bottom and other.top < self.bottom

    def inside(self, other: Box) -> bool:
        horizontally = other.left <= self.left and self.right <= other.right
        return horizontally and other.top <= self.top and self.bottom <= other.bottom

    def nearest(self, x: float, y: float) -> tuple[float, float]:
        """The point of the box that is nearest to a point."""
        return min(max(x, self.left), self.right), min(max(y, self.top), self.bottom)

    def distance(self, x: float, y: float) -> float:
        return math.dist(self.nearest(x, y), (x, y))


def box_around(x: float, y: float, width: float, height: float) -> Box:
    return Box(x - width / 2, y - height / 2, x + width / 2, y + height / 2)


def place_labels(
    points: Sequence[tuple[float, float]], names: Sequence[str], frame: Box, obstacles: Sequence[Box] = ()
) -> list[Box | None]:
    """Find a place for each point's name: inside the frame, near its point, overlapping nothing. None: no room.

    Points with the closest neighbours choose first, because they have the fewest places to choose from.
    """
    taken = [*obstacles, *(box_around(x, y, 14, 14) for x, y in points)]
    places: list[Box | None] = [None] * len(points)

    def distance_to_nearest(i: int) -> float:
        return min((math.dist(points[i], other) for j, other in enumerate(points) if j != i), default=math.inf)

    for i in sorted(range(len(points)), key=distance_to_nearest):
        for box in _places_around(*points[i], text_width(names[i]), FONT_SIZE + 3):
            if box.inside(frame) and not any(box.overlaps(other) for other in taken):
                places[i] = box
                taken.append(box)
                break
    return places


def _places_around(x: float, y: float, width: float, height: float) -> list[Box]:
    """Places for a name, best first: right, left, above and below the point, then further and further away."""
    centres = [(x + 9 + width / 2, y), (x - 9 - width / 2, y), (x, y - 9 - height / 2), (x, y + 9 + height / 2)]
    for distance in range(14, 260, 10):
        for turn in range(16):
            angle = 2 * math.pi * turn / 16
            centres.append(
                (x + math.cos(angle) * (distance + width / 2), y + math.sin(angle) * (distance + height / 2))
            )
    return [box_around(*centre, width, height) for centre in centres]


def spread_out(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Positions near the wanted ones, in the same order and at least `gap` apart."""
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    positions = [0.0] * len(wanted)
    below = low - gap
    for i in order:
        below = positions[i] = max(wanted[i], below + gap)
    above = high + gap
    for i in reversed(order):
        above = positions[i] = min(positions[i], above - gap)
    return positions
