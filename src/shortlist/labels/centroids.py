"""Label centroids ("positive instance feature aggregation"): a label is where its texts are."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import numpy as np

from shortlist.arrays import Ragged
from shortlist.errors import DataError, OptionError
from shortlist.kernels import labels as kernels
from shortlist.kernels.threads import use_threads
from shortlist.lazy import sparse

TASKS_PER_THREAD = 8


def label_centroids(
    features: Any, labels: Ragged, n_labels: int, threads: int | None = None, max_words: int | None = None
) -> sparse.csr_array:
    """The direction of each label: the sum of its texts' features, every text and every sum at length 1.

    `features` has a row a text, and `labels` the labels of each text; label weights, where there are any, are
    the weights of the sum. A label without texts gets an empty row. `max_words` keeps only the largest
    entries of each label, which bounds the memory that frequent labels take.

    >>> texts = sparse.csr_array([[1.0, 0.0], [1.0, 0.0], [0.0, 2.0]])
    >>> label_centroids(texts, Ragged.from_lists([[0], [0], [1]]), n_labels=3).toarray().tolist()
    [[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]
    """
    if len(labels) != features.shape[0]:
        raise DataError(
            f"there are features of {features.shape[0]:,} texts but labels of {len(labels):,}; each text needs both"
        )
    return sums_of_rows(texts_by_label(labels, n_labels), features, threads, max_words)


def texts_by_label(labels: Ragged, n_labels: int) -> sparse.csr_array:
    """The transpose of the labels of each text: a row a label, a column a text, weights as values."""
    if len(labels.values) and not 0 <= labels.values.min() <= labels.values.max() < n_labels:
        raise DataError(
            f"label ids run from {labels.values.min()} to {labels.values.max()}, "
            f"but with n_labels={n_labels:,} they must lie between 0 and {n_labels - 1:,}"
        )
    weights = np.ones(len(labels.values), np.float32) if labels.weights is None else labels.weights
    by_text = sparse.csr_array((weights, labels.values, labels.indptr), shape=(len(labels), n_labels))
    return by_text.T.tocsr()


def sums_of_rows(
    weights: sparse.csr_array, features: Any, threads: int | None, max_words: int | None
) -> sparse.csr_array:
    """weights @ features with rows of both features and result at length 1, without large intermediates."""
    if max_words is not None and max_words < 1:
        raise OptionError(f"max_words must be at least 1, not {max_words}")
    features = sparse.csr_array(features)
    n_labels, n_words = weights.shape[0], features.shape[1]
    member_indptr, members = weights.indptr.astype(np.int64), weights.indices.astype(np.int32, copy=False)
    member_weights = weights.data.astype(np.float32, copy=False)
    indptr, indices = features.indptr.astype(np.int64), features.indices.astype(np.int32, copy=False)
    data = features.data.astype(np.float32, copy=False)
    scales = np.empty(features.shape[0], np.float64)
    kernels.inverse_lengths(indptr, data, scales)
    counts = np.zeros(n_labels, np.int64)
    enough = n_words if max_words is None else max_words
    with use_threads(threads) as n_threads, ThreadPoolExecutor(n_threads) as pool:
        # Tasks of about equal work, which for a label goes with its number of members.
        work = np.linspace(0, member_indptr[-1], TASKS_PER_THREAD * n_threads + 1)
        bounds = np.unique(np.concatenate([[0], np.searchsorted(member_indptr, work[1:-1]), [n_labels]]))
        tasks = list(pairwise(bounds.tolist()))

        def count(task: tuple[int, int]) -> None:
            kernels.count_words(member_indptr, members, indptr, indices, n_words, enough, *task, counts)

        list(pool.map(count, tasks))
        out_indptr = np.zeros(n_labels + 1, np.int64)
        np.cumsum(counts, out=out_indptr[1:])
        out_indices, out_data = np.empty(out_indptr[-1], np.int32), np.empty(out_indptr[-1], np.float32)

        def fill(task: tuple[int, int]) -> None:
            kernels.sum_members(
                member_indptr, members, member_weights, indptr, indices, data, scales, n_words, *task,
                out_indptr, out_indices, out_data,
            )  # fmt: skip

        list(pool.map(fill, tasks))
    return sparse.csr_array((out_data, out_indices, out_indptr), shape=(n_labels, n_words))
