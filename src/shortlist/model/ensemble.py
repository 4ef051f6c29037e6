"""Ensembles: pipelines of one recipe, trained with different seeds, whose scores are averaged."""

from __future__ import annotations

import numpy as np


def best_of_means(ids: np.ndarray, scores: np.ndarray, n_members: int, k: int) -> tuple[np.ndarray, np.ndarray]:
    """The k labels with the best mean scores, from the rankings of all members side by side.

    A ranking has each label at most once, and -1 for none. A member that does not rank a label counts as 0.

    >>> best_of_means(np.asarray([[7, 4, 4, -1]]), np.asarray([[0.75, 0.5, 0.5, 0.0]]), n_members=2, k=2)
    (array([[4, 7]]), array([[0.5  , 0.375]], dtype=float32))
    """
    order = np.argsort(ids, axis=1, kind="stable")
    ids, scores = np.take_along_axis(ids, order, axis=1), np.take_along_axis(scores, order, axis=1)
    sums = scores.astype(np.float64)
    for later in range(1, min(n_members, ids.shape[1])):
        sums[:, :-later] += np.where(ids[:, later:] == ids[:, :-later], scores[:, later:], 0)
    # The first occurrence of a label has the whole sum.
    first = ids >= 0
    first[:, 1:] &= ids[:, 1:] != ids[:, :-1]
    means = np.where(first, sums / n_members, -np.inf).astype(np.float32)
    best = np.argsort(-means, axis=1, kind="stable")[:, :k]  # among equals the lower id first
    means = np.take_along_axis(means, best, axis=1)
    there = means > -np.inf
    return np.where(there, np.take_along_axis(ids, best, axis=1), -1), np.where(there, means, np.float32(0))
