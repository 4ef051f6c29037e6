"""scipy.sparse, imported when first used: prediction does not need it and must start quickly."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from scipy import sparse
else:

    class _LazyModule:
        def __init__(self, name: str) -> None:
            self._name = name

        def __getattr__(self, attribute: str) -> Any:
            return getattr(importlib.import_module(self._name), attribute)

    sparse = _LazyModule("scipy.sparse")

__all__ = ["sparse"]
