"""Shortlists of clusters: the best by the meta head's scores, and in training those of the positives as well."""

from __future__ import annotations

import numpy as np

from shortlist.arrays import Ragged
from shortlist.kernels.candidates import add_wanted
from shortlist.kernels.threads import use_threads
from shortlist.kernels.top_k import top_columns


def top_clusters(logits: np.ndarray, k: int, threads: int | None = None) -> np.ndarray:
    """The k best clusters of each sample, in rising order."""
    k = min(k, logits.shape[1])
    chosen = np.empty((len(logits), k), np.int32)
    with use_threads(threads):
        top_columns(np.ascontiguousarray(logits, np.float32), k, chosen)
    return chosen


def with_positives(top: np.ndarray, positives: Ragged) -> tuple[np.ndarray, int]:
    """The shortlists with the missing of the positives' clusters behind them, -1 for none; how many were not missing.

    No cluster may stand twice in a row of `positives`.
    """
    k = top.shape[1]
    clusters = np.empty((len(top), k + int(positives.counts.max(initial=0))), np.int32)
    clusters[:, :k] = top
    return clusters, add_wanted(clusters, k, positives.indptr, positives.values)
