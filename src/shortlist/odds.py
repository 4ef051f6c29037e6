"""Probabilities, log-odds, and regressions on a few columns: one for probabilities, one for rankings."""

from __future__ import annotations

import numpy as np

# Probabilities are clipped to this distance from 0 and 1 before their log-odds are taken.
CLIP = 1e-6
# Pulls the weights towards their start; decides where there is next to nothing to learn from.
L2 = 0.3
MAX_STEPS = 100  # of Newton's method; a dozen are usual


def expit(odds: np.ndarray) -> np.ndarray:
    """The probabilities of these log-odds.

    >>> expit(np.array([-np.inf, 0.0, 1000.0])).tolist()
    [0.0, 0.5, 1.0]
    """
    return np.exp(-np.logaddexp(np.float32(0), -odds))


def log_odds(probabilities: np.ndarray) -> np.ndarray:
    """log(p / (1 − p)) of clipped probabilities."""
    inside = np.clip(np.asarray(probabilities, np.float32), CLIP, 1 - CLIP)
    return np.log(inside / (1 - inside))


def mean_log_odds(weight: float, one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """The log-odds of weight · σ(one) + (1 − weight) · σ(other), precise for probabilities near 0 and 1.

    >>> mean_log_odds(1.0, np.array([-20.0, 20.0]), np.zeros(2)).round(3).tolist()
    [-20.0, 20.0]
    """
    one, other = one.astype(np.float64), other.astype(np.float64)
    yes = weight * expit(one) + (1 - weight) * expit(other)
    no = weight * expit(-one) + (1 - weight) * expit(-other)
    with np.errstate(divide="ignore"):
        return (np.log(yes) - np.log(no)).astype(np.float32)


def fit_logistic(
    columns: np.ndarray, hits: np.ndarray, start: np.ndarray, penalty: np.ndarray | float = L2
) -> list[float]:
    """Logistic regression by Newton's method: a weight for each column of `columns`, and the bias last.

    `penalty` pulls the weights towards `start`: 1 / variance of what is expected of them. Where the start is far off,
    the loss is so straight that a whole step goes much too far: it is halved until the loss falls.
    """
    columns = np.column_stack([columns.astype(np.float64), np.ones(len(columns))])
    values = start = start.astype(np.float64)

    def loss_at(values: np.ndarray) -> float:
        odds = columns @ values
        return float(np.logaddexp(0, odds).sum() - odds @ hits + (penalty * (values - start) ** 2).sum() / 2)

    loss = loss_at(values)
    for _ in range(MAX_STEPS):
        guess = expit(columns @ values)
        gradient = columns.T @ (guess - hits) + penalty * (values - start)
        hessian = (columns * (guess * (1 - guess))[:, None]).T @ columns + penalty * np.eye(len(start))
        step = np.linalg.solve(hessian, gradient)
        while (reached := loss_at(values - step)) > loss and np.abs(step).max() > 1e-6:
            step /= 2
        values, loss = values - step, min(loss, reached)
        if np.abs(step).max() < 1e-6:
            break
    return values.tolist()


def fit_ranking(
    columns: np.ndarray, hits: np.ndarray, misses: np.ndarray, start: np.ndarray, penalty: float = L2
) -> np.ndarray:
    """A weight for each column, such that sums of weighted columns rank the hits of a text before its misses.

    columns       texts × K × columns: K candidates for each text
    hits, misses  texts × K: which of them are right and wrong; neither where there is no candidate

    Softmax regression: each hit against all misses of its text. Every text counts the same, however many hits it has,
    and what its candidates have in common does not count at all. `penalty` pulls the weights towards `start`.
    """
    from scipy.optimize import minimize

    useful = hits.any(axis=1) & misses.any(axis=1)
    hits, misses = hits[useful], misses[useful]
    columns = np.where((hits | misses)[:, :, None], columns[useful], 0).astype(np.float64)
    share_of_text = hits / hits.sum(axis=1, keepdims=True)

    def loss_and_gradient(weights: np.ndarray) -> tuple[float, np.ndarray]:
        odds = columns @ weights
        of_misses = np.where(misses, odds, -np.inf)
        most = of_misses.max(axis=1, keepdims=True, initial=-np.inf)
        among_misses = np.exp(of_misses - most)
        total = among_misses.sum(axis=1, keepdims=True)
        margin = odds - most - np.log(total)
        wrong = share_of_text * expit(-margin)
        loss = (share_of_text * np.logaddexp(0, -margin)).sum() + penalty * ((weights - start) ** 2).sum() / 2
        by_odds = among_misses / total * wrong.sum(axis=1, keepdims=True) - wrong
        return float(loss), np.einsum("tk,tkc->c", by_odds, columns) + penalty * (weights - start)

    return minimize(loss_and_gradient, start, jac=True, method="L-BFGS-B", options={"maxiter": 1000}).x
