"""Choosing clusters by their scores, and the best labels within the chosen clusters."""

from __future__ import annotations

import math

import numpy as np
from numba import njit, prange

from shortlist.kernels.label_rows import FAST, dot
from shortlist.kernels.top_labels import insert_best

DIGIT = 11  # bits; three digits make a float32


@njit(cache=True, nogil=True)
def _kth_largest(keys, k, counts):
    """The k-th largest of unsigned 32-bit keys: digit by digit from the top, counting, without sorting."""
    prefix, n_wanted = np.uint32(0), k
    for shift in (32 - DIGIT, 32 - 2 * DIGIT, 0):
        width = DIGIT if shift else 32 - 2 * DIGIT
        above = shift + width
        counts[:] = 0
        for key in keys:
            if above == 32 or key >> np.uint32(above) == prefix:
                counts[(key >> np.uint32(shift)) & np.uint32((1 << width) - 1)] += 1
        digit = (1 << width) - 1
        while counts[digit] < n_wanted:
            n_wanted -= counts[digit]
            digit -= 1
        prefix = np.uint32((prefix << np.uint32(width)) | np.uint32(digit))
    return prefix


@njit(cache=True, nogil=True, parallel=True)
def top_columns(scores, k, chosen):
    """For each row, the columns of the k largest scores, in rising order; of equals the first. `chosen` takes them."""
    for row in prange(len(scores)):
        # Bits of floats order as whole numbers do, once those of the negative are turned round.
        bits = scores[row].view(np.uint32)
        keys = np.empty(len(bits), np.uint32)
        for column in range(len(bits)):
            negative = bits[column] >> np.uint32(31)
            keys[column] = bits[column] ^ (np.uint32(0xFFFFFFFF) if negative else np.uint32(0x80000000))
        least = _kth_largest(keys, k, np.empty(1 << DIGIT, np.int64))
        equals = k
        for key in keys:
            equals -= key > least
        filled = 0
        for column in range(len(keys)):
            if keys[column] > least or (keys[column] == least and equals > 0):
                equals -= keys[column] == least
                chosen[row, filled] = column
                filled += 1


@njit(cache=True, nogil=True)
def add_wanted(chosen, k, indptr, wanted):
    """Behind the first k of each row put what of its `wanted` is not among them yet; how many were among them."""
    found = 0
    for row in range(len(chosen)):
        filled = k
        for i in range(indptr[row], indptr[row + 1]):
            there = False
            for j in range(filled):
                if chosen[row, j] == wanted[i]:
                    there = True
                    found += j < k
                    break
            if not there:
                chosen[row, filled] = wanted[i]
                filled += 1
        chosen[row, filled:] = -1
    return found


@njit(cache=True, nogil=True)
def _log_sigmoid(z):
    return min(z, np.float32(0)) - math.log1p(math.exp(-abs(z)))


@njit(cache=True, nogil=True, parallel=True, fastmath=FAST)
def best_of_clusters(weights, biases, starts, features, clusters, cluster_logits, multiplied, ids, scores):
    """For each sample the best rows of its clusters and their logits; -1 where there are fewer.

    If `multiplied`, what ranks is the product of the row's probability and its cluster's, as a logarithm.
    """
    for sample in prange(len(features)):
        filled = 0
        for i in range(clusters.shape[1]):
            cluster = clusters[sample, i]
            if cluster < 0:
                continue
            for row in range(starts[cluster], starts[cluster + 1]):
                score = biases[row] + dot(weights[row], features[sample])
                if multiplied:
                    score = np.float32(_log_sigmoid(score) + _log_sigmoid(cluster_logits[sample, cluster]))
                filled = insert_best(row, score, ids[sample], scores[sample], filled)
        ids[sample, filled:] = -1
        scores[sample, filled:] = -np.inf


@njit(cache=True, nogil=True, parallel=True)
def best_of_row(logits, first, filled, ids, scores):
    """Put the columns of each row of `logits`, counted from `first`, into lists that hold `filled` already."""
    for row in prange(len(logits)):
        n = filled
        for column in range(logits.shape[1]):
            score = logits[row, column]
            if n < ids.shape[1] or score > scores[row, -1]:
                n = insert_best(first + column, score, ids[row], scores[row], n)
