"""Weights between two scores, such as the published α and β, chosen on held-out texts."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from shortlist.training.data import TrainingData
from shortlist.training.loop import SELECTED_BY

# What the authors of Astec tried for β in their program.
WEIGHTS = tuple(round(0.1 * i, 1) for i in range(1, 10))


def choose_weight(data: TrainingData, ids: np.ndarray, scores: Callable[[float], np.ndarray]) -> float:
    """The weight whose scores of the candidates (held-out texts × K ids, -1 for none) rank them best.

    Of equally good weights, the smallest.
    """
    reached = {}
    for weight in WEIGHTS:
        ranked = np.where(ids >= 0, scores(weight), -np.inf)
        best = np.argsort(-ranked, axis=1, kind="stable")[:, :5]
        reached[weight] = data.measure(np.take_along_axis(ids, best, axis=1))[SELECTED_BY]
    return max(WEIGHTS, key=lambda weight: reached[weight])
