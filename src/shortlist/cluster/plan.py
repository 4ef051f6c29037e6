"""What a training on a cluster needs, computed before anything is rented: memory, time, network, disk and money.

Memory is what the phases of the recipe themselves compute (`Phase.memory`), for the share of one worker. Time is a
count of multiply-adds, divided by what a core does per second; `measure_speeds` measures that. What has a row per
label is divided among the workers. Texts and the encoder are on every worker, and every worker computes the features of
every text.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np

from shortlist.errors import OptionError
from shortlist.recipes import get_recipe
from shortlist.recipes.options import Options, resolve
from shortlist.recipes.recipe import Recipe

GB = 1e9
LIBRARY_BYTES = 350e6  # Python, numpy, Ray and their libraries in one process
BYTES_PER_WORD = 9  # of a text, with its space
BACKWARD = 3  # multiply-adds of a training step over those of a prediction: scores, gradients, and the update
N_REDUCE = 2  # how often the gradient to the features crosses the wire: to be summed, and back
PLANNED = {"surrogate", "candidates", "classifier", "joint"}


@dataclass(frozen=True)
class Sizes:
    """The data, and how many workers share its labels."""

    n_texts: int
    n_labels: int
    n_workers: int = 1
    n_words: int = 500_000
    words_per_text: float = 9.0
    labels_per_text: float = 3.0


@dataclass(frozen=True)
class Machine:
    """One worker's machine. `price` is per hour."""

    memory_gb: float = 64.0
    cores: int = 16
    network_gbit: float = 10.0
    price: float = 0.0


@dataclass(frozen=True)
class Speeds:
    """Multiply-adds per second of one core: in rows of candidates, and in matrix products. Seconds of a round trip."""

    rows: float = 2.0e9
    dense: float = 1.5e10
    round_trip: float = 0.001


@dataclass(frozen=True)
class PhasePlan:
    """One phase on one worker. Multiply-adds are per text: of labels (shared by the workers) and of everything else."""

    name: str
    memory: dict[str, int]
    n_epochs: int = 1
    of_labels: float = 0.0
    of_texts: float = 0.0
    is_dense: bool = False
    n_steps: int = 0
    bytes_per_step: int = 0

    def seconds(self, sizes: Sizes, machine: Machine, speeds: Speeds) -> tuple[float, float]:
        """Of one epoch: computing, and waiting for the network."""
        rate = speeds.dense if self.is_dense else speeds.rows
        per_text = self.of_labels / sizes.n_workers / rate + self.of_texts / speeds.dense
        waiting = 0.0
        if sizes.n_workers > 1:
            waiting = self.n_steps * (speeds.round_trip + 8 * self.bytes_per_step / (1e9 * machine.network_gbit))
        return sizes.n_texts * per_text / machine.cores, waiting


@dataclass(frozen=True)
class Plan:
    """What `shortlist plan` prints. Times are in seconds."""

    sizes: Sizes
    machine: Machine
    speeds: Speeds
    phases: list[PhasePlan]
    model_bytes: int
    checkpoint_bytes: int
    data_bytes: int

    @property
    def rows(self) -> list[dict[str, Any]]:
        """One per phase."""
        rows = []
        for phase in self.phases:
            computing, waiting = phase.seconds(self.sizes, self.machine, self.speeds)
            largest = max(phase.memory, key=lambda name: phase.memory[name])
            rows.append({
                "phase": phase.name,
                "memory_gb": sum(phase.memory.values()) / GB,
                "largest": f"{largest} {phase.memory[largest] / GB:.1f} GB",
                "n_epochs": phase.n_epochs,
                "epoch_hours": (computing + waiting) / 3600,
                "waiting": waiting / max(computing + waiting, 1e-9),
                "step_kb": phase.bytes_per_step / 1e3,
            })  # fmt: skip
        return rows

    @property
    def peak_gb(self) -> float:
        return max(row["memory_gb"] for row in self.rows)

    @property
    def fits(self) -> bool:
        return self.peak_gb <= self.machine.memory_gb

    @property
    def hours(self) -> float:
        return sum(row["n_epochs"] * row["epoch_hours"] for row in self.rows)

    @property
    def price(self) -> float:
        return self.hours * self.sizes.n_workers * self.machine.price


def make_plan(
    sizes: Sizes,
    machine: Machine | None = None,
    recipe: str = "astec",
    speeds: Speeds | None = None,
    **options: Any,
) -> Plan:
    """The plan of a training with these options of the recipe.

    >>> plan = make_plan(Sizes(10_000_000, 1_000_000, n_workers=4), Machine(memory_gb=64, cores=16, price=1.0))
    >>> [row["phase"] for row in plan.rows]
    ['surrogate', 'candidates', 'classifier']
    """
    known = get_recipe(recipe)
    if not set(known.phases) <= PLANNED:
        raise OptionError(f"there are no formulas for {recipe!r}. Plan astec, or a recipe with the same phases.")
    if sizes.n_workers > 1 and not known.on_cluster:
        raise OptionError(f"{recipe!r} is trained on one machine only. Plan it with 1 worker, or plan astec.")
    if sizes.n_workers > sizes.n_labels:
        raise OptionError(f"{sizes.n_workers:,} workers are more than {sizes.n_labels:,} labels. Use fewer.")
    resolved = resolve(recipe, known.options, options, sizes.n_texts, sizes.n_labels)
    build = _build(known, resolved, sizes)
    data = {"texts and labels": data_bytes(sizes), "libraries": int(LIBRARY_BYTES)}
    phases = [FORMULAS[name](build, sizes, data) for name in known.phases]
    n_features = _n_features(build)
    rows = max(phase.memory.get("label rows", 0) for phase in phases)
    # 8 bits per weight, in the rows and in the index of centres; names of about 20 bytes.
    model = sizes.n_labels * (2 * n_features + 20) + sizes.n_words * (n_features + 10)
    return Plan(
        sizes, machine or Machine(), speeds or Speeds(), phases, model, rows * sizes.n_workers, data_bytes(sizes)
    )


def data_bytes(sizes: Sizes) -> int:
    """Texts, their word ids, and their labels, as training holds them."""
    per_text = BYTES_PER_WORD * sizes.words_per_text + 8
    per_text += 2 * (4 * sizes.words_per_text + 8) + 2 * (4 * sizes.labels_per_text + 8)
    return int(sizes.n_texts * per_text) + 100 * sizes.n_labels


def _build(recipe: Recipe, options: Options, sizes: Sizes) -> Any:
    """What the phases' memory functions ask of a `Build`."""
    data = SimpleNamespace(n_labels=sizes.n_labels, texts=range(sizes.n_texts), n_words=sizes.n_words)
    return SimpleNamespace(recipe=recipe, options=options, data=data, group=SimpleNamespace(size=sizes.n_workers))


def _n_features(build: Any) -> int:
    from shortlist.training.networks import network_kind

    return network_kind(build.recipe).n_features(build.data, build.options)


def _steps(build: Any, sizes: Sizes) -> dict[str, Any]:
    """Steps of an epoch, and the bytes that a worker sends in each; it receives as many."""
    options, n_features = build.options, _n_features(build)
    # A worker keeps its own part of what is added up.
    sent = N_REDUCE * 4 * options.batch_size * n_features * (sizes.n_workers - 1) // sizes.n_workers
    return {"n_steps": math.ceil(sizes.n_texts / options.batch_size), "bytes_per_step": sent}


def _of_encoder(build: Any, sizes: Sizes) -> float:
    """Multiply-adds of the features of a text."""
    options = build.options
    channels = 3 * options.get("channels", 0) * options.embedding_dim
    return sizes.words_per_text * options.embedding_dim + channels * options.max_words


def _surrogate(build: Any, sizes: Sizes, data: dict[str, int]) -> PhasePlan:
    from shortlist.training.label_rows import rows_memory
    from shortlist.training.networks import network_kind

    options, n_features, kind = build.options, _n_features(build), network_kind(build.recipe)
    n_own = math.ceil(options.n_clusters / sizes.n_workers)
    memory = {
        **data,
        "cluster rows": rows_memory(n_own, n_features, options),
        "encoder": 4 * kind.n_floats(build.data, options),
        "a batch": 4 * options.batch_size * (kind.floats_per_text(options) + n_own + 3 * n_features),
    }
    of_texts = BACKWARD * (_of_encoder(build, sizes) + n_features**2)
    more: dict[str, Any] = {
        "of_labels": BACKWARD * n_features * options.n_clusters,
        "of_texts": of_texts,
        "is_dense": True,
    }
    return PhasePlan("surrogate", memory, options.n_surrogate_epochs, **more, **_steps(build, sizes))


def _candidates(build: Any, sizes: Sizes, data: dict[str, int]) -> PhasePlan:
    from shortlist.training.phases.classifier import classifier_memory

    memory = {**data, **classifier_memory(build)}
    for name in ("label rows", "residual block", "a batch"):
        memory.pop(name)
    n_own = math.ceil(sizes.n_labels / sizes.n_workers)
    memory["a copy of the centres"] = 4 * n_own * _n_features(build)  # while cells are filled
    # All cells, and an eighth of the vectors (`CellIndex`).
    searched = (4 * math.sqrt(sizes.n_labels) * sizes.n_workers + sizes.n_labels / 8) * _n_features(build)
    return PhasePlan("candidates", memory, of_labels=searched, of_texts=_of_encoder(build, sizes), is_dense=True)


def _classifier(build: Any, sizes: Sizes, data: dict[str, int]) -> PhasePlan:
    from shortlist.training.phases.classifier import classifier_memory

    options, n_features = build.options, _n_features(build)
    n_rows = min(options.n_candidates + options.n_random_negatives + sizes.labels_per_text, sizes.n_labels)
    of_texts = BACKWARD * n_features**2 + (_of_encoder(build, sizes) if sizes.n_workers > 1 else 0)
    more: dict[str, Any] = {"of_labels": BACKWARD * n_features * n_rows, "of_texts": of_texts}
    memory = {**data, **classifier_memory(build)}
    if options.rows_from_centres:  # centres, summed and then scaled, before the rows are there
        memory["starting at centres"] = 8 * math.ceil(sizes.n_labels / sizes.n_workers) * n_features
    return PhasePlan("classifier", memory, options.n_epochs, **more, **_steps(build, sizes))


def _joint(build: Any, sizes: Sizes, data: dict[str, int]) -> PhasePlan:
    from shortlist.training.phases.joint import joint_memory

    options, n_features, n_clusters = build.options, _n_features(build), build.options.get("n_clusters", 0)
    n_rows: float = sizes.n_labels
    steps = _steps(build, sizes)
    if n_clusters:
        n_rows = n_clusters + options.n_clusters_searched * sizes.n_labels / n_clusters
        # The meta-classifier has a gradient, too; and workers tell each other their best clusters, with the logits.
        n_found = min(options.n_clusters_searched, math.ceil(n_clusters / sizes.n_workers))
        found = 8 * options.batch_size * n_found * (sizes.n_workers - 1)
        steps["bytes_per_step"] = 2 * steps["bytes_per_step"] + found
    of_texts = BACKWARD * (_of_encoder(build, sizes) + n_features**2)
    more: dict[str, Any] = {"of_labels": BACKWARD * n_features * n_rows, "of_texts": of_texts, "is_dense": True}
    return PhasePlan("joint", {**data, **joint_memory(build)}, options.n_epochs, **more, **steps)


FORMULAS: dict[str, Callable[[Any, Sizes, dict[str, int]], PhasePlan]] = {
    "surrogate": _surrogate,
    "candidates": _candidates,
    "classifier": _classifier,
    "joint": _joint,
}


def measure_speeds(n_features: int = 300, n_candidates: int = 500, batch_size: int = 256) -> Speeds:
    """The speeds of one core of this machine, in CPU time; takes some seconds."""
    from shortlist.arrays import Ragged
    from shortlist.kernels.threads import use_threads
    from shortlist.training.label_rows import LabelRows

    rng, n_labels = np.random.default_rng(0), 100_000
    rows = LabelRows.start(n_labels, n_features, 1e-4)
    features = rng.standard_normal((batch_size, n_features), dtype=np.float32)
    starts = rng.integers(n_labels, size=(batch_size, 1))
    near = rng.integers(1, 8, size=(batch_size, n_candidates)).cumsum(axis=1)  # texts share candidates
    candidates = ((starts + near) % n_labels).astype(np.int32)
    positives = Ragged(np.arange(batch_size + 1), candidates[:, 0].copy())
    matrix = rng.standard_normal((n_features, 4096), dtype=np.float32)
    with use_threads(1):
        of_rows = _cpu_seconds(lambda: rows.step(features, candidates, positives, 1e-3))
        of_dense = _cpu_seconds(lambda: features @ matrix)
    return Speeds(
        rows=BACKWARD * batch_size * n_candidates * n_features / of_rows, dense=features.size * 4096 / of_dense
    )


def _cpu_seconds(work: Callable[[], Any], seconds: float = 1.0) -> float:
    """The mean CPU time of a call, after one to warm up."""
    work()
    n_calls, start = 0, time.process_time()
    while time.process_time() - start < seconds:
        work()
        n_calls += 1
    return (time.process_time() - start) / n_calls
