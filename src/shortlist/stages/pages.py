"""Sparse weights per label, in pages of 65,536 features, so that a feature within its page needs 16 bits.

Label l has on page p the features `words[starts[l * n_pages + p]]` to `words[starts[l * n_pages + p + 1] - 1]`.
"""

from __future__ import annotations

import numpy as np

from shortlist.arrays import Arrays, Ragged, counts_to_indptr
from shortlist.lazy import sparse

PAGE = 1 << 16


def n_pages(n_features: int) -> int:
    return max(1, -(-n_features // PAGE))


def paged_weights(bounds: np.ndarray, words: np.ndarray, weights: np.ndarray, biases: np.ndarray, n: int) -> Arrays:
    """The arrays of a re-ranker: label l has `weights[bounds[l]:bounds[l + 1]]` for `words[…]`, of n features."""
    starts, words = paged(bounds, words, n)
    scales = np.ones(len(biases), np.float32)
    return {"starts": starts, "words": words, "weights": weights, "scales": scales, "biases": biases}


def paged(bounds: np.ndarray, words: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Where each page of each label starts, and the features within their pages."""
    n_labels = len(bounds) - 1
    page_of = np.repeat(np.arange(n_labels) * n_pages(n), np.diff(bounds)) + words // PAGE
    starts = counts_to_indptr(np.bincount(page_of, minlength=n_labels * n_pages(n)))
    return starts, (words % PAGE).astype(np.uint16)


def unpaged(weights: Ragged, scales: np.ndarray, n_features: int) -> sparse.csr_array:
    """The weights of pages as one row per label."""
    assert weights.weights is not None
    rows, page = np.divmod(weights.row_ids, n_pages(n_features))
    columns = weights.values.astype(np.int64) + PAGE * page
    values = (weights.weights * scales[rows]).astype(np.float32)
    return sparse.csr_array((values, (rows, columns)), (len(scales), n_features))


def pages_of(labels: np.ndarray, n_pages: int) -> np.ndarray:
    """The rows of these labels among those of all labels and pages."""
    return (labels[:, None] * n_pages + np.arange(n_pages)).ravel()
