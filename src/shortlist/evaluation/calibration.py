"""Whether scores are probabilities: which predictions are hits, and how the hit rate follows the score."""

from __future__ import annotations

from typing import Any

import numpy as np

from shortlist.arrays import Ragged
from shortlist.evaluation.filters import contains

N_BINS = 15


def is_relevant(ids: np.ndarray, labels: Ragged, n_labels: int) -> np.ndarray:
    """Return which of the label ids (texts × K, -1 for none) are labels of their text.

    >>> is_relevant(np.array([[2, 0], [1, -1]]), Ragged.from_lists([[0], [1]]), n_labels=3).tolist()
    [[False, True], [True, False]]
    """
    keys = np.arange(len(ids), dtype=np.int64)[:, None] * n_labels + ids
    return contains(labels.row_ids * n_labels + labels.values, keys) & (ids >= 0)


def calibration_error(scores: np.ndarray, is_hit: np.ndarray) -> float:
    """Return the expected calibration error: the mean gap between score and hit rate, in bins of equal size.

    >>> calibration_error(np.array([0.75, 0.75]), np.array([True, True]))
    0.25
    """
    bins = np.array_split(np.argsort(scores, kind="stable"), min(N_BINS, max(len(scores), 1)))
    gaps = [abs(float(scores[rows].mean()) - float(is_hit[rows].mean())) * len(rows) for rows in bins if len(rows)]
    return sum(gaps) / max(len(scores), 1)


def reliability(scores: np.ndarray, is_hit: np.ndarray) -> list[dict[str, Any]]:
    """Return for each tenth of the score range: number of predictions, mean score, and share that are hits ("right").

    >>> reliability(np.array([0.82, 0.88]), np.array([True, False]))
    [{'from': 0.8, 'to': 0.9, 'labels': 2, 'mean_score': 0.85, 'right': 0.5}]
    """
    tenths = np.minimum((np.asarray(scores) * 10).astype(int), 9)
    return [
        {
            "from": tenth / 10,
            "to": (tenth + 1) / 10,
            "labels": int((tenths == tenth).sum()),
            "mean_score": round(float(scores[tenths == tenth].mean()), 4),
            "right": round(float(is_hit[tenths == tenth].mean()), 4),
        }
        for tenth in np.unique(tenths).tolist()
    ]


def reliability_and_error(scores: np.ndarray, is_hit: np.ndarray) -> dict[str, Any]:
    """Return reliability and calibration error of predictions for test texts; empty if scores are not in [0, 1]."""
    if not scores.size or scores.min() < 0 or scores.max() > 1:
        return {}
    return {"test": reliability(scores, is_hit), "test_error": calibration_error(scores, is_hit)}
