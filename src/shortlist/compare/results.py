"""The folder of a comparison. Entries are written as they finish, atomically, and read when the comparison resumes.

OUT/entries/NAME.json             the entry
OUT/entries/NAME.predictions.npz  label ids and scores for each test text, and for each kind of perturbed texts
OUT/entries/NAME.resamples.npz    each metric on the same bootstrap resamples, for intervals and differences
OUT/entries/NAME.log              output of the process
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np

from shortlist.compare.job import Measured, read_arrays
from shortlist.errors import DataError, OptionError
from shortlist.files import write_atomically

ENTRIES, WORK = "entries", "work"
DATA, MACHINE = "data.json", "machine.json"


class Entry(Measured, msgspec.Struct, kw_only=True):
    """Everything about one compared system. Scores are percentages."""

    name: str
    kind: Literal["recipe", "peer"] = "recipe"
    title: str = ""
    status: Literal["done", "failed", "skipped"] = "done"
    note: str = ""
    fingerprint: str = ""
    limits: dict[str, float] = {}
    measured_with: dict[str, Any] = {}
    run_with: dict[str, Any] = {}  # threads, seed and processor
    scores: dict[str, float] = {}
    intervals: dict[str, tuple[float, float]] = {}
    ceilings: dict[str, float] = {}  # the largest value that any ranking could reach
    by_quantile: list[dict[str, Any]] = []
    robustness: dict[str, Any] = {}
    difference_to_best: dict[str, dict[str, float]] = {}  # by metric; part of the summary only

    @property
    def is_peer(self) -> bool:
        return self.kind == "peer"


class Store:
    """Reads and writes the folder of a comparison."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.entries = self.folder / ENTRIES
        self.work = self.folder / WORK
        if self.folder.exists() and not self.folder.is_dir():
            raise OptionError(f"{folder} is a file. --out must name a folder for the results.")
        names = {path.name for path in self.folder.iterdir()} if self.folder.exists() else set()
        if not self.is_comparison(self.folder) and names - {ENTRIES}:
            raise OptionError(f"{folder} is not empty and does not hold a comparison. Choose another folder (--out).")
        self.entries.mkdir(parents=True, exist_ok=True)

    @staticmethod
    def is_comparison(folder: Path) -> bool:
        return (folder / DATA).exists()

    def log_file(self, file_name: str) -> Path:
        return self.entries / f"{file_name}.log"

    def save(self, file_name: str, entry: Entry) -> None:
        self.write_json(f"{ENTRIES}/{file_name}.json", entry)

    def load(self, file_name: str) -> Entry | None:
        """The stored entry; None if there is none or it cannot be read, so that it runs again."""
        try:
            return msgspec.json.decode((self.entries / f"{file_name}.json").read_bytes(), type=Entry)
        except (FileNotFoundError, msgspec.DecodeError):
            return None

    def load_all(self) -> dict[str, Entry]:
        """All readable entries by file name."""
        names = sorted(path.name.removesuffix(".json") for path in self.entries.glob("*.json"))
        return {name: entry for name in names if (entry := self.load(name)) is not None}

    def save_arrays(self, name: str, arrays: Mapping[str, np.ndarray]) -> None:
        with write_atomically(self.entries / f"{name}.npz") as file:
            np.savez_compressed(file, **arrays)  # type: ignore[arg-type]

    def load_arrays(self, name: str) -> dict[str, np.ndarray]:
        return read_arrays(self.entries / f"{name}.npz")

    def write_json(self, name: str, content: Any) -> None:
        with write_atomically(self.folder / name) as file:
            file.write(msgspec.json.format(msgspec.json.encode(content), indent=1))

    def read_json(self, name: str) -> Any:
        """The content of a file; None if the file does not exist."""
        path = self.folder / name
        try:
            return msgspec.json.decode(path.read_bytes())
        except FileNotFoundError:
            return None
        except (msgspec.DecodeError, RecursionError) as error:
            raise DataError(f"{path} is not JSON: {error}. Remove it, or choose another folder (--out).") from None
