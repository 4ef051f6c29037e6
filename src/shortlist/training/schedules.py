"""Learning-rate schedules."""

from __future__ import annotations

import math

# Share of training until the peak; the rate at the start and at the end, as a fraction of the peak.
ONE_CYCLES = {"one-cycle": (0.3, 1 / 25, 1e-5), "one-cycle-published": (0.33, 1 / 10, 1e-5)}
DECAY = 0.5


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
