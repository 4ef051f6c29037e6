"""Scores that mean something: of the labels with a score of 0.8, about 80 % should be right.

Ways to get there are learnt on labels predicted for held-out texts, and the one with the smallest error on texts it has
not seen is kept. All of them keep the order of the scores.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shortlist.evaluation.calibration import calibration_error
from shortlist.odds import expit, log_odds

# Fewer pairs than this say too little to change scores by.
FEWEST_PAIRS = 200
STEPS = 32  # of the curve that follows the pairs


def fit_odds(inputs: np.ndarray, right: np.ndarray, start: np.ndarray) -> list[float]:
    """Logistic regression by Newton's steps: a factor for each column of the inputs, and a bias last."""
    inputs = np.column_stack([inputs.astype(np.float64), np.ones(len(inputs))])
    values = start.astype(np.float64)
    pull = 0.3 * np.eye(len(start))  # towards the start; decides where there is next to nothing to learn from
    for _ in range(30):
        guess = expit(inputs @ values)
        slope = inputs.T @ (guess - right) + pull @ (values - start)
        curve = (inputs * (guess * (1 - guess))[:, None]).T @ inputs + pull
        step = np.linalg.solve(curve, slope)
        values -= np.clip(step, -1, 1)
        if np.abs(step).max() < 1e-6:
            break
    return values.tolist()


@dataclass(frozen=True)
class Calibration:
    """A rising curve from scores to probabilities, straight between its points.

    >>> Calibration("curve", [0.0, 0.5, 1.0], [0.0, 0.5, 0.75]).apply(np.array([0.25, 0.75])).tolist()
    [0.25, 0.625]
    """

    method: str
    scores: list[float]
    probabilities: list[float]

    def __post_init__(self) -> None:
        if not all(isinstance(value, int | float) for value in (*self.scores, *self.probabilities)):
            raise TypeError("the points of the calibration are not numbers")
        points = np.array([self.scores, self.probabilities], np.float64)
        if points.ndim != 2 or points.shape[1] < 2 or not np.isfinite(points).all() or (np.diff(points) < 0).any():
            raise ValueError("the calibration is not a rising curve")
        if points[1, 0] < 0 or points[1, -1] > 1:
            raise ValueError("the calibration leads to scores outside 0 to 1")

    @staticmethod
    def mean(curves: list[Calibration | None]) -> Calibration | None:
        """The curve between several; None is that of scores that stay as they are."""
        known = [curve for curve in curves if curve is not None]
        if not known:
            return None
        places = np.unique(np.concatenate([[0.0, 1.0], *(curve.scores for curve in known)]))
        values = [np.clip(places, 0, 1) if curve is None else curve.at(places) for curve in curves]
        return Calibration("mean", places.tolist(), np.mean(values, axis=0).tolist())

    def at(self, scores: np.ndarray) -> np.ndarray:
        return np.interp(scores, self.scores, self.probabilities)

    def apply(self, scores: np.ndarray) -> np.ndarray:
        """Probabilities in place of scores, in the same order."""
        return self.at(scores).astype(np.float32)

    @staticmethod
    def fit(scores: np.ndarray, right: np.ndarray) -> tuple[Calibration | None, dict[str, float], np.ndarray]:
        """The best of several ways on these held-out pairs, or None where none is better than the scores as they are.

        Also the error of each way on pairs that it has not learnt from (each half by the other), and the scores that
        the best way gives these.
        """
        if len(scores) < FEWEST_PAIRS:
            return None, {}, scores
        half = np.arange(len(scores)) % 2 == 0
        unseen = {"none": scores}
        for method, learn in _METHODS.items():
            guesses = np.empty(len(scores), np.float32)
            for part in (half, ~half):
                guesses[~part] = learn(scores[part], right[part]).apply(scores[~part])
            unseen[method] = guesses
        errors = {method: calibration_error(guesses, right) for method, guesses in unseen.items()}
        best = min(errors, key=lambda method: (round(errors[method], 4), method != "none"))
        return (None if best == "none" else _METHODS[best](scores, right)), errors, unseen[best]


def _logistic(scores: np.ndarray, right: np.ndarray) -> Calibration:
    """A straight line in log-odds (Platt), put down as a curve."""
    factor, bias = fit_odds(log_odds(scores)[:, None], right, np.array([1.0, 0.0]))
    places = np.unique(np.concatenate([[0.0], expit(np.linspace(-8, 8, 4 * STEPS + 1)), [1.0]]))
    values = expit(max(factor, 0.0) * log_odds(places) + bias)
    return Calibration("logistic", places.tolist(), values.tolist())


def _isotonic(scores: np.ndarray, right: np.ndarray) -> Calibration:
    """Means of neighbouring scores, made to rise."""
    from scipy.optimize import isotonic_regression

    order = np.argsort(scores, kind="stable")
    bins = [rows for rows in np.array_split(order, STEPS) if len(rows)]
    weights = np.array([len(rows) for rows in bins], np.float64)
    means = isotonic_regression([right[rows].mean() for rows in bins], weights=weights).x
    places = np.array([scores[rows].mean() for rows in bins], np.float64)
    places = np.concatenate([[min(0.0, places[0])], np.maximum.accumulate(places), [max(1.0, places[-1])]])
    # To the ends it goes as straight as it can; scores below all that were seen are not worth more than these.
    values = np.concatenate([[0.0], means, [max(means[-1], (1 + means[-1]) / 2)]])
    return Calibration("isotonic", places.tolist(), np.clip(values, 0, 1).tolist())


_METHODS = {"logistic": _logistic, "isotonic": _isotonic}
