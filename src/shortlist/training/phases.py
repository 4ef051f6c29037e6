"""The phases of training by name, as recipes list them. Each one adds stages to the model under construction."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import NamedTuple

from shortlist.errors import OptionError
from shortlist.training.build import Build


class Phase(NamedTuple):
    """A phase: `run(build)` learns, `memory(build)` says before how many bytes it needs for what."""

    run: Callable[[Build], None]
    memory: Callable[[Build], dict[str, int]]


# By module, loaded when used: baselines need no torch.
PHASES = {
    "frequencies": "baselines",
    "centroids": "baselines",
    "joint": "joint",
    "surrogate": "deepxml",
    "candidates": "deepxml",
    "classifier": "deepxml",
    "buckets": "buckets",
}


def phase_named(name: str) -> Phase:
    """The phase `name`: functions `name` and `name_memory` of its module."""
    if name not in PHASES:
        raise OptionError(f"there is no phase {name!r}; the phases are {', '.join(PHASES)}")
    module = importlib.import_module(f"shortlist.training.{PHASES[name]}")
    return Phase(getattr(module, name), getattr(module, f"{name}_memory", lambda build: {}))
