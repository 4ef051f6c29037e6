"""Every example in a docstring runs and prints what it says."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

import shortlist

SOURCE = Path(__file__).parent.parent / "src"
# Not pytest's --doctest-modules: each of its processes would import every module, torch's included, to find these.
MODULES = [
    ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")
    for path in sorted(SOURCE.rglob("*.py"))
    if ">>> " in path.read_text()
]


@pytest.mark.parametrize("module", MODULES)
def test_examples(module):
    failed, _ = doctest.testmod(importlib.import_module(module))
    assert not failed


@pytest.mark.parametrize("name", [name for name in shortlist.__all__ if name != "__version__"])
def test_every_exported_name_has_an_example_that_runs(name):
    documented = getattr(shortlist, name)
    assert documented.__module__ in MODULES
    assert ">>> " in documented.__doc__ and "+SKIP" not in documented.__doc__
