"""The data of sections that a comparison and a model report share: plots, and the rows of tables.

A section is None if no entry has the values it needs. Entries without values are left out of a plot and named below it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from markupsafe import Markup

from shortlist.compare.results import Entry
from shortlist.report.plots import Bar, Line, bars, histogram, lines, reliability
from shortlist.report.render import Cell, number

Data = dict[str, Any]
METRICS = ("P@1", "P@3", "P@5", "PSP@1", "PSP@3", "PSP@5")
MEANINGS = {
    "P": "P@k: fraction of the k best-ranked labels that are correct.",
    "PSP": "PSP@k: P@k weighted by inverse propensity, so that rare labels count more.",
    "N": "nDCG@k: like P@k, but higher ranks count more.",
    "PSN": "PSnDCG@k: nDCG@k weighted by inverse propensity.",
    "R": "recall@k: fraction of the true labels among the k best-ranked labels.",
}
ORIGINAL = "original"
PERTURBATIONS = {"shuffled": "words shuffled", "dropped": "words dropped", "misspelt": "words misspelt"}
CURVES = {"P@1": "P@1", "P@5": "P@5"}
META_CURVES = {"P@1": "P@1", "meta_P@1": "meta P@1", "meta_recall": "meta recall"}


def read_entries(given: Iterable[Mapping[str, Any]] | None) -> list[Entry]:
    return [msgspec.convert(_without_missing(one), Entry) for one in given or ()]


def _without_missing(value: Any) -> Any:
    """Drop None, NaN and infinity from dictionaries, so that only a missing key means a missing value."""
    if isinstance(value, Mapping):
        cleaned = {key: _without_missing(one) for key, one in value.items()}
        return {key: one for key, one in cleaned.items() if one is not None}
    if isinstance(value, list | tuple):
        return [_without_missing(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def shared_sections(entries: Sequence[Entry], words: Mapping[str, Any] | None) -> Data:
    return {
        "rare_labels": rare_labels(entries),
        "calibration": calibration(entries),
        "robustness": robustness(entries),
        "training": training(entries),
        "text_lengths": text_lengths(words),
    }


def byte_count(n_bytes: float) -> str:
    for unit, name in ((1e9, "GB"), (1e6, "MB")):
        if n_bytes >= unit:
            return f"{n_bytes / unit:,.1f} {name}"
    return f"{n_bytes / 1e3:,.1f} kB"


def score_cell(entry: Entry, metric: str, best: float | None = None) -> Cell:
    value, ends = entry.scores.get(metric), entry.intervals.get(metric)
    detail = f"{ends[0]:.1f} to {ends[1]:.1f}" if ends else ""
    return Cell(value, value is not None and best is not None and value >= best, detail)


def ceiling_rows(entry: Entry, metrics: Sequence[str]) -> list[list[Any]]:
    """A row with the largest values that any ranking could reach; none if they are all 100."""
    ceilings = [entry.ceilings.get(metric) for metric in metrics]
    return [["at most", *ceilings]] if any(value is not None and value < 100 for value in ceilings) else []


def ranked_bars(given: Iterable[Bar], title: str, digits: int = 1) -> list[Markup]:
    """A plot with the highest bar on top; no plot without bars."""
    ordered = sorted(given, key=lambda bar: -bar.value)
    return [bars(ordered, title, digits, highlight_best=True)] if ordered else []


def busy_machine(machine: Mapping[str, Any]) -> str:
    """A warning if other programs were running during the measurement."""
    load, cores = machine.get("load"), machine.get("cores")
    if not load or not cores or load <= 1 + cores / 2:
        return ""
    return f"The machine was busy (load {load:.1f} on {cores:.0f} cores). An idle machine would be faster."


def not_shown(entries: Sequence[Entry], shown: Sequence[Entry], reason: str) -> str:
    missing = [entry.name for entry in entries if entry not in shown]
    return f"Not shown ({reason}): {', '.join(missing)}." if missing else ""


def missing_values(missing: Mapping[str, Sequence[str]]) -> str:
    named = [f"{name} ({', '.join(values)})" for name, values in missing.items() if values]
    return f"Missing values: {'; '.join(named)}." if named else ""


def rare_labels(entries: Sequence[Entry]) -> Data | None:
    """Which labels contribute to the precision (Astec, Figure 3)."""
    measured = [entry for entry in entries if entry.by_quantile]
    groups = measured[0].by_quantile if measured else [{}]
    metric = next((metric for metric in ("P@5", "P@3", "P@1") if metric in groups[0]), None)
    if metric is None:
        return None
    measured = [entry for entry in measured if len(entry.by_quantile) == len(groups)]
    names = ["most frequent", *(f"group {n}" for n in range(2, len(groups))), "rarest"][: len(groups)]
    for i, group in enumerate(groups):
        if "from" in group and "to" in group:
            ends = dict.fromkeys(f"{end:,.0f}" for end in (group["from"], group["to"]))
            names[i] += f": {'–'.join(ends)}"
    if len(measured) == 1:
        shown = [Bar(name, group.get(metric, 0.0)) for name, group in zip(names, groups, strict=True)]
        plots = [bars(shown, f"contribution of each group to {metric}", 2)]
    else:
        plots = []
        for i, name in reversed(list(enumerate(names))):
            values = [(entry, entry.by_quantile[i].get(metric)) for entry in measured]
            shown = [Bar(entry.name, value, grey=entry.is_peer) for entry, value in values if value is not None]
            plots += ranked_bars(shown, name, 2)
    return {
        "metric": metric,
        "groups": names,
        "rows": [[entry.name, *(group.get(metric) for group in entry.by_quantile)] for entry in measured],
        "plots": plots,
        "not_shown": not_shown(entries, measured, "not measured"),
    }


def training(entries: Sequence[Entry]) -> Data | None:
    """Accuracy by epoch (InceptionXML, Figure 3), one plot per phase."""
    columns = {"loss": "loss"} | CURVES | {"PSP@5": "PSP@5"} | META_CURVES
    plots, rows, shown = [], [], []
    for entry in entries:
        phases: dict[str, list[Data]] = {}
        for record in entry.curves:
            name = f"{record['phase']}: {entry.name}" if record.get("phase") else entry.name
            phases.setdefault(name, []).append(record)
        curves = [curve for name, records in phases.items() if (curve := _curve(name, records))]
        if curves:
            plots += curves
            shown.append(entry)
            for name, records in phases.items():
                rows += [[name, one.get("epoch"), *(one.get(column) for column in columns)] for one in records]
    missing = not_shown(entries, shown, "no training epochs, or no curve was stored")
    header = ["", "epoch", *columns.values()]
    return {"header": header, "rows": rows, "plots": plots, "not_shown": missing} if plots else None


def _curve(name: str, records: Sequence[Data]) -> Markup | None:
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


def calibration(entries: Sequence[Entry]) -> Data | None:
    """Whether scores are probabilities: on the test part if measured there, and as stored in the model card."""
    measured, plots, rows, errors = [], [], [], []
    for entry in entries:
        found = entry.calibration
        tables = {"test texts": found.get("test"), "held-out texts": found.get("table")}
        curves = {part: table for part, table in tables.items() if table}
        if not curves:
            continue
        measured.append(entry)
        plots.append(reliability(curves, entry.name))
        for part, table in curves.items():
            for one in table:
                values = one["labels"], number(one["mean_score"], 3), number(one["right"], 3)
                rows.append([f"{entry.name}, {part}", f"{one['from']:.1f} to {one['to']:.1f}", *values])
        method, held_out = str(found.get("method") or "none"), found.get("errors", {})
        points = found.get("test_error"), held_out.get(method), held_out.get("none")
        errors.append([entry.name, method, *(None if error is None else f"{100 * error:.1f}" for error in points)])
    if not measured:
        return None
    return {
        "on_test_texts": any(entry.calibration.get("test") for entry in measured),
        "rows": rows,
        "errors": errors,
        "plots": plots,
        "not_shown": not_shown(entries, measured, "calibration not measured"),
    }


def robustness(entries: Sequence[Entry]) -> Data | None:
    """Accuracy with words shuffled (InceptionXML, Table 4), dropped or misspelt."""
    scores: list[tuple[Entry, dict[str, dict[str, float]]]] = []
    for entry in entries:
        perturbed = {name: entry.robustness.get(kind, {}) for kind, name in PERTURBATIONS.items()}
        if any("P@1" in values for values in perturbed.values()):
            # If not only a sample of the texts was perturbed, the scores are those of the original texts.
            all_texts = {} if "texts" in entry.robustness else entry.scores
            scores.append((entry, {ORIGINAL: entry.robustness.get(ORIGINAL, all_texts)} | perturbed))
    if not scores:
        return None
    measured = {metric for _, kinds in scores for name in PERTURBATIONS.values() for metric in kinds[name]}
    metrics = [metric for metric in ("P@1", "P@5", "PSP@1", "PSP@5") if metric in measured]
    plots = []
    if len(scores) == 1:
        kinds = scores[0][1]
        for metric in metrics:
            shown = {name: values[metric] for name, values in kinds.items() if metric in values}
            reference = shown.get(ORIGINAL)
            plots.append(
                bars([Bar(n, v, reference=None if n == ORIGINAL else reference) for n, v in shown.items()], metric)
            )
    else:
        for name in PERTURBATIONS.values():
            ranked = [
                Bar(entry.name, kinds[name]["P@1"], grey=entry.is_peer, reference=kinds[ORIGINAL].get("P@1"))
                for entry, kinds in scores
                if "P@1" in kinds[name]
            ]
            plots += ranked_bars(ranked, f"P@1, {name}")
    return {
        "n_texts": scores[0][0].robustness.get("texts"),
        "metrics": metrics,
        "rows": [
            [f"{entry.name}, {name}", *(values.get(metric) for metric in metrics)]
            for entry, kinds in scores
            for name, values in kinds.items()
            if any(metric in values for metric in metrics)
        ],
        "plots": plots,
        "not_shown": not_shown(entries, [entry for entry, _ in scores], "not measured"),
    }


def text_lengths(words: Mapping[str, Any] | None) -> Data | None:
    """How short the texts are (InceptionXML, Figure 6)."""
    buckets = [(str(one["name"]), one["count"]) for one in (words or {}).get("histogram") or ()]
    if not words or not buckets:
        return None
    plots = [histogram(buckets, "words per text", "Percentage of texts")]
    facts = {name: words.get(name) for name in ("texts", "mean", "median")}
    return facts | {"rows": buckets, "plots": plots}
