"""The report of a comparison: several systems on one data set, from what `summary.json` holds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from shortlist.report import sections as parts
from shortlist.report.html import Block, Cell, Page, Section, figure, grid, paragraph
from shortlist.report.plots import PANEL, WIDE, Point, duration, scatter
from shortlist.report.sections import (
    ACCURACY,
    LONG_NAMES,
    MEANINGS,
    NOTHING,
    Row,
    fixed,
    interval,
    is_peer,
    value_at,
)

JUDGED_BY = "P@1"
FAR = 0.5  # of the best: rows below that would squeeze all others together
CLEAR = 0.05  # p below which a difference is called one
SMALLEST_P = 0.01  # below that, the number of resamples decides
COSTS = {
    "train_seconds": "training",
    "ms_p50": "one text, median",
    "ms_p99": "one text, slowest of 100",
    "bulk_texts_per_second": "texts a second in bulk",
    "model_bytes": "model",
    "peak_memory_bytes": "most memory",
    "multiply_adds": "multiply-adds a text",
}


def write_comparison(summary: Mapping[str, Any], out: Path) -> None:
    """Write `report.html` and `report.md` into the folder; whatever is not measured yet is left out."""
    page = comparison_page(summary)
    page.write(Path(out) / "report.html", Path(out) / "report.md")


def comparison_page(summary: Mapping[str, Any]) -> Page:
    rows: list[Row] = list(summary.get("entries") or ())
    ranked = sorted(parts.done(rows), key=lambda row: -(value_at(row, "scores", JUDGED_BY) or 0.0))
    found = [
        _scores(rows, ranked),
        _against_time(ranked, "train_seconds", 1.0, "Training time", "What does training time buy?", "training time"),
        _against_time(ranked, "ms_p50", 1e-3, "Latency", "Who is quick enough?", "time of one text, median"),
        _bars(ranked),
        parts.by_frequency(ranked),
        parts.robustness(ranked),
        parts.calibration(ranked),
        parts.curves(ranked),
        *parts.ablations(summary.get("ablations")),
        parts.words_per_text(summary.get("words_per_text")),
        _examples(summary.get("examples") or (), [str(row["name"]) for row in ranked]),
        _how(summary, rows),
    ]
    data = summary.get("data") or {}
    name = str(data.get("name") or "one data set")
    told = {
        "train_texts": "trained on {:,.0f} texts",
        "test_texts_that_count": "measured on {:,.0f} texts",
        "labels": "{:,.0f} labels",
    }
    counts = [form.format(value) for key, form in told.items() if (value := value_at(data, key)) is not None]
    about = ", ".join([f"{len(ranked)} system{'s' * (len(ranked) != 1)}", *counts]) + "."
    return Page(f"Comparison on {name}", about, [section for section in found if section is not None])


def _facts(content: Mapping[str, Any], without: Iterable[str] = ()) -> str:
    """Simple values of a dictionary as a sentence."""
    shown = []
    for key, value in content.items():
        if key in without or isinstance(value, Mapping | list) or value in (None, ""):
            continue
        counted = f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
        counted = f"{value:,.4g}" if isinstance(value, float) else counted
        shown.append(f"{key.replace('_', ' ')}: {counted}")
    return "; ".join(shown) + "." if shown else ""


def _scores(rows: Sequence[Row], ranked: Sequence[Row]) -> Section:
    metrics = [m for m in ACCURACY if any(value_at(row, "scores", m) is not None for row in ranked)]
    best = {m: max(value_at(row, "scores", m) or 0.0 for row in ranked) for m in metrics}
    cells = [
        [Cell(str(row["name"]), small=_kind(row)), *(parts.score_cell(row, m, best[m]) for m in metrics)]
        for row in ranked
    ]
    blocks: list[Block] = []
    lead = "Per cent, with 95 % intervals where they were measured; the best of each column is bold."
    if ranked:
        blocks += [paragraph(_finding(ranked)), grid(["", *metrics], cells)]
        costs = [cost for cost in COSTS if any(value_at(row, cost) is not None for row in ranked)]
        if costs:
            told = [[str(row["name"]), *(_cost(cost, value_at(row, cost)) for cost in costs)] for row in ranked]
            blocks.append(grid(["", *(COSTS[cost] for cost in costs)], told))
    else:
        lead = "No system is done yet."
    missing = [row for row in rows if row not in ranked]
    if missing:
        table = [[str(row["name"]), str(row.get("status")), str(row.get("note") or NOTHING)] for row in missing]
        blocks.append(grid(["without a result", "what happened", "why"], table, (0, 1, 2)))
    return Section("Results", "Who is best?", lead, blocks)


def _kind(row: Row) -> str:
    title = str(row.get("title") or "")
    return title if title and title != row["name"] else ("another tool" if is_peer(row) else "")


def _finding(ranked: Sequence[Row]) -> str:
    """What the numbers say, and no more than that."""
    first = ranked[0]
    score = value_at(first, "scores", JUDGED_BY)
    if score is None:
        return "Nothing was scored."
    low, high = interval(first, JUDGED_BY)
    said = f"{first['name']} has the highest {JUDGED_BY}: {score:.2f}" + (
        "." if low is None else f" ({low:.1f} to {high:.1f})."
    )
    close: list[str] = []
    behind: list[str] = []
    for row in ranked[1:]:
        p = value_at(row, "difference_to_best", JUDGED_BY, "p")
        if p is not None:
            (behind if p < CLEAR else close).append(str(row["name"]))
    if close:
        said += f" Not clearly behind (p of {CLEAR} or more): {', '.join(close)}."
    if behind:
        said += f" Clearly behind: {', '.join(behind)}."
    return said


def _cost(cost: str, value: float | None) -> str:
    if value is None:
        return NOTHING
    if cost == "train_seconds":
        return duration(value) if value >= 1 else f"{value:.1f} s"
    if cost.startswith("ms"):
        return f"{value:.2f} ms" if value >= 1 else f"{value:.3f} ms"
    if cost.endswith("bytes"):
        return size(value)
    return f"{value:,.0f}" if value < 1e9 else f"{value / 1e9:,.1f} billion"


def size(count: float) -> str:
    """Bytes as people say them."""
    for unit, name in ((1e9, "GB"), (1e6, "MB")):
        if count >= unit:
            return f"{count / unit:,.1f} {name}"
    return f"{count / 1e3:,.1f} kB"


def _against_time(rows: Sequence[Row], cost: str, unit: float, short: str, title: str, axis: str) -> Section | None:
    """Accuracy against a time (the paper's Figure 1)."""
    there = [row for row in rows if (value_at(row, cost) or 0) > 0 and value_at(row, "scores", JUDGED_BY) is not None]
    if len(there) < 2:
        return None
    floor = FAR * max(value_at(row, "scores", JUDGED_BY) or 0.0 for row in there)
    points = [
        Point(
            str(row["name"]),
            unit * (value_at(row, cost) or 0),
            value_at(row, "scores", JUDGED_BY) or 0,
            *interval(row, JUDGED_BY),
            series=1 if is_peer(row) else 0,
        )
        for row in there
    ]
    cells = [
        [str(row["name"]), duration(unit * (value_at(row, cost) or 0)), fixed(value_at(row, "scores", JUDGED_BY))]
        for row in there
    ]
    numbers = grid(["", axis, JUDGED_BY], cells)
    pictures = [scatter(points, f"{axis}, logarithmic", JUDGED_BY, title, width, floor) for width in (WIDE, PANEL)]
    lead = "Up is more accurate, left is quicker. What lies below the dotted line is beaten in both by a point on it."
    marks = "Circles: recipes of Shortlist. Squares: other tools." if any(map(is_peer, there)) else ""
    caption = f"{marks} Upright lines: 95 % intervals.".strip()
    if any(point.y < floor for point in points):
        caption += " ↓ and a value: far below the plot."
    blocks = [figure(pictures, numbers, caption, "scatters")]
    blocks += parts.left_out(rows, there, "its time was not measured")
    return Section(short, title, lead, blocks)


def _bars(rows: Sequence[Row]) -> Section | None:
    there = [row for row in rows if any(value_at(row, "scores", metric) is not None for metric in ACCURACY)]
    pictures = parts.bars_by_metric(there, ACCURACY)
    if not pictures:
        return None
    lead = (
        f"{MEANINGS['P']}. {MEANINGS['PSP']}. The "
        "thin lines are 95 % intervals: how far the value would move with other texts of the same kind."
    )
    blocks = []
    compared = [row for row in there if row.get("difference_to_best")]
    metrics = [m for m in ACCURACY if any(m in row["difference_to_best"] for row in compared)]
    header = ["difference to the best", *metrics]
    cells = [[str(row["name"]), *(_difference(row["difference_to_best"].get(m)) for m in metrics)] for row in compared]
    all_metrics = list(dict.fromkeys([*ACCURACY, *(m for row in there for m in row["scores"])]))
    table = [[Cell(str(row["name"])), *(parts.score_cell(row, m) for m in all_metrics)] for row in there]
    scores = grid(["", *map(_long_name, all_metrics)], table)
    blocks.append(figure(pictures, scores, "Grey bars: other tools." if any(map(is_peer, there)) else ""))
    drawn = [m for m in ACCURACY if any(value_at(row, "scores", m) is not None for row in there)]
    blocks += parts.without_value(
        {str(row["name"]): [m for m in drawn if value_at(row, "scores", m) is None] for row in rows}
    )
    if cells:
        blocks.append(grid(header, cells))
        blocks.append(
            paragraph("Paired bootstrap over the texts; p is not corrected for the number of comparisons.", "left-out")
        )
    blocks += _other_measures(there, [m for m in all_metrics if m not in ACCURACY])
    return Section("Accuracy", "How sure are these differences?", lead, blocks)


def _other_measures(rows: Sequence[Row], metrics: Sequence[str]) -> list[Block]:
    if not metrics:
        return []
    best = {m: max(value_at(row, "scores", m) or 0.0 for row in rows) for m in metrics}
    cells = [
        [Cell(str(row["name"])), *(parts.score_cell(row, m, best[m], small=False) for m in metrics)] for row in rows
    ]
    said = [told for family, told in MEANINGS.items() if any(m.startswith(f"{family}@") for m in metrics)]
    return [
        grid(["other measures", *map(_long_name, metrics)], cells),
        paragraph(". ".join(said) + ".", "left-out"),
    ]


def _long_name(metric: str) -> str:
    """A metric as people call it; a long one may stand on two lines."""
    family, _, k = metric.partition("@")
    name = LONG_NAMES.get(family, family)
    return metric if name == family else f"{name} @{k}"


def _difference(found: Mapping[str, Any] | None) -> str | Cell:
    value = None if found is None else value_at(found, "difference")
    if found is None or value is None:
        return NOTHING
    low, high, p = (value_at(found, name) for name in ("low", "high", "p"))
    small = "" if low is None or high is None else f"{low:+.1f} to {high:+.1f}"
    small = small if p is None else f"{small}\n{'p below 0.01' if p < SMALLEST_P else f'p {p:.2f}'}".strip()
    return Cell(f"{value:+.2f}".replace("-", "−"), small=small.replace("-", "−"))


def _in_order(one: Mapping[str, Any], ranked: Sequence[str]) -> dict[str, Any]:
    """The predictions of those that are there, the best system first."""
    said = one.get("predictions") or {}
    return {name: said[name] for name in (*ranked, *(name for name in said if name not in ranked)) if name in said}


def _examples(examples: Sequence[Mapping[str, Any]], ranked: Sequence[str]) -> Section | None:
    if not examples:
        return None
    blocks = [
        parts.example(str(one["text"]), [str(x) for x in one.get("labels") or ()], _in_order(one, ranked))
        for one in examples
    ]
    lead = "The labels that each system puts first. Right ones are marked and bold, others are in italics."
    return Section("Examples", "What do they say about the same text?", lead, blocks)


def _how(summary: Mapping[str, Any], rows: Sequence[Row]) -> Section:
    data, machine = summary.get("data") or {}, summary.get("machine") or {}
    blocks = [paragraph(line) for line in (*_conventions(data, parts.done(rows)), *_versions(machine))]
    blocks += parts.busy(machine)
    for name, content in (("Data", data), ("Machine", machine)):
        if content:
            blocks.append(paragraph(f"{name}: {_facts(content)}"))
    options = [
        [str(row["name"]), _facts(row["options"]) or "defaults", str(row.get("note") or NOTHING)]
        for row in rows
        if isinstance(row.get("options"), Mapping)
    ]
    if options:
        table = grid(["", "options", "note"], options, (0, 1, 2))
        blocks.append(Block(f"<details><summary>Options of each row</summary>{table.html}</details>", table.markdown))
    lead = "Times are from one run on one machine: take them as ratios between rows."
    return Section("Conditions", "How was this measured?", lead, blocks)


def _conventions(data: Mapping[str, Any], rows: Sequence[Row]) -> list[str]:
    """What the numbers rest on, in sentences."""
    said = []
    unseen = {key: value_at(data, "unseen_in_training", key) for key in ("labels", "pairs", "texts")}
    if None not in unseen.values():
        said.append(
            f"Labels of test texts that do not occur in training are ignored (labels: {unseen['labels']:,.0f}, pairs: "
            f"{unseen['pairs']:,.0f}); texts that have no others do not count ({unseen['texts']:,.0f})."
        )
    convention = rows[0].get("measured_with") if rows else None
    if convention:
        said.append(
            f"PSP with A = {convention['a']:g} and B = {convention['b']:g}. Intervals and p-values: "
            f"{convention['resamples']:,} resamples of the test texts, the same for all systems."
        )
    said.append("One text at a time: one thread, from the text as it is to the names (or numbers) of 5 labels.")
    return said


def _versions(machine: Mapping[str, Any]) -> list[str]:
    told = {"versions": "Versions", "peers_versions": "Other tools' versions"}
    return [
        f"{title}: {', '.join(f'{name} {version}' for name, version in machine[key].items())}."
        for key, title in told.items()
        if machine.get(key)
    ]
