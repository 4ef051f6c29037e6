"""Sums of word vectors."""

from __future__ import annotations

import numpy as np
from numba import njit, prange

from shortlist.kernels.label_rows import FAST


@njit(cache=True, nogil=True, parallel=True, fastmath=FAST)
def sum_words(indptr, words, vectors, idf, max_words, sums):
    """The weighted sum of each text's vectors; the weights of a text, from `idf`, have length 1 together."""
    for text in prange(len(sums)):
        begin = indptr[text]
        end = min(indptr[text + 1], begin + max_words)
        square = np.float32(0)
        for i in range(begin, end):
            square += idf[words[i]] ** 2
        scale = 1 / max(np.sqrt(square), np.float32(1e-6))
        sums[text] = 0
        for i in range(begin, end):
            factor, vector = scale * idf[words[i]], vectors[words[i]]
            for j in range(len(vector)):
                sums[text, j] += factor * vector[j]
