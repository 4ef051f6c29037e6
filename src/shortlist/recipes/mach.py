"""MACH: labels hashed into buckets several times; and its encoder in DeepXML's modules."""

from __future__ import annotations

from shortlist.recipes.astec import DEEPXML_PHASES
from shortlist.recipes.common import (
    BATCH_SIZE,
    DEEPXML_OPTIONS,
    HASHED_OPTIONS,
    LEARNING_RATE,
    RUN,
    TEXT_OPTIONS,
    epochs,
)
from shortlist.recipes.options import count
from shortlist.recipes.recipe import Recipe

MACH = Recipe(
    name="mach",
    summary="MACH: hashed words, labels hashed into buckets eight times, the mean of the buckets' scores",
    cost="minutes to an hour on 2 cores; time grows with the root of the number of labels",
    choose_when="where one row of weights per label would not fit into memory",
    encoder="mlp",
    phases=("buckets",),
    options=(
        *TEXT_OPTIONS,
        epochs(20, 4, 20),  # a sum of vectors learns in fewer epochs than convolutions, and there are eight of them
        BATCH_SIZE,
        LEARNING_RATE,
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
)
DEEPXML_MLP = Recipe(
    name="deepxml-mlp",
    summary="MACH's encoder in DeepXML's modules",
    cost="as astec",
    choose_when="as astec, where a vector for each word would not fit into memory",
    encoder="mlp",
    phases=DEEPXML_PHASES,
    options=(*TEXT_OPTIONS, *DEEPXML_OPTIONS, *HASHED_OPTIONS, *RUN),
)
RECIPES = (MACH, DEEPXML_MLP)
