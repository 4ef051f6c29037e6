"""Fitting a calibration: of several methods, the one with the smallest error on texts that it has not seen."""

from __future__ import annotations

import numpy as np

from shortlist.evaluation.calibration import calibration_error
from shortlist.odds import fit_logistic
from shortlist.stages.calibration import PLACES, Calibration, calibration_columns

# Fewer predictions than this say too little to change scores by.
MIN_PAIRS = 200
N_STEPS = 32  # of the isotonic curve
MAX_STEEPNESS = 4.0  # where all is clear, as in tests, steeper ones would enlarge differences of rounding
# What weights may be: the order of labels must not change, and unknown words must not make a model surer. Any bias.
SIGNS = np.array([1, -1, 1, 0])


def fit_calibration(
    scores: np.ndarray, hits: np.ndarray, known: np.ndarray
) -> tuple[Calibration | None, dict[str, float], np.ndarray]:
    """The best calibration for the labels predicted for held-out texts, or None where scores are better as they are.

    scores  of each text's best labels (texts × K), best first; 0 where there are fewer
    hits    whether each of the first of them is right (texts × R)
    known   the share of each text's words that the model knows

    Also the error of each method on texts that it was not fitted on (each half by the other), and the scores that the
    best method gives to these (texts × R).
    """
    n_ranks = hits.shape[1]
    if hits.size < MIN_PAIRS:
        return None, {}, scores[:, :n_ranks]
    half = np.arange(len(scores)) % 2 == 0
    unseen = {"none": scores[:, :n_ranks]}
    for method, fit in METHODS.items():
        guesses = np.empty(hits.shape, np.float32)
        for part in (half, ~half):
            fitted = fit(scores[part], hits[part], known[part])
            guesses[~part] = fitted.apply(scores[~part], known[~part])[:, :n_ranks]
        unseen[method] = guesses
    errors = {method: calibration_error(guesses.ravel(), hits.ravel()) for method, guesses in unseen.items()}
    best = min(errors, key=lambda method: (round(errors[method], 4), method != "none"))
    return (None if best == "none" else METHODS[best](scores, hits, known)), errors, unseen[best]


def fit_weights(scores: np.ndarray, hits: np.ndarray, known: np.ndarray) -> Calibration:
    """Logistic regression (Platt scaling) that also looks at the text's other labels and at its words."""
    columns = calibration_columns(scores, known)[:, : hits.shape[1]].reshape(-1, 3)
    start, used = np.array([1.0, 0.0, 0.0, 0.0]), np.ones(4, bool)
    while True:
        weights = np.zeros(4)
        weights[used] = fit_logistic(columns[:, used[:3]], hits.ravel(), start[used])
        wrong = SIGNS * weights < 0
        if not wrong.any():
            weights[0] = min(weights[0], MAX_STEEPNESS)
            return Calibration.of_curves("logistic", [weights], [PLACES])
        used &= ~wrong


def fit_isotonic(scores: np.ndarray, hits: np.ndarray, known: np.ndarray) -> Calibration:
    """The same, and behind it a curve through the means of bins of neighbouring probabilities."""
    from scipy.optimize import isotonic_regression

    fitted = fit_weights(scores, hits, known)
    guesses, right = fitted.apply(scores, known)[:, : hits.shape[1]].ravel(), hits.ravel()
    bins = [rows for rows in np.array_split(np.argsort(guesses, kind="stable"), N_STEPS) if len(rows)]
    sizes = np.array([len(rows) for rows in bins], np.float64)
    means = isotonic_regression([right[rows].mean() for rows in bins], weights=sizes).x
    places = np.maximum.accumulate([guesses[rows].mean() for rows in bins])
    # Beyond the bins the curve is straight: to 0, and half of the way to 1.
    places = np.concatenate([[0.0], places, [1.0]])
    values = np.concatenate([[0.0], means, [(1 + means[-1]) / 2]])
    curve = np.clip(np.interp(PLACES, places, values), 0, 1)
    return Calibration.of_curves("isotonic", fitted.arrays()["weights"], [curve])


METHODS = {"logistic": fit_weights, "isotonic": fit_isotonic}
