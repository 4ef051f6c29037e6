"""A worker of a training on a cluster: a process that reads the data itself and owns the label rows of its shard."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from shortlist.cluster.reduce import TcpGroup, WorkerLostError
from shortlist.data import storage
from shortlist.data.dataset import Dataset
from shortlist.data.read import parts_of, read
from shortlist.errors import DataError, ShortlistError
from shortlist.model.format import CONFIG
from shortlist.model.model import Model
from shortlist.recipes.recipe import Recipe
from shortlist.training.group import ALONE, Group
from shortlist.training.sharding import whole_pipeline
from shortlist.training.train import recipe_of, resolve_for, train_one


@dataclass(frozen=True)
class TrainJob:
    """What to train, for all workers the same.

    source, part, reading  what `shortlist.read` takes; every worker must see the source under this path, or URL
    options                of the recipe, as they were given
    out, bits              the folder for the model, or its URL, and its bits per weight
    """

    source: str
    recipe: str | Recipe
    out: str
    part: str | None = None
    reading: dict[str, Any] = field(default_factory=dict)
    published: bool = False
    options: dict[str, Any] = field(default_factory=dict)
    bits: int = 8

    def resumed(self) -> TrainJob:
        return replace(self, options={**self.options, "resume": True})


@dataclass(frozen=True)
class Outcome:
    """How a worker ended: with a model, with an error, or because it lost another worker."""

    error: ShortlistError | None = None
    lost: str = ""


class News(NamedTuple):
    """What a worker tells the driver: log lines with their levels, and how long it has waited for other workers."""

    lines: list[tuple[int, str]]
    seconds_waited: float
    host: str


class Worker:
    """One worker; `start_workers` makes a Ray actor of it."""

    def __init__(self, rank: int, size: int, key: bytes) -> None:
        from ray.util import get_node_ip_address

        self._rank, self._size, self._host = rank, size, get_node_ip_address()
        self._group: Group = ALONE if size == 1 else TcpGroup(rank, size, self._host, key)
        self._messages = Messages()
        logger = logging.getLogger("shortlist")
        logger.addHandler(self._messages)
        logger.setLevel(logging.INFO)

    def address(self) -> Any:
        """Where the others reach it."""
        return self._group.address if isinstance(self._group, TcpGroup) else (self._host, 0)

    def train(self, addresses: list[Any], job: TrainJob) -> Outcome:
        """Train with the others. Worker 0 saves the model."""
        try:
            if isinstance(self._group, TcpGroup):
                self._group.connect(addresses)
            self._train(job)
        except WorkerLostError as error:
            return Outcome(lost=str(error))
        except MemoryError:
            return Outcome(error=out_of_memory(self._rank, self._size, self._host, self._messages.lines))
        except ShortlistError as error:
            where = "" if self._size == 1 else f"worker {self._rank} of {self._size} on {self._host}: "
            return Outcome(error=type(error)(f"{where}{error}"))
        finally:
            if isinstance(self._group, TcpGroup):
                self._group.close()
        return Outcome()

    def _train(self, job: TrainJob) -> None:
        recipe = recipe_of(job.recipe, job.published)
        dataset = read_data(job)
        for line in dataset.report.lines():
            logging.getLogger("shortlist").warning("%s", line)
        if not len(dataset):
            raise DataError(f"{job.source}: contains no texts.")
        model = train_one(recipe, dataset, resolve_for(recipe, dataset, job.options), self._group)
        model.text_fields = dataset.text_fields
        whole = whole_pipeline(model.pipelines[0], job.bits)
        if whole is not None:
            model.pipelines = [whole]
            save_model(model, job)

    def news(self, n_seen: int) -> News:
        """What there is to say behind the first `n_seen` log lines."""
        waited = self._group.seconds_waited if isinstance(self._group, TcpGroup) else 0.0
        return News(self._messages.lines[n_seen:], waited, self._host)


def read_data(job: TrainJob) -> Dataset:
    """The training data; from a URL, by a copy on this machine, which messages do not name."""
    with storage.local_copy(job.source) as path:
        has_parts = storage.is_url(job.source) and path.is_dir() and "train" in parts_of(path)
        part = "train" if has_parts else job.part
        try:
            return read(path, part, **job.reading)
        except ShortlistError as error:
            raise type(error)(str(error).replace(str(path), job.source)) from None


def save_model(model: Model, job: TrainJob) -> None:
    """Save a model; at a URL, its configuration comes last: where it is, the model is complete."""
    if not storage.is_url(job.out):
        model.save(job.out, job.bits)
        return
    with storage.temporary_folder() as folder:
        model.save(Path(folder) / "model", job.bits)
        storage.remove(job.out, first=CONFIG)
        storage.upload(Path(folder) / "model", job.out, last=CONFIG)


class Messages(logging.Handler):
    """Keeps log lines until the driver asks for them."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[tuple[int, str]] = []
        self._own = threading.Lock()

    def emit(self, record: logging.LogRecord) -> None:
        with self._own:
            self.lines.append((record.levelno, record.getMessage()))


def out_of_memory(rank: int, size: int, host: str, lines: list[tuple[int, str]]) -> ShortlistError:
    """The error for a worker that had too little memory, with what it said last and how much it had planned."""
    said = [line for _, line in lines]
    plan = next((line for line in reversed(said) if line.startswith("memory: ")), "")
    last = next((line for line in reversed(said) if not line.startswith("memory: ")), "reading the data")
    return ShortlistError(
        f"worker {rank} of {size} on {host} ran out of memory, after: {last!r}. "
        + (f"It had planned {plan.removeprefix('memory: ')}. " if plan else "")
        + "More workers on other machines (--workers), a smaller embedding_dim, fewer n_candidates or a larger "
        "min_count need less."
    )
