"""Calibration: scores to probabilities. Of the labels with a score of 0.8, about 80 % should be right."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from shortlist.arrays import Arrays, ArraySpec
from shortlist.errors import ModelError
from shortlist.kernels.classifier import calibrated
from shortlist.odds import CLIP, expit, log_odds
from shortlist.stages.stage import Stage

# A text's best labels: their scores show how sure a model is of one of them.
N_RANKED = 10
MIN_OTHERS = 0.01  # less than this is rounding, or might as well be
N_POINTS = 129
PLACES = expit(np.linspace(-8, 8, N_POINTS))  # where curves have their points


class Calibration(Stage):
    """The probability of a label, from its score, from the scores of the text's other labels, and from its words.

    Of each curve, `weights` are those of the score's log-odds, of the logarithm of the sum of the scores of the text's
    other best labels, and of minus the share of unknown words, and a bias; the curve maps what they give, as a
    probability, to the final one. An ensemble has one per member, and takes their mean. The order of a text's labels
    stays as it is.

    >>> identity = Calibration.of_curves("none", [[1, 0, 0, 0]], [PLACES])
    >>> print(identity.apply(np.array([[0.8, 0.1]]), np.ones(1)).round(3))
    [[0.8 0.1]]
    """

    kind = "curves"
    spec = {"weights": ArraySpec("float64", ("n_curves", 4)), "curves": ArraySpec("float64", ("n_curves", N_POINTS))}

    def __init__(self, arrays: Arrays, config: dict[str, Any]) -> None:
        super().__init__(arrays, config)
        self.method = str(config.get("method"))
        self._weights, self._curves = arrays["weights"], arrays["curves"]
        if not len(self._weights) or len(self._weights) != len(self._curves):
            raise ModelError("the calibration must have one row of weights per curve")
        if (self._weights[:, 0] < 0).any() or (self._weights[:, 1] > 0).any():
            raise ModelError("the calibration must not change the order of labels")
        if (np.diff(self._curves) < 0).any() or self._curves.min() < 0 or self._curves.max() > 1:
            raise ModelError("the curves of the calibration must not decrease, and lie between 0 and 1")

    @staticmethod
    def of_curves(method: str, weights: Any, curves: Any) -> Calibration:
        arrays = {"weights": np.asarray(weights, np.float64), "curves": np.asarray(curves, np.float64)}
        return Calibration(arrays, {"method": method})

    @staticmethod
    def mean(calibrations: Sequence[Calibration | None]) -> Calibration | None:
        """The mean of several; None stands for scores that stay as they are."""
        if all(calibration is None for calibration in calibrations):
            return None
        rows = [([[1, 0, 0, 0]], [PLACES]) if c is None else (c._weights, c._curves) for c in calibrations]
        weights, curves = (np.concatenate(parts) for parts in zip(*rows, strict=True))
        return Calibration.of_curves("mean", weights, curves)

    def apply(self, scores: np.ndarray, known: np.ndarray, best: np.ndarray | None = None) -> np.ndarray:
        """Probabilities for scores (texts × K).

        known  the share of each text's words that the model knows
        best   the scores of each text's best labels (texts × `N_RANKED`), if they are not the first of `scores`
        """
        scores = np.ascontiguousarray(scores, np.float32)
        total = total_of_best(scores if best is None else best)
        probabilities = np.empty(scores.shape, np.float32)
        fitted = self._weights, self._curves, PLACES
        calibrated(scores, total, np.asarray(known, np.float64), *fitted, np.float32(CLIP), MIN_OTHERS, probabilities)
        return probabilities

    def multiply_adds(self) -> float:
        """Nothing worth counting."""
        return 0.0


def total_of_best(scores: np.ndarray) -> np.ndarray:
    """The sum of the scores of each text's best labels, which come first."""
    return np.clip(scores[:, :N_RANKED], 0, 1).sum(axis=1)


def calibration_columns(scores: np.ndarray, known: np.ndarray) -> np.ndarray:
    """What probabilities are computed from (texts × K × 3): see `Calibration`."""
    others = np.log(np.maximum(total_of_best(scores)[:, None] - np.clip(scores, 0, 1), MIN_OTHERS))
    return np.stack([log_odds(scores), others, np.broadcast_to(known[:, None] - 1, scores.shape)], axis=2)
