"""Ablations: variants of InceptionXML, trained one by one and shown in a table of their own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

METRICS = ("P@1", "P@3", "P@5", "PSP@1", "PSP@3", "PSP@5")
META_RECALL = "meta recall"
N_CLUSTERS = "n_clusters"  # the recipe option that `Variant.labels_per_cluster` sets


@dataclass(frozen=True)
class Variant:
    """One variant: its first cells in the table, and the options that make it."""

    cells: tuple[str | int, ...]
    options: dict[str, Any] = field(default_factory=dict)
    labels_per_cluster: int | None = None


@dataclass(frozen=True)
class Ablation:
    """What is varied, and how the report presents it.

    columns  headers of the variants' first cells
    options  options that all variants share
    spread   whether to plot the spread of each metric instead of the variants side by side
    curves   whether to plot training curves
    """

    title: str
    question: str
    lead: str
    recipe: str
    columns: tuple[str, ...]
    options: dict[str, Any]
    variants: list[Variant]
    spread: bool = False
    curves: bool = False


WITHOUT_RERANKER = {"reranker": False}

ABLATIONS = {
    "fan-out": Ablation(
        title="Fan-out",
        question="How many labels should a cluster have?",
        lead="InceptionXML+ with few or many labels per cluster and the same number of candidates. Synchronised: at "
        "first, the classifier does not train the encoder. Not detached: it always does. LightXML: also without a "
        "residual block in the meta-classifier, and with label scores multiplied by cluster scores (cf. Table 3 and "
        "Figure 3 of the InceptionXML paper). There is no re-ranker, because it would hide what the candidates miss",
        recipe="inceptionxml+",
        columns=("labels per cluster", "variant"),
        options=WITHOUT_RERANKER,
        variants=[
            Variant((labels_per_cluster, name), options, labels_per_cluster)
            for labels_per_cluster in (8, 32)
            for name, options in (
                ("synchronised", {}),
                ("not detached", {"detach_fraction": 0.0}),
                ("LightXML", {"detach_fraction": 0.0, "variant": "lightxml"}),
            )
        ],
        curves=True,
    ),
    "dimensions": Ablation(
        title="Dimensions",
        question="Does the order of the dimensions matter?",
        lead="The convolutions run over the dimensions of the word vectors, whose order has no meaning. InceptionXML "
        "is trained again with the dimensions permuted; the scores should stay the same (cf. Figure 5 of the "
        "InceptionXML paper). There is no re-ranker",
        recipe="inceptionxml",
        columns=("dimensions",),
        options=WITHOUT_RERANKER,
        variants=[
            Variant((f"permutation {number}" if number else "original",), {"dimension_permutation": number})
            for number in range(11)
        ],
        spread=True,
    ),
}


def ablation_tables(entries: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """One table per ablation that has entries, for the report. Entries are dictionaries, as in summary.json."""
    by_ablation: dict[str, list[Mapping[str, Any]]] = {}
    for entry in entries:
        by_ablation.setdefault(entry["ablation"], []).append(entry)
    return [_table(ablation, by_ablation[name]) for name, ablation in ABLATIONS.items() if name in by_ablation]


def _table(ablation: Ablation, entries: list[Mapping[str, Any]]) -> dict[str, Any]:
    header = [*ablation.columns, *METRICS, META_RECALL, "training s"]
    drawn = ["P@1", "P@5", "PSP@5", META_RECALL]
    rows, notes, curves = [], {}, []
    for entry in entries:
        name = ", ".join(map(str, entry["cells"]))
        recall = entry["curves"][-1].get("meta_recall") if entry["curves"] else None
        values = [*(entry["scores"].get(metric) for metric in METRICS), recall]
        rounded = [None if value is None else round(value, 2) for value in values]
        seconds = None if entry["train_seconds"] is None else round(entry["train_seconds"])
        rows.append([*entry["cells"], *rounded, seconds])
        if entry["note"]:
            notes[name] = entry["note"]
        if ablation.curves:
            curves.append({"name": name, "curves": entry["curves"]})
    recall_column = header.index(META_RECALL)
    if all(row[recall_column] is None for row in rows):  # this recipe has no meta-classifier
        for row in (header, *rows):
            del row[recall_column]
        drawn.remove(META_RECALL)
    return {
        "title": ablation.title,
        "question": ablation.question,
        "lead": ablation.lead,
        "header": header,
        "named": len(ablation.columns),
        "drawn": drawn,
        "spread": ablation.spread,
        "rows": rows,
        "notes": notes,
        "curves": curves,
    }
