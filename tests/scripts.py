"""Import scripts of folders that are no packages: demo and benchmarks."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parent.parent


def import_script(path: str) -> ModuleType:
    """The module at this path in the repository."""
    spec = importlib.util.spec_from_file_location(Path(path).stem, ROOT / path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses, and scripts beside it, look it up
    spec.loader.exec_module(module)
    return module
