"""The recipes by name, and the two doors to a model: `train` and `load`."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from pathlib import Path
from types import NoneType
from typing import Any, get_args, get_type_hints

import numpy as np

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
    Recipe(
        "inceptionxml",
        "shortlist.model.inception:InceptionModel",
        "convolutions over word vectors, every text trained on all labels",
        "minutes to an hour on 2 cores; time grows with texts times labels",
        "for the best accuracy on up to some 50,000 labels",
    ),
    Recipe(
        "inceptionxml+",
        "shortlist.model.inception:InceptionPlusModel",
        "the same encoder, every text trained on the labels of its best clusters only",
        "minutes to hours on 2 cores; hardly grows with the number of labels",
        "for many labels, up to millions",
    ),
    Recipe(
        "astec",
        "shortlist.model.deepxml:AstecModel",
        "sums of word vectors, shortlists by nearest neighbours, a row of weights a label, re-ranked by its words",
        "minutes to an hour on 2 cores; hardly grows with the number of labels",
        "as a strong model that trains quickly, for any number of labels",
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
    model_class = _recipe(recipe).model_class()
    kinds = options_of(recipe)
    for name in options:
        if name not in kinds:
            raise OptionError(f"recipe {recipe!r} has no option {name!r}; it has {', '.join(kinds) or 'none'}.")
    checked = {name: _checked(name, value, kinds[name]) for name, value in options.items()}
    return model_class.train(dataset if isinstance(dataset, Dataset) else read(dataset), model_class.Options(**checked))


def options_of(recipe: str) -> dict[str, Any]:
    """The options of a recipe and the kinds of their values."""
    return get_type_hints(_recipe(recipe).model_class().Options)


def load(folder: str | Path) -> Model:
    """Load a model that `model.save` wrote; its files are checked first."""
    reader = open_model(folder)
    name = reader.config.recipe
    if name not in recipes():
        raise ModelError(
            f"{folder}: the model's recipe {name!r} is not known to this release; a newer one may read it."
        )
    return _recipe(name).model_class().from_reader(reader)


_KINDS = {
    int: "a whole number",
    float: "a number",
    str: "a text",
    bool: "true or false",
    list[str]: "a list of texts",
    NoneType: "None",
}


def _checked(name: str, value: Any, kind: Any) -> Any:
    """The value of an option, if it is of the kind that the trainer's annotation names."""
    if isinstance(value, np.generic):
        value = value.item()  # numpy's numbers cannot be saved as JSON
    kinds = [kind] if kind in _KINDS else list(get_args(kind))
    if all(known in _KINDS for known in kinds) and kinds and not any(_is_a(value, known) for known in kinds):
        raise OptionError(f"{name} is {value!r:.60}; expected {' or '.join(_KINDS[known] for known in kinds)}")
    return value


def _is_a(value: Any, kind: Any) -> bool:
    if isinstance(value, bool):  # to Python it is an int, too
        return kind is bool
    if kind == list[str]:
        return isinstance(value, list) and all(isinstance(item, str) for item in value)
    return isinstance(value, int | float if kind is float else kind)


def _recipe(name: str) -> Recipe:
    known = recipes()
    if name not in known:
        raise OptionError(f"there is no recipe {name!r}; the recipes are {', '.join(known)}.")
    return known[name]
