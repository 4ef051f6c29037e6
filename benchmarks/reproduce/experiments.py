"""Which systems are trained for which table or figure of the papers.

A row of a table names an entry of `shortlist compare`: a recipe with options (`astec@published:reranker=none`), an
ensemble (`astec@published*3`), or another tool (`omikuji-parabel`). Tables share entries; each is trained once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import papers

from shortlist.compare.plan import PEERS
from shortlist.recipes import get_recipe
from shortlist.recipes.options import resolve

OTHER_TOOLS = {
    "DiSMEC": "napkinxc-ovr",
    "Parabel": "omikuji-parabel",
    "Bonsai": "omikuji-bonsai",
    "XT": "napkinxc-plt",
}
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
NEGATIVES, MOST_LABELS_AT_ONCE = (20, 100, 500), 5000
# Table 3 searches 100 of 8,192 clusters: this share of the labels. A small set needs a few more of them.
SEARCHED_SHARE, MIN_SEARCHED = 100 / 8192, 100
# Texts of more words than this stand for the full texts of DeepXML's Table 10.
WORDS_OF_FULL_TEXTS = 50
# The epochs of each phase, and the epoch after which its learning rate is halved.
PHASES = {
    "n_surrogate_epochs": "surrogate_decay_epoch",
    "n_epochs": "decay_epoch",
    "n_reranker_epochs": "reranker_decay_epoch",
}


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
    """What differs from one reproduction to the next: sizes of the data, word vectors, weights, and how much to run.

    n_epochs       most epochs of a phase; 0: as many as published
    n_orders       orders of words and of dimensions; ten in the paper
    n_repetitions  of MACH; 0: as many as published
    input_kind     "texts", or "sparse" or "dense" features: systems that do not take them are left out
    """

    n_labels: int
    n_texts: int = 10_000
    words_per_text: float = 0.0
    vectors: str = ""
    transformer: str = ""
    n_epochs: int = 0
    n_orders: int = 10
    n_repetitions: int = 0
    peers: bool = True
    input_kind: str = "texts"

    def takes(self, entry: str) -> bool:
        """Whether this entry can learn from the data."""
        if entry in PEERS:
            return self.input_kind == "texts" or not PEERS[entry].needs_text
        return self.input_kind in get_recipe(re.split(r"[:*]", entry)[0]).takes

    def published(self, recipe: str, members: int = 1, **options: object) -> str:
        """The entry of a recipe as published."""
        return self._entry(f"{recipe}@published", {"vectors": self.vectors} | options, members)

    def ours(self, recipe: str, **options: object) -> str:
        return self._entry(recipe, options)

    def _entry(self, name: str, options: dict[str, object], members: int = 1) -> str:
        known = get_recipe(name).option_names
        given = {option: value for option, value in options.items() if option in known and value != ""}
        given |= self.fewer(name, given)
        head = name if members == 1 else f"{name}*{members}"
        return ":".join([head, *(f"{option}={_text(value)}" for option, value in given.items())])

    def fewer(self, name: str, given: dict[str, object], inputs: str = "") -> dict[str, int]:
        """The epochs and repetitions that are cut; the learning rate is halved after the same share of the epochs."""
        recipe, cut = get_recipe(name), {}
        values = resolve(name, recipe.options, given, self.n_texts, self.n_labels, inputs or self.input_kind).to_dict()
        if self.n_repetitions and values.get("n_repetitions", 0) > self.n_repetitions:
            cut["n_repetitions"] = self.n_repetitions
        is_used = {
            "n_surrogate_epochs": values.get("surrogate") != "none",
            "n_epochs": values.get("classifier", "rows") == "rows",
            "n_reranker_epochs": values.get("reranker") == "network",
        }
        for epochs, decay in PHASES.items():
            most = values.get(epochs, 0)
            if self.n_epochs and most > self.n_epochs and is_used[epochs]:
                cut[epochs] = self.n_epochs
                if values["schedule"] == "step" and values[decay] < most:
                    cut[decay] = max(1, round(values[decay] * self.n_epochs / most))
        return cut

    @property
    def tools(self) -> dict[str, str]:
        return OTHER_TOOLS if self.peers else {}

    @property
    def lightxml(self) -> dict[str, str]:
        if not self.transformer:
            return {}
        return {"LightXML": self.published("lightxml", vectors="", transformer=self.transformer)}


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def tables(plan: Plan) -> list[Table]:
    """All tables and figures that consist of trained systems, with the systems that can learn from the data."""
    made = []
    for table in _tables(plan):
        rows = {name: entry for name, entry in table.rows.items() if plan.takes(entry)}
        made.append(replace(table, rows=rows))
    return made


def _tables(plan: Plan) -> list[Table]:
    systems = {name: plan.published(recipe) for name, recipe in SYSTEMS.items()} | plan.lightxml
    systems["Astec-3"] = plan.published("astec", members=3)
    systems |= plan.tools
    ours = {f"our {name}": plan.ours(recipe) for name, recipe in SYSTEMS.items()}
    full_texts = plan.words_per_text > WORDS_OF_FULL_TEXTS
    short = ("P@1", "P@5")
    return [
        Table(
            "systems",
            papers.DEEPXML if full_texts else papers.INCEPTIONXML,
            "Table 10 (full texts)" if full_texts else "Table 1; DeepXML, Tables 1 and 11",
            "Accuracy of the systems as published, in our form, and of linear tools",
            systems | ours,
            papers.PRECISIONS,
            papers.FULL_TEXT if full_texts else papers.ACCURACY,
            "AttentionXML before Astec, Parabel and DiSMEC; then XML-CNN and Slice."
            if full_texts
            else "InceptionXML before InceptionXML+ and Astec; Astec before XML-CNN, MACH, Slice and the linear tools.",
        ),
        Table(
            "cost",
            papers.INCEPTIONXML,
            "Table 2; DeepXML, Table 1",
            "Cost: floating-point operations, training, one prediction, model",
            {name: entry for name, entry in systems.items() if name in papers.COST},
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
                for i in range(1, plan.n_orders + 1)
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
            "parts",
            papers.DEEPXML,
            "§3.3, §4, A.2, A.4",
            "Astec without some of its parts",
            _parts(plan),
            ("P@1", "P@5", "PSP@1"),
            expected="The re-ranker adds 1 to 3 %; random negatives, label correlations and several centres of "
            "frequent labels help; R without a bound and a fully connected block are worse; fine-tuning the encoder is "
            "more accurate and more expensive.",
        ),
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
    for size in LABELS_PER_CLUSTER:
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


def _parts(plan: Plan) -> dict[str, str]:
    """What the text of DeepXML says of Astec's parts; all but one row are without the re-ranker."""
    changes: dict[str, dict[str, object]] = {
        "Astec": {},
        "R not bounded": {"spectral_bound": 0.0},
        "fully connected block": {"block": "linear"},
        "no random negatives": {"n_random_negatives": 0},
        "no label correlations": {"label_correlations": False},
        "one centre per label": {"n_head_labels": 0},
        "fine-tuned encoder": {"finetune_encoder": True},
    }
    rows = {name: plan.published("astec", reranker="none", **options) for name, options in changes.items()}
    return {**rows, "with the re-ranker": plan.published("astec")}


def _negatives(plan: Plan) -> dict[str, str]:
    alone = {"reranker": "none", "n_random_negatives": 0}
    rows = {
        f"{count} {sampling} negatives": plan.published(
            "astec", negative_sampling=sampling, n_candidates=min(count, plan.n_labels), **alone
        )
        for sampling in ("uniform", "frequent")
        for count in NEGATIVES
    }
    if plan.n_labels <= MOST_LABELS_AT_ONCE:
        rows["all labels"] = plan.published("astec", n_candidates=plan.n_labels, **alone)
    return rows


def entries(chosen: Iterable[Table]) -> tuple[list[str], list[str]]:
    """The recipes and the other tools behind these tables, each once, in the order of the tables."""
    names = list(dict.fromkeys(entry for table in chosen for entry in table.rows.values()))
    return [name for name in names if name not in PEERS], [name for name in names if name in PEERS]
