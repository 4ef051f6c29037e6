"""`recipe="auto"`, the default: the best recipe for most data of this kind and size, in the time there is."""

from __future__ import annotations

from collections.abc import Collection
from importlib.util import find_spec

from shortlist.recipes.recipe import Recipe, get_recipe

AUTO = "auto"
# All measured in docs/lab-book.md: with fewer texts, centroids are more accurate than what is learnt;
FEW_TEXTS, MANY_TEXTS = 100, 10_000
# and this is how many texts astec gets through, with one epoch of each phase, per core and minute.
TEXTS_PER_CORE_MINUTE = 10_000


def choose_recipe(
    inputs: str,
    n_texts: int,
    minutes: float = 0,
    n_cores: int = 1,
    options: Collection[str] = (),
    needs_seeds: bool = False,
    published: bool = False,
) -> Recipe:
    """The recipe for this many "texts", or rows of "sparse" or "dense" features; "" for what is not known yet.

    minutes      time for training; 0: no limit
    options      names of the options that the recipe must have
    needs_seeds  whether it must differ from seed to seed, for an ensemble
    published    whether it must have a published form

    >>> choose_recipe("texts", 10_000).name, choose_recipe("texts", 1_000_000, minutes=1).name
    ('astec', 'centroid')
    """
    names = ["astec", "deepxml-features", "slice"]
    if n_texts < FEW_TEXTS or 0 < minutes * n_cores * TEXTS_PER_CORE_MINUTE < n_texts:
        names.insert(0, "centroid")
    if find_spec("torch") is None:
        names.remove("deepxml-features")
    recipes = [recipe for recipe in map(get_recipe, names) if not inputs or inputs in recipe.takes]
    for recipe in recipes:
        fits = recipe.option_names.issuperset(options) and not (recipe.is_baseline and needs_seeds)
        if fits and (recipe.published or not published):
            return recipe
    return next(recipe for recipe in recipes if not recipe.is_baseline)
