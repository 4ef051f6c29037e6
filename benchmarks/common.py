"""What the benchmarks share: arguments, timing, memory, and how results are printed."""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

import shortlist
from shortlist.cli.train import option_value
from shortlist.stages.candidates import NearestLabels
from shortlist.tables import plain
from shortlist.training import label_rows

# As in training: idle threads of torch would keep a core busy. Import this module before torch.
os.environ.setdefault("GOMP_SPINCOUNT", "5000")


def make_parser(doc: str) -> argparse.ArgumentParser:
    """A parser whose help is the docstring of the benchmark."""
    return argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)


def add_recipe_options(parser: argparse.ArgumentParser, what: str) -> None:
    parser.add_argument("--set", dest="options", action="append", default=[], metavar="NAME=VALUE", help=what)


def parse_recipe_options(settings: list[str]) -> dict[str, Any]:
    return {name: option_value(value) for name, _, value in (setting.partition("=") for setting in settings)}


def read_splits(folder: Any) -> tuple[shortlist.Dataset, shortlist.Dataset]:
    return shortlist.read(folder, "train"), shortlist.read(folder, "test")


def timed(work: Callable[[], Any], clock: Callable[[], float] = time.perf_counter) -> tuple[float, Any]:
    """The seconds that some work takes, and its result."""
    start = clock()
    result = work()
    return clock() - start, result


def take_turns(sides: Mapping[str, Callable[[], Any]], repeats: int, warm_up: int = 1) -> dict[str, float]:
    """The median seconds of each side. The sides take turns, so that a busy moment of the machine affects all."""
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(warm_up + repeats):
        for name, work in sides.items():
            seconds[name].append(timed(work)[0])
    return {name: statistics.median(runs[warm_up:]) for name, runs in seconds.items()}


def learn_from_all_candidates() -> None:
    """Let steps pass over no candidates. Rows that have learnt nothing find all wrong ones improbable, and would pass
    over all of them, which no real training does."""
    label_rows.LEAST_ERROR = 0.0


def peak_gb() -> float:
    """The peak memory of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9


def changed(stage: NearestLabels, **config: Any) -> NearestLabels:
    """The same candidate stage with other settings."""
    return NearestLabels(stage.arrays(), stage.config() | config)


def unit(rows: np.ndarray) -> np.ndarray:
    """Rows scaled to length 1."""
    return (rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-9)).astype(np.float32)


def show(results: list[dict[str, Any]]) -> None:
    """Print results as a table: the keys of the first one are the header."""
    header = list(results[0])
    print(plain(header, [[_cell(result.get(name)) for name in header] for result in results]), flush=True)


def _cell(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:,.4g}" if abs(value) < 10 else f"{value:,.2f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def print_json(benchmark: str, **content: Any) -> None:
    """Print the last line of every benchmark."""
    print(json.dumps({"benchmark": benchmark, **content}, default=str))
