"""Short-text extreme classification: a short text in, the best few of millions of labels out, by name.

>>> import shortlist
>>> data = shortlist.read([("red shoes", ["shoes"]), ("blue hat", ["hats"])])
>>> model = shortlist.train(data, recipe="centroid")
>>> model.predict("shoes", k=1)[0].label
'shoes'
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

# numba and torch each have threads that, with nothing to do, keep a core busy for milliseconds before they sleep, and
# starve the other's: training can then take ten times as long. So they are to wait for microseconds only.
if not {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"} & set(os.environ):
    os.environ["GOMP_SPINCOUNT"] = "5000"

# Loaded when first used, so that importing the package and `shortlist --help` stay quick.
_HOMES = {
    "Dataset": "shortlist.data",
    "read": "shortlist.data",
    "split": "shortlist.data.split",
    "describe": "shortlist.data.describe",
    "evaluate": "shortlist.evaluation",
    "model_report": "shortlist.report",
    "train": "shortlist.model",
    "load": "shortlist.model",
    "list_recipes": "shortlist.model",
    "LabelTree": "shortlist.labels",
    "Tokenizer": "shortlist.text",
    "Vocabulary": "shortlist.text",
    "ShortlistError": "shortlist.errors",
    "DataError": "shortlist.errors",
    "ModelError": "shortlist.errors",
    "OptionError": "shortlist.errors",
}

__all__ = [
    "DataError",
    "Dataset",
    "LabelTree",
    "ModelError",
    "OptionError",
    "ShortlistError",
    "Tokenizer",
    "Vocabulary",
    "__version__",
    "describe",
    "evaluate",
    "list_recipes",
    "load",
    "model_report",
    "read",
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
    from shortlist.model import list_recipes, load, train
    from shortlist.report import model_report
    from shortlist.text import Tokenizer, Vocabulary


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'shortlist' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
