"""Astec: DeepXML's modules with a bag of word vectors as the encoder."""

from __future__ import annotations

from shortlist.recipes.common import DEEPXML_OPTIONS, DROPOUT, RUN, TEXT_OPTIONS
from shortlist.recipes.options import flag
from shortlist.recipes.recipe import Recipe

DEEPXML_PHASES = ("surrogate", "candidates", "classifier")

ASTEC = Recipe(
    name="astec",
    summary="sums of word vectors, candidates by nearest neighbours, one row of weights per label, re-ranked by words",
    cost="minutes to an hour on 2 cores; hardly grows with the number of labels",
    choose_when="as a strong model that trains quickly, for any number of labels",
    encoder="bag",
    phases=DEEPXML_PHASES,
    options=(
        *TEXT_OPTIONS,
        *DEEPXML_OPTIONS,
        DROPOUT,
        flag("relu", False, "apply a ReLU to the features, as published"),
        *RUN,
    ),
)
RECIPES = (ASTEC,)
