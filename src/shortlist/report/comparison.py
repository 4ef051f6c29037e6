"""The report of a comparison: several systems on one data set, from the content of `summary.json`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from shortlist.report import sections
from shortlist.report.entry import Entry, read_entries
from shortlist.report.page import Answer, Block, Cell, Example, Examples, Figure, Page, Section, Table, Text, Word
from shortlist.report.plots import PANEL, WIDE, Bar, Point, duration, scatter
from shortlist.report.sections import MEANINGS, METRICS, NO_VALUE, file_size, fixed, score_cell

MAIN_METRIC = "P@1"
PLOTTED_FROM = 0.5  # of the best score: systems below would squeeze the others together in a plot
SIGNIFICANT, SMALLEST_P = 0.05, 0.01
COSTS: dict[str, tuple[str, Callable[[float], str]]] = {
    "train_seconds": ("training time", lambda seconds: duration(seconds) if seconds >= 1 else f"{seconds:.1f} s"),
    "ms_p50": ("latency, median", lambda ms: f"{ms:.{2 if ms >= 1 else 3}f} ms"),
    "ms_p99": ("latency, 99th percentile", lambda ms: f"{ms:.{2 if ms >= 1 else 3}f} ms"),
    "bulk_texts_per_second": ("texts per second, in bulk", "{:,.0f}".format),
    "model_bytes": ("model size", file_size),
    "peak_memory_bytes": ("peak memory", file_size),
    "flops": ("multiply-adds per text", lambda n: f"{n:,.0f}" if n < 1e9 else f"{n / 1e9:,.1f} billion"),
}


def write_comparison(summary: Mapping[str, Any], out: Path) -> None:
    """Write `report.html` and `report.md` into a folder. Whatever is not measured yet is left out."""
    comparison_page(summary).write(Path(out) / "report.html", Path(out) / "report.md")


def comparison_page(summary: Mapping[str, Any]) -> Page:
    entries = read_entries(summary.get("rows"))
    ranked = sorted((e for e in entries if e.status == "done"), key=lambda e: -e.scores.get(MAIN_METRIC, 0.0))
    data, machine = summary.get("data") or {}, summary.get("machine") or {}
    counts = {
        "train_texts": "{:,.0f} training texts",
        "test_texts_that_count": "{:,.0f} test texts",
        "labels": "{:,.0f} labels",
    }
    known = [text.format(data[key]) for key, text in counts.items() if data.get(key) is not None]
    about = ", ".join([f"{len(ranked)} system{'s' * (len(ranked) != 1)}", *known]) + "."
    return Page(
        f"Comparison on {data.get('name') or 'one data set'}",
        about,
        [
            _results(entries, ranked),
            _against_time(ranked, "train_seconds", 1.0, "Training time", "What does more training time buy?"),
            _against_time(ranked, "ms_p50", 1e-3, "Latency", "Which systems are fast enough?"),
            _accuracy(ranked),
            sections.rare_labels(ranked),
            sections.robustness(ranked),
            sections.calibration(ranked),
            sections.training(ranked),
            *map(sections.ablation, summary.get("ablations") or ()),
            sections.text_lengths(summary.get("words_per_text")),
            _examples(summary.get("examples") or (), [entry.name for entry in ranked]),
            _conditions(data, machine, entries),
        ],
    )


def _results(entries: Sequence[Entry], ranked: Sequence[Entry]) -> Section:
    blocks: list[Block] = []
    lead = "No system has finished yet."
    if ranked:
        lead = "Percentages, with 95% intervals where measured. The best score of each column is bold."
        blocks += [Text(_finding(ranked)), _score_table("", [m for m in METRICS if _any_has(ranked, m)], ranked)]
        costs = [cost for cost in COSTS if any(getattr(entry, cost) is not None for entry in ranked)]
        if costs:
            rows = [[entry.name, *(_cost(entry, cost) for cost in costs)] for entry in ranked]
            blocks.append(Table(["", *(COSTS[cost][0] for cost in costs)], rows))
    missing = [[entry.name, entry.status, entry.note or NO_VALUE] for entry in entries if entry not in ranked]
    if missing:
        blocks.append(Table(["no result", "status", "reason"], missing, (0, 1, 2)))
    return Section("Results", "Which system is best?", lead, *blocks)


def _any_has(entries: Sequence[Entry], metric: str) -> bool:
    return any(metric in entry.scores for entry in entries)


def _score_table(
    title: str, metrics: Sequence[str], entries: Sequence[Entry], best: bool = True, with_intervals: bool = True
) -> Table:
    """One row per entry; `best`: the best score of each column is bold."""
    rows = []
    for entry in entries:
        kind = entry.title if entry.title not in ("", entry.name) else "another tool" if entry.is_peer else ""
        cells = [
            score_cell(entry, metric, max(e.scores.get(metric, 0.0) for e in entries) if best else None, with_intervals)
            for metric in metrics
        ]
        rows.append([Cell(entry.name, detail=kind if title == "" and best else ""), *cells])
    return Table([title, *map(_metric_title, metrics)], rows)


def _metric_title(metric: str) -> str:
    """The usual name of a metric. A long one has a space, so that it may take two lines."""
    family, _, k = metric.partition("@")
    name = MEANINGS.get(family, family).split("@")[0]
    return metric if name == family else f"{name} @{k}"


def _cost(entry: Entry, cost: str) -> str:
    value = getattr(entry, cost)
    return NO_VALUE if value is None else COSTS[cost][1](value)


def _finding(ranked: Sequence[Entry]) -> str:
    """What the numbers say, and no more than that."""
    first = ranked[0]
    if MAIN_METRIC not in first.scores:
        return f"No system has a {MAIN_METRIC}."
    interval = first.interval(MAIN_METRIC)
    ends = f" ({interval[0]:.1f} to {interval[1]:.1f})" if interval else ""
    finding = f"{first.name} has the highest {MAIN_METRIC}: {first.scores[MAIN_METRIC]:.2f}{ends}."
    p_values = {entry.name: entry.difference_to_best.get(MAIN_METRIC, {}).get("p") for entry in ranked[1:]}
    close = [name for name, p in p_values.items() if p is not None and p >= SIGNIFICANT]
    worse = [name for name, p in p_values.items() if p is not None and p < SIGNIFICANT]
    finding += f" Not significantly worse (p ≥ {SIGNIFICANT}): {', '.join(close)}." if close else ""
    finding += f" Significantly worse: {', '.join(worse)}." if worse else ""
    return finding


def _against_time(entries: Sequence[Entry], cost: str, unit: float, nav: str, title: str) -> Section | None:
    """Accuracy against training time or latency."""
    timed = {e.name: unit * (getattr(e, cost) or 0.0) for e in entries if MAIN_METRIC in e.scores}
    shown = [entry for entry in entries if timed.get(entry.name, 0.0) > 0]
    if len(shown) < 2:
        return None
    floor = PLOTTED_FROM * max(entry.scores[MAIN_METRIC] for entry in shown)
    points = [
        Point(e.name, timed[e.name], e.scores[MAIN_METRIC], e.interval(MAIN_METRIC), series=int(e.is_peer))
        for e in shown
    ]
    axis = COSTS[cost][0]
    plots = [scatter(points, f"{axis} (log scale)", MAIN_METRIC, title, width, floor) for width in (WIDE, PANEL)]
    rows = [[point.name, duration(point.x), fixed(point.y)] for point in points]
    caption = "Vertical lines: 95% intervals."
    if any(entry.is_peer for entry in shown):
        caption = f"Circles: Shortlist's recipes. Squares: other tools. {caption}"
    if any(point.y < floor for point in points):
        caption += " ↓ with a value: far below the plot."
    return Section(
        nav,
        title,
        "Higher is more accurate, further left is faster. Each point below the dotted line is beaten on both counts.",
        Figure(plots, Table(["", axis, MAIN_METRIC], rows), caption, "scatters"),
        sections.not_shown(entries, shown, "time not measured"),
    )


def _accuracy(ranked: Sequence[Entry]) -> Section | None:
    entries = [entry for entry in ranked if any(metric in entry.scores for metric in METRICS)]
    plotted = [metric for metric in METRICS if _any_has(entries, metric)]
    if not plotted:
        return None
    plots = []
    for metric in plotted:
        scored = [entry for entry in entries if metric in entry.scores]
        plots += sections.ranked_bars(
            [Bar(e.name, e.scores[metric], e.interval(metric), grey=e.is_peer) for e in scored], metric
        )
    metrics = list(dict.fromkeys([*METRICS, *(metric for entry in entries for metric in entry.scores)]))
    caption = "Grey bars: other tools." if any(entry.is_peer for entry in entries) else ""
    blocks: list[Block | None] = [
        Figure(plots, _score_table("", metrics, entries, best=False), caption),
        sections.missing_values({e.name: [m for m in plotted if m not in e.scores] for e in ranked}),
    ]
    compared = [entry for entry in entries if entry.difference_to_best]
    columns = [metric for metric in METRICS if any(metric in entry.difference_to_best for entry in compared)]
    if columns:
        rows = [
            [entry.name, *(_difference(entry.difference_to_best.get(m, {})) for m in columns)] for entry in compared
        ]
        blocks.append(Table(["difference to the best", *columns], rows))
        method = "Paired bootstrap over the test texts. p-values are not corrected for the number of comparisons."
        blocks.append(Text(method, small=True))
    others = [metric for metric in metrics if metric not in METRICS]
    if others:
        meanings = [text for family, text in MEANINGS.items() if any(m.startswith(f"{family}@") for m in others)]
        blocks.append(_score_table("other metrics", others, entries, with_intervals=False))
        blocks.append(Text(". ".join(meanings) + ".", small=True))
    lead = (
        f"{MEANINGS['P']}. {MEANINGS['PSP']}. The thin lines are 95% intervals: how much a score would vary with other "
        "texts of the same kind."
    )
    return Section("Accuracy", "Are the differences significant?", lead, *blocks)


def _difference(found: Mapping[str, float]) -> Cell:
    if "difference" not in found:
        return Cell(NO_VALUE)
    details = [f"{found['low']:+.1f} to {found['high']:+.1f}"] if "low" in found and "high" in found else []
    if "p" in found:
        details.append(f"p < {SMALLEST_P}" if found["p"] < SMALLEST_P else f"p = {found['p']:.2f}")
    return Cell(f"{found['difference']:+.2f}".replace("-", "−"), detail="\n".join(details).replace("-", "−"))


def _examples(given: Sequence[Mapping[str, Any]], ranked: Sequence[str]) -> Section | None:
    examples = []
    for one in given:
        predictions = one.get("predictions") or {}
        best_first = [name for name in ranked if name in predictions]
        systems = [*best_first, *(name for name in predictions if name not in ranked)]
        answers = {
            system: [Answer(str(name or label), score, correct) for label, name, score, correct in predictions[system]]
            for system in systems
        }
        examples.append(Example([Word(str(one["text"]))], [str(label) for label in one.get("labels") or ()], answers))
    lead = "The best-ranked labels of each system. Correct labels are bold and marked, wrong ones are in italics."
    title = "What do the systems predict for the same texts?"
    return Section("Examples", title, lead, Examples(examples)) if examples else None


def _conditions(data: Mapping[str, Any], machine: Mapping[str, Any], entries: Sequence[Entry]) -> Section:
    facts = []
    unseen = data.get("unseen_in_training") or {}
    if {"labels", "pairs", "texts"} <= unseen.keys():
        facts.append(
            f"Labels that do not occur in the training part are ignored ({unseen['labels']:,.0f} labels in "
            f"{unseen['pairs']:,.0f} pairs). Texts without other labels do not count ({unseen['texts']:,.0f} texts)."
        )
    settings = next((entry.measured_with for entry in entries if entry.status == "done"), {})
    if settings:
        facts.append(
            f"PSP uses A = {settings['a']:g} and B = {settings['b']:g}. Intervals and p-values use "
            f"{settings['resamples']:,} resamples of the test texts, the same for all systems."
        )
    facts.append("Latency: one text at a time on one thread, from the raw text to the names or ids of 5 labels.")
    for title, versions in (("Versions", "versions"), ("Versions of other tools", "peers_versions")):
        if machine.get(versions):
            facts.append(f"{title}: {', '.join(f'{name} {version}' for name, version in machine[versions].items())}.")
    facts += [f"{title}: {_facts(given)}" for title, given in (("Data", data), ("Machine", machine)) if given]
    options = [
        [entry.name, _facts(entry.options) or "defaults", entry.note or NO_VALUE]
        for entry in entries
        if entry.options is not None
    ]
    return Section(
        "Conditions",
        "How was this measured?",
        "Times come from one run on one machine. Use them to compare systems with each other.",
        *map(Text, facts),
        sections.busy_machine(machine),
        Table(["", "options", "note"], options, (0, 1, 2), folded="Options of each system") if options else None,
    )


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
