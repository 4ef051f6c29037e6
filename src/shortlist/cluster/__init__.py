"""Training, batch prediction and serving on Ray (extra `ray`)."""

from __future__ import annotations

import importlib
from typing import Any

# Loaded when first used: serving needs extras that training does not.
_MODULES = {
    "deployment": "serve",
    "sharded_deployment": "serve",
    "open_label_shards": "label_shards",
    "save_label_shards": "label_shards",
}

__all__ = ["deployment", "open_label_shards", "save_label_shards", "sharded_deployment"]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(importlib.import_module(f"shortlist.cluster.{_MODULES[name]}"), name)
    raise AttributeError(f"module 'shortlist.cluster' has no attribute {name!r}")
