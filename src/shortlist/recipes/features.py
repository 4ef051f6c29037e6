"""DeepXML's modules on dense features, such as embeddings of images or texts: module I learns on top of them."""

from __future__ import annotations

from shortlist.recipes.common import HELD_OUT_OPTIONS, RUN, surrogate_epochs
from shortlist.recipes.deepxml import DEEPXML_OPTIONS, DEEPXML_PHASES
from shortlist.recipes.options import count, fraction
from shortlist.recipes.recipe import Recipe

# Given features are good to begin with: fewer epochs keep what they know.
N_SURROGATE_EPOCHS = surrogate_epochs(16, 4, 30)
DEEPXML_FEATURES = Recipe(
    name="deepxml-features",
    summary="dense features and a hidden layer that learns on top of them, in DeepXML's modules",
    cost="as astec",
    choose_when="for dense features instead of texts: embeddings of images or texts",
    encoder="dense",
    phases=DEEPXML_PHASES,
    options=(
        *HELD_OUT_OPTIONS,
        *(N_SURROGATE_EPOCHS if option.name == "n_surrogate_epochs" else option for option in DEEPXML_OPTIONS),
        count("hidden_size", 512, "size of the hidden layer"),
        fraction("dropout", 0.5, "share of the features that is dropped at random"),
        *RUN,
    ),
    takes=("dense",),
)
RECIPES = (DEEPXML_FEATURES,)
