"""How far scores can be taken for probabilities: which predictions are right, and how often by score."""

from __future__ import annotations

from typing import Any

import numpy as np

from shortlist.arrays import Ragged

BINS = 15


def is_relevant(ids: np.ndarray, labels: Ragged, n_labels: int) -> np.ndarray:
    """Which of the candidates (texts × K) are labels of their text."""
    known = np.sort(labels.row_ids * n_labels + labels.values)
    pairs = np.arange(len(ids), dtype=np.int64)[:, None] * n_labels + ids
    places = np.minimum(np.searchsorted(known, pairs), max(len(known) - 1, 0))
    return (known[places] == pairs) & (ids >= 0) if len(known) else np.zeros(ids.shape, bool)


def calibration_error(scores: np.ndarray, right: np.ndarray) -> float:
    """How far scores are from the share that is right, on average, in bins of equally many pairs."""
    order = np.argsort(scores, kind="stable")
    bins = np.array_split(order, min(BINS, max(len(order), 1)))
    gaps = [abs(float(scores[rows].mean()) - float(right[rows].mean())) * len(rows) for rows in bins if len(rows)]
    return sum(gaps) / max(len(order), 1)


def reliability(scores: np.ndarray, right: np.ndarray) -> list[dict[str, Any]]:
    """For each tenth of the scale: how many labels have such scores, their mean score, and the share that is right."""
    tenth = np.minimum((np.asarray(scores) * 10).astype(int), 9)
    rows = [(step, tenth == step) for step in range(10)]
    return [
        {
            "from": step / 10,
            "to": (step + 1) / 10,
            "labels": int(there.sum()),
            "mean_score": round(float(scores[there].mean()), 4),
            "right": round(float(right[there].mean()), 4),
        }
        for step, there in rows
        if there.any()
    ]


def on_test_texts(scores: np.ndarray, right: np.ndarray) -> dict[str, Any]:
    """The same for labels of test texts, and how far scores are off; nothing where they cannot be probabilities."""
    if not scores.size or scores.min() < 0 or scores.max() > 1:
        return {}
    return {"test": reliability(scores, right), "test_error": calibration_error(scores, right)}
