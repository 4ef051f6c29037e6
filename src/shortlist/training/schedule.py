"""The learning rate over the course of training."""

from __future__ import annotations

import math

RISE = 0.3
START, END = 1 / 25, 1e-5


def one_cycle(done: float, peak: float) -> float:
    """The rate when this share of training is done: up to the peak and down to nearly nothing, in half cosines.

    >>> [round(one_cycle(done, peak=1.0), 3) for done in (0, 0.15, 0.3, 0.65, 1)]
    [0.04, 0.52, 1.0, 0.5, 0.0]
    """
    if done < RISE:
        return _between(START, 1, done / RISE) * peak
    return _between(1, END, (done - RISE) / (1 - RISE)) * peak


def _between(start: float, end: float, share: float) -> float:
    return end + (start - end) * (1 + math.cos(math.pi * min(share, 1.0))) / 2
