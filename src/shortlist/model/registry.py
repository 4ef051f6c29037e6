"""The recipes by name, and the two doors to a model: `train` and `load`."""

from __future__ import annotations

import importlib
import inspect
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shortlist.data.dataset import Dataset
from shortlist.data.read import read
from shortlist.errors import ModelError, OptionError
from shortlist.model.base import Model
from shortlist.model.folder import open_model


@dataclass(frozen=True)
class Recipe:
    """Where a recipe's model lives, and what to tell a user who has to choose."""

    name: str
    home: str
    what: str
    cost: str
    choose_when: str

    def model_class(self) -> Any:
        module, _, name = self.home.partition(":")
        return getattr(importlib.import_module(module), name)


_RECIPES = [
    Recipe(
        "popular",
        "shortlist.model.baselines:PopularModel",
        "always the commonest labels",
        "nothing",
        "as the floor that every model must beat",
    ),
    Recipe(
        "centroid",
        "shortlist.model.baselines:CentroidModel",
        "the labels whose average training text is nearest (tf-idf, cosine)",
        "seconds",
        "as a quick first model and a sanity check of the data",
    ),
]


def recipes() -> dict[str, Recipe]:
    """Every recipe by name."""
    return {recipe.name: recipe for recipe in _RECIPES}


def train(dataset: Any, recipe: str = "centroid", **options: Any) -> Model:
    """Train a model on a data set (or anything `shortlist.read` reads).

    >>> model = train([("red shoes", ["shoes"]), ("blue hat", ["hats"])], recipe="centroid")
    >>> model.predict("a hat")[0].label
    'hats'
    """
    trainer = _recipe(recipe).model_class().train
    known = [name for name in inspect.signature(trainer).parameters if name != "dataset"]
    for name in options:
        if name not in known:
            raise OptionError(f"recipe {recipe!r} has no option {name!r}; it has {', '.join(known) or 'none'}.")
    return trainer(dataset if isinstance(dataset, Dataset) else read(dataset), **options)


def load(folder: str | Path) -> Model:
    """Load a model that `model.save` wrote; its files are checked first."""
    reader = open_model(folder)
    name = reader.config.get("recipe")
    if name not in recipes():
        raise ModelError(
            f"{folder}: the model's recipe {name!r} is not known to this release; a newer one may read it."
        )
    return _recipe(name).model_class().from_reader(reader)


def _recipe(name: str) -> Recipe:
    known = recipes()
    if name not in known:
        raise OptionError(f"there is no recipe {name!r}; the recipes are {', '.join(known)}.")
    return known[name]
