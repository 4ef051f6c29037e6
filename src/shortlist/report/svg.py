"""The little of SVG that plots need: elements, scales with round ticks, and labels that keep out of each other's way.

Colours are left to the style sheet, by class, so that a plot follows light, dark and print.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from shortlist.report.html import Html, escape

TEXT = 12.0  # height of the letters, in the plot's units, which are pixels at its natural size
# Widths of letters in parts of their height, those of a wide font: nobody knows the reader's. Bold ones are wider.
NARROW, USUAL, LARGE, WIDE, WIDEST = 0.36, 0.62, 0.72, 0.97, 1.0
BOLD = 1.12


def element(name: str, content: str = "", **attributes: Any) -> Html:
    """An element; `klass` is its class, underscores in names become dashes, None is left out."""
    named = {"class" if key == "klass" else key.replace("_", "-"): value for key, value in attributes.items()}
    written = "".join(f' {key}="{_value(value)}"' for key, value in named.items() if value is not None)
    return Html(f"<{name}{written}>{content}</{name}>" if content else f"<{name}{written}/>")


def _value(value: Any) -> str:
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else escape(str(value))


def text(x: float, y: float, words: str, klass: str = "", anchor: str = "start") -> Html:
    return element("text", escape(words), x=float(x), y=float(y), klass=klass or None, text_anchor=anchor)


def line(x1: float, y1: float, x2: float, y2: float, klass: str) -> Html:
    return element("line", x1=float(x1), y1=float(y1), x2=float(x2), y2=float(y2), klass=klass)


def picture(parts: Sequence[str], width: float, height: float, title: str, description: str, klass: str = "") -> Html:
    """The whole plot. Whoever cannot see it is told the title and the description."""
    told = element("title", escape(title)) + element("desc", escape(description))
    box = f"0 0 {width:.0f} {height:.0f}"
    label = f"{title}{'' if title.endswith(('?', '.')) else '.'} {description}"
    return element("svg", told + "".join(parts), viewBox=box, role="img", klass=klass or None, aria_label=label)


# The corners of the shapes of series, after the first's circle: square, triangle, diamond.
SHAPES: list[list[tuple[float, float]]] = [
    [(-1, -1), (1, -1), (1, 1), (-1, 1)],
    [(0, -1.3), (1.2, 0.9), (-1.2, 0.9)],
    [(0, -1.4), (1.4, 0), (0, 1.4), (-1.4, 0)],
]


def marker(x: float, y: float, series: int, size: float = 5.0) -> Html:
    """A point of a series: each has a shape as well as a colour."""
    klass = f"mark s{series}"
    if series == 0:
        return element("circle", cx=float(x), cy=float(y), r=float(size), klass=klass)
    points = " ".join(f"{x + size * dx:.1f},{y + size * dy:.1f}" for dx, dy in SHAPES[series - 1])
    return element("polygon", points=points, klass=klass)


def text_width(words: str, size: float = TEXT) -> float:
    """How much room words take, about and rather too much."""
    return size * sum(map(_letter_width, words))


def _letter_width(letter: str) -> float:
    if letter in "iljtf.,:;'|!()[] ":
        return NARROW
    if letter in "mwMW@%":
        return WIDE
    if ord(letter) > 0x2E7F:  # Chinese characters and the like are as wide as they are high
        return WIDEST
    return LARGE if letter.isupper() else USUAL


def shortened(words: str, room: float, size: float = TEXT) -> str:
    """As much of the words as there is room for; the middle goes first, as names often differ at their ends."""
    if text_width(words, size) <= room:
        return words
    for kept in range(len(words) - 1, 0, -1):
        tail = kept // 2
        short = words[: kept - tail].rstrip() + "…" + words[len(words) - tail :].lstrip()
        if text_width(short, size) <= room:
            return short
    return "…"


class Scale(NamedTuple):
    """From values to places, with ticks that are round numbers."""

    low: float
    high: float
    start: float
    end: float
    ticks: list[tuple[float, str]]
    log: bool = False

    def __call__(self, value: float) -> float:
        low, high, value = (
            (math.log(v) for v in (self.low, self.high, value)) if self.log else (self.low, self.high, value)
        )
        return self.start + (value - low) / ((high - low) or 1) * (self.end - self.start)


def number(value: float, step: float = 0.0) -> str:
    """A number for an axis, with as many digits as the step needs."""
    digits = max(0, -math.floor(math.log10(step) + 1e-9)) if step else 0
    if step and round(step * 10**digits, 6) != int(round(step * 10**digits, 6)):
        digits += 1  # steps of 2.5
    return f"{value:,.{digits}f}"


def linear(low: float, high: float, start: float, end: float, count: int = 5, pad: float = 0.0) -> Scale:
    """A straight scale. `pad`: leave so much of the spread free at both ends."""
    if high - low <= 1e-9 * max(abs(low), abs(high)):  # all the same: some room around it
        low, high = low - (abs(low) or 1.0) / 2, high + (abs(high) or 1.0) / 2
    low, high = low - pad * (high - low), high + pad * (high - low)
    rough = (high - low) / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    values = [i * step for i in range(first, math.floor(high / step + 1e-9) + 1)]
    return Scale(low, high, start, end, [(value, number(value, step)) for value in values])


_DURATIONS = [
    *((10.0**power, f"{10 ** (power + 6)} µs") for power in range(-6, -3)),
    *((10.0**power, f"{10 ** (power + 3)} ms") for power in range(-3, 0)),
    *((float(value), f"{value} s") for value in (1, 10)),
    *((60.0 * value, f"{value} min") for value in (1, 10)),
    *((3600.0 * value, f"{value} h") for value in (1, 10, 100, 1000)),
]
_BETWEEN = [2, 5]


def durations(low: float, high: float, start: float, end: float) -> Scale:
    """A logarithmic scale of seconds, with ticks as people say them."""
    low, high = low / 1.6, high * 1.6
    ticks = [(value, name) for value, name in _DURATIONS if low <= value <= high]
    if len(ticks) < 3:
        more = [
            (value * factor, f"{int(name.split()[0]) * factor} {name.split()[1]}")
            for value, name in _DURATIONS
            for factor in _BETWEEN
            if low <= value * factor <= high
        ]
        ticks = sorted(ticks + more)
    return Scale(low, high, start, end, ticks, log=True)


@dataclass(frozen=True)
class Box:
    left: float
    top: float
    right: float
    bottom: float

    def meets(self, other: Box) -> bool:
        return (
            self.left < other.right and other.left < self.right and self.top < other.bottom and other.top < self.bottom
        )

    def within(self, other: Box) -> bool:
        return (
            self.left >= other.left
            and self.right <= other.right
            and self.top >= other.top
            and self.bottom <= other.bottom
        )


def place_labels(
    points: Sequence[tuple[float, float]], names: Sequence[str], frame: Box, taken: Sequence[Box] = ()
) -> list[Box | None]:
    """A place for each point's name inside the frame, near its point and clear of everything else; None: no room.

    Points with the closest neighbours choose first: they have the fewest places to go.
    """
    taken = [*taken, *(Box(x - 7, y - 7, x + 7, y + 7) for x, y in points)]
    places: list[Box | None] = [None] * len(points)

    def crowd(i: int) -> float:
        return min((math.dist(points[i], other) for j, other in enumerate(points) if j != i), default=math.inf)

    for i in sorted(range(len(points)), key=crowd):
        width, height = text_width(names[i]), TEXT + 3
        for box in _around(points[i], width, height):
            if box.within(frame) and not any(box.meets(other) for other in taken):
                places[i] = box
                taken.append(box)
                break
    return places


def _around(point: tuple[float, float], width: float, height: float) -> list[Box]:
    """Places for a name of this size, the best first: beside, above and below the point, then further and further."""
    x, y = point
    boxes = [
        Box(x + 9, y - height / 2, x + 9 + width, y + height / 2),
        Box(x - 9 - width, y - height / 2, x - 9, y + height / 2),
        Box(x - width / 2, y - 9 - height, x + width / 2, y - 9),
        Box(x - width / 2, y + 9, x + width / 2, y + 9 + height),
    ]
    for distance in range(14, 260, 10):
        for turn in range(16):
            angle = 2 * math.pi * turn / 16
            mid_x = x + math.cos(angle) * (distance + width / 2)
            mid_y = y + math.sin(angle) * (distance + height / 2)
            boxes.append(Box(mid_x - width / 2, mid_y - height / 2, mid_x + width / 2, mid_y + height / 2))
    return boxes


def spread_out(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Places for names at the ends of lines: near where they are wanted, at least `gap` apart, in the same order."""
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    places = [0.0] * len(wanted)
    below = low - gap
    for i in order:
        below = places[i] = max(wanted[i], below + gap)
    above = high + gap
    for i in reversed(order):
        above = places[i] = min(places[i], above - gap)
    return places
