"""Short-text extreme classification: a short text in, the best few of millions of labels out, by name.

>>> import shortlist
>>> data = shortlist.read([("red shoes", ["shoes"]), ("blue hat", ["hats"])])
>>> model = shortlist.train(data, recipe="centroid")
>>> model.predict("shoes", k=1)[0].label
'shoes'
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

# Loaded when first used, so that importing the package and `shortlist --help` stay quick.
_HOMES = {
    "Dataset": "shortlist.data",
    "read": "shortlist.data",
    "split": "shortlist.data.split",
    "describe": "shortlist.data.describe",
    "evaluate": "shortlist.evaluation",
    "model_report": "shortlist.report",
    "train": "shortlist.training.train",
    "cross_validate": "shortlist.training.cross_validation",
    "load": "shortlist.model",
    "CustomEncoder": "shortlist.recipes",
    "Option": "shortlist.recipes",
    "Published": "shortlist.recipes",
    "Recipe": "shortlist.recipes",
    "get_recipe": "shortlist.recipes",
    "list_recipes": "shortlist.recipes",
    "register": "shortlist.recipes",
    "LabelTree": "shortlist.labels",
    "Tokenizer": "shortlist.text",
    "Vocabulary": "shortlist.text",
    "ShortlistError": "shortlist.errors",
    "DataError": "shortlist.errors",
    "ModelError": "shortlist.errors",
    "OptionError": "shortlist.errors",
}

__all__ = [
    "CustomEncoder",
    "DataError",
    "Dataset",
    "LabelTree",
    "ModelError",
    "Option",
    "OptionError",
    "Published",
    "Recipe",
    "ShortlistError",
    "Tokenizer",
    "Vocabulary",
    "__version__",
    "cross_validate",
    "describe",
    "evaluate",
    "get_recipe",
    "list_recipes",
    "load",
    "model_report",
    "read",
    "register",
    "split",
    "train",
]

if TYPE_CHECKING:
    from shortlist.data import Dataset, read
    from shortlist.data.describe import describe
    from shortlist.data.split import split
    from shortlist.errors import DataError, ModelError, OptionError, ShortlistError
    from shortlist.evaluation import evaluate
    from shortlist.labels import LabelTree
    from shortlist.model import load
    from shortlist.recipes import CustomEncoder, Option, Published, Recipe, get_recipe, list_recipes, register
    from shortlist.report import model_report
    from shortlist.text import Tokenizer, Vocabulary
    from shortlist.training.cross_validation import cross_validate
    from shortlist.training.train import train


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'shortlist' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
