"""What passes between a comparison and the process of an entry, as files in the folder of the job.

job.json goes in. measured.json and predictions.npz come out: `ids` and `scores` (one row per test text, -1 where there
are fewer labels), and the same for each kind of perturbed texts, such as `shuffled.ids`.
"""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from shortlist.errors import DataError

MODEL, CHECKPOINTS = "model", "checkpoints"


class Job(msgspec.Struct):
    """What to train and measure.

    folder         where the results go
    k              labels to rank for each test text
    perturbations  kinds of perturbed test texts to predict as well
    latency_texts  number of test texts to predict one at a time
    peer_data      the folder of `write_peer_data`, for another tool; the fields below are for recipes
    fingerprint    expected fingerprint of the data
    """

    folder: str
    seed: int
    threads: int
    k: int
    perturbations: list[str]
    latency_texts: int
    peer_data: str = ""
    source: str = ""
    reading: dict[str, Any] = {}
    drop_leaks: bool = False
    fingerprint: str = ""
    recipe: str = ""
    ensemble: int = 1
    options: dict[str, Any] = {}
    resume: bool = False


class Measured(msgspec.Struct, kw_only=True):
    """What the process of an entry measures itself."""

    train_seconds: float | None = None
    model_bytes: float | None = None
    bulk_texts_per_second: float | None = None
    ms_p50: float | None = None
    ms_p99: float | None = None
    multiply_adds: float | None = None  # per text
    peak_memory_bytes: float | None = None
    options: dict[str, Any] = {}
    curves: list[dict[str, Any]] = []
    calibration: dict[str, Any] = {}
    search_effort: dict[str, Any] | None = None


def read_measured(folder: Path) -> Measured:
    """Read measured.json and check it: another tool's script may have written anything."""
    try:
        measured = msgspec.json.decode((folder / "measured.json").read_bytes(), type=Measured)
    except FileNotFoundError:
        raise DataError("the process ended without a result") from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise DataError(f"measured.json is invalid: {error}") from None
    if measured.train_seconds is None or not 0 <= measured.train_seconds < float("inf"):
        raise DataError(f"measured.json is invalid: train_seconds is {measured.train_seconds}")
    return measured


def read_predictions(
    folder: Path, n_texts: int, n_labels: int, perturbations: tuple[str, ...]
) -> dict[str, np.ndarray]:
    """Read predictions.npz and check it."""
    arrays = read_arrays(folder / "predictions.npz")
    predictions: dict[str, np.ndarray] = {}
    for prefix in ("", *(f"{kind}." for kind in perturbations)):
        ids, scores = arrays.get(f"{prefix}ids", np.empty(0)), arrays.get(f"{prefix}scores", np.empty(0))
        problem = _problem(ids, scores, n_texts, n_labels)
        if problem:
            raise DataError(f"predictions.npz is invalid: {problem}{f' ({prefix[:-1]} texts)' if prefix else ''}")
        predictions |= {f"{prefix}ids": ids.astype(np.int32), f"{prefix}scores": scores.astype(np.float32)}
    return predictions


def _problem(ids: np.ndarray, scores: np.ndarray, n_texts: int, n_labels: int) -> str:
    """What is wrong with predictions; empty if nothing is."""
    if ids.dtype.kind not in "iu" or scores.dtype.kind != "f" or ids.ndim != 2:
        return "it needs matrices `ids` of whole numbers and `scores` of floats"
    if ids.shape != scores.shape or len(ids) != n_texts:
        return f"{ids.shape} ids and {scores.shape} scores for {n_texts} texts"
    if ids.size and not -1 <= ids.min() <= ids.max() < n_labels:
        return f"label ids from {ids.min()} to {ids.max()} ({n_labels} labels)"
    return "" if np.isfinite(scores[ids >= 0]).all() else "scores contain NaN or infinity"


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """Read an .npz file."""
    try:
        with np.load(path, allow_pickle=False) as arrays:
            return dict(arrays)
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, AttributeError) as error:
        raise DataError(f"{path} is not a valid .npz file: {error}.") from None
