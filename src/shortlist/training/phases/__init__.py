"""The phases of training, by the names that recipes list them under. Each adds stages to the model under construction.

To add one: write `NAME(build)` in a file here, and `NAME_memory(build)` if it needs much; list it in `PHASES`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, NamedTuple

from shortlist.errors import OptionError
from shortlist.stages.pipeline import Pipeline
from shortlist.training.build import Build


class Phase(NamedTuple):
    """A phase: `run(build)` learns, `memory(build)` says before how many bytes it needs for what."""

    run: Callable[[Build], None]
    memory: Callable[[Build], dict[str, int]]


# The module of each, which is loaded when used: baselines need no torch.
PHASES = {
    "frequencies": "baselines",
    "centroids": "baselines",
    "joint": "joint",
    "surrogate": "surrogate",
    "candidates": "candidates",
    "classifier": "classifier",
    "buckets": "buckets",
    "attention_clusters": "attention",
    "attention_labels": "attention",
}


# Modules of training/ and their functions: from a pipeline and a build to a re-ranker.
RERANKERS = {"words": ("reranking", "learn_reranker"), "network": ("network_reranking", "learn_network_reranker")}


def phase_named(name: str) -> Phase:
    """The phase `name`: functions `name` and `name_memory` of its module."""
    if name not in PHASES:
        raise OptionError(f"there is no phase {name!r}; the phases are {', '.join(PHASES)}")
    module = importlib.import_module(f"{__name__}.{PHASES[name]}")
    return Phase(getattr(module, name), getattr(module, f"{name}_memory", lambda build: {}))


def reranker_named(name: str) -> Callable[[Pipeline, Build], Any]:
    """The function that learns this re-ranker."""
    module, function = RERANKERS[name]
    return getattr(importlib.import_module(f"shortlist.training.{module}"), function)


def reranker_memory(build: Build) -> dict[str, int]:
    """Bytes that learning the re-ranker needs in addition to the phases; almost none for words."""
    if build.options.get("reranker", "none") != "network":
        return {}
    from shortlist.training.network_reranking import memory

    return memory(build)
