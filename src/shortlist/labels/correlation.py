"""Label correlations from random walks, and centroids smoothed by them (Astec, appendix A.2).

Labels that often share texts belong together, even if the few texts of each use different words. Centroids averaged
over such neighbours give clusters that respect this. The full correlation matrix would be too large; short random
walks find its largest values.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from shortlist.arrays import Ragged, counts_to_indptr
from shortlist.errors import OptionError
from shortlist.kernels.label_walks import walk
from shortlist.kernels.threads import use_threads
from shortlist.labels.centroids import normalized_sums, texts_by_label
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
    """Return a matrix (labels × labels) whose row l has the labels that random walks from l visit most.

    A step goes from a label to one of its texts, then to one of that text's labels. Rows sum to 1. A label without
    texts has only itself as a neighbour.

    labels          labels of each text
    n_steps         number of steps per label
    restart         probability of returning to the start before a step
    max_neighbours  number of labels to keep per row
    seed            random seed
    threads         number of threads (None: all cores); does not change the result

    >>> label_correlations(Ragged.from_lists([[0], [1]]), n_labels=2).toarray().tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    if not 0 <= restart <= 1:
        raise OptionError(f"restart must be a probability between 0 and 1, not {restart}")
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
    visited = visits > 0
    indptr = counts_to_indptr(visited.sum(axis=1))
    return sparse.csr_array((visits[visited], neighbours[visited], indptr), shape=(n_labels, n_labels))


def smooth_centroids(centroids: Any, labels: Ragged, max_words: int | None = 128, **options: Any) -> sparse.csr_array:
    """Average each label's centroid over its neighbours and normalise it again.

    centroids  sparse matrix with one row per label
    labels     labels of each text
    max_words  keep only this many of the largest values per label (None: all); a smoothed centroid has the words of
               all neighbours, so that the matrix would otherwise grow many times
    options    options of `label_correlations`

    >>> labels = Ragged.from_lists([[0, 1]])
    >>> (smooth_centroids(sparse.csr_array(np.eye(2)), labels).toarray() > 0).tolist()
    [[True, True], [True, True]]
    """
    correlations = label_correlations(labels, centroids.shape[0], **options)
    return normalized_sums(correlations, centroids, options.get("threads"), max_words)
