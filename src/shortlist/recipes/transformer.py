"""LightXML: a transformer of your choice with candidates from clusters; and the same encoder in DeepXML's modules."""

from __future__ import annotations

from dataclasses import replace

from shortlist.recipes.common import BLOCK_OPTIONS, LEARNING_RATE, OPTIMIZATION_OPTIONS, RUN, TEXT_OPTIONS
from shortlist.recipes.deepxml import DEEPXML_OPTIONS, DEEPXML_PHASES
from shortlist.recipes.inceptionxml import CLUSTER_OPTIONS, DEFAULTS_BY_VARIANT, VARIANT
from shortlist.recipes.options import (
    DataSize,
    Option,
    Published,
    choice,
    count,
    flag,
    fraction,
    rate,
    with_defaults,
    with_published,
)
from shortlist.recipes.recipe import Recipe

# A transformer has vectors for its word pieces.
OF_WORD_VECTORS = ("embedding_dim", "vectors", "vector_init", "subwords", "subwords_of")

TRANSFORMER_OPTIONS = (
    Option(
        "transformer",
        (str,),
        "",
        "folder of a Hugging Face model: config.json, tokenizer.json, model.safetensors",
        required=True,
    ),
    choice(
        "pooling",
        "mean",
        "which outputs of the transformer are the features of a text: the mean over its word pieces, the first (cls), "
        "or the last",
        ("mean", "cls", "last"),
    ),
    count("pooled_layers", 1, "last layers of the transformer whose pooled outputs are the features, side by side"),
    flag("freeze_encoder", False, "encode texts once, and learn only what follows: affordable on a CPU"),
    flag("scale_features", True, "scale the features to the length that label rows learn best from"),
    fraction("dropout", 0.5, "share of the features that is dropped at random"),
    rate("encoder_learning_rate", 5e-5, "peak of the learning rate of the transformer"),
    fraction("weight_decay", 0.01, "weight decay of the transformer (AdamW)"),
    *with_defaults((option for option in TEXT_OPTIONS if option.name not in OF_WORD_VECTORS), max_words=64),
)
BATCH_SIZE = count(
    "batch_size", lambda size: 128 if size.options["freeze_encoder"] else 32, "texts per step", "32; frozen: 128"
)


def _n_epochs(size: DataSize) -> int:
    frozen = size.options["freeze_encoder"]
    return round(min(max((20 if frozen else 8) * size.scale**-0.5, 3), 20))


# From this many labels on, the paper recalls clusters first; with fewer, a text is trained on all labels.
MANY_LABELS = 100_000
SETTINGS, PROGRAM = "LightXML", "program (run.sh)"


def _published_n_clusters(size: DataSize) -> int:
    """A balanced tree is split until a cluster has 100 labels or fewer."""
    return 0 if size.n_labels < MANY_LABELS else 1 << (-(-size.n_labels // 100) - 1).bit_length()


LIGHTXML_PUBLISHED = {
    "pooling": Published("cls", "LightXML"),
    "pooled_layers": Published(5, "LightXML: the last five layers"),
    "scale_features": Published(False, "LightXML"),
    "dropout": Published(0.5, SETTINGS),
    "learning_rate": Published(1e-4, SETTINGS),
    "encoder_learning_rate": Published(1e-4, SETTINGS),
    "weight_decay": Published(0.01, f"{SETTINGS}; the program decays label rows, too"),
    "max_words": Published.by_size(PROGRAM, "labels", 512, (MANY_LABELS, 128)),
    "group_by_length": Published(False, "program: batches at random"),
    "label_texts": Published("never", "LightXML: no label features"),
    "reranker": Published("none", "LightXML: no re-ranker"),
    "patience": Published(1000, f"{PROGRAM}: all epochs"),
    "tune_search": Published(False, f"{PROGRAM}: the top K"),
    "n_epochs": Published.by_size(PROGRAM, "texts", 20, (100_000, 15), (1_000_000, 10)),
    "batch_size": Published(16, PROGRAM),
    "optimizer": Published("adam", SETTINGS),
    "loss_reduction": Published("mean", "program: mean over batch × labels"),
    "schedule": Published("step", f"{SETTINGS}: constant"),
    "decay_epoch": Published(lambda size: size.options["n_epochs"], f"{SETTINGS}: constant", "n_epochs: never"),
    "row_init": Published("xavier", "program"),
    "bottleneck": Published.by_size(
        f"LightXML: hidden bottleneck layer; {PROGRAM}: Amazon-670K", "labels", 0, (MANY_LABELS, 400)
    ),
    "bias_init": Published.by_size("program", "labels", "zero", (MANY_LABELS, "none")),
    "n_clusters": Published(
        _published_n_clusters,
        "program (cluster.py)",
        f"0; from {MANY_LABELS:,} labels on the smallest power of two with at most 100 labels per cluster",
    ),
    "n_clusters_searched": Published(
        lambda size: min(75, max(size.options["n_clusters"], 1)), f"{PROGRAM}: Amazon-670K", "75, at most the clusters"
    ),
}

LIGHTXML = Recipe(
    name="lightxml",
    summary="LightXML: a transformer, every text trained on the labels of its best clusters only",
    cost="hours to days on 2 cores, made for a GPU; frozen, about 20 ms per text, then as inceptionxml+",
    choose_when="where a pretrained transformer knows more about your texts than your training data can teach",
    encoder="transformer",
    phases=("joint",),
    options=(
        replace(VARIANT, default="lightxml"),
        *TRANSFORMER_OPTIONS,
        count(
            "n_epochs",
            _n_epochs,
            "passes over the training texts",
            "8 / √(texts / 10,000), 3 to 20; frozen: 20 / √(texts / 10,000)",
        ),
        BATCH_SIZE,
        LEARNING_RATE,
        *OPTIMIZATION_OPTIONS,
        count("bottleneck", 0, "project the features to this many numbers before the label rows; 0: do not", low=0),
        *with_published((*BLOCK_OPTIONS, *CLUSTER_OPTIONS), DEFAULTS_BY_VARIANT),
        *RUN,
    ),
    published=LIGHTXML_PUBLISHED,
)
DEEPXML_TRANSFORMER = Recipe(
    name="deepxml-transformer",
    summary="a transformer in DeepXML's modules",
    cost="hours on 2 cores, made for a GPU; frozen, about 20 ms per text, then as slice",
    choose_when="as lightxml, or to see what the encoder alone changes",
    encoder="transformer",
    phases=DEEPXML_PHASES,
    options=(
        *TRANSFORMER_OPTIONS,
        BATCH_SIZE,
        *(option for option in DEEPXML_OPTIONS if option.name != "batch_size"),
        *RUN,
    ),
)
RECIPES = (LIGHTXML, DEEPXML_TRANSFORMER)
