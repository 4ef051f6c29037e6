"""Ablations: variants of InceptionXML, trained one by one and shown in a table of their own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from shortlist.compare.results import Entry

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
        "first, the classifier does not train the encoder. Not detached: it always does. LightXML: also without "
        "residual blocks, and with label scores multiplied by cluster scores (cf. Table 3 and Figure 3 of the "
        "InceptionXML paper). There is no re-ranker, because it would hide what the candidates miss",
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


def ablation_tables(entries: Sequence[Entry]) -> list[dict[str, Any]]:
    """One table per ablation that has entries, for the report."""
    found = ((ablation, [entry for entry in entries if entry.ablation == name]) for name, ablation in ABLATIONS.items())
    return [_table(ablation, variants) for ablation, variants in found if variants]


def _table(ablation: Ablation, entries: Sequence[Entry]) -> dict[str, Any]:
    header, rows = [*ablation.columns, *METRICS, META_RECALL, "training s"], [_row(entry) for entry in entries]
    # Recipes without a meta-classifier have no meta recall.
    kept = [column for column in range(len(header)) if any(row[column] is not None for row in rows)]
    named = [(", ".join(map(str, entry.cells)), entry) for entry in entries]
    return {
        "title": ablation.title,
        "question": ablation.question,
        "lead": ablation.lead,
        "header": [header[column] for column in kept],
        "named": len(ablation.columns),
        "drawn": ["P@1", "P@5", "PSP@5", META_RECALL],
        "spread": ablation.spread,
        "rows": [[row[column] for column in kept] for row in rows],
        "notes": {name: entry.note for name, entry in named if entry.note},
        "curves": [{"name": name, "curves": entry.curves} for name, entry in named if ablation.curves],
    }


def _row(entry: Entry) -> list[Any]:
    recall = entry.curves[-1].get("meta_recall") if entry.curves else None
    values = [*(entry.scores.get(metric) for metric in METRICS), recall]
    rounded = [None if value is None else round(value, 2) for value in values]
    return [*entry.cells, *rounded, None if entry.train_seconds is None else round(entry.train_seconds)]
