"""Slice: DeepXML's modules without learning any features."""

from __future__ import annotations

from shortlist.recipes.astec import ASTEC
from shortlist.recipes.deepxml import DEEPXML_PHASES, WORDS_PUBLISHED
from shortlist.recipes.options import DataSize, Published, with_defaults, with_published
from shortlist.recipes.recipe import Recipe

# "Program": the authors' (Jain et al. 2019), with its default parameters.
SLICE_PUBLISHED = {
    **WORDS_PUBLISHED,
    "reranker": Published("none", "Slice"),
    "surrogate": Published("none", "Slice: features are given"),
    "negative_sampling": Published("slice", "Slice: the nearest label centres"),
    "n_candidates": Published(300, "Slice, program: 300 labels per point"),
    "n_nearest_labels": Published(300, "Slice, program: 300 labels per point"),
    "n_random_negatives": Published(0, "Slice: none"),
    "unit_centres": Published(False, "Slice, program: normalised sum of the label's points"),
    "n_head_labels": Published(0, "Slice: one centre per label"),
    "centre_graph": Published("100/300/300", "Slice, program: M, efC, efS"),
    "vote_weight": Published(0.0, "Slice: no index of points"),
    "classifier": Published("slice", "Slice: a linear classifier per label, squared hinge loss"),
    "C": Published(1.0, "Slice, program"),
    "block": Published("none", "Slice: features stay as they are"),
    "blend": Published("mean", "Slice, program: σ(w · x) + σ(γ · cosine)"),
    "alpha": Published(0.5, "Slice, program: both count the same"),
    "similarity_scale": Published(0.0, "Slice, program: γ, the mean length of the label rows"),
}


def _reranker(size: DataSize) -> str:
    return "none" if size.inputs == "dense" else "words"


RERANKER = Published(_reranker, rule="words, and none for dense features")
SLICE = Recipe(
    name="slice",
    summary="Slice: features that are not learnt, negatives by nearest neighbours, one row of weights per label",
    cost="half as much as astec",
    choose_when="for data sets of features instead of texts (of images, say), or very good word vectors",
    encoder="fixed",
    phases=DEEPXML_PHASES,
    options=with_published(
        with_defaults(ASTEC.options, surrogate="none", negative_sampling="slice"), {"reranker": RERANKER}
    ),
    takes=("texts", "sparse", "dense"),
    published=SLICE_PUBLISHED,
)
RECIPES = (SLICE,)
