"""Sums of word vectors."""

from __future__ import annotations

import math

import numpy as np
from numba import njit, prange

from shortlist.kernels.label_rows import FAST


@njit(cache=True, nogil=True, parallel=True, fastmath=FAST)
def sum_words(indptr, words, row_of_word, vectors, scales, idf, max_words, sums):
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
            row = row_of_word[words[i]]
            factor, vector = scale * idf[words[i]] * scales[row], vectors[row]
            for j in range(len(vector)):
                sums[text, j] += factor * np.float32(vector[j])


@njit(cache=True, nogil=True)
def _weigh(ids, idf, length, first, columns, values, filled):
    """Behind what is filled, the distinct ids of a text, rising, with tf-idf weights of this length together."""
    ids = np.sort(ids)
    begin, square = filled, 0.0
    i = 0
    while i < len(ids):
        same = i + 1
        while same < len(ids) and ids[same] == ids[i]:
            same += 1
        weight = (1 + math.log(same - i)) * idf[ids[i]]
        columns[filled], values[filled] = first + ids[i], weight
        square += weight * weight
        filled += 1
        i = same
    if square > 0:
        values[begin:filled] *= length / math.sqrt(square)
    return filled


@njit(cache=True, nogil=True)
def weigh_texts(indptr, words, idf, length, more_indptr, more, more_idf, more_length, starts, columns, values):
    """Two bags of each text side by side, as sparse rows; the columns of the second follow those of the first."""
    filled = 0
    for text in range(len(indptr) - 1):
        starts[text] = filled
        own = words[indptr[text] : indptr[text + 1]]
        filled = _weigh(own, idf, length, 0, columns, values, filled)
        own = more[more_indptr[text] : more_indptr[text + 1]]
        filled = _weigh(own, more_idf, more_length, len(idf), columns, values, filled)
    starts[len(indptr) - 1] = filled
