"""Ablations: variants of InceptionXML, each a row with a process of its own, shown together as a table of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shortlist.compare.plan import RowPlan, named_options, names_of
from shortlist.errors import OptionError
from shortlist.model.registry import options_of

METRICS = ("P@1", "P@3", "P@5", "PSP@1", "PSP@3", "PSP@5")
# Its second look at the labels hides what the first one misses.
WITHOUT_RERANKER = {"reranker": False}

FAN_OUTS = (8, 32)
FORMS: dict[str, dict[str, Any]] = {
    "synchronised": {},
    "not detached": {"detached": 0.0},
    "LightXML's": {"detached": 0.0, "form": "lightxml"},
}
PERMUTATIONS = 10


@dataclass(frozen=True)
class Variant:
    """One row: what its first cells say, and the options that make it."""

    cells: tuple[str | int, ...]
    options: dict[str, Any]


@dataclass(frozen=True)
class Ablation:
    """What is varied of which recipe, and how its table and picture present it.

    columns   what the first cells of each row are
    variants  the rows, for so many labels
    spread    whether only the differences between the rows matter
    curves    whether it is told how their training went
    """

    name: str
    title: str
    question: str
    lead: str
    recipe: str
    columns: tuple[str, ...]
    variants: Callable[[int], list[Variant]]
    spread: bool = False
    curves: bool = False


def _fan_outs(n_labels: int) -> list[Variant]:
    return [
        Variant((fan_out, form), {"clusters": -(-n_labels // fan_out), **how})
        for fan_out in FAN_OUTS
        for form, how in FORMS.items()
    ]


def _dimensions(_: int) -> list[Variant]:
    return [
        Variant((f"order {number}" if number else "as learnt",), {"dimension_order": number})
        for number in range(PERMUTATIONS + 1)
    ]


_ABLATIONS = [
    Ablation(
        "fan-out",
        "Fan-out",
        "How many labels should a cluster have?",
        "InceptionXML+ with few or many labels in a cluster, as many candidates in all: with both heads synchronised, "
        "the labels' head detached at first; without detaching; and in LightXML's form (InceptionXML's Table 3 and "
        "Figure 3). Without the re-ranker, which would hide what the first look misses",
        "inceptionxml+",
        ("labels a cluster", "form"),
        _fan_outs,
        curves=True,
    ),
    Ablation(
        "dimensions",
        "Dimensions",
        "Does the order of the dimensions matter?",
        "The convolutions run over the dimensions of the word vectors, whose order means nothing: trained again with "
        "dimensions in another order, InceptionXML should be as good (its Figure 5). Without the re-ranker",
        "inceptionxml",
        ("dimensions",),
        _dimensions,
        spread=True,
    ),
]


def ablations() -> dict[str, Ablation]:
    """Every ablation by name."""
    return {ablation.name: ablation for ablation in _ABLATIONS}


@dataclass(frozen=True)
class AblationPlan:
    """An ablation that is asked for, with options for all its rows."""

    ablation: Ablation
    options: dict[str, Any]

    def rows(self, n_labels: int) -> list[RowPlan]:
        return [
            RowPlan(
                f"{self.ablation.name}:{','.join(map(str, variant.cells))}",
                "recipe",
                ", ".join(map(str, variant.cells)),
                self.ablation.recipe,
                options=WITHOUT_RERANKER | variant.options | self.options,
                ablation=self.ablation.name,
                cells=variant.cells,
            )
            for variant in self.ablation.variants(n_labels)
        ]


def plan_ablations(names: str, value_of: Callable[[str], Any]) -> list[AblationPlan]:
    """The ablations that these names ask for: "all", "none", or with commas between, with options fan-out:epochs=5.

    >>> [row.title for row in plan_ablations("fan-out", str)[0].rows(1000)][:2]
    ['8, synchronised', '8, not detached']
    """
    known, planned = ablations(), []
    for name in names_of(names, known):
        head, *settings = name.split(":")
        if head not in known:
            raise OptionError(f"there is no ablation {head!r}; there are {', '.join(known)}.")
        options = named_options(name, settings, known[head].recipe, options_of(known[head].recipe), value_of)
        planned.append(AblationPlan(known[head], options))
    return planned


def tables(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A table for each ablation that has rows, as the report takes them; the rows are as `summary.json` holds them."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        found.setdefault(row["ablation"], []).append(row)
    return [_table(ablation, found[name]) for name, ablation in ablations().items() if name in found]


def _table(ablation: Ablation, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    recalls = [_meta_recall(row) for row in rows]
    with_recall = any(recall is not None for recall in recalls)
    header = [*ablation.columns, *METRICS, *(["meta recall"] if with_recall else []), "training s"]
    cells = []
    for row, recall in zip(rows, recalls, strict=True):
        scores = [_rounded(row["scores"].get(metric)) for metric in METRICS]
        more = [_rounded(recall)] if with_recall else []
        seconds = None if row["train_seconds"] is None else round(row["train_seconds"])
        cells.append([*row["cells"], *scores, *more, seconds])
    names = [", ".join(map(str, row["cells"])) for row in rows]
    return {
        "title": ablation.title,
        "question": ablation.question,
        "lead": ablation.lead,
        "header": header,
        "named": len(ablation.columns),
        "drawn": ["P@1", "P@5", "PSP@5", *(["meta recall"] if with_recall else [])],
        "spread": ablation.spread,
        "rows": cells,
        "notes": {name: row["note"] for name, row in zip(names, rows, strict=True) if row["note"]},
        "curves": [{"name": n, "curves": row["curves"]} for n, row in zip(names, rows, strict=True) if ablation.curves],
    }


def _meta_recall(row: Mapping[str, Any]) -> float | None:
    curves = row["curves"]
    return curves[-1].get("meta_recall") if curves else None


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 2)
