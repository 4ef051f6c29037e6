"""The sections of the report: tables of trained systems, and what is measured on the data and on trained models."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import measures
import numpy as np
import papers
import report
from experiments import LABELS_PER_CLUSTER, Table

from shortlist.compare.results import Entry
from shortlist.compare.splits import Splits
from shortlist.report import plots

Rows = report.Rows
OPTIONS = (
    "n_surrogate_epochs",
    "n_epochs",
    "batch_size",
    "surrogate_learning_rate",
    "learning_rate",
    "n_clusters",
    "n_clusters_searched",
)


def values(entry: Entry) -> dict[str, float]:
    """What tables show of a system."""
    found = dict(entry.scores)
    facts = {
        "GFLOPs": (entry.multiply_adds, 1e9),
        "training s": (entry.train_seconds, 1),
        "ms": (entry.ms_p50, 1),
        "MB": (entry.model_bytes, 1e6),
    }
    return found | {name: value / unit for name, (value, unit) in facts.items() if value is not None}


def of_systems(table: Table, done: dict[str, Entry], more: Rows) -> report.Section:
    """A table of trained systems, with the figure that belongs to it and what it shows.

    more  rows that are not trained by `compare`
    """
    entries = {name: done[entry] for name, entry in table.rows.items() if entry in done}
    ours = {name: values(entry) for name, entry in entries.items()} | more
    made = report.table_section(table, ours)
    if table.key in FINDINGS:
        made.finding = FINDINGS[table.key](ours) or made.finding
    if table.key == "fan-out":
        made.figures = report.curves_figure(entries, [name for name in entries if name.startswith("10 ")])
    elif table.key == "dimensions" and len(ours) > 2:
        others = [row for name, row in ours.items() if name != "as given"]
        made.figures = [
            plots.spread({m: [row[m] for row in others] for m in table.metrics}, "spread around the median")
        ]
    elif table.key == "attention":
        made.figures = [
            plots.bars([plots.Bar(name, row[metric]) for name, row in ours.items()], metric, digits=2)
            for metric in ("P@1", "P@5", "PSP@1", "PSP@5")
            if ours
        ]
    elif table.key == "negatives":
        made.figures = report.negatives_figure(ours)
    return made


def _cost(ours: Rows) -> str:
    if not {"InceptionXML", "InceptionXML+"} <= ours.keys():
        return ""
    scaled, whole = ours["InceptionXML+"], ours["InceptionXML"]
    shares = [f"{scaled[m] / whole[m]:.2f} of its {what}" for m, what in (("GFLOPs", "operations"), ("ms", "time"))]
    time = scaled["training s"] / whole["training s"]
    return (
        f"InceptionXML+ needs {time:.2f} of InceptionXML's training time (0.56 in the paper), and for a prediction "
        f"{shares[0]} (0.15) and {shares[1]} (0.59)."
    )


def _fan_out(ours: Rows) -> str:
    sizes = [size for size in LABELS_PER_CLUSTER if f"{size} labels per cluster, InceptionXML+" in ours]
    if not sizes:
        return ""
    p1 = {name: row["P@1"] for name, row in ours.items()}
    best = [p1[f"{size} labels per cluster, InceptionXML+"] for size in sizes]
    found = [f"P@1 {', '.join(f'{value:.2f}' for value in best)} with {', '.join(map(str, sizes))} labels per cluster"]
    for form, what in (("not detached", "detaching helps"), ("LightXML", "LightXML's form is behind")):
        others = [p1.get(f"{size} labels per cluster, {form}", np.inf) for size in sizes]
        n_better = sum(own > other for own, other in zip(best, others, strict=True))
        found.append(f"{what} at {n_better} of {len(sizes)} sizes")
    return "; ".join(found) + "."


def _attention(ours: Rows) -> str:
    if len(ours) < 2:
        return ""
    with_it, without = ours["InceptionXML"], ours["without attention"]
    gains = [f"{m} by {with_it[m] - without[m]:+.2f}" for m in ("P@1", "P@5", "PSP@1")]
    return f"The attention layers change {', '.join(gains)} points."


def _dimensions(ours: Rows) -> str:
    others = [row["P@1"] for name, row in ours.items() if name != "as given"]
    if not others or "as given" not in ours:
        return ""
    return (
        f"P@1 is {min(others):.2f} to {max(others):.2f} in {len(others)} other orders (standard deviation "
        f"{np.std(others):.2f}), {ours['as given']['P@1']:.2f} as given."
    )


def _recast(ours: Rows) -> str:
    parts = []
    for name in ("XML-CNN", "MACH"):
        if name in ours and f"DeepXML + {name}" in ours:
            alone, within = ours[name], ours[f"DeepXML + {name}"]
            speed = alone["training s"] / within["training s"]
            parts.append(f"{name} gains {within['P@1'] - alone['P@1']:+.2f} points, trains {speed:.1f} times as fast")
    return "; ".join(parts) + "." if parts else ""


def _negatives(ours: Rows) -> str:
    random = {name: row["P@1"] for name, row in ours.items() if "negatives" in name}
    if not random:
        return ""
    best = max(random, key=lambda name: random[name])
    found = f"The best of the random ones: {best}, P@1 {random[best]:.2f}"
    return found + (f"; all labels: {ours['all labels']['P@1']:.2f}." if "all labels" in ours else ".")


def _parts(ours: Rows) -> str:
    if "Astec" not in ours:
        return ""
    alone = ours["Astec"]["P@1"]
    changes = [f"{name} {row['P@1'] - alone:+.2f}" for name, row in ours.items() if name != "Astec"]
    return f"Change of P@1: {', '.join(changes)}."


FINDINGS = {
    "parts": _parts,
    "cost": _cost,
    "fan-out": _fan_out,
    "attention": _attention,
    "dimensions": _dimensions,
    "recast": _recast,
    "negatives": _negatives,
}


def word_order(model: Any, splits: Splits, n_orders: int) -> report.Section:
    """InceptionXML, Table 4."""
    found = measures.word_order(model, splits.test, splits.train, n_orders)
    table = Table(
        "word-order",
        papers.INCEPTIONXML,
        "Table 4",
        f"Test texts with their words in {n_orders} other orders (InceptionXML+)",
        dict.fromkeys(found, ""),
        ("P@3", "P@5"),
        papers.WORD_ORDER,
        "A minor dip.",
    )
    made = report.table_section(table, found)
    change = [
        f"{m} by {found['words permuted'][m] - found['as written'][m]:+.2f} ± {found['± deviation'][m]:.2f}"
        for m in table.metrics
    ]
    made.finding = f"Other orders change {' and '.join(change)} points (in the paper by −1.03 and −1.06)."
    return made


def word_counts(part: Any) -> np.ndarray:
    """The number of words of each text, or of features that are not 0."""
    if part.features is None:
        return np.array([len(text.split()) for text in part.texts])
    return np.count_nonzero(part.features, axis=1) if part.input_kind == "dense" else np.diff(part.features.indptr)


def data(splits: Splits) -> report.Section:
    """InceptionXML, Table 5 and Figure 6; DeepXML, Table 3."""
    train, test = splits.train, splits.test
    counts = word_counts(train)
    if train.features is None:
        n_words = len({word for text in train.texts for word in text.split()})
    else:
        n_words = train.features.shape[1]
    shown = [
        f"{n_words:,}",
        *(f"{value:,}" for value in (train.n_labels, len(train), len(test))),
        f"{len(train.labels.values) / train.n_labels:.2f}",
        f"{len(train.labels.values) / len(train):.2f}",
        *(f"{100 * float((counts <= most).mean()):.0f}" for most in (4, 8)),
    ]
    header = ["", "words", "labels", "training texts", "test texts", "texts per label", "labels per text"]
    header += ["≤ 4 words %", "≤ 8 words %"]
    theirs = [[f"the paper: {name}", *(f"{value:,}" for value in row)] for name, row in papers.DATA.items()]
    bounds = [0, 2, 4, 6, 8, 12, 16, 32, 10**9]
    names = [f"{low + 1}–{high}" for low, high in pairwise(bounds[:-1])] + ["more"]
    histogram = plots.histogram(
        list(zip(names, np.histogram(counts, [b + 1 for b in bounds])[0].tolist(), strict=True)),
        "words",
        "words per text",
    )
    place = f"{papers.INCEPTIONXML}, Table 5 and Figure 6; DeepXML, Table 3"
    return report.Section("The data", place, header=header, rows=[["here", *shown], *theirs], figures=[histogram])


def options(named: dict[str, Entry]) -> report.Section:
    """InceptionXML, Table 6; DeepXML, Table 5: the options that each system was trained with."""
    rows = []
    for name, entry in named.items():
        theirs = papers.OPTIONS.get(name, {})
        cells = [str(entry.options.get(option, report.MISSING)) for option in OPTIONS]
        given = [f" ({theirs[option]:g})" if option in theirs else "" for option in OPTIONS]
        rows.append([name, *(cell + more for cell, more in zip(cells, given, strict=True))])
    place = f"{papers.INCEPTIONXML}, Table 6; DeepXML, Table 5"
    text = "In brackets: the paper's value for AmazonTitles-670K. All options of each system are in systems/entries."
    return report.Section("Options", place, text, header=["", *OPTIONS], rows=rows)


def quantiles(named: dict[str, Entry]) -> report.Section:
    """DeepXML, Figure 3."""
    shown = ("Astec", "our Astec", "Parabel", "Bonsai")
    found = [
        f"{name} {min(parts, key=lambda part: part['to'])['P@5']:.2f}"
        for name in shown
        if name in named and (parts := named[name].by_quantile)
    ]
    return report.Section(
        "Rare and frequent labels",
        f"{papers.DEEPXML}, Figure 3",
        "The labels are divided into five parts by frequency. The paper: Astec gains most on rare labels.",
        f"The rarest part contributes to P@5: {', '.join(found)}." if found else "",
        figures=report.quantile_figure(named, shown),
    )


def shortlists(astec: Any, splits: Splits) -> report.Section:
    """DeepXML, Theorem 1, and the overlap of shortlists by the intermediate and by the final features."""
    overlap = measures.shortlist_overlap(astec, splits.train, splits.test)
    theorem = measures.theorem_1(astec, splits.train)
    facts = {"overlap %": f"{overlap:.1f} ({papers.SHORTLIST_OVERLAP:g})", **{k: f"{v:g}" for k, v in theorem.items()}}
    text = (
        "Overlap: the share of the labels nearest to the intermediate features that are also nearest to the final "
        "ones. (a) and (b): the share of texts, and of random pairs of a text and a label, for which the bounds hold."
    )
    return report.Section(
        "Shortlists and Theorem 1",
        f"{papers.DEEPXML}, §4",
        text,
        f"The shortlists overlap by {overlap:.1f} % (more than 87 % in the paper). Bound (a) holds for "
        f"{theorem['(a) %']:g} % of the texts, bound (b) for {theorem['(b) %']:g} % of the pairs.",
        list(facts),
        [list(facts.values())],
    )


def features(rows: Rows) -> report.Section:
    """DeepXML, Table 9, on given features: there are no images here."""
    table = Table(
        "features",
        papers.DEEPXML,
        "Table 9",
        "An encoder trained on given dense features",
        dict.fromkeys(rows, ""),
        measures.METRICS,
        papers.FEATURES,
        "DeepXML before MACH (P@1), Parabel and Slice, on features of images. Here the features are projected "
        "tf-idf rows; benchmarks/features.py takes sentence embeddings, or your matrices.",
    )
    return report.table_section(table, rows)
