"""Fitting a calibration: of several methods, the one with the smallest error on texts that it has not seen."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from shortlist.evaluation.calibration import calibration_error
from shortlist.odds import CLIP, L2, expit, fit_logistic, log_odds
from shortlist.stages.calibration import PLACES, Calibration, calibration_columns

# Fewer predictions than this say too little to change scores by.
MIN_PAIRS = 200
N_STEPS = 32  # of the isotonic curve
STEP_PRIOR = 50  # predictions added to those of each step, with the hit rate that logistic regression predicts
MAX_STEEPNESS = 4.0  # where all is clear, as in tests, steeper ones would enlarge differences of rounding
# What weights may be: the order of labels must not change, and unknown words must not make a model surer. Any bias.
SIGNS = np.array([1, -1, 1, 0])


class Prior(NamedTuple):
    """What is expected before a text is seen, and how much it counts (1 / variance).

    weights  those of `Calibration`
    bend     of the curve after them (beta calibration): log-odds become a · log p − b · log(1 − p) + c. None: straight
    """

    weights: tuple[float, ...]
    penalty: tuple[float, ...]
    bend: tuple[float, ...] | None = None
    bend_penalty: tuple[float, ...] = ()


ANY_SCORES = Prior((1.0, 0.0, 0.0, 0.0), (L2,) * 4)
# The re-ranker's scores come from a regression on all candidates, which is too sure of the best of them, by about the
# same on all data. Few of a few hundred held-out texts have high scores: see docs/lab-book.md.
RERANKED = Prior((0.68, -0.1, 1.7, -0.4), (100.0, 100.0, 11.0, 6.0), (1.27, 0.07, 0.83), (150.0, 16.0, 44.0))


def fit_calibration(
    scores: np.ndarray, hits: np.ndarray, known: np.ndarray, prior: Prior = ANY_SCORES
) -> tuple[Calibration | None, dict[str, float], np.ndarray]:
    """The best calibration for the labels predicted for held-out texts, or None where scores are better as they are.

    scores  of each text's best labels (texts × K), best first; 0 where there are fewer
    hits    whether each of the first of them is right (texts × R)
    known   the share of each text's words that the model knows
    prior   what is known of such scores

    The best has the smallest squared error on texts that it was not fitted on (each half by the other). Also the
    calibration error of each method there, and the scores that the best method gives to these texts (texts × R).
    """
    n_ranks = hits.shape[1]
    if hits.size < MIN_PAIRS:
        return None, {}, scores[:, :n_ranks]
    half = np.arange(len(scores)) % 2 == 0
    unseen = {"none": np.clip(scores[:, :n_ranks], 0, 1)}
    for method, fit in METHODS.items():
        guesses = np.empty(hits.shape, np.float32)
        for part in (half, ~half):
            fitted = fit(scores[part], hits[part], known[part], prior)
            guesses[~part] = fitted.apply(scores[~part], known[~part])[:, :n_ranks]
        unseen[method] = guesses
    errors = {method: calibration_error(guesses.ravel(), hits.ravel()) for method, guesses in unseen.items()}
    losses = {method: round(float(((guesses - hits) ** 2).mean()), 5) for method, guesses in unseen.items()}
    if prior is not ANY_SCORES:
        losses.pop("none")  # by chance only: such scores are known to be off
    best = min(losses, key=lambda method: (losses[method], method != "none"))
    return (None if best == "none" else METHODS[best](scores, hits, known, prior)), errors, unseen[best]


def fit_weights(scores: np.ndarray, hits: np.ndarray, known: np.ndarray, prior: Prior = ANY_SCORES) -> Calibration:
    """Logistic regression (Platt scaling) that also looks at the text's other labels and at its words."""
    columns = calibration_columns(scores, known)[:, : hits.shape[1]].reshape(-1, 3)
    start, penalty, used = np.array(prior.weights), np.array(prior.penalty), np.ones(4, bool)
    while True:
        weights = np.zeros(4)
        weights[used] = fit_logistic(columns[:, used[:3]], hits.ravel(), start[used], penalty[used])
        wrong = SIGNS * weights < 0
        if not wrong.any():
            weights[0] = min(weights[0], MAX_STEEPNESS)
            break
        used &= ~wrong
    fitted = Calibration.of_curves("logistic", [weights], [PLACES])
    if prior.bend is None:
        return fitted
    guesses = fitted.apply(scores, known)[:, : hits.shape[1]].ravel()
    bend = fit_logistic(bend_columns(guesses), hits.ravel(), np.array(prior.bend), np.array(prior.bend_penalty))
    bend[:2] = np.maximum(bend[:2], 0).tolist()
    return Calibration.of_curves("logistic", [weights], [expit(bend_columns(PLACES) @ bend[:2] + bend[2])])


def bend_columns(probabilities: np.ndarray) -> np.ndarray:
    inside = np.clip(probabilities.astype(np.float64), CLIP, 1 - CLIP)
    return np.column_stack([np.log(inside), -np.log1p(-inside)])


def fit_isotonic(scores: np.ndarray, hits: np.ndarray, known: np.ndarray, prior: Prior = ANY_SCORES) -> Calibration:
    """The same, followed by a curve through the means of bins of neighbouring probabilities.

    Bins have the same number of expected hits each, so that there are many where scores are high and few. The curve
    moves log-odds, and beyond the last bins by as much as there.
    """
    from scipy.optimize import isotonic_regression

    fitted = fit_weights(scores, hits, known, prior)
    guesses, right = fitted.apply(scores, known)[:, : hits.shape[1]].ravel().astype(np.float64), hits.ravel()
    order = np.argsort(guesses, kind="stable")
    expected = np.cumsum(guesses[order])
    cuts = np.searchsorted(expected, expected[-1] * np.arange(1, N_STEPS) / N_STEPS)
    bins = [rows for rows in np.split(order, cuts) if len(rows)]
    sizes = np.array([len(rows) for rows in bins])
    places = np.array([guesses[rows].mean() for rows in bins])
    means = (np.array([right[rows].sum() for rows in bins]) + STEP_PRIOR * places) / (sizes + STEP_PRIOR)
    means = isotonic_regression(means, weights=sizes + STEP_PRIOR).x
    before = log_odds(fitted.arrays()["curves"][0])
    moved = np.interp(before, log_odds(places), log_odds(means) - log_odds(places))
    curve = np.maximum.accumulate(expit(before + moved))
    return Calibration.of_curves("isotonic", fitted.arrays()["weights"], [np.clip(curve, 0, 1)])


METHODS = {"logistic": fit_weights, "isotonic": fit_isotonic}
