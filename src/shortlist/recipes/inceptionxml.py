"""InceptionXML on all labels, InceptionXML+ (SyncXML) on clusters of labels, and its encoder in DeepXML's modules."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from shortlist.recipes.common import (
    BATCH_SIZE,
    BLOCK_OPTIONS,
    DROPOUT,
    INCEPTION_OPTIONS,
    LEARNING_RATE,
    OPTIMIZATION_OPTIONS,
    RUN,
    TEXT_OPTIONS,
    clusters_searched,
    epochs,
    given_vectors,
)
from shortlist.recipes.deepxml import DEEPXML_ON_CLUSTER, DEEPXML_OPTIONS, DEEPXML_PHASES, DEEPXML_PUBLISHED
from shortlist.recipes.options import DataSize, Published, choice, count, fraction, share, with_published
from shortlist.recipes.recipe import Recipe

# Small clusters are more accurate, and cost more the more of them there are.
LABELS_PER_CLUSTER, LABELS_PER_CLUSTER_OF_MANY, MANY_CLUSTERS = 8, 16, 8192

# With these, what has a row per label or per cluster can be sharded over the workers of a cluster.
JOINT_ON_CLUSTER = {
    "loss_reduction": ("sum",),
    "reranker": ("words", "none"),
    "device": ("auto", "cpu"),
    "minutes": (0.0,),
}

JOINT_OPTIONS = (*TEXT_OPTIONS, epochs(40, 5, 60), BATCH_SIZE, LEARNING_RATE, *OPTIMIZATION_OPTIONS, *BLOCK_OPTIONS)


def _n_clusters(size: DataSize) -> int:
    of_many = max(-(-size.n_labels // LABELS_PER_CLUSTER_OF_MANY), MANY_CLUSTERS)
    return min(-(-size.n_labels // LABELS_PER_CLUSTER), of_many, size.n_labels)


def _by_variant(syncxml: Any, lightxml: Any, source: str = "") -> Published:
    """A default that follows the variant."""
    rule = f"{syncxml}; {lightxml} with variant=lightxml"
    return Published(lambda size: lightxml if size.options["variant"] == "lightxml" else syncxml, source, rule)


# What the published tables set for each data set, as rules of the number of texts and labels. By them, the data sets of
# the paper get their values: AmazonTitles-670K, WikiSeeAlsoTitles-350K, WikiTitles-500K, AmazonTitles-3M.
MANY_LABELS = 1_000_000


def _by_size(source: str, of_670k: Any, of_350k: Any, of_500k: Any, of_3m: Any) -> Published:
    """A default that follows from the size of the data."""

    def default(size: DataSize) -> Any:
        if size.n_labels > MANY_LABELS:
            return of_3m
        return of_670k if size.n_texts <= 550_000 else of_350k if size.n_texts <= 1_000_000 else of_500k

    steps = [("", of_670k), ("above 550,000 texts ", of_350k), ("above a million ", of_500k)]
    steps.append(("above a million labels ", of_3m))
    kept = [steps[0], *(step for before, step in pairwise(steps) if step[1] != before[1])]
    rule = "; ".join(f"{where}{value:,}" for where, value in kept)
    return Published(default, source, rule)


def _published_n_clusters(size: DataSize) -> int:
    return min(1 << max((size.n_labels // 10).bit_length() - 1, 0), 131_072)


ENCODER_PUBLISHED = {
    "vector_init": given_vectors("InceptionXML §6: GloVe; other words U(−0.25, 0.25)"),
    "split": Published("whitespace", "InceptionXML §6"),
    "stop_words": Published("english", "InceptionXML §6"),
    "max_vocabulary": _by_size("InceptionXML A.2, Table 5", 66_666, 91_414, 185_479, 165_431),
    "max_words": Published(32, "InceptionXML §3"),
    "group_by_length": Published(False, "program: batches at random"),
    "label_texts": Published("never", "InceptionXML §2: labels are numeric identifiers"),
    "channels": Published(32, "InceptionXML §4.1: p = 32"),
    "attention": Published(True, "InceptionXML §4.1"),
    "attention_value": Published("vectors", "InceptionXML §4.1: v = E(x)ᵀ; program: query"),
    "norm_first": Published(False, "program: convolution, GELU, batch norm"),
    "project_norm": Published(True, "program"),
    "word_dropout": Published(0.25, "program"),
    "branch_dropout": Published(0.25, "program"),
    "bag": Published(False, "InceptionXML §4.2"),
    "shuffle_words": Published(False, "InceptionXML §6.3: trained on the texts as they are"),
    "weight_init": Published("xavier", "program"),
}
JOINT_PUBLISHED = {
    **ENCODER_PUBLISHED,
    "reranker": Published("none", "InceptionXML §5.2: logits of the extreme classifier"),
    "patience": Published(1000, "InceptionXML Table 6: all epochs"),
    "tune_search": Published(False, "InceptionXML Table 6: the top K"),
    "optimizer": Published("adam", "program: Adam, SparseAdam for word vectors and label rows"),
    "loss_reduction": Published("mean", "program: mean over batch × labels; InceptionXML §4.3 writes the sum"),
    "schedule": Published("one-cycle-published", "InceptionXML A.5: cyclic learning rate"),
    "row_init": Published("xavier", "program"),
    "block": Published("residual", "InceptionXML §4.3"),
    "block_activation": Published("relu", "InceptionXML §4.3; program: gelu"),
    "block_bias": Published(True, "program"),
    "block_dropout": Published(0.25, "program"),
    "dropout": Published(0.0, "program: after the block instead (head_dropout)"),
    "head_dropout": _by_size("program", 0.5, 0.5, 0.4, 0.4),
}

INCEPTIONXML = Recipe(
    name="inceptionxml",
    summary="convolutions over word vectors, every text trained on all labels",
    cost="minutes to an hour on 2 cores; time grows with texts times labels",
    choose_when="for the best accuracy with up to about 50,000 labels",
    encoder="inception",
    phases=("joint",),
    options=(*JOINT_OPTIONS, DROPOUT, *INCEPTION_OPTIONS, *RUN),
    on_cluster=JOINT_ON_CLUSTER,
    published={
        **JOINT_PUBLISHED,
        "n_epochs": Published(42, "InceptionXML Table 6"),
        "batch_size": Published(128, "InceptionXML Table 6"),
        "learning_rate": Published(0.005, "InceptionXML Table 6"),
        "project_dropout": Published(0.25, "program"),
        "bias_init": Published("zero", "program"),
        "block_norm": Published("batch", "program; InceptionXML §5.1: spectral norm in InceptionXML+ only"),
    },
)
VARIANT = choice(
    "variant",
    "syncxml",
    "syncxml: InceptionXML+; lightxml: LightXML's framework, without blocks, ranked by the product",
    ("syncxml", "lightxml"),
)
CLUSTER_OPTIONS = (
    count(
        "n_clusters",
        _n_clusters,
        "clusters of labels; 0: none, a text is trained on all labels",
        "labels / 8; of very many labels, labels / 16",
        low=0,
    ),
    clusters_searched(n_labels_seen=1600),
    share("detach_fraction", 0.25, "share of the training in which the label rows do not move the encoder"),
    choice(
        "missing_positives",
        "clusters",
        "what a text is trained on besides its best clusters: the clusters of its labels, or its labels alone",
        ("clusters", "labels"),
    ),
    fraction("meta_dropout", 0.0, "head_dropout of the meta-classifier"),
    choice(
        "ranking",
        "logits",
        "rank labels by their logits alone, or by the product of their and their clusters' probabilities",
        ("logits", "product"),
    ),
)
DEFAULTS_BY_VARIANT = {
    "block": _by_variant("residual", "none", "InceptionXML §5.1; LightXML has none"),
    "detach_fraction": _by_variant(0.25, 0.0, "InceptionXML §5.2; LightXML detaches nothing"),
    "ranking": _by_variant("logits", "product", "InceptionXML §5.2; LightXML multiplies"),
}
INCEPTIONXML_PLUS = Recipe(
    name="inceptionxml+",
    summary="the same encoder, every text trained on the labels of its best clusters only",
    cost="minutes to hours on 2 cores; hardly grows with the number of labels",
    choose_when="for many labels, up to millions",
    encoder="inception",
    phases=("joint",),
    options=(
        VARIANT,
        *with_published((*JOINT_OPTIONS, DROPOUT, *INCEPTION_OPTIONS, *CLUSTER_OPTIONS), DEFAULTS_BY_VARIANT),
        *RUN,
    ),
    on_cluster=JOINT_ON_CLUSTER,
    published={
        **JOINT_PUBLISHED,
        "n_epochs": _by_size("InceptionXML Table 6", 35, 30, 27, 35),
        "batch_size": _by_size("InceptionXML Table 6", 256, 256, 256, 128),
        "learning_rate": Published(0.008, "InceptionXML Table 6"),
        "project_dropout": Published(0.0, "program"),
        "bias_init": Published("none", "program: label rows have none, the meta-classifier has"),
        "block_norm": Published("spectral", "InceptionXML §5.1"),
        "n_clusters": Published(
            _published_n_clusters,
            "InceptionXML Table 6: L′",
            "the largest power of two up to labels / 10, at most 131,072",
        ),
        "n_clusters_searched": Published(
            lambda size: min(800, size.options["n_clusters"]), "InceptionXML Table 6: K", "800, at most the clusters"
        ),
        **DEFAULTS_BY_VARIANT,
        "missing_positives": Published("labels", "InceptionXML Algorithm 1: add_missing; program: clusters"),
        "meta_dropout": _by_size("program", 0.3, 0.5, 0.4, 0.3),
    },
)
INCEPTIONXML_DEEPXML = Recipe(
    name="inceptionxml-deepxml",
    summary="InceptionXML's encoder in DeepXML's modules",
    cost="about three times as much as astec",
    choose_when="to see what the encoder alone changes",
    encoder="inception",
    phases=DEEPXML_PHASES,
    options=(*TEXT_OPTIONS, *DEEPXML_OPTIONS, DROPOUT, *INCEPTION_OPTIONS, *RUN),
    on_cluster=DEEPXML_ON_CLUSTER,
    published={**DEEPXML_PUBLISHED, **ENCODER_PUBLISHED},
)
RECIPES = (INCEPTIONXML, INCEPTIONXML_PLUS, INCEPTIONXML_DEEPXML)
