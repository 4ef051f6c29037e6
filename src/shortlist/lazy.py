"""What is imported when it is first used: scipy.sparse, and the names of packages. Prediction must start quickly."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
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


def names_from(package: str, modules: Mapping[str, Sequence[str]]) -> Callable[[str], Any]:
    """The `__getattr__` of a package: it imports each name from its module, given by the names in it."""

    def find(name: str) -> Any:
        for module, names in modules.items():
            if name in names:
                return getattr(importlib.import_module(module), name)
        # With name and obj, Python itself asks "Did you mean …?".
        raise AttributeError(f"module {package!r} has no attribute {name!r}", name=name, obj=sys.modules[package])

    return find
