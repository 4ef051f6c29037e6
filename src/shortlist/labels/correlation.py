"""Label correlations from random walks, and centroids smoothed by them (Astec, appendix A.2).

Two labels that often stand beside the same texts belong together even where their own few texts use
different words. Clustering centroids that are averaged over such neighbours takes this into account. The full
correlation matrix would be far too large; short random walks find the entries that matter.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from shortlist.arrays import Ragged
from shortlist.errors import OptionError
from shortlist.kernels.labels import walk
from shortlist.kernels.threads import use_threads
from shortlist.labels.centroids import sums_of_rows, texts_by_label
from shortlist.lazy import sparse

LABELS_PER_TASK = 4096


def label_correlations(
    labels: Ragged,
    n_labels: int,
    n_steps: int = 200,
    restart: float = 0.8,
    max_neighbours: int = 16,
    seed: int = 0,
    threads: int | None = None,
) -> sparse.csr_array:
    """How much each label has to do with others, as rows that sum to 1.

    Row l holds the labels that a random walk from l visits most: label → one of its texts → one of that
    text's labels, `n_steps` times, returning to l with probability `restart` before each step. A label is its
    own neighbour, and the only one if it has no text. The same seed gives the same result on any number of
    threads.
    """
    if not 0 <= restart <= 1:
        raise OptionError(f"restart is a probability, between 0 and 1, not {restart}")
    if n_steps < 1 or max_neighbours < 1:
        raise OptionError(f"n_steps and max_neighbours must be at least 1, not {n_steps} and {max_neighbours}")
    by_label = texts_by_label(labels, n_labels)
    texts_indptr, texts = by_label.indptr.astype(np.int64), by_label.indices.astype(np.int32, copy=False)
    neighbours = np.zeros((n_labels, max_neighbours), np.int32)
    visits = np.zeros((n_labels, max_neighbours), np.float32)

    def walk_from(first: int) -> None:
        last = min(first + LABELS_PER_TASK, n_labels)
        walk(
            labels.indptr, labels.values, texts_indptr, texts, first, last, n_steps, float(restart),
            np.uint64(seed), neighbours, visits,
        )  # fmt: skip

    with use_threads(threads) as n_threads, ThreadPoolExecutor(n_threads) as pool:
        list(pool.map(walk_from, range(0, n_labels, LABELS_PER_TASK)))
    visits /= visits.sum(axis=1, keepdims=True)
    indptr = np.zeros(n_labels + 1, np.int64)
    np.cumsum(np.count_nonzero(visits, axis=1), out=indptr[1:])
    used = visits > 0
    return sparse.csr_array((visits[used], neighbours[used], indptr), shape=(n_labels, n_labels))


def smooth_centroids(
    centroids: Any,
    labels: Ragged,
    n_steps: int = 200,
    restart: float = 0.8,
    max_neighbours: int = 16,
    max_words: int | None = 128,
    seed: int = 0,
    threads: int | None = None,
) -> sparse.csr_array:
    """Centroids averaged over each label's neighbours (see `label_correlations`), at length 1 again.

    A smoothed centroid has the words of all neighbours, so that without a limit the matrix would grow to many
    times its size; `max_words` keeps only the largest entries of each label (None: all of them).
    """
    correlations = label_correlations(labels, centroids.shape[0], n_steps, restart, max_neighbours, seed, threads)
    return sums_of_rows(correlations, centroids, threads, max_words)
