"""The plots of reports: well-formed, readable, and true to their numbers."""

from __future__ import annotations

import itertools
import math
import re
import xml.etree.ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shortlist.report.layout import (
    Box,
    duration_scale,
    linear_scale,
    place_labels,
    shorten,
    spread_out,
    text_width,
)
from shortlist.report.plots import (
    PANEL,
    WIDE,
    Bar,
    Line,
    Point,
    bars,
    duration,
    histogram,
    lines,
    reliability,
    scatter,
    spread,
)

TABLE = [
    {"from": 0.0, "to": 0.1, "labels": 900, "mean_score": 0.05, "right": 0.06},
    {"from": 0.8, "to": 0.9, "labels": 10, "mean_score": 0.84, "right": 0.7},
]
NASTY = '<b>&"quoted"</b>'

PLOTS = {
    "scatter": lambda name: scatter(
        [Point(name, 10.0, 70.0, (68.0, 72.0)), Point("b", 0.1, 60.0, series=1)], "time", "P@1", name
    ),
    "narrow scatter": lambda name: scatter(
        [Point(name, 10.0, 70.0), Point("b", 0.1, 60.0)], "time", "P@1", name, PANEL
    ),
    "bars": lambda name: bars([Bar(name, 3.0, (2.5, 3.5)), Bar("b", 0.0, grey=True, reference=1.0)], name),
    "bars below zero": lambda name: bars([Bar(name, -3.0), Bar("b", 1.0)], name),
    "spread": lambda name: spread({name: [1.0, 2.0, 4.0], "b": [3.0]}, name),
    "lines": lambda name: lines([Line(name, [(1, 2.0), (2, 3.0)]), Line("b", [(1, 5.0)], 1, True)], "epoch", "%", name),
    "reliability": lambda name: reliability({name: TABLE, "held out": TABLE}, name),
    "histogram": lambda name: histogram([(name, 3), ("5+", 1)], "words", name),
}


@pytest.mark.parametrize("kind", PLOTS)
@pytest.mark.parametrize("name", ["astec", NASTY, "x" * 300, "日本語のラベル" * 9, ""])
def test_every_plot_is_well_formed_and_described(kind, name):
    root = ET.fromstring(PLOTS[kind](name))
    assert root.tag == "svg" and root.get("role") == "img"
    assert root.find("title").text == (name or None)
    assert len(root.find("desc").text) > 10
    numbers = [float(value) for e in root.iter() for key, value in e.attrib.items() if key in ("x", "y", "x1", "width")]
    assert all(map(math.isfinite, numbers))


@pytest.mark.parametrize("kind", PLOTS)
def test_plots_have_no_colours_or_addresses(kind):
    drawn = PLOTS[kind]("a")
    assert not re.search(r"#[0-9a-f]{3,6}|rgb|http|url\(|<script|style=", drawn)


def text_boxes(svg):
    """The boxes of the names in a plot, with the estimated text widths."""
    for text in ET.fromstring(svg).iter("text"):
        if "name" in text.get("class", ""):
            width, x, y = text_width(text.text), float(text.get("x")), float(text.get("y"))
            yield text.text, Box(x - width / 2, y - 11, x + width / 2, y + 4)


@pytest.mark.parametrize("width", [WIDE, PANEL])
def test_names_in_a_crowded_scatter_do_not_overlap(width):
    names = ["popular", "centroid", "inceptionxml", "inceptionxml+", "astec", "astec × 3", "mach", "slice", "xml-cnn"]
    names += ["omikuji-bonsai", "omikuji-parabel", "pecos", "napkinxc-plt", "fasttext", "deepxml-mlp", "deepxml-cnn"]
    points = [Point(name, 60 * 1.05**i, 70 + 0.3 * (i % 5), (69, 72)) for i, name in enumerate(names)]
    drawn = scatter(points, "time", "P@1", "crowded", width)
    boxes = dict(text_boxes(drawn))
    assert len(boxes) >= len(names) - 3
    for (_, one), (_, other) in itertools.combinations(boxes.items(), 2):
        assert not one.overlaps(other)
    assert all(box.left >= 0 and box.right <= width for box in boxes.values())
    if len(boxes) < len(names):
        assert "for lack of space" in drawn


places = st.tuples(st.floats(0, 700), st.floats(0, 400))


@given(st.lists(places, max_size=40))
def test_labels_do_not_overlap_points_or_each_other(points):
    frame = Box(0, 0, 700, 400)
    boxes = place_labels(points, ["a name"] * len(points), frame)
    placed = [box for box in boxes if box is not None]
    for one, other in itertools.combinations(placed, 2):
        assert not one.overlaps(other)
    for box in placed:
        assert box.inside(frame)
        assert not any(box.left < x < box.right and box.top < y < box.bottom for x, y in points)


@given(st.lists(st.floats(0, 100), min_size=1, max_size=7))
def test_names_at_line_ends_keep_order_and_distance(wanted):
    found = spread_out(wanted, 15, 0, 100)
    ordered = sorted(zip(wanted, found, strict=True))
    assert all(later - earlier > 14.9 for (_, earlier), (_, later) in itertools.pairwise(ordered))
    assert min(found) > -0.1 or len(wanted) * 15 > 100


@given(st.floats(-1e6, 1e6), st.floats(0, 1e6))
def test_ticks_are_few_and_inside_the_scale(low, spread):
    scale = linear_scale(low, low + spread, 0, 100)
    assert len(scale.ticks) <= 12
    assert all(-1e-3 <= scale(value) <= 100 + 1e-3 for value, _ in scale.ticks)


@given(st.floats(1e-6, 1e6), st.floats(1, 1e6))
def test_ticks_of_durations_are_round_numbers(low, factor):
    scale = duration_scale(low, low * factor, 0, 100)
    assert scale.ticks
    assert all(re.fullmatch(r"\d+ (µs|ms|s|min|h)", name) for _, name in scale.ticks)
    assert all(0 <= scale(value) <= 100.001 for value, _ in scale.ticks)


def test_bars_are_as_long_as_their_values():
    root = ET.fromstring(bars([Bar("a", 60.0), Bar("b", 30.0), Bar("c", 0.0)], "P@1"))
    long, half, none = (float(rect.get("width")) for rect in root.iter("rect"))
    assert half == pytest.approx(long / 2, abs=0.2) and none == 0.5
    assert [text.text for text in root.iter("text") if "value" in text.get("class", "")] == ["60.0", "30.0", "0.0"]


def test_distances_between_points_are_true():
    svg = spread({"P@1": [70.0, 71.0, 73.0], "P@5": [30.0, 30.0]}, "")
    places = [float(x) for x in re.findall(r'cx="([\d.]+)"', svg)]
    assert len(places) == 5
    assert places[2] - places[1] == pytest.approx(2 * (places[1] - places[0]), abs=0.2)
    assert places[1] == pytest.approx(places[3]) == pytest.approx(places[4])  # the medians
    assert "P@1: 71.00, from 70.00 to 73.00" in svg


def test_the_dotted_line_joins_undominated_points():
    points = [Point("quick", 1, 50), Point("beaten", 5, 40), Point("best", 10, 70)]
    path = next(e for e in ET.fromstring(scatter(points, "t", "P@1", "x")).iter("path"))
    assert path.get("d").count("V") == 1  # one step, from the fastest to the best


def test_points_far_below_are_at_the_bottom_with_their_values():
    points = [Point("quick", 0.01, 8.25), Point("good", 5, 60), Point("best", 10, 70)]
    drawn = ET.fromstring(scatter(points, "t", "P@1", "x", floor=35.0))
    levels = [float(e.get("cy")) for e in drawn.iter("circle")]
    assert levels[0] == max(levels) and levels[1] - levels[2] > 150  # the others use the full height
    assert "quick ↓ 8.2" in [e.text for e in drawn.iter("text")]
    assert next(e for e in drawn.iter("path")).get("d").count("V") == 2  # it is the fastest: the line starts there


def test_epochs_are_whole_numbers():
    drawn = ET.fromstring(lines([Line("a", [(1, 2.0), (2, 3.0)])], "epoch", "%", "x"))
    below = [e.text for e in drawn.iter("text") if e.get("class") == "tick" and e.get("text-anchor") == "middle"]
    assert below == ["1", "2"]


def test_shortened_names_keep_their_ends():
    names = [shorten(f"astec:epochs=1:surrogate_epochs=1:candidates={n}", 150) for n in (20, 50)]
    assert names[0] != names[1] and all(name.startswith("astec:") and "…" in name for name in names)


def test_long_names_are_shorten():
    assert shorten("short", 100) == "short"
    assert text_width(shorten("a very long name of a label", 60)) <= 60


def test_durations_have_readable_units():
    assert [duration(s) for s in (0.00061, 0.5, 8, 75, 7200, 360000)] == [
        "0.61 ms",
        "500 ms",
        "8.0 s",
        "1.2 min",
        "2.0 h",
        "100 h",
    ]
