"""A budget of minutes for training: how many epochs of each phase fit into it.

Each phase gets a share of the time that is left. A few seconds after its first step, its pace is known, and with it the
number of epochs that fit. The learning rate then falls over these epochs, so a short training is a whole one.
"""

from __future__ import annotations

import math
import time

from shortlist.recipes.options import Options
from shortlist.recipes.recipe import Recipe

MEASURED_SECONDS = 2.0
# Candidates, re-ranker and calibration together take about as long as this many epochs (docs/lab-book.md).
WORK_BESIDE_EPOCHS = 6.0


class Budget:
    """Shares the time out over the epochs that are still to come.

    n_epochs  epochs of all phases, by the options; there are never more
    """

    def __init__(self, minutes: float, n_epochs: int) -> None:
        self.minutes, self._started = minutes, time.monotonic()
        self._epochs_left = n_epochs + WORK_BESIDE_EPOCHS
        self._phase_end = 0.0
        self._first: tuple[float, float] | None = None

    @property
    def elapsed(self) -> float:
        """Seconds since training started, including those before an interruption."""
        return time.monotonic() - self._started

    def resume(self, elapsed: float) -> None:
        """Count the time before an interruption."""
        self._started = min(self._started, time.monotonic() - elapsed)

    def start_phase(self, n_epochs: int) -> None:
        left = max(60 * self.minutes - self.elapsed, 0.0)
        self._phase_end = self.elapsed + left * n_epochs / self._epochs_left
        self._epochs_left -= n_epochs
        self._first = None

    def epochs_that_fit(self, done: float, planned: int) -> int | None:
        """How many of the planned epochs fit, after `done` epochs of this phase; None if that is not known yet.

        The epoch that is running is always finished.
        """
        now = self.elapsed
        if self._first is None:
            self._first = now, done  # from now on: the first step also loads libraries and data
        seconds, epochs = now - self._first[0], done - self._first[1]
        if seconds < MEASURED_SECONDS or not epochs:
            return None
        fitting = done + (self._phase_end - now) * epochs / seconds
        return max(min(planned, math.floor(fitting)), math.ceil(done))


def planned_epochs(recipe: Recipe, options: Options) -> int:
    """The epochs of all phases of the recipe."""
    n_epochs = options.get("n_epochs", 0)
    epochs_of = {
        "surrogate": options.get("n_surrogate_epochs", 0) if options.get("surrogate", "") != "none" else 0,
        "classifier": n_epochs if options.get("classifier", "") == "rows" else 0,
        "buckets": n_epochs * options.get("n_repetitions", 0),
        "joint": n_epochs,
        "attention_clusters": n_epochs,
        "attention_labels": n_epochs,
    }
    rerank = options.n_reranker_epochs if options.get("reranker", "none") == "network" else 0
    return sum(epochs_of.get(phase, 0) for phase in recipe.phases) + rerank
