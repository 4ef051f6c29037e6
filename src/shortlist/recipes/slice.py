"""Slice: DeepXML's modules without learning any features."""

from __future__ import annotations

from shortlist.recipes.astec import ASTEC, DEEPXML_PHASES
from shortlist.recipes.options import with_defaults
from shortlist.recipes.recipe import Recipe

SLICE = Recipe(
    name="slice",
    summary="Slice: features that are not learnt, negatives by nearest neighbours, one row of weights per label",
    cost="half as much as astec",
    choose_when="for data sets of features instead of texts (of images, say), or very good word vectors",
    encoder="fixed",
    phases=DEEPXML_PHASES,
    options=with_defaults(ASTEC.options, reranker=False, surrogate="none", negative_sampling="slice"),
    takes_features=True,
)
RECIPES = (SLICE,)
