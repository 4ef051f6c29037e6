"""Checkpoints: everything that resuming needs, written all or nothing, so that a kill costs minutes at most.

A folder holds `state` (the latest checkpoint), `best` (the arrays of the best epoch so far), and `metrics.jsonl`.
Arrays are .npy files, which are written and read without a second copy in memory.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import xxhash

from shortlist.data import storage
from shortlist.errors import DataError
from shortlist.files import OLD, PARTIAL, lock_folder, recover_folder, write_atomically, write_folder_atomically
from shortlist.recipes.options import Options
from shortlist.training.group import Group

FACTS = "facts.json"
STATE, BEST, METRICS = "state", "best", "metrics.jsonl"
STEPS_BETWEEN_QUESTIONS = 16


@contextmanager
def lock_checkpoints(folder: str) -> Iterator[None]:
    """Keep others out of a folder of checkpoints: two trainings that write there would mix. "" is no folder.

    At a URL, nothing can be locked.
    """
    if not folder or storage.is_url(folder):
        yield
        return
    path = Path(folder)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:  # ValueError: the name contains a NUL
        raise DataError(f"{folder}: cannot be created: {getattr(error, 'strerror', error)}.") from None
    with lock_folder(path):
        try:
            yield
        finally:  # while it is locked: afterwards the folder may be that of another training
            with suppress(OSError):
                path.rmdir()  # if nothing was written


class Checkpoints:
    """The checkpoints of one phase of training.

    identity  what must match for resuming: the recipe, its options, and a fingerprint of the data
    """

    def __init__(self, folder: str | Path, identity: dict[str, Any], seconds_between: float = 600.0) -> None:
        self.folder = Path(folder)
        self._state = self.folder / STATE
        self.identity = msgspec.json.decode(msgspec.json.encode(identity))
        self.seconds_between = seconds_between
        self._last = time.monotonic()

    def due(self) -> bool:
        """Whether it is time for the next checkpoint."""
        return time.monotonic() - self._last >= self.seconds_between

    def save(self, arrays: dict[str, np.ndarray], facts: dict[str, Any]) -> None:
        """Make this the latest checkpoint."""
        self._write(self._state, arrays, {"identity": self.identity, **facts})
        self._last = time.monotonic()

    def load(self) -> tuple[dict[str, np.ndarray], dict[str, Any]] | None:
        """The latest checkpoint, or None where there is none."""
        if not self._holds_training():
            return None
        arrays, facts = read_arrays(self._state)
        for name, value in self.identity.items():
            if facts["identity"].get(name) != value:
                raise DataError(
                    f"{self.folder}: the interrupted training there had {name} = {facts['identity'].get(name)!r}, this "
                    f"one has {value!r}. Resume with the same data and options, or remove the folder to start over."
                )
        return arrays, facts

    def refuse_to_overwrite(self) -> None:
        """Raise an error if there is a checkpoint: nobody should lose hours of work by forgetting --resume."""
        if self._holds_training():
            raise _holds_interrupted(self.folder)

    def _holds_training(self) -> bool:
        """Whether there is a checkpoint, after removing what a killed writer left behind."""
        for name in (STATE, BEST):
            recover_folder(self.folder / name)
        for leftover in (*self.folder.glob(f".*{PARTIAL}"), *self.folder.glob(f".*{OLD}")):
            if leftover.is_dir():
                shutil.rmtree(leftover)
            else:
                leftover.unlink()
        return any(self.folder.glob(f"{STATE}*/{FACTS}"))

    def save_best(self, arrays: dict[str, np.ndarray]) -> None:
        self._write(self.folder / BEST, arrays, {})

    def _write(self, folder: Path, arrays: dict[str, np.ndarray], facts: dict[str, Any]) -> None:
        write_arrays(folder, arrays, facts)

    def load_best(self) -> dict[str, np.ndarray]:
        return read_arrays(self.folder / BEST)[0]

    def write_metrics(self, records: list[dict[str, Any]]) -> None:
        """All records so far, as JSON lines."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with write_atomically(self.folder / METRICS) as file:
            file.writelines(msgspec.json.encode(record) + b"\n" for record in records)


class GroupCheckpoints(Checkpoints):
    """The checkpoints of one worker of several. One counts once all workers have written theirs.

    A worker keeps its last checkpoint until then, so whenever workers die, all have one of the same step.
    """

    def __init__(self, folder: Path, identity: dict[str, Any], seconds_between: float, group: Group) -> None:
        super().__init__(folder / f"worker-{group.rank}", {**identity, "workers": group.size}, seconds_between)
        self._group, self._n_asked = group, 0

    def due(self) -> bool:
        """Whether worker 0 finds that it is time; it is asked every few steps."""
        self._n_asked += 1
        if self._n_asked % STEPS_BETWEEN_QUESTIONS and self.seconds_between:
            return False
        return bool(self._group.sum(np.array([self._group.rank == 0 and super().due()], np.int64))[0])

    def save(self, arrays: dict[str, np.ndarray], facts: dict[str, Any]) -> None:
        progressed = facts["progressed"]
        self._state = self.folder / f"{STATE}-{progressed['epoch']}-{progressed['step']}"
        super().save(arrays, facts)
        self._group.sum(np.zeros(1))  # all have written theirs
        for older in set(self.folder.glob(f"{STATE}-*")) - {self._state}:
            self._remove(older)

    def _remove(self, folder: Path) -> None:
        shutil.rmtree(folder)

    def load(self) -> tuple[dict[str, np.ndarray], dict[str, Any]] | None:
        """The latest checkpoint that all workers have."""
        self._holds_training()  # clears away what is incomplete
        steps = [folder.name.split("-")[1:] for folder in self.folder.glob(f"{STATE}-*") if (folder / FACTS).exists()]
        numbers = np.array([int(epoch) << 32 | int(step) for epoch, step in steps], np.int64)
        common = set.intersection(*(set(of_worker.tolist()) for of_worker in self._group.gather(numbers)))
        if not len(numbers):
            return None
        latest = max(common or numbers.tolist())
        self._state = self.folder / f"{STATE}-{latest >> 32}-{latest & 0xFFFFFFFF}"
        loaded = super().load()  # an error if it is of another training
        return loaded if common else None


class StoredCheckpoints(GroupCheckpoints):
    """The same at a URL. They are written to this machine first, then copied, `FACTS` last: it says that all is there.

    What is copied half does no harm: the training goes on from the state before, and writes the same once more.
    """

    def __init__(self, url: str, identity: dict[str, Any], seconds_between: float, group: Group) -> None:
        self._local = storage.temporary_folder()
        super().__init__(Path(self._local.name), identity, seconds_between, group)
        self._url = storage.join(url, self.folder.name)

    def _write(self, folder: Path, arrays: dict[str, np.ndarray], facts: dict[str, Any]) -> None:
        super()._write(folder, arrays, facts)
        storage.upload(folder, storage.join(self._url, folder.name), last=FACTS)

    def _remove(self, folder: Path) -> None:
        super()._remove(folder)
        storage.remove(storage.join(self._url, folder.name), first=FACTS)

    def load(self) -> tuple[dict[str, np.ndarray], dict[str, Any]] | None:
        if storage.exists(self._url):
            storage.download(self._url, self.folder)
        return super().load()


def checkpoints_of(phase: str, identity: dict[str, Any], options: Options, group: Group) -> Checkpoints:
    """The checkpoints of a phase, in a folder of its own in `checkpoint_dir`."""
    place, seconds = options.checkpoint_dir, 60 * options.checkpoint_minutes
    if storage.is_url(place):
        return StoredCheckpoints(storage.join(place, phase), identity, seconds, group)
    if group.size == 1:
        return Checkpoints(Path(place) / phase, identity, seconds)
    return GroupCheckpoints(Path(place) / phase, identity, seconds, group)


def refuse_to_overwrite_stored(url: str) -> None:
    """As `Checkpoints.refuse_to_overwrite`, for all checkpoints at a URL."""
    if any(stored.url.endswith(f"/{FACTS}") for stored in storage.files_below(url)):
        raise _holds_interrupted(url)


def _holds_interrupted(folder: Path | str) -> DataError:
    return DataError(
        f"{folder} holds an interrupted training. Continue it (--resume; resume=True in Python), or remove the "
        "folder to start over."
    )


def write_arrays(folder: Path, arrays: dict[str, np.ndarray], facts: dict[str, Any]) -> None:
    """Write a folder of arrays and facts, in place of the previous one."""
    with write_folder_atomically(folder) as beside:
        checksums = {}
        for name, array in sorted(arrays.items()):
            np.save(beside / f"{name}.npy", array, allow_pickle=False)
            checksums[name] = _checksum(array)
        facts = {**facts, "arrays": checksums}
        (beside / FACTS).write_bytes(msgspec.json.encode({**facts, "xxh3": _facts_checksum(facts)}))


def read_arrays(folder: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """The arrays and facts of a folder, if they are the ones that were written."""
    try:
        facts = msgspec.json.decode((folder / FACTS).read_bytes(), type=dict[str, Any])
        if facts.pop("xxh3", None) != _facts_checksum(facts):
            raise ValueError(f"the checksum of {FACTS} differs")
        arrays = {}
        for name, expected in facts["arrays"].items():
            arrays[name] = np.load(folder / f"{name}.npy", allow_pickle=False)
            if _checksum(arrays[name]) != expected:
                raise ValueError(f"the checksum of {name}.npy differs")
        return arrays, facts
    except Exception as error:  # noqa: BLE001 - numpy raises many kinds for a damaged header
        raise DataError(f"{folder}: the checkpoint cannot be read ({error}). Remove it to start over.") from None


def _facts_checksum(facts: dict[str, Any]) -> str:
    return xxhash.xxh3_128_hexdigest(msgspec.json.encode(facts, order="sorted"))


def _checksum(array: np.ndarray) -> str:
    """Of the values, their type and shape."""
    content = xxhash.xxh3_128(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    content.update(f"{array.dtype.str} {array.shape}".encode())
    return content.hexdigest()
