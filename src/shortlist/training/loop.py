"""The training loop: batches, steps, validation after each epoch, checkpoints, and an orderly stop."""

from __future__ import annotations

import contextlib
import logging
import math
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from shortlist.arrays import Arrays
from shortlist.background import in_background
from shortlist.errors import Stopped
from shortlist.kernels.threads import n_threads, use_threads
from shortlist.progress import Progress
from shortlist.training.batches import Batch, Batches, epoch_batches
from shortlist.training.budget import Budget
from shortlist.training.checkpoints import Checkpoints
from shortlist.training.heads import StepResult, require_finite
from shortlist.training.interrupts import interrupt_event

log = logging.getLogger("shortlist")

# The best epoch has the best N@5: of the usual metrics the one that looks at all places and weighs the first most.
SELECTED_BY = "N@5"
# Learning-rate schedules: share of training until the peak; rates at the start and the end, as fractions of the peak.
ONE_CYCLES = {"one-cycle": (0.3, 1 / 25, 1e-5), "one-cycle-published": (0.33, 1 / 10, 1e-5)}
DECAY = 0.5


class Learner(Protocol):
    """What learns: `PlainLearner`, or one of the learners in torch."""

    def seed(self, seed: int) -> None: ...

    def step(self, batch: Batch, learning_rate: float, detach: bool = False) -> StepResult: ...

    def for_prediction(self) -> Arrays: ...

    def state(self) -> Arrays: ...

    def restore(self, arrays: Arrays) -> None: ...


class Validation(Protocol):
    """Measures arrays that a model predicts with, on the held-out texts."""

    def measure(self, arrays: Arrays) -> dict[str, float]: ...


@dataclass(frozen=True)
class Schedule:
    """How long and how fast to train.

    learning_rate    its peak
    detach_fraction  for this fraction of training, the label rows do not move the encoder
    patience         stop after this many epochs without improvement
    schedule         how the learning rate changes (see `learning_rate_at`)
    decay_epoch      with the schedule "step", the learning rate is halved after this many epochs
    """

    n_epochs: int
    batch_size: int
    learning_rate: float
    detach_fraction: float = 0.0
    patience: int = 10
    seed: int = 0
    schedule: str = "one-cycle"
    decay_epoch: int = 0

    def rate(self, progress: float) -> float:
        """The learning rate after this fraction of training."""
        return learning_rate_at(progress, self.learning_rate, self.schedule, self.decay_epoch / self.n_epochs)

    def shortened(self, n_epochs: int) -> Schedule:
        """The same in fewer epochs."""
        return replace(self, n_epochs=n_epochs, decay_epoch=-(-self.decay_epoch * n_epochs // self.n_epochs))


@dataclass
class Progressed:
    """How far a training is, and what it has seen: what a checkpoint holds besides the learner's state."""

    epoch: int = 0
    step: int = 0  # the next step, counted within its epoch
    seconds: float = 0.0
    # With a budget: the epochs that fit, 0 until that is known, and the seconds of it that are spent.
    planned: int = 0
    spent: float = 0.0
    records: list[dict[str, Any]] = field(default_factory=list)
    # Sums over the texts of this epoch.
    texts: int = 0
    loss: float = 0.0
    meta_loss: float = 0.0
    positive_clusters: int = 0
    found_clusters: int = 0

    def add(self, result: StepResult, n_texts: int) -> None:
        self.texts += n_texts
        self.loss += result.loss * n_texts
        self.meta_loss += result.meta_loss * n_texts
        self.positive_clusters += result.n_positive_clusters
        self.found_clusters += result.n_found_clusters

    @property
    def mean_loss(self) -> float:
        return self.loss / max(self.texts, 1)

    def finish_epoch(self, scores: dict[str, float], n_texts: int) -> dict[str, Any]:
        """Append the record of this epoch, and start the next one."""
        self.epoch, self.step = self.epoch + 1, 0
        record = {"epoch": self.epoch, "texts": self.epoch * n_texts, "seconds": round(self.seconds, 1)}
        record["loss"] = round(self.mean_loss, 4)
        if self.positive_clusters:
            record["meta_loss"] = round(self.meta_loss / max(self.texts, 1), 4)
            record["meta_recall"] = round(100 * self.found_clusters / self.positive_clusters, 2)
        record |= {name: round(value, 4) for name, value in scores.items()}
        self.records.append(record)
        self.texts, self.loss, self.meta_loss, self.positive_clusters, self.found_clusters = 0, 0.0, 0.0, 0, 0
        return record

    @property
    def best_epoch(self) -> int:
        """The epoch with the best score; the last one without scores; 0 before the first."""
        if not self.records:
            return 0
        if SELECTED_BY not in self.records[0]:
            return int(self.records[-1]["epoch"])
        return int(max(self.records, key=lambda record: (record[SELECTED_BY], -record["epoch"]))["epoch"])


def fit(
    learner: Learner,
    schedule: Schedule,
    batches: Batches,
    validation: Validation | None,
    checkpoints: Checkpoints | None = None,
    resume: bool = False,
    show_progress: bool = True,
    tensorboard: Any = None,
    budget: Budget | None = None,
) -> tuple[Arrays, list[dict[str, Any]]]:
    """Train. Returns the arrays of the best epoch (without validation, the last one) and the record of every epoch.

    With a budget, there may be fewer epochs. A resumed training has as many as were planned before.
    """
    done = Progressed()
    if checkpoints is not None and resume:
        done = restore(learner, checkpoints)
    elif checkpoints is not None:
        checkpoints.refuse_to_overwrite()
    if budget is not None:
        budget.resume(done.spent)
        budget.start_phase(schedule.n_epochs)
    was_planned = done.planned > 0
    if was_planned:
        schedule = schedule.shortened(done.planned)
    n_texts = len(batches.lengths)
    steps_per_epoch = -(-n_texts // schedule.batch_size)
    arrays: Arrays | None = None
    with contextlib.ExitStack() as stack:
        stop = stack.enter_context(interrupt_event())
        best: Arrays = {}  # in memory, unless there are checkpoints
        while done.epoch < schedule.n_epochs:
            if validation is not None and done.epoch - done.best_epoch >= schedule.patience:
                break
            if arrays is not None and checkpoints is not None and checkpoints.due():
                save(learner, done, checkpoints, budget)  # between two epochs
            started = time.monotonic()
            with Progress(f"epoch {done.epoch + 1}/{schedule.n_epochs}", n_texts, "texts", show_progress) as progress:
                progress.advance(min(done.step * schedule.batch_size, n_texts))
                for step, n_rows, seed, batch in prepared_batches(batches, schedule, done.epoch, done.step):
                    learner.seed(seed)
                    n_done = done.epoch * steps_per_epoch + step
                    n_steps = schedule.n_epochs * steps_per_epoch
                    learning_rate = schedule.rate(n_done / n_steps)
                    result = learner.step(batch, learning_rate, detach=n_done < schedule.detach_fraction * n_steps)
                    done.add(result, n_rows)
                    done.step = step + 1
                    progress.advance(n_rows)
                    progress.note(f"loss {done.mean_loss:.3f}, learning rate {learning_rate:.5f}")
                    if budget is not None and not done.planned:
                        schedule = within(budget, schedule, done, done.epoch + done.step / steps_per_epoch)
                    if stop.is_set() or (checkpoints is not None and checkpoints.due()):
                        done.seconds, started = done.seconds + time.monotonic() - started, time.monotonic()
                        save(learner, done, checkpoints, budget)
                    if stop.is_set():
                        raise stopped(done, schedule.n_epochs, checkpoints)
            done.seconds += time.monotonic() - started
            arrays = learner.for_prediction()
            require_finite(arrays)
            record = done.finish_epoch({} if validation is None else validation.measure(arrays), n_texts)
            log.info(describe(record, schedule.n_epochs))
            if budget is not None and not was_planned:
                schedule = within(budget, schedule, done, done.epoch)
            if tensorboard is not None:
                for name, value in record.items():
                    tensorboard.add_scalar(name.replace("@", "_at_"), value, done.epoch)
            if validation is not None and done.best_epoch == done.epoch < schedule.n_epochs:
                if checkpoints is not None:
                    checkpoints.save_best(arrays)
                else:
                    best = {name: array.copy() for name, array in arrays.items()}
            if checkpoints is not None:
                checkpoints.write_metrics(done.records)
        if arrays is not None:
            save(learner, done, checkpoints, budget)  # what follows may take long, too
        if done.best_epoch != done.epoch:
            log.info("epoch %d was the best", done.best_epoch)
            arrays = best if checkpoints is None else checkpoints.load_best()
        elif arrays is None:
            arrays = learner.for_prediction()  # resumed from a checkpoint at the very end
    return arrays, done.records


def prepared_batches(
    batches: Batches, schedule: Schedule, epoch: int, first: int
) -> Iterator[tuple[int, int, int, Batch]]:
    """The steps of an epoch from `first` on: number, texts, random seed, batch. A thread prepares the next ones.

    Whatever is random in a step depends on the seed and its number alone.
    """

    def prepare() -> Iterator[tuple[int, int, int, Batch]]:
        every = enumerate(epoch_batches(batches.lengths, schedule.batch_size, schedule.seed, epoch))
        for step, rows in islice(every, first, None):
            rng = np.random.default_rng([schedule.seed, epoch, step, 1])
            with use_threads(1):
                batch = batches.take(np.repeat(rows, 2) if len(rows) == 1 else rows, rng)  # batch norm needs two
            yield step, len(rows), int(rng.integers(2**62)), batch

    return prepare() if n_threads() == 1 else in_background(prepare(), ahead=2)


def restore(learner: Learner, checkpoints: Checkpoints) -> Progressed:
    """Bring the learner to the latest checkpoint, if there is one, and say where that is."""
    saved = checkpoints.load()
    if saved is None:
        log.info("no checkpoint in %s yet; starting from the beginning", checkpoints.folder)
        return Progressed()
    arrays, facts = saved
    learner.restore(arrays)
    done = Progressed(**facts["progressed"])
    log.info("resuming at epoch %d, step %d", done.epoch + 1, done.step)
    return done


def within(budget: Budget, schedule: Schedule, done: Progressed, n_done: float) -> Schedule:
    """The schedule, shortened to the epochs that fit into the budget, if that is known after `n_done` epochs."""
    n_epochs = budget.epochs_that_fit(n_done, schedule.n_epochs)
    if n_epochs is None:
        return schedule
    if n_epochs < schedule.n_epochs:
        log.info("%d of %d epochs fit into the %g minutes", n_epochs, schedule.n_epochs, budget.minutes)
    done.planned = n_epochs
    return schedule.shortened(n_epochs)


def save(learner: Learner, done: Progressed, checkpoints: Checkpoints | None, budget: Budget | None) -> None:
    if checkpoints is not None:
        if budget is not None:
            done.spent = budget.elapsed
        checkpoints.save(learner.state(), {"progressed": asdict(done)})


def stopped(done: Progressed, n_epochs: int, checkpoints: Checkpoints | None) -> Stopped:
    where = f"stopped in epoch {done.epoch + 1} of {n_epochs}"
    if checkpoints is None:
        return Stopped(f"{where}; nothing is saved, because there was no checkpoint_dir")
    return Stopped(f"{where}; the training is saved in {checkpoints.folder}. To continue, rerun with --resume")


def describe(record: dict[str, Any], n_epochs: int) -> str:
    """One log line for an epoch."""
    shown = [name for name in ("P@1", "P@5", "PSP@5", "meta_recall") if name in record]
    scores = "".join(f", {name} {record[name]:.2f}" for name in shown)
    return f"epoch {record['epoch']}/{n_epochs}: loss {record['loss']:.3f}{scores}, {record['seconds']:.0f} s"


def learning_rate_at(progress: float, peak: float, schedule: str = "one-cycle", decay_at: float = 0.5) -> float:
    """The learning rate after this fraction of training.

    schedule  "one-cycle" and "one-cycle-published": up to the peak and down to almost 0, along half cosines. "step":
              constant, and halved once
    decay_at  the fraction of training after which "step" halves it

    >>> [round(learning_rate_at(progress, peak=1.0), 3) for progress in (0, 0.15, 0.3, 0.65, 1)]
    [0.04, 0.52, 1.0, 0.5, 0.0]
    >>> [learning_rate_at(progress, peak=1.0, schedule="step") for progress in (0, 0.4, 0.5, 1)]
    [1.0, 1.0, 0.5, 0.5]
    """
    if schedule == "step":
        return peak if progress < decay_at else DECAY * peak
    warm_up, start, end = ONE_CYCLES[schedule]
    if progress < warm_up:
        return _cosine(start, 1, progress / warm_up) * peak
    return _cosine(1, end, (progress - warm_up) / (1 - warm_up)) * peak


def _cosine(start: float, end: float, progress: float) -> float:
    return end + (start - end) * (1 + math.cos(math.pi * min(progress, 1.0))) / 2


def tensorboard_writer(folder: Path) -> Any:
    """A TensorBoard writer, or None where TensorBoard is not installed."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return None
    return SummaryWriter(folder)
