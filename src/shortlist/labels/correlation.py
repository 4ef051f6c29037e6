"""Label correlations, and centroids that take them into account (DeepXML, appendix A.2).

Labels that often share texts belong together, even if the few texts of each use different words. The full matrix of
correlations would be too large; short random walks find its largest values.
"""

from __future__ import annotations

import numpy as np

from shortlist.arrays import Ragged, counts_to_indptr
from shortlist.errors import OptionError
from shortlist.kernels.labels import walk
from shortlist.kernels.threads import run_shares, use_threads
from shortlist.labels.centroids import sums_of_rows, texts_by_label
from shortlist.lazy import sparse

LABELS_PER_TASK = 4096
# A correlated centroid has the words of all neighbours: without a limit the matrix would grow many times.
MAX_WORDS = 1000


def label_correlations(
    labels: Ragged,
    n_labels: int,
    n_steps: int = 200,
    restart: float = 0.8,
    max_neighbours: int = 16,
    seed: int = 0,
    threads: int | None = None,
) -> sparse.csr_array:
    """Return a matrix C (labels × labels) whose row l has the labels that random walks from l visit most.

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
    texts = by_label.indptr.astype(np.int64), by_label.indices.astype(np.int32, copy=False)
    own = labels.indptr.astype(np.int64, copy=False), labels.values.astype(np.int32, copy=False)
    neighbours = np.zeros((n_labels, max_neighbours), np.int32)
    visits = np.zeros((n_labels, max_neighbours), np.float32)

    def walk_from(task: int) -> None:
        first = LABELS_PER_TASK * task
        last = min(first + LABELS_PER_TASK, n_labels)
        walk(*own, *texts, first, last, n_steps, float(restart), np.uint64(seed), neighbours, visits)

    with use_threads(threads):
        run_shares(walk_from, -(-n_labels // LABELS_PER_TASK))
    visits /= visits.sum(axis=1, keepdims=True)
    visited = visits > 0
    indptr = counts_to_indptr(visited.sum(axis=1))
    return sparse.csr_array((visits[visited], neighbours[visited], indptr), shape=(n_labels, n_labels))


def correlated_centroids(
    centroids: sparse.csr_array,
    correlations: sparse.csr_array,
    threads: int | None = None,
    max_words: int | None = MAX_WORDS,
) -> sparse.csr_array:
    """Return the rows z whose balanced 2-means, with lengths that count, is the objective of appendix A.2.

    There, label l adds C_ll · û_l · μ + Σ_p C_lp · û_p · μ to the half with the mean direction μ, where û are centroids
    of length 1. This is z_l · μ with z_l = C_ll · û_l + Σ_p C_lp · û_p.

    max_words  keep only this many of the largest values per label (None: all)

    >>> pair = sparse.csr_array([[0.75, 0.25], [0.5, 0.5]])
    >>> correlated_centroids(sparse.csr_array(np.eye(2)), pair).toarray().tolist()
    [[1.5, 0.25], [0.5, 1.0]]
    """
    weights = sparse.csr_array(correlations + sparse.diags_array(correlations.diagonal()))
    return sums_of_rows(weights, centroids, threads, max_words, unit=False)
