"""The training loop: epochs of batches, validation after each, checkpoints, and stopping in an orderly way."""

from __future__ import annotations

import contextlib
import logging
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from shortlist.errors import Stopped
from shortlist.progress import Progress
from shortlist.training.batches import Batches, epoch_batches
from shortlist.training.checkpoints import Checkpoints
from shortlist.training.learner import Learner, StepResult, need_finite
from shortlist.training.schedule import one_cycle

log = logging.getLogger("shortlist")

# What an epoch is judged by: of the usual measures the one that looks at all places and weighs the first most.
JUDGED_BY = "N@5"

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Plan:
    """How to train.

    rate      the peak of the learning rate
    detached  for this share of the training the labels' head does not move the encoder
    patience  stop when this many epochs brought nothing better
    """

    epochs: int
    batch_size: int
    rate: float
    detached: float = 0.0
    patience: int = 10
    seed: int = 0


def fit(
    learner: Learner,
    plan: Plan,
    batches: Batches,
    validate: Callable[[Arrays], dict[str, float]] | None,
    checkpoints: Checkpoints | None = None,
    resume: bool = False,
    show_progress: bool = True,
    tensorboard: Any = None,
) -> tuple[Arrays, list[dict[str, Any]]]:
    """Train, and give the arrays of the best epoch and the records of all.

    `validate` measures arrays that a model predicts with. Without it, the last epoch counts as the best.
    """
    run = _Run(learner, plan, batches, validate, checkpoints, show_progress, tensorboard)
    with contextlib.ExitStack() as stack:
        if checkpoints is None:
            run.best_folder = Checkpoints(stack.enter_context(tempfile.TemporaryDirectory(prefix="shortlist-")), {})
        elif resume:
            run.go_on()
        else:
            checkpoints.refuse_to_overwrite()
        return run.to_the_end()


class _Run:
    """A training under way: where it is, and what it has seen."""

    def __init__(
        self,
        learner: Learner,
        plan: Plan,
        batches: Batches,
        validate: Callable[[Arrays], dict[str, float]] | None,
        checkpoints: Checkpoints | None,
        show_progress: bool,
        tensorboard: Any,
    ) -> None:
        self.learner, self.plan, self.batches = learner, plan, batches
        self.validate, self.checkpoints = validate, checkpoints
        self.best_folder = checkpoints
        self.show_progress, self.tensorboard = show_progress, tensorboard
        self.n_texts = len(batches.lengths)
        self.steps_per_epoch = -(-self.n_texts // plan.batch_size)
        self.epoch = self.step = 0  # the next step to take, counted within its epoch
        self.sums = _Sums()
        self.records: list[dict[str, Any]] = []
        self.seconds = 0.0
        self.unsaved = False

    def go_on(self) -> None:
        """From the latest checkpoint, if there is one."""
        assert self.checkpoints is not None
        saved = self.checkpoints.load()
        if saved is None:
            log.info("there is no checkpoint in %s yet; starting from the beginning", self.checkpoints.folder)
            return
        arrays, facts = saved
        self.learner.restore(arrays)
        self.epoch, self.step = facts["epoch"], facts["step"]
        self.records, self.seconds = facts["records"], facts["seconds"]
        self.sums = _Sums(**facts["sums"])
        log.info("going on at epoch %d, step %d of %d", self.epoch + 1, self.step, self.steps_per_epoch)

    def to_the_end(self) -> tuple[Arrays, list[dict[str, Any]]]:
        arrays: Arrays | None = None
        with _ctrl_c() as stopped:
            while self.epoch < self.plan.epochs and not self._hopeless():
                self._finish_epoch(stopped)
                arrays = self._judge()
        if self.checkpoints is not None and self.unsaved:
            self._save()  # what follows upon training may take long, too
        best = _best_epoch(self.records)
        if best != self.epoch:
            assert self.best_folder is not None
            arrays = self.best_folder.load_best()
        elif arrays is None:
            arrays = self.learner.for_prediction()  # gone on from a checkpoint of the very end
        if self.validate is not None and best != self.plan.epochs:
            log.info("the best epoch was %d", best)
        return arrays, self.records

    def _finish_epoch(self, stopped: threading.Event) -> None:
        """Take the steps of this epoch that are still to be taken."""
        total = self.plan.epochs * self.steps_per_epoch
        started = time.monotonic()
        lengths = self.batches.lengths
        epoch_batches_left = enumerate(epoch_batches(lengths, self.plan.batch_size, self.plan.seed, self.epoch))
        what = f"epoch {self.epoch + 1}/{self.plan.epochs}"
        with Progress(what, self.n_texts, "texts", self.show_progress) as progress:
            progress.advance(min(self.step * self.plan.batch_size, self.n_texts))
            for number, rows in epoch_batches_left:
                if number < self.step:
                    continue
                rate = one_cycle((self.epoch * self.steps_per_epoch + number) / total, self.plan.rate)
                self.sums.add(self._step(rows, number, rate), len(rows))
                self.step, self.unsaved = number + 1, True
                progress.advance(len(rows))
                progress.note(f"loss {self.sums.loss:.3f}, rate {rate:.5f}")
                if stopped.is_set():
                    self.seconds += time.monotonic() - started
                    self._stop()
                if self.checkpoints is not None and self.checkpoints.due():
                    self.seconds, started = self.seconds + time.monotonic() - started, time.monotonic()
                    self._save()
        self.seconds += time.monotonic() - started

    def _step(self, rows: np.ndarray, number: int, rate: float) -> StepResult:
        """One step; whatever is random in it depends on the seed and its number alone."""
        plan = self.plan
        if len(rows) == 1:
            rows = np.repeat(rows, 2)  # batch norm needs two
        rng = np.random.default_rng([plan.seed, self.epoch, number, 1])
        batch = self.batches.take(rows, rng)
        torch.manual_seed(int(rng.integers(2**62)))
        detached = self.epoch * self.steps_per_epoch + number < plan.detached * plan.epochs * self.steps_per_epoch
        return self.learner.step(batch, rate, detached)

    def _judge(self) -> Arrays:
        """The end of an epoch: measure, remember, save."""
        arrays = self.learner.for_prediction()
        need_finite(arrays)
        scores = {} if self.validate is None else self.validate(arrays)
        self.epoch, self.step, self.unsaved = self.epoch + 1, 0, True
        record = {"epoch": self.epoch, "texts": self.epoch * self.n_texts, "seconds": round(self.seconds, 1)}
        record |= {"loss": round(self.sums.loss, 4), **self.sums.of_meta_head()}
        record |= {name: round(value, 4) for name, value in scores.items()}
        self.records.append(record)
        self.sums = _Sums()
        log.info(_line(record, self.plan.epochs))
        if self.tensorboard is not None:
            for name, value in record.items():
                self.tensorboard.add_scalar(name.replace("@", "_at_"), value, self.epoch)
        if self.best_folder is not None and self.validate is not None and _best_epoch(self.records) == self.epoch:
            self.best_folder.save_best(arrays)
        if self.checkpoints is not None:
            self.checkpoints.write_metrics(self.records)
            if self.checkpoints.due():
                self._save()
        return arrays

    def _hopeless(self) -> bool:
        return self.validate is not None and self.epoch - _best_epoch(self.records) >= self.plan.patience

    def _save(self) -> None:
        assert self.checkpoints is not None
        facts = {"epoch": self.epoch, "step": self.step, "records": self.records, "seconds": self.seconds}
        self.checkpoints.save(self.learner.state(), {**facts, "sums": vars(self.sums)})
        self.unsaved = False

    def _stop(self) -> None:
        where = f"stopped in epoch {self.epoch + 1} of {self.plan.epochs}"
        if self.checkpoints is None:
            raise Stopped(f"{where}; there was no folder for checkpoints, so nothing is kept")
        self._save()
        raise Stopped(f"{where}; the training is saved in {self.checkpoints.folder}. To go on: --resume")


@dataclass
class _Sums:
    """Sums over the texts of an epoch so far."""

    texts: int = 0
    losses: float = 0.0
    meta_losses: float = 0.0
    wanted: int = 0
    found: int = 0

    def add(self, result: StepResult, n_texts: int) -> None:
        self.texts += n_texts
        self.losses += result.loss * n_texts
        self.meta_losses += result.meta_loss * n_texts
        self.wanted += result.wanted
        self.found += result.found

    @property
    def loss(self) -> float:
        return self.losses / max(self.texts, 1)

    def of_meta_head(self) -> dict[str, float]:
        """Its loss, and its recall: of the clusters that hold a positive, the share that it ranked among the best."""
        if not self.wanted:
            return {}
        return {
            "meta_loss": round(self.meta_losses / max(self.texts, 1), 4),
            "meta_recall": round(100 * self.found / self.wanted, 2),
        }


def _best_epoch(records: list[dict[str, Any]]) -> int:
    """The epoch with the best score; without scores the last; 0 before the first."""
    if not records:
        return 0
    if JUDGED_BY not in records[0]:
        return int(records[-1]["epoch"])
    return int(max(records, key=lambda record: (record[JUDGED_BY], -record["epoch"]))["epoch"])


def _line(record: dict[str, Any], epochs: int) -> str:
    shown = [name for name in ("P@1", "P@5", "PSP@5", "meta_recall") if name in record]
    scores = "".join(f", {name} {record[name]:.2f}" for name in shown)
    return f"epoch {record['epoch']}/{epochs}: loss {record['loss']:.3f}{scores}, {record['seconds']:.0f} s"


@contextlib.contextmanager
def _ctrl_c() -> Iterator[threading.Event]:
    """Within the block Ctrl-C only sets the event; a second one is a KeyboardInterrupt as ever."""
    stopped = threading.Event()

    def on_signal(number: int, frame: Any) -> None:
        if stopped.is_set():
            raise KeyboardInterrupt
        stopped.set()

    if threading.current_thread() is not threading.main_thread():
        yield stopped
        return
    before = signal.signal(signal.SIGINT, on_signal)
    try:
        yield stopped
    finally:
        signal.signal(signal.SIGINT, before)


def tensorboard_writer(folder: Path) -> Any:
    """A writer for TensorBoard, or None where it is not installed."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return None
    return SummaryWriter(folder)
