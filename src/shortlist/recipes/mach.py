"""MACH: labels hashed into buckets several times; and its encoder in DeepXML's modules."""

from __future__ import annotations

from shortlist.recipes.common import (
    BATCH_SIZE,
    BLOCK_OPTIONS,
    HASHED_OPTIONS,
    LEARNING_RATE,
    OPTIMIZATION_OPTIONS,
    RUN,
    TEXT_OPTIONS,
    epochs,
)
from shortlist.recipes.deepxml import (
    DEEPXML_OPTIONS,
    DEEPXML_PHASES,
    DEEPXML_PUBLISHED,
    FINETUNE_ENCODER,
    WORDS_PUBLISHED,
)
from shortlist.recipes.options import DataSize, Published, count
from shortlist.recipes.recipe import Recipe

# "Program": the authors' settings for Wiki10-31K, Delicious-200K and Amazon-670K, as rules of the size of the data.
FEW_TEXTS = 100_000


def _n_buckets(size: DataSize) -> int:
    n_buckets = 2000 if size.n_labels < 100_000 else 5000 if size.n_labels < 400_000 else 10_000
    return min(size.n_labels, n_buckets)


MLP_PUBLISHED = {
    "embedding_dim": Published(500, "MACH, program: hidden layers of 500"),
    "vector_init": Published("random", "MACH, program: starts at random"),
    "hashing": Published("universal", "MACH: universal hash functions"),
    "n_word_buckets": Published(100_000, "MACH, program: features hashed into 100,000"),
}
MACH_PUBLISHED = {
    **WORDS_PUBLISHED,
    **MLP_PUBLISHED,
    "tune_search": Published(False, "MACH: all labels are scored"),
    "label_texts": Published("never", "MACH: labels are classes without names"),
    "reranker": Published("none", "MACH: the mean over repetitions"),
    "n_repetitions": Published(32, "MACH, program: R = 32; DeepXML §5: 32 learners"),
    "n_buckets": Published(
        _n_buckets,
        "MACH, program: B",
        "2,000; from 100,000 labels on 5,000, from 400,000 on 10,000; at most the labels",
    ),
    "n_epochs": Published.by_size("MACH, program", "texts", 60, (FEW_TEXTS, 40)),
    "batch_size": Published.by_size("MACH, program", "texts", 100, (FEW_TEXTS, 1000)),
    "learning_rate": Published(0.001, "MACH, program: Adam's default"),
    "schedule": Published("step", "MACH, program: constant"),
    "decay_epoch": Published(1000, "MACH, program: never halved"),
    "optimizer": Published("adam", "MACH, program"),
    "loss_reduction": Published("mean", "MACH, program: mean over batch and buckets"),
    "row_init": Published("xavier", "MACH, program: small at random"),
    "bias_init": Published("zero", "MACH, program: small at random"),
    "weight_init": Published("xavier", "MACH, program: small at random"),
    "block": Published("linear", "MACH, program: a second hidden layer with a ReLU"),
    "block_norm": Published("none", "MACH, program"),
    "block_bias": Published(True, "MACH, program"),
    "dropout": Published(0.0, "MACH, program"),
}

MACH = Recipe(
    name="mach",
    summary="MACH: hashed words, labels hashed into buckets eight times, the mean of the buckets' scores",
    cost="minutes to an hour on 2 cores; time grows with the root of the number of labels",
    choose_when="where one row of weights per label would not fit into memory",
    encoder="mlp",
    takes=("texts", "sparse"),
    phases=("buckets",),
    options=(
        *TEXT_OPTIONS,
        epochs(20, 4, 20),  # a sum of vectors learns in fewer epochs than convolutions, and there are eight of them
        BATCH_SIZE,
        LEARNING_RATE,
        *OPTIMIZATION_OPTIONS,
        *BLOCK_OPTIONS,
        *HASHED_OPTIONS,
        count("n_repetitions", 8, "how many times labels are hashed and a model is learnt"),
        # With 8 repetitions a third of the rows of 131,000 labels and a sixth of those of 670,000. A wrong label almost
        # never shares all 8 buckets with a right one; what is left is the noise of the other labels in the buckets.
        count(
            "n_buckets",
            lambda size: min(size.n_labels, round(16 * size.n_labels**0.5)),
            "buckets that labels are hashed into",
            "16 · √labels, at most the labels",
        ),
        *RUN,
    ),
    published=MACH_PUBLISHED,
)
DEEPXML_MLP = Recipe(
    name="deepxml-mlp",
    summary="MACH's encoder in DeepXML's modules",
    cost="as astec",
    choose_when="as astec, where a vector for each word would not fit into memory",
    encoder="mlp",
    takes=("texts", "sparse"),
    phases=DEEPXML_PHASES,
    options=(*TEXT_OPTIONS, *DEEPXML_OPTIONS, *HASHED_OPTIONS, FINETUNE_ENCODER, *RUN),
    published={**DEEPXML_PUBLISHED, **MLP_PUBLISHED},
)
RECIPES = (MACH, DEEPXML_MLP)
