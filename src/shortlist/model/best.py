"""The best of candidates that have been scored."""

from __future__ import annotations

import numpy as np

from shortlist.kernels.top_k import best_of_candidates
from shortlist.odds import expit


def best_of(ids: np.ndarray, odds: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Of candidates (texts × K ids, -1 for none) with these log-odds, the k best and their probabilities."""
    k = min(k, ids.shape[1])
    best, best_odds = np.empty((len(ids), k), np.int32), np.empty((len(ids), k), np.float32)
    best_of_candidates(ids, np.ascontiguousarray(odds, np.float32), best, best_odds)
    return best, expit(best_odds)
