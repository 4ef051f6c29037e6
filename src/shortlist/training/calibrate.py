"""Fitting a calibration: of several methods, the one with the smallest error on pairs that it has not seen."""

from __future__ import annotations

import numpy as np

from shortlist.evaluation.calibration import calibration_error
from shortlist.odds import expit, fit_logistic, log_odds
from shortlist.stages.calibration import Calibration

# Fewer predictions than this say too little to change scores by.
MIN_PAIRS = 200
N_STEPS = 32  # of the isotonic curve


def fit_calibration(scores: np.ndarray, hits: np.ndarray) -> tuple[Calibration | None, dict[str, float], np.ndarray]:
    """The best calibration of these held-out predictions, or None where none is better than the scores as they are.

    Also the error of each method on pairs that it was not fitted on (each half by the other), and the scores that the
    best method gives to these.
    """
    if len(scores) < MIN_PAIRS:
        return None, {}, scores
    half = np.arange(len(scores)) % 2 == 0
    unseen = {"none": scores}
    for method, fit in METHODS.items():
        guesses = np.empty(len(scores), np.float32)
        for part in (half, ~half):
            guesses[~part] = fit(scores[part], hits[part]).apply(scores[~part])
        unseen[method] = guesses
    errors = {method: calibration_error(guesses, hits) for method, guesses in unseen.items()}
    best = min(errors, key=lambda method: (round(errors[method], 4), method != "none"))
    return (None if best == "none" else METHODS[best](scores, hits)), errors, unseen[best]


def fit_platt(scores: np.ndarray, hits: np.ndarray) -> Calibration:
    """A straight line in log-odds (Platt scaling), as a curve."""
    factor, bias = fit_logistic(log_odds(scores)[:, None], hits, np.array([1.0, 0.0]))
    places = np.unique(np.concatenate([[0.0], expit(np.linspace(-8, 8, 4 * N_STEPS + 1)), [1.0]]))
    values = expit(max(factor, 0.0) * log_odds(places) + bias)
    return Calibration.of_points("logistic", places.tolist(), values)


def fit_isotonic(scores: np.ndarray, hits: np.ndarray) -> Calibration:
    """Means of bins of neighbouring scores, made non-decreasing."""
    from scipy.optimize import isotonic_regression

    order = np.argsort(scores, kind="stable")
    bins = [rows for rows in np.array_split(order, N_STEPS) if len(rows)]
    weights = np.array([len(rows) for rows in bins], np.float64)
    means = isotonic_regression([hits[rows].mean() for rows in bins], weights=weights).x
    places = np.array([scores[rows].mean() for rows in bins], np.float64)
    places = np.concatenate([[min(0.0, places[0])], np.maximum.accumulate(places), [max(1.0, places[-1])]])
    # Beyond the bins the curve is straight: to 0, and half of the way to 1.
    values = np.concatenate([[0.0], means, [max(means[-1], (1 + means[-1]) / 2)]])
    return Calibration.of_points("isotonic", places.tolist(), np.clip(values, 0, 1))


METHODS = {"logistic": fit_platt, "isotonic": fit_isotonic}
