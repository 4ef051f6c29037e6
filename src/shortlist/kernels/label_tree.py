"""Balanced spherical 2-means over sparse rows: the splits of a label tree, from the root to small nodes.

A split of n unit rows z into a left part of fixed size and a right part looks for the largest
|S_left| + |S_right|, where S is the sum of a part's rows: that is the sum of all cosines between a row and
the mean direction of its part. Each iteration scores the rows by z·(S_left/|S_left| − S_right/|S_right|) and
gives the highest scores to the left.

Values are multiples of 2**-24 (`prepare_rows` rounds them), so sums of them in float64 are exact: they do
not depend on the order, hence not on the number of threads, and rows can be added and taken away again
without drift. A word that occurs in only one row of a node cannot pull two rows together; it is dropped,
and only its square is kept, in `private`, because lengths need it.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from shortlist.kernels.balanced_cut import cut, shares
from shortlist.kernels.label_leaves import split_into_leaves
from shortlist.kernels.splitmix import below, mix

GRID = np.float32(2**24)
SMALLEST_SQUARE = 1e-30


@njit(cache=True, nogil=True)
def count_words(indices, counts):
    for p in range(len(indices)):
        counts[indices[p]] += 1


@njit(cache=True, nogil=True)
def prepare_rows(indptr, indices, data, first, last, new_word, new_indices, new_data):
    """Copy rows first..last-1 with unit length, values on the grid, and words renumbered."""
    for row in range(first, last):
        square = 0.0
        for p in range(indptr[row], indptr[row + 1]):
            square += np.float64(data[p]) * np.float64(data[p])
        scale = np.float32(1 / np.sqrt(square)) if square > 0 else np.float32(0)
        for p in range(indptr[row], indptr[row + 1]):
            new_indices[p] = new_word[indices[p]]
            new_data[p] = np.rint(data[p] * scale * GRID) / GRID


@njit(cache=True, nogil=True)
def score_rows(indptr, indices, data, rows, direction, scores):
    """scores[i] = row rows[i] · direction."""
    for i in range(len(rows)):
        score = np.float32(0)
        for p in range(indptr[rows[i]], indptr[rows[i] + 1]):
            score += data[p] * direction[indices[p]]
        scores[i] = score


@njit(cache=True, nogil=True)
def add_rows(indptr, indices, data, rows, is_left, left_sum, right_sum):
    """Add every row to the sum of its side."""
    for i in range(len(rows)):
        into = left_sum if is_left[i] else right_sum
        for p in range(indptr[rows[i]], indptr[rows[i] + 1]):
            into[indices[p]] += data[p]


@njit(cache=True, nogil=True)
def write_direction(left_sum, right_sum, left_private, right_private, direction):
    """direction = left_sum / |left_sum| − right_sum / |right_sum|."""
    left_square = left_private
    right_square = right_private
    for word in range(len(direction)):
        left_square += left_sum[word] * left_sum[word]
        right_square += right_sum[word] * right_sum[word]
    left_scale = 1 / np.sqrt(max(left_square, SMALLEST_SQUARE))
    right_scale = 1 / np.sqrt(max(right_square, SMALLEST_SQUARE))
    for word in range(len(direction)):
        direction[word] = np.float32(left_sum[word] * left_scale - right_sum[word] * right_scale)


@njit(cache=True, nogil=True)
def split_rows(indptr, indices, data, private, n_words, n_left, seed, max_iterations, settled, is_left):
    """2-means over all rows of a compact node; writes is_left. Stops when at most `settled` rows move."""
    n = len(private)
    rows = np.arange(n)
    scores = np.empty(n, np.float32)
    scratch = np.empty(n, np.float32)
    direction = np.zeros(n_words, np.float32)
    left_sum = np.zeros(n_words, np.float64)
    right_sum = np.zeros(n_words, np.float64)
    was_left = np.empty(n, np.bool_)
    is_left[:] = False
    add_rows(indptr, indices, data, rows, is_left, left_sum, right_sum)
    left_private = 0.0
    right_private = 0.0
    for i in range(n):
        right_private += private[i]

    # Start from the difference of two random rows.
    bits = mix(seed)
    one = below(bits, n)
    other = (one + 1 + below(mix(bits), n - 1)) % n
    for p in range(indptr[one], indptr[one + 1]):
        direction[indices[p]] += data[p]
    for p in range(indptr[other], indptr[other + 1]):
        direction[indices[p]] -= data[p]

    for iteration in range(max_iterations):
        score_rows(indptr, indices, data, rows, direction, scores)
        was_left[:] = is_left
        moved = cut(scores, n_left, scratch, is_left)
        if iteration > 0 and moved <= settled:
            break
        if iteration == max_iterations - 1:
            break
        for i in range(n):
            if was_left[i] == is_left[i]:
                continue
            sign = 1.0 if is_left[i] else -1.0
            left_private += sign * private[i]
            right_private -= sign * private[i]
            for p in range(indptr[i], indptr[i + 1]):
                left_sum[indices[p]] += sign * data[p]
                right_sum[indices[p]] -= sign * data[p]
        write_direction(left_sum, right_sum, left_private, right_private, direction)


@njit(cache=True, nogil=True)
def compact(
    indptr, indices, data, private, rows, counts, names, new_indptr, new_indices, new_data, new_private
):
    """Copy rows with the words renumbered from 0, words of a single row dropped; returns the number of words.

    `counts` and `names` are zeroed scratch over the old words, and are left zeroed.
    """
    for i in range(len(rows)):
        for p in range(indptr[rows[i]], indptr[rows[i] + 1]):
            counts[indices[p]] += 1
    n_words = 0
    end = new_indptr[0]
    for i in range(len(rows)):
        dropped = private[rows[i]]
        for p in range(indptr[rows[i]], indptr[rows[i] + 1]):
            word = indices[p]
            if counts[word] < 2:
                dropped += data[p] * data[p]
                continue
            if names[word] == 0:
                n_words += 1
                names[word] = n_words
            new_indices[end] = names[word] - 1
            new_data[end] = data[p]
            end += 1
        new_private[i] = dropped
        new_indptr[i + 1] = end
    for i in range(len(rows)):
        for p in range(indptr[rows[i]], indptr[rows[i] + 1]):
            counts[indices[p]] = 0
            names[indices[p]] = 0
    return n_words


@njit(cache=True, nogil=True)
def grow_subtree(
    indptr, indices, data, private, n_words, labels, n_clusters, seed, max_iterations, gram_rows, cluster_ends
):
    """Split the rows `labels` into clusters: reorders `labels`, and writes where each cluster ends in it.

    Works level by level on compact copies of the nodes; the copies of one level are packed into the buffers
    that the level before the last no longer needs.
    """
    n = len(labels)
    size = 0
    for i in range(n):
        size += indptr[labels[i] + 1] - indptr[labels[i]]
    counts = np.zeros(n_words, np.int32)
    names = np.zeros(n_words, np.int32)
    ptr, next_ptr = np.zeros(n + 1, np.int64), np.zeros(n + 1, np.int64)
    idx, next_idx = np.empty(size, np.uint32), np.empty(size, np.uint32)
    val, next_val = np.empty(size, np.float32), np.empty(size, np.float32)
    priv, next_priv = np.zeros(n, np.float32), np.empty(n, np.float32)
    is_left = np.empty(n, np.bool_)
    moved = np.empty(n, np.int64)
    reordered = np.empty(n, labels.dtype)

    node_ends = np.empty(n_clusters, np.int64)
    node_clusters = np.empty(n_clusters, np.int64)
    node_words = np.empty(n_clusters, np.int64)
    next_ends = np.empty(n_clusters, np.int64)
    next_clusters = np.empty(n_clusters, np.int64)
    next_words = np.empty(n_clusters, np.int64)
    node_words[0] = compact(indptr, indices, data, private, labels, counts, names, ptr, idx, val, priv)
    node_ends[0] = n
    node_clusters[0] = n_clusters
    n_nodes = 1
    while n_nodes < n_clusters:
        m = 0
        start = 0
        for node in range(n_nodes):
            end = node_ends[node]
            k = node_clusters[node]
            words = node_words[node]
            p, pr = ptr[start : end + 1], priv[start:end]
            node_seed = mix(seed + np.uint64(start) * np.uint64(64) + np.uint64(n_nodes))
            if k == 1:
                next_ptr[start + 1 : end + 1] = next_ptr[start]
                next_ends[m], next_clusters[m], next_words[m] = end, 1, 0
                m += 1
            elif end - start <= gram_rows:
                split_into_leaves(
                    p, idx, val, pr, words, k, node_seed, moved[: end - start], next_ends[m : m + k]
                )
                for i in range(end - start):
                    reordered[i] = labels[start + moved[i]]
                labels[start:end] = reordered[: end - start]
                next_ptr[start + 1 : end + 1] = next_ptr[start]
                for c in range(m, m + k):
                    next_ends[c] += start
                    next_clusters[c] = 1
                    next_words[c] = 0
                m += k
            else:
                left_k, n_left = shares(end - start, k)
                side = is_left[: end - start]
                split_rows(
                    p, idx, val, pr, words, n_left, node_seed, max_iterations, (end - start) // 1000, side
                )
                to_left, to_right = 0, n_left
                for i in range(end - start):
                    if side[i]:
                        moved[to_left] = i
                        to_left += 1
                    else:
                        moved[to_right] = i
                        to_right += 1
                for i in range(end - start):
                    reordered[i] = labels[start + moved[i]]
                labels[start:end] = reordered[: end - start]
                middle = start + n_left
                next_words[m] = compact(
                    p, idx, val, pr, moved[:n_left], counts, names,
                    next_ptr[start : middle + 1], next_idx, next_val, next_priv[start:middle],
                )  # fmt: skip
                next_ends[m], next_clusters[m] = middle, left_k
                m += 1
                next_words[m] = compact(
                    p, idx, val, pr, moved[n_left : end - start], counts, names,
                    next_ptr[middle : end + 1], next_idx, next_val, next_priv[middle:end],
                )  # fmt: skip
                next_ends[m], next_clusters[m] = end, k - left_k
                m += 1
            start = end
        n_nodes = m
        ptr, next_ptr = next_ptr, ptr
        idx, next_idx = next_idx, idx
        val, next_val = next_val, val
        priv, next_priv = next_priv, priv
        node_ends, next_ends = next_ends, node_ends
        node_clusters, next_clusters = next_clusters, node_clusters
        node_words, next_words = next_words, node_words
    cluster_ends[:] = node_ends


@njit(cache=True, nogil=True)
def sample_direction(indptr, indices, data, private, n_words, sample, n_left, seed, max_iterations):
    """The direction that a 2-means over a sample of rows ends with, in the words of all rows."""
    n = len(sample)
    size = 0
    for i in range(n):
        size += indptr[sample[i] + 1] - indptr[sample[i]]
    counts, names = np.zeros(n_words, np.int32), np.zeros(n_words, np.int32)
    ptr, priv = np.zeros(n + 1, np.int64), np.empty(n, np.float32)
    idx, val = np.empty(size, np.uint32), np.empty(size, np.float32)
    words = compact(indptr, indices, data, private, sample, counts, names, ptr, idx, val, priv)
    is_left = np.empty(n, np.bool_)
    split_rows(ptr, idx, val, priv, words, n_left, seed, max_iterations, n // 1000, is_left)
    left_sum, right_sum = np.zeros(n_words, np.float64), np.zeros(n_words, np.float64)
    add_rows(indptr, indices, data, sample, is_left, left_sum, right_sum)
    direction = np.empty(n_words, np.float32)
    write_direction(left_sum, right_sum, 0.0, 0.0, direction)
    return direction
