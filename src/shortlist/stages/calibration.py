"""Calibration: scores to probabilities. Of the labels with a score of 0.8, about 80 % should be right."""

from __future__ import annotations

from typing import Any

import numpy as np

from shortlist.arrays import Arrays, ArraySpec
from shortlist.errors import ModelError
from shortlist.stages.stage import Stage


class Calibration(Stage):
    """A non-decreasing curve from scores to probabilities, linear between its points. It keeps the order of scores.

    >>> curve = Calibration.of_points("isotonic", [0.0, 0.5, 1.0], [0.0, 0.5, 0.75])
    >>> curve.apply(np.array([0.25, 0.75])).tolist()
    [0.25, 0.625]
    """

    kind = "curve"
    spec = {
        "scores": ArraySpec("float64", ("n_points",)),
        "probabilities": ArraySpec("float64", ("n_points",)),
    }

    def __init__(self, arrays: Arrays, config: dict[str, Any]) -> None:
        super().__init__(arrays, config)
        self.method = str(config.get("method"))
        self._scores, self._probabilities = arrays["scores"], arrays["probabilities"]
        for name, points in (("scores", self._scores), ("probabilities", self._probabilities)):
            if len(points) < 2 or (np.diff(points) < 0).any():
                raise ModelError(f"the {name} of the calibration must be at least 2 and never decrease")
        if self._probabilities[0] < 0 or self._probabilities[-1] > 1:
            raise ModelError("the probabilities of the calibration must lie between 0 and 1")

    @staticmethod
    def of_points(method: str, scores: Any, probabilities: Any) -> Calibration:
        points = {"scores": np.asarray(scores, np.float64), "probabilities": np.asarray(probabilities, np.float64)}
        return Calibration(points, {"method": method})

    @staticmethod
    def mean(curves: list[Calibration | None]) -> Calibration | None:
        """The mean of several curves; None stands for scores that stay as they are."""
        known = [curve for curve in curves if curve is not None]
        if not known:
            return None
        scores = np.unique(np.concatenate([[0.0, 1.0], *(curve._scores for curve in known)]))
        values = [np.clip(scores, 0, 1) if curve is None else curve._interpolate(scores) for curve in curves]
        return Calibration.of_points("mean", scores, np.mean(values, axis=0))

    def _interpolate(self, scores: np.ndarray) -> np.ndarray:
        return np.interp(scores, self._scores, self._probabilities)

    def apply(self, scores: np.ndarray) -> np.ndarray:
        """Probabilities for scores."""
        return self._interpolate(scores).astype(np.float32)

    def multiply_adds(self) -> float:
        """Nothing worth counting."""
        return 0.0
