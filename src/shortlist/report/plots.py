"""The plots of a report, as SVG inside the page: sharp in print, in the colours of the page, no library needed.

Each is drawn at about the size it is shown at, so that its letters stay readable on a phone. Names stand beside what
they name; a shape goes with each colour. Values that are not there are not drawn.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shortlist.report.html import Html, escape
from shortlist.report.svg import (
    BOLD,
    TEXT,
    Box,
    Scale,
    durations,
    element,
    line,
    linear,
    marker,
    picture,
    place_labels,
    shortened,
    spread_out,
    text,
    text_width,
)

PANEL = 340  # width of a small plot
WIDE = 720
ROW = 24


@dataclass(frozen=True)
class Point:
    name: str
    x: float
    y: float
    low: float | None = None
    high: float | None = None
    series: int = 0


@dataclass(frozen=True)
class Bar:
    """`was`: a value to compare with, drawn as a line across."""

    name: str
    value: float
    low: float | None = None
    high: float | None = None
    peer: bool = False
    was: float | None = None


@dataclass(frozen=True)
class Line:
    name: str
    points: Sequence[tuple[float, float]]
    series: int = 0
    dashed: bool = False


def scatter(
    points: Sequence[Point], x_title: str, y_title: str, title: str, width: int = WIDE, floor: float = -math.inf
) -> Html:
    """Something against time, which has a logarithmic scale. The line joins what nothing beats in both.

    Points below the floor, which would squeeze all others together, stand at the bottom with their values.
    """
    height = 420 if width == WIDE else 360
    left, right, top, bottom = 46.0, width - 12.0, 26.0, height - 44.0
    x = durations(min(p.x for p in points), max(p.x for p in points), left, right)
    above = [p for p in points if p.y >= floor]
    lows = [p.y if p.low is None else p.low for p in above]
    highs = [p.y if p.high is None else p.high for p in above]
    y = linear(min(lows), max(highs), bottom, top, pad=0.08)
    lowest = bottom - 8.0

    def level_of(point: Point) -> float:
        return y(point.y) if point.y >= floor else lowest

    places = [(x(p.x), level_of(p)) for p in points]
    whiskers = [
        Box(x(p.x) - 2, y(high), x(p.x) + 2, y(low))
        for p, low, high in zip(above, lows, highs, strict=True)
        if high > low
    ]
    names = [shortened(p.name, width * 0.4) + ("" if p.y >= floor else f" ↓ {p.y:.1f}") for p in points]
    boxes = place_labels(places, names, Box(left + 2, top + 2, right, bottom - 2), whiskers)
    parts = [*_axes(x, y, x_title, y_title)]
    front = [(x(p.x), level_of(p)) for p in _front(points)]
    if len(front) > 1:
        # A step: so much is reached by then, and no more until the next.
        path = f"M{front[0][0]:.1f} {front[0][1]:.1f}" + "".join(f"H{a:.1f}V{b:.1f}" for a, b in front[1:])
        path += f"H{right:.1f}"
        parts.append(element("path", d=path, klass="front"))
    parts += [line(box.left + 2, box.top, box.left + 2, box.bottom, "whisker") for box in whiskers]
    for point, (at, level), box, name in zip(points, places, boxes, names, strict=True):
        if box is not None:
            middle = (box.left + box.right) / 2, (box.top + box.bottom) / 2
            near = min(max(at, box.left), box.right), min(max(level, box.top), box.bottom)
            if math.dist(near, (at, level)) > 14:
                parts.append(line(at, level, *near, "leader"))
            parts.append(text(middle[0], box.bottom - 4, name, "name", "middle"))
        parts.append(marker(at, level, point.series))
    without = [p.name for p, box in zip(points, boxes, strict=True) if box is None]
    told = "; ".join(f"{p.name}: {y_title} {p.y:.2f} at {duration(p.x)}" for p in points)
    if without:
        told += f". Without a name in the plot, for lack of room: {', '.join(without)}"
    return picture(parts, width, height, title, told, "scatter " + ("large" if width == WIDE else "small"))


def _front(points: Sequence[Point]) -> list[Point]:
    """The points that no other beats in both: quicker and better."""
    best, front = -math.inf, []
    for point in sorted(points, key=lambda p: (p.x, -p.y)):
        if point.y > best:
            best = point.y
            front.append(point)
    return front


def bars(given: Sequence[Bar], title: str, digits: int = 1, best: bool = False, width: int = PANEL) -> Html:
    """Bars from zero, one below the other, each with its name, value and interval; `best`: the longest in bold."""
    head, foot = 30.0, 6.0
    height = head + ROW * len(given) + foot
    most_name = min(max(BOLD * text_width(bar.name) for bar in given), width * 0.5)
    shown = [f"{bar.value:,.{digits}f}" for bar in given]
    left = most_name + 10
    right = width - max(BOLD * text_width(value) for value in shown) - 12
    ends = [value for bar in given for value in (bar.value, bar.high, bar.was, bar.low) if value is not None]
    x = linear(min(0.0, *ends), max(0.0, *ends) or 1.0, left, right)
    most = max(bar.value for bar in given)
    parts = [_head(title, width)]
    for i, (bar, value) in enumerate(zip(given, shown, strict=True)):
        middle = head + ROW * i + ROW / 2
        start, end = sorted((x(0.0), x(bar.value)))
        strong = " strong" if best and bar.value == most else ""
        name = element("title", escape(bar.name)) + escape(shortened(bar.name, most_name / BOLD))
        parts.append(element("text", name, x=left - 8, y=middle + 4, klass="name" + strong, text_anchor="end"))
        shape: dict[str, Any] = {"x": start, "y": middle - 7, "width": max(end - start, 0.5), "height": 14.0}
        parts.append(element("rect", **shape, klass="bar peer" if bar.peer else "bar"))
        if bar.low is not None and bar.high is not None:
            low, high = x(bar.low), x(bar.high)
            parts.append(line(low, middle, high, middle, "whisker"))
            parts += [line(place, middle - 4, place, middle + 4, "whisker") for place in (low, high)]
        if bar.was is not None:
            parts.append(line(x(bar.was), middle - 10, x(bar.was), middle + 10, "was"))
        parts.append(text(width - 2, middle + 4, value, "value" + strong, "end"))
    parts.append(line(x(0.0), head, x(0.0), height - foot, "base"))
    told = "; ".join(
        f"{bar.name} {value}"
        + ("" if bar.low is None else f" ({bar.low:.{digits}f} to {bar.high:.{digits}f})")
        + ("" if bar.was is None else f", instead of {bar.was:.{digits}f}")
        for bar, value in zip(given, shown, strict=True)
    )
    return picture(parts, width, height, title, told)


def spread(given: Sequence[tuple[str, Sequence[float]]], title: str, width: int = PANEL) -> Html:
    """How far values of the same kind lie from their median, a row of points for each kind, on one scale."""
    tall, top = 34.0, 40.0
    bottom = top + tall * len(given)
    medians = [statistics.median(values) for _, values in given]
    names = [f"{name}: {median:.2f}" for (name, _), median in zip(given, medians, strict=True)]
    left = max(text_width(name) for name in names) + 12
    most = max(abs(value - median) for (_, values), median in zip(given, medians, strict=True) for value in values)
    x = linear(-(most or 1.0), most or 1.0, left, width - 12.0, count=4, pad=0.08)
    parts = [_head(title, width), line(x(0.0), top, x(0.0), bottom, "was")]
    for i, ((_, values), median, name) in enumerate(zip(given, medians, names, strict=True)):
        middle = top + tall * (i + 0.5)
        parts += [line(left, middle, width - 12.0, middle, "grid"), text(left - 8, middle + 4, name, "name", "end")]
        parts += [marker(x(value - median), middle, 0, 4.0) for value in values]
    for value, name in x.ticks:
        parts.append(text(x(value), bottom + 15, name.replace("-", "−"), "tick", "middle"))
    parts.append(text((left + width - 12) / 2, bottom + 34, "points from the median", "axis-title", "middle"))
    told = "; ".join(
        f"{name}, from {min(values):.2f} to {max(values):.2f}" for name, (_, values) in zip(names, given, strict=True)
    )
    return picture(parts, width, bottom + 42, title, f"Medians: {told}")


def lines(given: Sequence[Line], x_title: str, y_title: str, title: str, width: int = PANEL) -> Html:
    """Lines with their names at their ends."""
    height, top, bottom, left = 250.0, 44.0, 210.0, 40.0
    names = [shortened(one.name, width * 0.32) for one in given]
    right = width - max(text_width(name) for name in names) - 16
    xs, ys = ([point[axis] for one in given for point in one.points] for axis in (0, 1))
    x = linear(min(xs), max(xs) if max(xs) > min(xs) else min(xs) + 1, left, right, count=4)
    x = x._replace(ticks=[(value, f"{value:,.0f}") for value, _ in x.ticks if value == int(value)])
    y = linear(min(ys), max(ys), bottom, top, pad=0.05)
    parts = [_head(title, width), *_axes(x, y, x_title, y_title)]
    ends = spread_out([y(one.points[-1][1]) for one in given], TEXT + 3, top, bottom)
    for one, name, end in zip(given, names, ends, strict=True):
        places = [(x(a), y(b)) for a, b in one.points]
        path = "M" + "L".join(f"{a:.1f} {b:.1f}" for a, b in places)
        parts.append(element("path", d=path, klass=f"line s{one.series}" + (" dashed" if one.dashed else "")))
        if len(places) <= 40:
            parts += [marker(a, b, one.series, 3.0) for a, b in places]
        last = places[-1]
        parts.append(line(last[0] + 4, last[1], right + 6, end, "leader"))
        parts.append(text(right + 9, end + 4, name, f"name t{one.series}"))
    told = "; ".join(f"{one.name}: from {one.points[0][1]:.4g} to {one.points[-1][1]:.4g}" for one in given)
    return picture(parts, width, height, title, f"{y_title} by {x_title}: {told}")


def reliability(curves: Sequence[tuple[str, Sequence[Mapping[str, Any]]]], title: str, width: int = PANEL) -> Html:
    """Share that is right against the score that was given; the larger a point, the more labels it stands for."""
    height = width - 14.0
    left, right, top, bottom = 40.0, width - 14.0, 44.0, height - 40.0
    x = Scale(0, 1, left, right, [(v / 10, f"{v / 10:.1f}") for v in range(0, 11, 2)])
    y = x._replace(start=bottom, end=top)
    parts = [_head(title, width), *_axes(x, y, "score", "share right")]
    parts.append(line(x(0), y(0), x(1), y(1), "ideal"))
    taken, named, told = [], [], []
    for series, (name, table) in enumerate(curves):
        places = [(x(row["mean_score"]), y(row["right"])) for row in table]
        most = max(row["labels"] for row in table)
        parts.append(element("path", d="M" + "L".join(f"{a:.1f} {b:.1f}" for a, b in places), klass=f"line s{series}"))
        sizes = [2.0 + 4.0 * math.sqrt(row["labels"] / most) for row in table]
        parts += [marker(a, b, series, size) for (a, b), size in zip(places, sizes, strict=True)]
        taken += [Box(a - 6, b - 6, a + 6, b + 6) for a, b in places]
        named.append((places[min(len(places) - 1, 2 * len(places) // 3)], name))
        told.append(f"{name}: " + ", ".join(f"{row['right']:.2f} at {row['mean_score']:.2f}" for row in table))
    if len(curves) > 1:
        taken += [Box(x(v / 40) - 3, y(v / 40) - 3, x(v / 40) + 3, y(v / 40) + 3) for v in range(41)]
        boxes = place_labels([at for at, _ in named], [name for _, name in named], Box(left, top, right, bottom), taken)
        for series, ((at, name), box) in enumerate(zip(named, boxes, strict=True)):
            if box is not None:
                near = min(max(at[0], box.left), box.right), min(max(at[1], box.top), box.bottom)
                parts.append(line(*at, *near, "leader"))
                parts.append(text((box.left + box.right) / 2, box.bottom - 4, name, f"name t{series}", "middle"))
    return picture(parts, width, height, title, "; ".join(told))


def histogram(buckets: Sequence[tuple[str, float]], x_title: str, title: str, width: int = PANEL) -> Html:
    """Upright bars, each with its share of the whole in per cent."""
    height, top, bottom = 220.0, 40.0, 176.0
    whole, most = sum(count for _, count in buckets) or 1, max(count for _, count in buckets) or 1
    step = width / len(buckets)
    parts = [_head(title, width)]
    told = []
    for i, (name, count) in enumerate(buckets):
        tall = (bottom - top) * count / most
        middle, share = step * (i + 0.5), _share(count / whole)
        parts.append(
            element("rect", x=step * i + 2, y=bottom - tall, width=step - 4, height=max(tall, 0.5), klass="bar")
        )
        parts.append(text(middle, bottom - tall - 5, share, "value tiny", "middle"))
        parts.append(text(middle, bottom + 15, name, "tick", "middle"))
        told.append(f"{name}: {share}")
    parts.append(line(0, bottom, width, bottom, "base"))
    parts.append(text(width / 2, height - 8, x_title, "axis-title", "middle"))
    return picture(parts, width, height, title, "; ".join(told))


def _head(title: str, width: float) -> Html:
    return text(0, 16, shortened(title, width, BOLD * (TEXT + 1)), "panel-title")


def _share(part: float) -> str:
    return "<1%" if 0 < part < 0.005 else f"{100 * part:.0f}%"


def _axes(x: Scale, y: Scale, x_title: str, y_title: str) -> list[Html]:
    bottom, left, right = y.start, x.start, x.end
    parts = []
    for value, name in y.ticks:
        parts += [line(left, y(value), right, y(value), "grid"), text(left - 6, y(value) + 4, name, "tick", "end")]
    last = -math.inf  # where the name before ends
    for value, name in x.ticks:
        half = text_width(name) / 2
        parts.append(line(x(value), bottom, x(value), bottom + 4, "base"))
        if x(value) - half > last:  # as many names as there is room for
            parts.append(text(x(value), bottom + 17, name, "tick", "middle"))
            last = x(value) + half + 4
    parts.append(line(left, bottom, right, bottom, "base"))
    parts.append(text((left + right) / 2, bottom + 36, x_title, "axis-title", "middle"))
    parts.append(text(0, y.end - 12, y_title, "axis-title"))
    return parts


def duration(seconds: float) -> str:
    """A time as people say it.

    >>> duration(0.00061), duration(75), duration(8)
    ('0.61 ms', '1.2 min', '8.0 s')
    """
    for size, unit in ((3600.0, "h"), (60.0, "min"), (1.0, "s"), (1e-3, "ms")):
        if seconds >= size:
            value = seconds / size
            return f"{value:.{0 if value >= 100 else 1}f} {unit}"
    return f"{seconds * 1e3:.3g} ms"
