"""Astec: DeepXML's modules with a bag of word vectors as the encoder."""

from __future__ import annotations

from shortlist.recipes.common import DROPOUT, RUN, TEXT_OPTIONS
from shortlist.recipes.deepxml import (
    DEEPXML_ON_CLUSTER,
    DEEPXML_OPTIONS,
    DEEPXML_PHASES,
    DEEPXML_PUBLISHED,
    FINETUNE_ENCODER,
)
from shortlist.recipes.options import Published, flag
from shortlist.recipes.recipe import Recipe

ASTEC = Recipe(
    name="astec",
    summary="sums of word vectors, candidates by nearest neighbours, one row of weights per label, re-ranked by words",
    cost="minutes to an hour on 2 cores; hardly grows with the number of labels",
    choose_when="first: it is the default for most data, for any number of labels",
    encoder="bag",
    phases=DEEPXML_PHASES,
    options=(
        *TEXT_OPTIONS,
        *DEEPXML_OPTIONS,
        DROPOUT,
        flag("relu", False, "apply a ReLU to the features, as published"),
        FINETUNE_ENCODER,
        *RUN,
    ),
    takes=("texts", "sparse"),
    on_cluster=DEEPXML_ON_CLUSTER,
    published={
        **DEEPXML_PUBLISHED,
        "relu": Published(True, "DeepXML §4, module I: v = ReLU(Σ x_t · e_t)"),
        "finetune_encoder": Published(False, "DeepXML §4, module II: v is frozen; §3.3 names it for higher accuracy"),
    },
)
RECIPES = (ASTEC,)
