"""Which systems are trained for which table or figure of the papers.

A row of a table names an entry of `shortlist compare`: a recipe with options (`astec@published:reranker=none`), an
ensemble (`astec@published*3`), or another tool (`omikuji-parabel`). Tables share entries; each is trained once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import papers

from shortlist.compare.plan import PEERS
from shortlist.recipes import get_recipe

OTHER_TOOLS = {"DiSMEC": "napkinxc-ovr", "Parabel": "omikuji-parabel", "Bonsai": "omikuji-bonsai"}
SYSTEMS = {
    "InceptionXML+": "inceptionxml+",
    "InceptionXML": "inceptionxml",
    "Astec": "astec",
    "AttentionXML": "attentionxml",
    "XML-CNN": "xml-cnn",
    "MACH": "mach",
    "Slice": "slice",
}
LABELS_PER_CLUSTER = (82, 41, 20, 10)
# Table 3 searches 100 of 8,192 clusters: this share of the labels. A small set needs a few more of them.
SEARCHED_SHARE, MIN_SEARCHED = 100 / 8192, 100


@dataclass(frozen=True)
class Table:
    """A table or figure of a paper: the entry behind each row, and what the paper has there."""

    key: str
    paper: str
    place: str
    title: str
    rows: dict[str, str]
    metrics: tuple[str, ...]
    theirs: dict[str, dict[str, float]] = field(default_factory=dict)
    expected: str = ""  # what the paper says comes out


@dataclass(frozen=True)
class Plan:
    """What differs from one reproduction to the next: sizes of the data, word vectors, weights, and how much to run."""

    n_labels: int
    vectors: str = ""
    transformer: str = ""
    quick: bool = False
    peers: bool = True

    def published(self, recipe: str, members: int = 1, **options: object) -> str:
        """The entry of a recipe as published; `--quick` trains for two epochs."""
        return self._entry(f"{recipe}@published", {"vectors": self.vectors} | options, members)

    def ours(self, recipe: str, **options: object) -> str:
        return self._entry(recipe, options)

    def _entry(self, name: str, options: dict[str, object], members: int = 1) -> str:
        known = get_recipe(name).option_names
        quick = {"n_epochs": 2, "n_surrogate_epochs": 2, "n_repetitions": 2} if self.quick else {}
        given = {name: value for name, value in (quick | options).items() if name in known and value != ""}
        head = name if members == 1 else f"{name}*{members}"
        return ":".join([head, *(f"{option}={_text(value)}" for option, value in given.items())])

    @property
    def tools(self) -> dict[str, str]:
        return OTHER_TOOLS if self.peers else {}

    @property
    def lightxml(self) -> dict[str, str]:
        if not self.transformer:
            return {}
        return {"LightXML": self.published("lightxml", vectors="", transformer=self.transformer)}

    def n_orders(self) -> int:
        """How often words and dimensions are permuted; ten times in the paper."""
        return 2 if self.quick else 10


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def tables(plan: Plan) -> list[Table]:
    """All tables and figures that consist of trained systems."""
    systems = {name: plan.published(recipe) for name, recipe in SYSTEMS.items()} | plan.lightxml
    systems["Astec-3"] = plan.published("astec", members=3)
    systems |= plan.tools
    ours = {f"our {name}": plan.ours(recipe) for name, recipe in SYSTEMS.items()}
    names = papers.TRAINING_HOURS.keys() & systems.keys()
    short = ("P@1", "P@5")
    return [
        Table(
            "systems",
            papers.INCEPTIONXML,
            "Table 1; DeepXML, Tables 1, 10 and 11",
            "Accuracy of the systems as published, in our form, and of linear tools",
            systems | ours,
            papers.PRECISIONS,
            papers.ACCURACY,
            "InceptionXML before InceptionXML+ and Astec; Astec before XML-CNN, MACH, Slice and the linear tools.",
        ),
        Table(
            "cost",
            papers.INCEPTIONXML,
            "Table 2; DeepXML, Table 1",
            "Cost: floating-point operations, training, one prediction, model",
            {name: systems[name] for name in [*papers.COST, *names] if name in systems},
            ("GFLOPs", "training s", "ms", "MB"),
            papers.COST,
            "InceptionXML+ needs a seventh of InceptionXML's operations, and about half of its training time.",
        ),
        Table(
            "fan-out",
            papers.INCEPTIONXML,
            "Table 3 and Figure 3",
            "Labels per cluster, detached training, LightXML's form, and DeepXML's modules",
            {**_fan_out(plan), "in DeepXML's modules": plan.published("inceptionxml-deepxml")},
            ("P@1", "P@5", "PSP@1", "PSP@5"),
            papers.FAN_OUT,
            "More and smaller clusters are better; detaching helps; LightXML's form is behind.",
        ),
        Table(
            "attention",
            papers.INCEPTIONXML,
            "Figure 4",
            "With and without the attention layers",
            {
                "InceptionXML": systems["InceptionXML"],
                "without attention": plan.published("inceptionxml", attention=False),
            },
            papers.PRECISIONS,
            expected="The attention layers add at most 1 %.",
        ),
        Table(
            "dimensions",
            papers.INCEPTIONXML,
            "Figure 5",
            "The dimensions of the word vectors in other orders",
            {"as given": systems["InceptionXML"]}
            | {
                f"order {i}": plan.published("inceptionxml", dimension_permutation=i)
                for i in range(1, plan.n_orders() + 1)
            },
            papers.PRECISIONS,
            expected="The order has little or no effect.",
        ),
        Table(
            "recast",
            papers.DEEPXML,
            "Table 4",
            "XML-CNN and MACH in DeepXML's modules",
            {
                "XML-CNN": systems["XML-CNN"],
                "DeepXML + XML-CNN": plan.published("deepxml-cnn"),
                "MACH": systems["MACH"],
                "DeepXML + MACH": plan.published("deepxml-mlp"),
            },
            ("P@1", "training s"),
            expected="+1.89 points of P@1 and 10 times as fast for XML-CNN, +2.41 and 5 times for MACH.",
        ),
        *_modules(plan, short),
        Table(
            "negatives",
            papers.DEEPXML,
            "Figure 2",
            "Random negatives against all labels",
            _negatives(plan),
            short,
            expected="Random negatives stay behind training on all labels, however many there are.",
        ),
    ]


def _fan_out(plan: Plan) -> dict[str, str]:
    forms = {
        "InceptionXML+": {},
        "not detached": {"detach_fraction": 0.0},
        "LightXML": {"detach_fraction": 0.0, "variant": "lightxml"},
    }
    rows = {}
    for size in LABELS_PER_CLUSTER[-2:] if plan.quick else LABELS_PER_CLUSTER:
        n_clusters = -(-plan.n_labels // size)
        share = max(SEARCHED_SHARE, min(MIN_SEARCHED / plan.n_labels, 1))
        searched = max(1, round(share * n_clusters))
        for form, options in forms.items():
            rows[f"{size} labels per cluster, {form}"] = plan.published(
                "inceptionxml+", n_clusters=n_clusters, n_clusters_searched=searched, **options
            )
    return rows


def _modules(plan: Plan, metrics: tuple[str, ...]) -> Iterable[Table]:
    """DeepXML, Table 6: one component of Astec is exchanged, without the re-ranker."""
    alone = {"reranker": "none"}
    astec = {"Astec": plan.published("astec", **alone)}
    frozen = {"transformer": plan.transformer, "vectors": ""}
    bert = {"BERT": plan.published("deepxml-transformer", **frozen, **alone)} if plan.transformer else {}
    parts = {
        "a": (
            "the encoder",
            {
                "CNN": plan.published("deepxml-cnn", **alone),
                "MLP": plan.published("deepxml-mlp", **alone),
                "InceptionXML": plan.published("inceptionxml-deepxml", **alone),
                **bert,
            },
        ),
        "b": (
            "the surrogate task",
            {
                "unsupervised": plan.published("astec", surrogate="none", **alone),
                "random groups": plan.published("astec", surrogate="hashed", **alone),
                "frequent labels": plan.published("astec", surrogate="frequent", **alone),
            },
        ),
        "c": (
            "the classifier over the learnt features",
            {name: plan.published("astec", classifier=name.lower(), **alone) for name in ("Slice", "DiSMEC")}
            | {"nearest neighbours": plan.published("astec", classifier="neighbours", **alone)},
        ),
        "d": (
            "negative sampling",
            {
                "uniform": plan.published("astec", negative_sampling="uniform", **alone),
                "frequent labels": plan.published("astec", negative_sampling="frequent", **alone),
                "Slice": plan.published("astec", negative_sampling="slice", **alone),
            },
        ),
    }
    for key, (what, rows) in parts.items():
        title = f"Astec with other choices: {what}"
        place = f"Table 6({key})"
        yield Table(
            f"modules-{key}", papers.DEEPXML, place, title, astec | rows, metrics, papers.MODULES[key], "Astec is best."
        )


def _negatives(plan: Plan) -> dict[str, str]:
    alone = {"reranker": "none", "n_random_negatives": 0}
    counts = (50, 500) if plan.quick else (20, 100, 500)
    rows = {
        f"{count} {sampling} negatives": plan.published(
            "astec", negative_sampling=sampling, n_candidates=min(count, plan.n_labels), **alone
        )
        for sampling in ("uniform", "frequent")
        for count in counts
    }
    if plan.n_labels <= 5000:
        rows["all labels"] = plan.published("astec", n_candidates=plan.n_labels, **alone)
    return rows


def entries(chosen: Iterable[Table]) -> tuple[list[str], list[str]]:
    """The recipes and the other tools behind these tables, each once, in the order of the tables."""
    names = list(dict.fromkeys(entry for table in chosen for entry in table.rows.values()))
    return [name for name in names if name not in PEERS], [name for name in names if name in PEERS]
