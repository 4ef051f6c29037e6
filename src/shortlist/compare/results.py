"""The rows of a comparison as files: written as they come, all or nothing, and read again when it goes on.

OUT/rows/NAME.json            the row
OUT/rows/NAME.predictions.npz label ids and scores for each test text (and for each way of disturbing these)
OUT/rows/NAME.resamples.npz   each metric on the same resamples of the test texts, for intervals and differences
OUT/rows/NAME.log             what the process said
"""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np

from shortlist.errors import DataError, OptionError
from shortlist.files import write_atomically

ROWS, WORK, LOCK = "rows", "work", ".lock"
DATA = "data.json"  # whoever has it holds a comparison


class Measured(msgspec.Struct):
    """What the process of a row measures itself. Times in seconds or milliseconds; `flops` are multiply-adds a text."""

    train_seconds: float
    compile_seconds: float = 0.0  # not part of the former: kernels that a machine compiles once
    model_bytes: int | None = None
    bulk_texts_per_second: float | None = None
    ms_p50: float | None = None
    ms_p99: float | None = None
    flops: float | None = None
    peak_memory_bytes: int | None = None
    options: dict[str, Any] = {}
    curves: list[dict[str, Any]] = []
    calibration: dict[str, Any] | None = None
    search_effort: dict[str, Any] | None = None


class Row(msgspec.Struct):
    """All about one system. `scores` and all that follows from predictions are in per cent."""

    name: str
    kind: Literal["recipe", "peer"]
    title: str
    status: Literal["done", "failed", "skipped"]
    note: str = ""
    fingerprint: str = ""
    limits: dict[str, float] = {}
    options: dict[str, Any] = {}
    measured_with: dict[str, Any] = {}
    run_with: dict[str, Any] = {}  # threads, seed and processor
    scores: dict[str, float] = {}
    intervals: dict[str, tuple[float, float]] = {}
    by_quantile: list[dict[str, Any]] = []
    train_seconds: float | None = None
    compile_seconds: float | None = None
    peak_memory_bytes: int | None = None
    model_bytes: int | None = None
    ms_p50: float | None = None
    ms_p99: float | None = None
    bulk_texts_per_second: float | None = None
    flops: float | None = None
    curves: list[dict[str, Any]] = []
    calibration: dict[str, Any] | None = None
    search_effort: dict[str, Any] | None = None
    robustness: dict[str, dict[str, float]] = {}
    ablation: str = ""  # the table that it belongs to, if not to that of all systems
    cells: list[str | int] = []  # and what it is called there


class Store:
    """The folder of a comparison."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.rows = self.folder / ROWS
        self.work = self.folder / WORK
        if self.folder.exists() and not self.folder.is_dir():
            raise OptionError(f"{folder} is a file; --out is the folder that the results go into.")
        if not self.is_comparison(self.folder) and set(_names_in(self.folder)) - {ROWS, LOCK}:
            raise OptionError(f"{folder} is not empty and holds no comparison. Choose another folder (--out).")
        self.rows.mkdir(parents=True, exist_ok=True)

    @staticmethod
    def is_comparison(folder: Path) -> bool:
        return (folder / DATA).exists()

    def log_file(self, file_name: str) -> Path:
        return self.rows / f"{file_name}.log"

    def save(self, file_name: str, row: Row) -> None:
        self.write_json(f"{ROWS}/{file_name}.json", row)

    def load(self, file_name: str) -> Row | None:
        """The row of this name, if there is one that can be read."""
        try:
            return msgspec.json.decode((self.rows / f"{file_name}.json").read_bytes(), type=Row)
        except (FileNotFoundError, msgspec.DecodeError):
            return None  # it is run again

    def all(self) -> dict[str, Row]:
        """Every row there is, by the name of its files."""
        names = sorted(path.name.removesuffix(".json") for path in self.rows.glob("*.json"))
        rows = {name: self.load(name) for name in names}
        return {name: row for name, row in rows.items() if row is not None}

    def save_arrays(self, name: str, arrays: Mapping[str, np.ndarray]) -> None:
        with write_atomically(self.rows / f"{name}.npz") as file:
            np.savez_compressed(file, **arrays)  # type: ignore[arg-type]

    def load_arrays(self, name: str) -> dict[str, np.ndarray]:
        return read_arrays(self.rows / f"{name}.npz")

    def write_json(self, name: str, content: Any) -> None:
        with write_atomically(self.folder / name) as file:
            file.write(msgspec.json.format(msgspec.json.encode(content), indent=1))

    def read_json(self, name: str) -> Any:
        """The content of a file, or None where there is none."""
        try:
            return msgspec.json.decode((self.folder / name).read_bytes())
        except FileNotFoundError:
            return None
        except msgspec.DecodeError as error:
            raise DataError(
                f"{self.folder / name} is not JSON: {error}. Remove it, or choose another folder."
            ) from None


def _names_in(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()] if folder.exists() else []


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """The arrays of an .npz file, whoever wrote it."""
    try:
        with np.load(path, allow_pickle=False) as arrays:
            return dict(arrays)
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, AttributeError) as error:
        raise DataError(f"{path} is not a file of arrays: {error}.") from None


def read_measured(folder: Path) -> Measured:
    """What the process of a row has put down, looked at: a peer may have written anything."""
    try:
        measured = msgspec.json.decode((folder / "measured.json").read_bytes(), type=Measured)
    except FileNotFoundError:
        raise DataError("it ended without a result") from None
    except msgspec.DecodeError as error:
        raise DataError(f"what it measured makes no sense: {error}") from None
    if not 0 <= measured.train_seconds < float("inf"):
        raise DataError(f"what it measured makes no sense: a training time of {measured.train_seconds}")
    return measured


def checked_predictions(
    arrays: dict[str, np.ndarray], n_texts: int, n_labels: int, prefix: str = ""
) -> dict[str, np.ndarray]:
    """Predicted ids and scores, if that is what they are."""
    for name, kinds in ((f"{prefix}ids", "iu"), (f"{prefix}scores", "f")):
        if name not in arrays or arrays[name].dtype.kind not in kinds or arrays[name].ndim != 2:
            raise DataError(f"its predictions make no sense: there is no matrix {name!r}")
    ids, scores = arrays[f"{prefix}ids"], arrays[f"{prefix}scores"]
    if ids.shape != scores.shape or len(ids) != n_texts:
        raise DataError(f"its predictions make no sense: {ids.shape} ids and {scores.shape} scores of {n_texts} texts")
    if ids.size and not -1 <= ids.min() <= ids.max() < n_labels:
        raise DataError(f"its predictions make no sense: there are labels from {ids.min()} to {ids.max()}")
    if not np.isfinite(scores[ids >= 0]).all():
        raise DataError("its predictions make no sense: there are scores that are not finite")
    return {f"{prefix}ids": ids.astype(np.int32), f"{prefix}scores": scores.astype(np.float32)}
