"""Two baselines that every recipe must beat: the most frequent labels, and the nearest label centroid."""

from __future__ import annotations

from shortlist.recipes.common import LABEL_TEXTS, MAX_TAIL_LOSS, RUN, SEED, STOP_WORDS, VALIDATION_FRACTION
from shortlist.recipes.options import count
from shortlist.recipes.recipe import Recipe

POPULAR = Recipe(
    name="popular",
    summary="always the most frequent labels",
    cost="nothing",
    choose_when="as the floor that every model must beat",
    encoder="none",
    phases=("frequencies",),
    options=(SEED, *RUN),  # they change nothing, but every recipe takes them
    takes=("texts", "sparse", "dense"),
)
CENTROID = Recipe(
    name="centroid",
    summary="the labels whose average training text is nearest (tf-idf, cosine)",
    cost="seconds",
    choose_when="as a quick first model and a sanity check of the data",
    encoder="tfidf",
    phases=("centroids",),
    options=(
        count("min_count", 1, "leave out words with fewer occurrences"),
        STOP_WORDS,
        LABEL_TEXTS,
        count("max_words_per_label", 1000, "words with the largest weights that each label keeps"),
        VALIDATION_FRACTION,
        MAX_TAIL_LOSS,
        SEED,
        *RUN,
    ),
    takes=("texts", "sparse", "dense"),
)
RECIPES = (POPULAR, CENTROID)
