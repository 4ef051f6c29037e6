"""The plots of a report, as SVG inside the page: sharp in print, in the page's colours, without a plotting library.

Functions here compute scales and places for names; the templates draw. Each plot is drawn at about the size at which it
is shown, so that its text stays readable on a phone.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from shortlist.report.layout import (
    BOLD,
    FONT_SIZE,
    Box,
    Scale,
    box_around,
    duration_scale,
    linear_scale,
    place_labels,
    shorten,
    spread_out,
    text_width,
)
from shortlist.report.render import render

PANEL = 340  # width of a small plot
WIDE = 720


@dataclass(frozen=True)
class Point:
    name: str
    x: float
    y: float
    interval: tuple[float, float] | None = None
    series: int = 0


@dataclass(frozen=True)
class Bar:
    """`reference` is a value to compare with, drawn as a line across the bar."""

    name: str
    value: float
    interval: tuple[float, float] | None = None
    grey: bool = False
    reference: float | None = None


@dataclass(frozen=True)
class Line:
    name: str
    points: Sequence[tuple[float, float]]
    series: int = 0
    dashed: bool = False


def scatter(
    points: Sequence[Point], x_title: str, y_title: str, title: str, width: int = WIDE, floor: float = -math.inf
) -> Markup:
    """Values against time, on a logarithmic axis. The dotted line joins the points that no other point dominates.

    Points below the floor would squeeze the others together. They are drawn at the bottom, with their values.
    """
    height = 420 if width == WIDE else 360
    left, right, top, bottom = 46.0, width - 12.0, 26.0, height - 44.0
    x = duration_scale(min(p.x for p in points), max(p.x for p in points), left, right)
    ends = [value for p in points if p.y >= floor for value in (p.interval or (p.y, p.y))]
    y = linear_scale(min(ends), max(ends), bottom, top, pad=0.08)
    places = {p: (x(p.x), y(p.y) if p.y >= floor else bottom - 8.0) for p in points}
    whiskers = [
        Box(x(p.x) - 2, y(p.interval[1]), x(p.x) + 2, y(p.interval[0]))
        for p in points
        if p.interval and p.y >= floor and p.interval[1] > p.interval[0]
    ]
    names = [shorten(p.name, width * 0.4) + ("" if p.y >= floor else f" ↓ {p.y:.1f}") for p in points]
    boxes = place_labels([places[p] for p in points], names, Box(left + 2, top + 2, right, bottom - 2), whiskers)
    labels = [(name, p.series, places[p], box) for name, p, box in zip(names, points, boxes, strict=True)]
    return _draw(
        "scatter",
        title,
        height,
        width,
        scatter_class="large" if width == WIDE else "small",
        points=[(p, duration(p.x)) for p in points],
        **{"x": x, "y": y, "x_title": x_title, "y_title": y_title},
        front=[places[p] for p in _pareto_front(points)],
        whiskers=whiskers,
        labels=labels,
        unlabelled=[p.name for p, box in zip(points, boxes, strict=True) if box is None],
    )


def _draw(kind: str, title: str, height: float, width: int = PANEL, **values: Any) -> Markup:
    short_title = shorten(title, width, BOLD * (FONT_SIZE + 1))
    size = {"width": width, "height": height}
    return Markup(render(f"{kind}.svg", "svg", title=title, short_title=short_title, **size, **values))


def _pareto_front(points: Sequence[Point]) -> list[Point]:
    """The points that are better than every faster point."""
    front: list[Point] = []
    for point in sorted(points, key=lambda p: (p.x, -p.y)):
        if not front or point.y > front[-1].y:
            front.append(point)
    return front


def bars(given: Sequence[Bar], title: str, digits: int = 1, highlight_best: bool = False) -> Markup:
    """Horizontal bars from zero, each with its name, value and interval."""
    values = [f"{bar.value:,.{digits}f}" for bar in given]
    name_width = min(max(BOLD * text_width(bar.name) for bar in given), PANEL * 0.5)
    right = PANEL - max(BOLD * text_width(value) for value in values) - 12
    ends = [end for bar in given for end in (bar.value, bar.reference, *(bar.interval or ())) if end is not None]
    return _draw(
        "bars",
        title,
        height=36 + 24 * len(given),
        bars=list(zip(given, values, strict=True)),
        row_height=24,
        x=linear_scale(min(0.0, *ends), max(0.0, *ends) or 1.0, name_width + 10, right),
        best=max(bar.value for bar in given) if highlight_best else None,
        digits=digits,
        shorten=lambda name: shorten(name, name_width / BOLD),
    )


def spread(given: Mapping[str, Sequence[float]], title: str) -> Markup:
    """How far values lie from their median: one row of points for each name, all on one scale."""
    rows = [(name, statistics.median(values), values) for name, values in given.items()]
    left = max(text_width(f"{name}: {median:.2f}") for name, median, _ in rows) + 12
    largest = max(abs(value - median) for _, median, values in rows for value in values) or 1.0
    bottom = 40 + 34 * len(rows)
    x = linear_scale(-largest, largest, left, PANEL - 12.0, count=4, pad=0.08)
    return _draw("spread", title, bottom + 42, rows=rows, row_height=34, bottom=bottom, x=x)


def lines(given: Sequence[Line], x_title: str, y_title: str, title: str) -> Markup:
    """Lines, each with its name at its end."""
    top, bottom = 44.0, 210.0
    names = [shorten(one.name, PANEL * 0.32) for one in given]
    xs, ys = ([point[axis] for one in given for point in one.points] for axis in (0, 1))
    right = PANEL - max(map(text_width, names)) - 16
    x = linear_scale(min(xs), max(xs) if max(xs) > min(xs) else min(xs) + 1, 40, right, count=4)
    x = x._replace(ticks=[(value, f"{value:,.0f}") for value, _ in x.ticks if value == int(value)])
    y = linear_scale(min(ys), max(ys), bottom, top, pad=0.05)
    heights = spread_out([y(one.points[-1][1]) for one in given], FONT_SIZE + 3, top, bottom)
    drawn = [([(x(a), y(b)) for a, b in one.points], height) for one, height in zip(given, heights, strict=True)]
    axes: dict[str, Any] = {"x": x, "y": y, "x_title": x_title, "y_title": y_title}
    return _draw("lines", title, 250, lines=given, names=names, drawn=drawn, **axes)


def reliability(curves: Mapping[str, Sequence[Mapping[str, Any]]], title: str) -> Markup:
    """Fraction of correct labels against their score. Larger points stand for more labels."""
    frame = Box(40, 44, PANEL - 14, PANEL - 54)
    x = Scale(0, 1, frame.left, frame.right, [(tenth / 10, f"{tenth / 10:.1f}") for tenth in range(0, 11, 2)])
    y = x._replace(start=frame.bottom, end=frame.top)
    places = {name: [(x(one["mean_score"]), y(one["right"])) for one in bins] for name, bins in curves.items()}
    sizes = {
        name: [2 + 4 * math.sqrt(one["labels"] / max(other["labels"] for other in bins)) for one in bins]
        for name, bins in curves.items()
    }
    labels = []
    if len(curves) > 1:
        obstacles = [box_around(x(v / 40), y(v / 40), 6, 6) for v in range(41)]
        obstacles += [box_around(*point, 12, 12) for points in places.values() for point in points]
        anchors = [points[2 * len(points) // 3] for points in places.values()]
        boxes = place_labels(anchors, list(curves), frame, obstacles)
        labels = list(zip(curves, anchors, boxes, strict=True))
    return _draw("reliability", title, PANEL - 14, curves=curves, x=x, y=y, places=places, sizes=sizes, labels=labels)


def histogram(counts: Sequence[tuple[str, float]], x_title: str, title: str) -> Markup:
    """Vertical bars, each with its percentage of the total."""
    total, largest = sum(count for _, count in counts) or 1, max(count for _, count in counts) or 1
    buckets = [
        (name, count, "<1%" if 0 < count / total < 0.005 else f"{100 * count / total:.0f}%") for name, count in counts
    ]
    return _draw("histogram", title, 220, buckets=buckets, largest=largest, x_title=x_title)


def duration(seconds: float) -> str:
    """A duration in a readable unit.

    >>> duration(0.00061), duration(75), duration(8)
    ('0.61 ms', '1.2 min', '8.0 s')
    """
    for size, unit in ((3600.0, "h"), (60.0, "min"), (1.0, "s"), (1e-3, "ms")):
        if seconds >= size:
            value = seconds / size
            return f"{value:.{0 if value >= 100 else 1}f} {unit}"
    return f"{seconds * 1e3:.3g} ms"
