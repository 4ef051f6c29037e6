"""The report of a comparison: several systems on one data set, from the content of `summary.json`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from shortlist.compare.results import Entry
from shortlist.files import write_atomically
from shortlist.report import sections
from shortlist.report.plots import PANEL, WIDE, Bar, Point, duration, scatter
from shortlist.report.render import Cell, Page
from shortlist.report.sections import MEANINGS, METRICS, Data, byte_count, read_entries, score_cell

MAIN_METRIC = "P@1"
PLOTTED_FROM = 0.5  # of the best score: systems below would squeeze the others together in a plot
SIGNIFICANT, SMALLEST_P = 0.05, 0.01
COSTS: dict[str, tuple[str, Callable[[float], str]]] = {
    "train_seconds": ("training time", lambda seconds: duration(seconds) if seconds >= 1 else f"{seconds:.1f} s"),
    "ms_p50": ("latency, median", lambda ms: f"{ms:.{2 if ms >= 1 else 3}f} ms"),
    "ms_p99": ("latency, 99th percentile", lambda ms: f"{ms:.{2 if ms >= 1 else 3}f} ms"),
    "bulk_texts_per_second": ("texts per second, in bulk", "{:,.0f}".format),
    "model_bytes": ("model size", byte_count),
    "peak_memory_bytes": ("peak memory", byte_count),
    "multiply_adds": ("multiply-adds per text", lambda n: f"{n:,.0f}" if n < 1e9 else f"{n / 1e9:,.1f} billion"),
}


def write_comparison(summary: Mapping[str, Any], out: Path) -> None:
    """Write report.html, report.md and table.md into a folder. Whatever is not measured yet is left out."""
    page = comparison_page(summary)
    page.write(Path(out) / "report.html", Path(out) / "report.md")
    with write_atomically(Path(out) / "table.md") as file:
        file.write(Page("table.j2", **page.data).to_markdown().encode())


def comparison_page(summary: Mapping[str, Any]) -> Page:
    entries = read_entries(summary.get("entries"))
    ranked = sorted((e for e in entries if e.status == "done"), key=lambda e: -e.scores.get(MAIN_METRIC, 0.0))
    data, machine = summary.get("data") or {}, summary.get("machine") or {}
    measured = dict.fromkeys(metric for entry in ranked for metric in entry.scores)
    main, others = [m for m in METRICS if m in measured], [m for m in measured if m not in METRICS]
    return Page(
        "comparison.j2",
        ranked=ranked,
        unfinished=[(entry.name, entry.status, entry.note or None) for entry in entries if entry not in ranked],
        data=data,
        machine=machine,
        finding=_finding(ranked),
        scores=_scores(ranked, main),
        all_scores=_scores(ranked, [*main, *others], with_intervals=False),
        costs=_costs(ranked),
        training_time=_against_time(ranked, "train_seconds", 1.0, "What does more training time buy?"),
        latency=_against_time(ranked, "ms_p50", 1e-3, "Which systems are fast enough?"),
        accuracy=_accuracy(ranked, main),
        other_scores=_scores(ranked, others, with_intervals=False) if others else None,
        meanings=MEANINGS,
        **sections.shared_sections(ranked, summary.get("words_per_text")),
        examples=[_example(one, [entry.name for entry in ranked]) for one in summary.get("examples") or ()],
        settings=next((entry.measured_with for entry in ranked if entry.measured_with), None),
        facts={name: _facts(given) for name, given in (("Data", data), ("Machine", machine)) if given},
        busy=sections.busy_machine(machine),
        options=[(e.name, _facts(e.options) or "defaults", e.note or None) for e in entries if e.options is not None],
    )


def _finding(ranked: Sequence[Entry]) -> Data | None:
    """The best system, and those that are and are not significantly worse."""
    if not ranked or MAIN_METRIC not in ranked[0].scores:
        return None
    p_values = {entry.name: entry.difference_to_best.get(MAIN_METRIC, {}).get("p") for entry in ranked[1:]}
    return {
        "metric": MAIN_METRIC,
        "best": ranked[0],
        "not_worse": [name for name, p in p_values.items() if p is not None and p >= SIGNIFICANT],
        "worse": [name for name, p in p_values.items() if p is not None and p < SIGNIFICANT],
        "significance": str(SIGNIFICANT),
    }


def _scores(ranked: Sequence[Entry], metrics: Sequence[str], with_intervals: bool = True) -> Data:
    """One row per entry. The best score of each column is bold; the others have an interval, or a star (see below)."""
    best = {metric: max(entry.scores.get(metric, 0.0) for entry in ranked) for metric in metrics}
    rows = []
    for entry in ranked:
        title = entry.title if entry.title != entry.name else "another tool" if entry.is_peer else ""
        row = [Cell(entry.name, detail=title), *(score_cell(entry, metric, best[metric]) for metric in metrics)]
        if not with_intervals:
            p_values = [entry.difference_to_best.get(metric, {}).get("p", 0.0) for metric in metrics]
            stars = ["", *("*" if p >= SIGNIFICANT else "" for p in p_values)]
            row = [cell._replace(detail=star) for cell, star in zip(row, stars, strict=True)]
        rows.append(row)
    # The same for all entries, as it depends on the test data alone.
    rows += sections.ceiling_rows(ranked[0], metrics) if ranked else []
    return {"header": ["", *map(_metric_title, metrics)], "rows": rows}


def _metric_title(metric: str) -> str:
    """The usual name of a metric. A long one has a space, so that it may take two lines."""
    family, _, k = metric.partition("@")
    name = MEANINGS.get(family, family).split("@")[0]
    return metric if name == family else f"{name} @{k}"


def _costs(ranked: Sequence[Entry]) -> Data | None:
    known = {cost: how for cost, how in COSTS.items() if any(getattr(entry, cost) is not None for entry in ranked)}
    rows = []
    for entry in ranked:
        values = [(getattr(entry, cost), formatted) for cost, (_, formatted) in known.items()]
        rows.append([entry.name, *(None if value is None else formatted(value) for value, formatted in values)])
    return {"header": ["", *(title for title, _ in known.values())], "rows": rows} if known else None


def _against_time(entries: Sequence[Entry], cost: str, unit: float, title: str) -> Data | None:
    """Accuracy against training time or latency."""
    shown = [entry for entry in entries if (getattr(entry, cost) or 0.0) > 0 and MAIN_METRIC in entry.scores]
    if len(shown) < 2:
        return None
    floor = PLOTTED_FROM * max(entry.scores[MAIN_METRIC] for entry in shown)
    points = [
        Point(e.name, unit * getattr(e, cost), e.scores[MAIN_METRIC], e.intervals.get(MAIN_METRIC), int(e.is_peer))
        for e in shown
    ]
    axis = COSTS[cost][0]
    return {
        "title": title,
        "header": ["", axis, MAIN_METRIC],
        "rows": [(point.name, duration(point.x), point.y) for point in points],
        "plots": [scatter(points, f"{axis} (log scale)", MAIN_METRIC, title, width, floor) for width in (WIDE, PANEL)],
        "peers": any(entry.is_peer for entry in shown),
        "far_below": any(point.y < floor for point in points),
        "not_shown": sections.not_shown(entries, shown, "time not measured"),
    }


def _accuracy(ranked: Sequence[Entry], metrics: Sequence[str]) -> Data | None:
    entries = [entry for entry in ranked if any(metric in entry.scores for metric in metrics)]
    if not entries:
        return None
    plots = []
    for metric in metrics:
        scored = [entry for entry in entries if metric in entry.scores]
        shown = [Bar(e.name, e.scores[metric], e.intervals.get(metric), grey=e.is_peer) for e in scored]
        plots += sections.ranked_bars(shown, metric)
    compared = [entry for entry in entries if entry.difference_to_best]
    columns = [metric for metric in metrics if any(metric in entry.difference_to_best for entry in compared)]
    return {
        "header": ["", *metrics],
        "rows": [[entry.name, *(score_cell(entry, metric) for metric in metrics)] for entry in entries],
        "plots": plots,
        "peers": any(entry.is_peer for entry in entries),
        "missing": sections.missing_values({e.name: [m for m in metrics if m not in e.scores] for e in ranked}),
        "compared": columns,
        "differences": [
            [entry.name, *(_difference(entry.difference_to_best.get(metric, {})) for metric in columns)]
            for entry in compared
        ],
    }


def _difference(found: Mapping[str, float]) -> Cell:
    if "difference" not in found:
        return Cell(None)
    details = [f"{found['low']:+.1f} to {found['high']:+.1f}"] if "low" in found and "high" in found else []
    if "p" in found:
        details.append(f"p < {SMALLEST_P}" if found["p"] < SMALLEST_P else f"p = {found['p']:.2f}")
    return Cell(f"{found['difference']:+.2f}".replace("-", "−"), detail="\n".join(details).replace("-", "−"))


def _example(one: Mapping[str, Any], ranked: Sequence[str]) -> Data:
    """A text, and what each system predicts for it, the best system first."""
    predictions = one.get("predictions") or {}
    systems = [name for name in ranked if name in predictions]
    systems += [name for name in predictions if name not in ranked]
    answers = {
        system: [(str(name or label), score, correct) for label, name, score, correct in predictions[system]]
        for system in systems
    }
    return {"words": [(str(one["text"]), "", 0.0)], "labels": one.get("labels") or (), "answers": answers, "why": None}


def _facts(given: Mapping[str, Any]) -> str:
    """The simple values of a dictionary, as a sentence."""
    shown = []
    for name, value in given.items():
        if isinstance(value, Mapping | list) or value in (None, ""):
            continue
        if isinstance(value, int) and not isinstance(value, bool):
            value = f"{value:,}"
        shown.append(f"{name.replace('_', ' ')}: {f'{value:,.4g}' if isinstance(value, float) else value}")
    return "; ".join(shown) + "." if shown else ""
