"""Bags of words with tf-idf weights: the sparse features behind label clusters and the linear baselines."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shortlist.arrays import Ragged
from shortlist.lazy import sparse


@dataclass(frozen=True, eq=False)
class TfIdf:
    """Weights (1 + log tf) · idf with idf = log((1 + N) / (1 + df)) + 1, each text scaled to length 1."""

    idf: np.ndarray

    @staticmethod
    def fit(word_ids: Ragged, n_words: int) -> TfIdf:
        """Learn how common each word is among these texts."""
        counts = word_ids.to_csr(n_words)
        texts_with_word = np.bincount(counts.indices, minlength=n_words)
        idf = np.log((1 + len(word_ids)) / (1 + texts_with_word)) + 1
        return TfIdf(idf.astype(np.float32))

    def transform(self, word_ids: Ragged) -> sparse.csr_array:
        """One row a text, one column a word."""
        features = word_ids.to_csr(len(self.idf))
        features.data = (1 + np.log(features.data)) * self.idf[features.indices]
        return unit_rows(features)


def unit_rows(matrix: sparse.csr_array) -> sparse.csr_array:
    """The matrix with every row scaled to Euclidean length 1; empty rows stay empty."""
    squares = np.add.reduceat(np.append(matrix.data**2, 0), np.minimum(matrix.indptr[:-1], matrix.nnz))
    lengths = np.sqrt(np.where(np.diff(matrix.indptr) > 0, squares, 1)).astype(np.float32)
    lengths[lengths == 0] = 1
    scaled = matrix.data / np.repeat(lengths, np.diff(matrix.indptr))
    return sparse.csr_array((scaled, matrix.indices, matrix.indptr), shape=matrix.shape)
