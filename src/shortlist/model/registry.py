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
from shortlist.model.ensemble import ENSEMBLE, EnsembleModel
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
    Recipe(
        "inceptionxml-deepxml",
        "shortlist.model.deepxml_recipes:InceptionDeepXMLModel",
        "InceptionXML's convolutions in astec's pipeline",
        "some three times as much as astec",
        "to see what the encoder alone changes",
    ),
    Recipe(
        "xml-cnn",
        "shortlist.model.xml_cnn:XMLCNNModel",
        "XML-CNN: windows over neighbouring words, every text trained on all labels",
        "as inceptionxml",
        "as a published model to compare with, or where the order of words says much",
    ),
    Recipe(
        "deepxml-cnn",
        "shortlist.model.deepxml_recipes:CNNDeepXMLModel",
        "XML-CNN's encoder in astec's pipeline",
        "some three times as much as astec",
        "as xml-cnn, for more labels",
    ),
    Recipe(
        "mach",
        "shortlist.model.mach:MachModel",
        "MACH: hashed words, labels thrown into buckets at random, eight times; the mean of their scores",
        "minutes to an hour on 2 cores; time grows with the root of the number of labels",
        "where a row of weights for each label would not fit into memory",
    ),
    Recipe(
        "deepxml-mlp",
        "shortlist.model.deepxml_recipes:MLPDeepXMLModel",
        "MACH's encoder in astec's pipeline",
        "as astec",
        "as astec, where a vector for each word would not fit into memory",
    ),
    Recipe(
        "slice",
        "shortlist.model.deepxml_recipes:SliceModel",
        "Slice: features that are not learnt, negatives by nearest neighbours, a row of weights a label",
        "half as much as astec",
        "for data sets of features instead of texts (of images, say), or very good word vectors",
    ),
]


def list_recipes() -> dict[str, Recipe]:
    """Every recipe by name."""
    return {recipe.name: recipe for recipe in _RECIPES}


def train(dataset: Any, recipe: str = "centroid", ensemble: int = 1, parallel: int = 1, **options: Any) -> Model:
    """Train a model on a data set (or anything `shortlist.read` reads).

    With `ensemble` above 1, train so many with different seeds, which predict together; `parallel` of them at once,
    each in a process of its own.

    >>> model = train([("red shoes", ["shoes"]), ("blue hat", ["hats"])], recipe="centroid")
    >>> model.predict("a hat")[0].label
    'hats'
    """
    from shortlist.model.ensemble_training import refuse_other_kind, train_ensemble

    model_class = _recipe(recipe).model_class()
    checked = checked_options(recipe, options)
    ensemble, parallel = (_checked_count(*given) for given in (("ensemble", ensemble), ("parallel", parallel)))
    if ensemble > 1 and "seed" not in options_of(recipe):
        raise OptionError(
            f"recipe {recipe!r} has no seed: an ensemble of it would be {ensemble} times the same model. Leave "
            "ensemble out, or choose another recipe."
        )
    settings = model_class.Options(**checked)
    dataset = dataset if isinstance(dataset, Dataset) else read(dataset)
    if getattr(settings, "checkpoints", ""):
        refuse_other_kind(settings.checkpoints, ensemble > 1)
    if ensemble > 1:
        return train_ensemble(model_class, dataset, settings, ensemble, parallel)
    return model_class.train(dataset, settings)


def options_of(recipe: str) -> dict[str, Any]:
    """The options of a recipe and the kinds of their values."""
    return get_type_hints(_recipe(recipe).model_class().Options)


def checked_options(recipe: str, options: dict[str, Any]) -> dict[str, Any]:
    """The options, if the recipe has them and the values are of the right kind."""
    kinds = options_of(recipe)
    for name in options:
        if name not in kinds:
            raise OptionError(f"recipe {recipe!r} has no option {name!r}; it has {', '.join(kinds) or 'none'}.")
    return {name: _checked(name, value, kinds[name]) for name, value in options.items()}


def load(folder: str | Path) -> Model:
    """Load a model that `model.save` wrote; its files are checked first."""
    reader = open_model(folder)
    name = reader.config.recipe
    if name not in list_recipes():
        raise ModelError(
            f"{folder}: the model's recipe {name!r:.60} is not known to this release; a newer one may read it."
        )
    if ENSEMBLE in reader.config.options:
        return EnsembleModel.from_reader(reader)
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


def _checked_count(name: str, value: Any) -> int:
    count = _checked(name, value, int)
    if count < 1:
        raise OptionError(f"{name} is {count}; it must be at least 1")
    return int(count)


def _is_a(value: Any, kind: Any) -> bool:
    if isinstance(value, bool):  # to Python it is an int, too
        return kind is bool
    if kind == list[str]:
        return isinstance(value, list) and all(isinstance(item, str) for item in value)
    return isinstance(value, int | float if kind is float else kind)


def _recipe(name: str) -> Recipe:
    known = list_recipes()
    if name not in known:
        raise OptionError(f"there is no recipe {name!r}; the recipes are {', '.join(known)}.")
    return known[name]
