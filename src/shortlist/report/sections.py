"""Sections that a comparison and a model report share.

A section is None if no entry has the values it needs. Entries without values are left out of a plot and named below it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from markupsafe import Markup

from shortlist.report.entry import Entry, read_entries
from shortlist.report.page import Block, Cell, Figure, Section, Table, Text
from shortlist.report.plots import Bar, Line, bars, histogram, lines, reliability, spread

METRICS = ("P@1", "P@3", "P@5", "PSP@1", "PSP@3", "PSP@5")
MEANINGS = {
    "P": "P@k: fraction of the k best-ranked labels that are correct",
    "PSP": "PSP@k: P@k weighted by inverse propensity, so that rare labels count more",
    "N": "nDCG@k: like P@k, but higher ranks count more",
    "PSN": "PSnDCG@k: nDCG@k weighted by inverse propensity",
    "R": "recall@k: fraction of the true labels among the k best-ranked labels",
}
ORIGINAL = "original"
PERTURBATIONS = {"shuffled": "words shuffled", "dropped": "words dropped", "misspelt": "words misspelt"}
CURVES = {"P@1": "P@1", "P@5": "P@5"}
META_CURVES = {"P@1": "P@1", "meta_P@1": "meta P@1", "meta_recall": "meta recall"}
NO_VALUE = "–"


def fixed(value: float | None, digits: int = 2) -> str:
    return NO_VALUE if value is None else f"{value:,.{digits}f}"


def file_size(n_bytes: float) -> str:
    for unit, name in ((1e9, "GB"), (1e6, "MB")):
        if n_bytes >= unit:
            return f"{n_bytes / unit:,.1f} {name}"
    return f"{n_bytes / 1e3:,.1f} kB"


def score_cell(entry: Entry, metric: str, best: float | None = None, with_interval: bool = True) -> Cell:
    value, ends = entry.scores.get(metric), entry.interval(metric)
    detail = f"{ends[0]:.1f} to {ends[1]:.1f}" if ends and with_interval else ""
    return Cell(fixed(value), value is not None and best is not None and value >= best, detail)


def ranked_bars(given: Iterable[Bar], title: str, digits: int = 1) -> list[Markup]:
    """A plot with the highest bar on top; no plot without bars."""
    ordered = sorted(given, key=lambda bar: -bar.value)
    return [bars(ordered, title, digits, highlight_best=True)] if ordered else []


def busy_machine(machine: Mapping[str, Any]) -> Text | None:
    """A warning if other programs were running during the measurement."""
    load, cores = machine.get("load"), machine.get("cores")
    if not load or not cores or load <= 1 + cores / 2:
        return None
    return Text(f"The machine was busy (load {load:.1f} on {cores:.0f} cores). An idle machine would be faster.")


def not_shown(entries: Sequence[Entry], shown: Sequence[Entry], reason: str) -> Text | None:
    missing = [entry.name for entry in entries if entry not in shown]
    return Text(f"Not shown ({reason}): {', '.join(missing)}.", small=True) if missing else None


def missing_values(missing: Mapping[str, Sequence[str]]) -> Text | None:
    named = [f"{name} ({', '.join(values)})" for name, values in missing.items() if values]
    return Text(f"Missing values: {'; '.join(named)}.", small=True) if named else None


def rare_labels(entries: Sequence[Entry]) -> Section | None:
    """Which labels contribute to the precision (Astec, Figure 3)."""
    measured = [entry for entry in entries if entry.by_quantile]
    groups = measured[0].by_quantile if measured else [{}]
    metric = next((metric for metric in ("P@5", "P@3", "P@1") if metric in groups[0]), None)
    if metric is None:
        return None
    measured = [entry for entry in measured if len(entry.by_quantile) == len(groups)]
    names = ["most frequent", *(f"group {number}" for number in range(2, len(groups))), "rarest"]
    titles = [_group_title(name, group) for name, group in zip(names, groups, strict=False)]
    rows = [[entry.name, *(fixed(group.get(metric)) for group in entry.by_quantile)] for entry in measured]
    lead = (
        f"Labels are sorted by their number of training texts and cut into {len(groups)} groups of equal size, named "
        f"by these numbers. The contributions of all groups add up to {metric}."
    )
    title = "How accurate is it on rare labels?" if len(entries) == 1 else "Which systems are accurate on rare labels?"
    if len(measured) == 1:
        contributions = [Bar(name, group.get(metric, 0.0)) for name, group in zip(titles, groups, strict=True)]
        plots = [bars(contributions, f"contribution of each group to {metric}", 2)]
    else:
        lead += " Each plot has its own scale: compare bars within a plot, not between plots."
        plots = []
        for i, name in reversed(list(enumerate(titles))):
            values = [(entry, entry.by_quantile[i].get(metric)) for entry in measured]
            shown = [Bar(entry.name, value, grey=entry.is_peer) for entry, value in values if value is not None]
            plots += ranked_bars(shown, name, 2)
    figure = Figure(plots, Table(["", *titles], rows))
    return Section("Rare labels", title, lead, figure, not_shown(entries, measured, "not measured"))


def _group_title(name: str, group: Mapping[str, float]) -> str:
    if "from" not in group or "to" not in group:
        return name
    low, high = group["from"], group["to"]
    return f"{name}: {low:,.0f}" if low == high else f"{name}: {low:,.0f}–{high:,.0f}"


def training(entries: Sequence[Entry]) -> Section | None:
    """How training went, epoch by epoch (InceptionXML, Figure 3)."""
    figure, shown = training_curves(entries)
    lead = (
        "Measured on held-out texts after each epoch, before re-ranking: the final scores are usually higher. The "
        "surrogate phase trains the encoder on clusters of labels, the extreme phase trains the classifier. For "
        "recipes that search clusters of labels first, meta recall is the fraction of the correct clusters that are "
        "searched. The classifier cannot find more than that."
    )
    missing = not_shown(entries, shown, "no training epochs, or no curve was stored")
    title = "Was it trained long enough?" if len(entries) == 1 else "How did training go?"
    return Section("Training", title, lead, figure, missing) if figure else None


def training_curves(entries: Sequence[Entry]) -> tuple[Figure | None, list[Entry]]:
    """One plot per phase, and the entries that have any."""
    plots, rows, shown = [], [], []
    columns = {"loss": "loss"} | CURVES | {"PSP@5": "PSP@5"} | META_CURVES
    for entry in entries:
        phases: dict[str, list[dict[str, Any]]] = {}
        for record in entry.curves:
            name = f"{record['phase']}: {entry.name}" if record.get("phase") else entry.name
            phases.setdefault(name, []).append(record)
        curves = [curve for name, records in phases.items() if (curve := _curve(name, records))]
        if curves:
            shown.append(entry)
            plots += curves
            rows += [
                [name, str(record.get("epoch", NO_VALUE)), *(fixed(record.get(column)) for column in columns)]
                for name, records in phases.items()
                for record in records
            ]
    return (Figure(plots, Table(["", "epoch", *columns.values()], rows)) if plots else None), shown


def _curve(name: str, records: Sequence[Mapping[str, Any]]) -> Markup | None:
    """The accuracy by epoch, or the loss if accuracy was not measured."""
    metrics = META_CURVES if any("meta_P@1" in record for record in records) else CURVES
    for shown, unit in ((metrics, "%"), ({"loss": "loss"}, "loss")):
        drawn = []
        for series, (key, title) in enumerate(shown.items()):
            points = [(float(one["epoch"]), float(one[key])) for one in records if key in one and "epoch" in one]
            if points:
                drawn.append(Line(title, points, series, dashed=key.startswith("meta")))
        if drawn:
            return lines(drawn, "epoch", unit, name)
    return None


def calibration(entries: Sequence[Entry]) -> Section | None:
    """Whether scores are probabilities: on the test part if measured there, and as stored in the model card."""
    measured, plots, rows, errors = [], [], [], []
    on_test = False
    for entry in entries:
        found = entry.calibration
        tables = {"test texts": found.get("test"), "held-out texts": found.get("table")}
        curves = {part: table for part, table in tables.items() if table}
        if not curves:
            continue
        measured.append(entry)
        on_test |= "test texts" in curves
        plots.append(reliability(curves, entry.name))
        for part, table in curves.items():
            for one in table:
                score_range = f"{one['from']:.1f} to {one['to']:.1f}"
                values = fixed(one["mean_score"], 3), fixed(one["right"], 3)
                rows.append([f"{entry.name}, {part}", score_range, f"{one['labels']:,}", *values])
        method, held_out = str(found.get("method") or "none"), found.get("errors", {})
        points = found.get("test_error"), held_out.get(method), held_out.get("none")
        errors.append([entry.name, method, *(NO_VALUE if e is None else f"{100 * e:.1f}" for e in points)])
    if not measured:
        return None
    lead = (
        "Of the labels with a score near 0.8, 80% should be correct: the curve then follows the diagonal. Above the "
        "diagonal a model is underconfident, below it overconfident. Larger points stand for more labels."
    ) + ("" if on_test else " Measured on texts held out during training.")
    header = ["calibration error, in points", "method", "test texts", "held-out texts", "before calibration"]
    return Section(
        "Calibration",
        "Can scores be read as probabilities?",
        lead,
        Figure(plots, Table(["", "score", "labels", "mean score", "fraction correct"], rows)),
        Table(header, errors, (0, 1)),
        not_shown(entries, measured, "calibration not measured"),
    )


def robustness(entries: Sequence[Entry]) -> Section | None:
    """Accuracy with words shuffled (InceptionXML, Table 4), dropped or misspelt."""
    measured = [entry for entry in entries if any("P@1" in entry.robustness.get(kind, {}) for kind in PERTURBATIONS)]
    if not measured:
        return None
    # By entry and kind of text. Without a sample, all texts were perturbed: the scores are those of the originals.
    scores = [
        {ORIGINAL: entry.robustness.get(ORIGINAL) or ({} if "texts" in entry.robustness else entry.scores)}
        | {name: entry.robustness.get(kind, {}) for kind, name in PERTURBATIONS.items()}
        for entry in measured
    ]
    perturbed = {metric for one in scores for name in PERTURBATIONS.values() for metric in one[name]}
    metrics = [metric for metric in ("P@1", "P@5", "PSP@1", "PSP@5") if metric in perturbed]
    plots = []
    if len(measured) == 1:
        for metric in metrics:
            original = scores[0][ORIGINAL].get(metric)
            shown = [
                Bar(name, values[metric], reference=None if name == ORIGINAL else original)
                for name, values in scores[0].items()
                if metric in values
            ]
            plots.append(bars(shown, metric))
    else:
        for name in PERTURBATIONS.values():
            shown = [
                Bar(entry.name, one[name]["P@1"], grey=entry.is_peer, reference=one[ORIGINAL].get("P@1"))
                for entry, one in zip(measured, scores, strict=True)
                if "P@1" in one[name]
            ]
            plots += ranked_bars(shown, f"P@1, {name}")
    rows = [
        [f"{entry.name}, {name}", *(fixed(values.get(metric)) for metric in metrics)]
        for entry, one in zip(measured, scores, strict=True)
        for name, values in one.items()
        if any(metric in values for metric in metrics)
    ]
    lead = (
        "The same texts with all words shuffled, with a quarter of the words dropped, and with a quarter of the words "
        "misspelt by one letter. The dashed mark is the score on the original texts."
    )
    if "texts" in measured[0].robustness:
        lead += f" Measured on {measured[0].robustness['texts']:,.0f} of the test texts."
    figure, missing = Figure(plots, Table(["", *metrics], rows)), not_shown(entries, measured, "not measured")
    return Section("Robustness", "How much do shuffled, missing and misspelt words cost?", lead, figure, missing)


def text_lengths(words: Mapping[str, Any] | None) -> Section | None:
    """How short the texts are (InceptionXML, Figure 6)."""
    buckets = [(str(one["name"]), float(one["count"])) for one in (words or {}).get("histogram") or ()]
    if not words or not buckets:
        return None
    lead = "Number of words per text" + (f" in the {words['texts']} part." if "texts" in words else ".")
    facts = [f"{name} {words[name]:,.1f}" for name in ("mean", "median") if words.get(name) is not None]
    lead += f" {', '.join(facts).capitalize()}." if facts else ""
    table = Table(["words", "texts"], [[name, f"{count:,.0f}"] for name, count in buckets])
    plot = histogram(buckets, "words per text", "Percentage of texts")
    return Section("Text length", "How short are the texts?", lead, Figure([plot], table))


def ablation(table: Mapping[str, Any]) -> Section | None:
    """A table that came with the results, with plots of its numeric columns.

    A table may say how many of its first columns name a row ("named", default 1), which columns to plot ("drawn",
    default all that are numbers), and that the spread of each column matters ("spread"). It may have "notes" on its
    rows, and entries with training "curves".
    """
    header, rows, title = [str(name) for name in table["header"]], list(table["rows"]), str(table["title"])
    if not rows:
        return None
    n_names = int(table.get("named") or 1)
    names = [", ".join(str(value) for value in row[:n_names]) for row in rows]
    numeric = [
        column
        for column in range(n_names, len(header))
        if {type(row[column]) for row in rows} - {type(None)} in ({int}, {float}, {int, float})
    ]
    columns = {
        header[column]: [
            Bar(name, row[column]) for name, row in zip(names, rows, strict=True) if row[column] is not None
        ]
        for column in numeric
        if header[column] in (table.get("drawn") or header)
    }
    if table.get("spread") and columns:
        plots = [spread({column: [bar.value for bar in values] for column, values in columns.items()}, title)]
    else:
        plots = [bars(values, column, 2) for column, values in columns.items()]
    cells = [[_ablation_cell(value, column in numeric) for column, value in enumerate(row)] for row in rows]
    numbers = Table(header, cells, [column for column in range(len(header)) if column not in numeric])
    blocks: list[Block | None] = [Figure(plots, numbers) if plots and len(rows) > 1 else numbers]
    missing = {name: [header[c] for c in numeric if row[c] is None] for name, row in zip(names, rows, strict=True)}
    blocks.append(missing_values(missing))
    blocks += [Text(f"{name}: {note}", small=True) for name, note in (table.get("notes") or {}).items()]
    blocks.append(training_curves(read_entries(table.get("curves")))[0])
    return Section(title, str(table.get("question") or title), f"{table.get('lead') or title}.", *blocks)


def _ablation_cell(value: Any, numeric: bool) -> str:
    if value is None:
        return NO_VALUE
    if not numeric:
        return str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:,.2f}"
