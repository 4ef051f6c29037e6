"""Thresholds: the scores that labels need to be predicted, unless a prediction sets another minimum."""

from __future__ import annotations

from typing import Any

import numpy as np

from shortlist.arrays import Arrays, ArraySpec
from shortlist.errors import ModelError
from shortlist.stages.stage import Stage, finite_number


class Thresholds(Stage):
    """A minimum score for all labels, or one for each label.

    >>> Thresholds.of(0.5).passes(np.array([[3, 0]]), np.array([[0.7, 0.2]])).tolist()
    [[True, False]]
    """

    kind = "min_score"
    spec = {"min_scores": ArraySpec("float32", ("n_labels",), optional=True)}

    def __init__(self, arrays: Arrays, config: dict[str, Any]) -> None:
        super().__init__(arrays, config)
        self.min_score = finite_number(config, "min_score", 0, 1)
        self._of_labels = arrays.get("min_scores")
        if self._of_labels is not None and not 0 <= self._of_labels.min() <= self._of_labels.max() <= 1:
            raise ModelError("thresholds of labels must lie between 0 and 1")

    @staticmethod
    def of(min_score: float, of_labels: np.ndarray | None = None) -> Thresholds:
        """The common threshold, and with `of_labels` the threshold of every label."""
        arrays = {} if of_labels is None else {"min_scores": of_labels.astype(np.float32)}
        return Thresholds(arrays, {"min_score": min_score})

    @property
    def per_label(self) -> bool:
        return self._of_labels is not None

    def passes(self, ids: np.ndarray, scores: np.ndarray) -> np.ndarray:
        """Which of the labels have the score that they need."""
        return scores >= (self.min_score if self._of_labels is None else self._of_labels[ids])
