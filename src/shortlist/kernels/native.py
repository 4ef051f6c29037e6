"""The kernels, which are compiled from C when the package is built: see the folder `c`.

They take arrays and numbers, raise a TypeError for arrays of other types, and run without the GIL.
"""

from __future__ import annotations

import importlib
from typing import Any


def _load() -> Any:
    """The library for processors with AVX2, or the one for all."""
    for name in ("_native_avx2", "_native"):
        try:
            return importlib.import_module(f"shortlist.kernels.{name}")
        except ImportError as error:
            problem = error
    raise ImportError(f"shortlist is not installed for this machine ({problem}): install it again with pip")


native = _load()
