"""Short-text extreme classification: a short text in, the best few of millions of labels out, by name.

>>> import shortlist
>>> data = shortlist.read([("red shoes", ["shoes"]), ("blue hat", ["hats"])])
>>> model = shortlist.train(data)
>>> model.predict("shoes", k=1)[0].label
'shoes'
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shortlist.lazy import names_from

__version__ = "0.2.0"

# Imported when first used, so that importing the package and `shortlist --help` stay quick.
_MODULES = {
    "shortlist.cluster.train": ("train",),
    "shortlist.data": ("Dataset", "read"),
    "shortlist.data.describe": ("describe",),
    "shortlist.data.split": ("split",),
    "shortlist.errors": ("DataError", "ModelError", "OptionError", "ShortlistError"),
    "shortlist.evaluation": ("evaluate",),
    "shortlist.labels": ("LabelTree",),
    "shortlist.messages": ("set_verbosity",),
    "shortlist.model": ("load",),
    "shortlist.recipes": ("CustomEncoder", "Option", "Published", "Recipe", "get_recipe", "list_recipes", "register"),
    "shortlist.report": ("model_report",),
    "shortlist.text": ("Tokenizer", "Vocabulary"),
    "shortlist.training.cross_validation": ("cross_validate",),
    "shortlist.training.update": ("update",),
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
    "set_verbosity",
    "split",
    "train",
    "update",
]

if TYPE_CHECKING:
    from shortlist.cluster.train import train
    from shortlist.data import Dataset, read
    from shortlist.data.describe import describe
    from shortlist.data.split import split
    from shortlist.errors import DataError, ModelError, OptionError, ShortlistError
    from shortlist.evaluation import evaluate
    from shortlist.labels import LabelTree
    from shortlist.messages import set_verbosity
    from shortlist.model import load
    from shortlist.recipes import CustomEncoder, Option, Published, Recipe, get_recipe, list_recipes, register
    from shortlist.report import model_report
    from shortlist.text import Tokenizer, Vocabulary
    from shortlist.training.cross_validation import cross_validate
    from shortlist.training.update import update


__getattr__ = names_from(__name__, _MODULES)


def __dir__() -> list[str]:
    return sorted(__all__)
