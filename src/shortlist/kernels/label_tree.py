"""Balanced spherical 2-means over sparse rows: the splits of a label tree, from the root to small nodes.

A split of unit rows z into a left part of a given size and a right part looks for the largest
|S_left| + |S_right|, where S is the sum of a part's rows: this is the sum of the cosines between every row
and the mean direction of its part. An iteration scores the rows by z·(S_left/|S_left| − S_right/|S_right|)
and gives the highest scores to the left.

Values are multiples of 2**-24 (`unit_rows` rounds them), so that sums of them in float64 are exact: they do
not depend on the order of the rows, and rows are added and taken away again without drift. No kernel uses
fastmath: the gather instructions it brings are slower here, and the result would depend on the processor.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from shortlist.kernels.balanced_cut import cut, shares
from shortlist.kernels.label_leaves import split_into_leaves
from shortlist.kernels.splitmix import below, mix

MAX_ITERATIONS = 20
LEAVES_FROM_ROWS = 512
GRID = 2.0**24
SMALLEST_SQUARE = 1e-30


class Rows(NamedTuple):
    """Sparse rows. `private` holds the squares of words that were left out because no other row has them:
    they cannot pull rows together, but they count in lengths."""

    indptr: np.ndarray  # int64
    indices: np.ndarray  # uint32: numba then spares the test for negative indices
    data: np.ndarray  # float32
    private: np.ndarray  # float32, one a row


@njit(cache=True, nogil=True)
def unit_rows(indptr, indices, data, first, last, new_word, into):
    """Copy rows first..last-1 into `into`: with length 1, on the grid, and with words renumbered."""
    for row in range(first, last):
        square = 0.0
        for p in range(indptr[row], indptr[row + 1]):
            square += np.float64(data[p]) * np.float64(data[p])
        scale = GRID / np.sqrt(square) if square > 0 else 0.0
        for p in range(indptr[row], indptr[row + 1]):
            into.indices[p] = new_word[indices[p]]
            into.data[p] = np.rint(data[p] * scale) / GRID
        into.private[row] = 0


@njit(cache=True, nogil=True)
def score_rows(rows, chosen, direction, scores):
    """scores[i] = row chosen[i] · direction."""
    for i in range(len(chosen)):
        score = np.float32(0)
        for p in range(rows.indptr[chosen[i]], rows.indptr[chosen[i] + 1]):
            score += rows.data[p] * direction[rows.indices[p]]
        scores[i] = score


@njit(cache=True, nogil=True)
def sample_direction(rows, n_words, sample, n_left, seed):
    """The direction along which 2-means cuts a sample of the rows, in the words of all rows."""
    compacted = copy_buffer(rows, sample)
    n_compact_words = compact(rows, sample, np.zeros((n_words, 2), np.int32), compacted)
    is_left = np.empty(len(sample), np.bool_)
    split_rows(compacted, n_compact_words, n_left, seed, is_left)
    sums = np.zeros((2, n_words), np.float64)
    for i in range(len(sample)):
        add_row(rows, sample[i], 1.0, sums[0] if is_left[i] else sums[1])
    direction = np.empty(n_words, np.float32)
    write_direction(sums, 0.0, 0.0, direction)
    return direction


@njit(cache=True, nogil=True)
def grow_subtree(rows, n_words, labels, n_clusters, seed, cluster_ends):
    """Split the rows `labels` into clusters: reorders `labels`, and writes where each cluster ends in it.

    Goes level by level over compact copies of the nodes. Those of the next level are packed into a second
    buffer, which always has room because copies only shrink; then the buffers change places.
    """
    here, there = copy_buffer(rows, labels), copy_buffer(rows, labels)
    scratch = np.zeros((n_words, 2), np.int32)
    order = np.empty(len(labels), np.int32)
    before = np.empty(len(labels), np.int32)
    leaf_ends = np.empty(n_clusters, np.int64)
    # One node a line: where it ends, its clusters, its words.
    nodes, next_nodes = np.zeros((n_clusters, 3), np.int64), np.zeros((n_clusters, 3), np.int64)
    nodes[0, 0], nodes[0, 1], nodes[0, 2] = len(labels), n_clusters, compact(rows, labels, scratch, here)
    n_nodes = 1
    while n_nodes < n_clusters:
        start, n_next = 0, 0
        for node in range(n_nodes):
            end, k, node_words = nodes[node, 0], nodes[node, 1], nodes[node, 2]
            here_rows, node_order = some(here, start, end), order[start:end]
            node_seed = mix(seed ^ mix(np.uint64(start) << np.uint64(32) | np.uint64(n_nodes)))
            if k == 1 or end - start <= LEAVES_FROM_ROWS:
                # Few rows: all leaves of the node at once. (A node that is a leaf already stays as it is.)
                split_into_leaves(here_rows, node_words, node_seed, node_order, leaf_ends[:k])
                for leaf in range(k):
                    next_nodes[n_next, 0], next_nodes[n_next, 1] = start + leaf_ends[leaf], 1
                    n_next += 1
                for i in range(start, end):
                    there.indptr[i + 1] = there.indptr[start]
            else:
                left_k, n_left = shares(end - start, k)
                halve_rows(here_rows, node_words, n_left, node_seed, node_order)
                middle = start + n_left
                left, right = some(there, start, middle), some(there, middle, end)
                left_words = compact(here_rows, node_order[:n_left], scratch, left)
                right_words = compact(here_rows, node_order[n_left:], scratch, right)
                next_nodes[n_next, 0], next_nodes[n_next, 1], next_nodes[n_next, 2] = middle, left_k, left_words
                n_next += 1
                next_nodes[n_next, 0], next_nodes[n_next, 1], next_nodes[n_next, 2] = end, k - left_k, right_words
                n_next += 1
            for i in range(start, end):
                before[i] = labels[i]
            for i in range(start, end):
                labels[i] = before[start + order[i]]
            start = end
        here, there = there, here
        nodes, next_nodes = next_nodes, nodes
        n_nodes = n_next
    for cluster in range(n_clusters):
        cluster_ends[cluster] = nodes[cluster, 0]


@njit(cache=True, nogil=True)
def halve_rows(rows, n_words, n_left, seed, order):
    """Write the rows of a compact node in order of their half; within a half they keep their order."""
    is_left = np.empty(len(order), np.bool_)
    split_rows(rows, n_words, n_left, seed, is_left)
    to_left, to_right = 0, n_left
    for i in range(len(order)):
        if is_left[i]:
            order[to_left] = i
            to_left += 1
        else:
            order[to_right] = i
            to_right += 1


@njit(cache=True, nogil=True)
def split_rows(rows, n_words, n_left, seed, is_left):
    """2-means over all rows of a compact node: says which go to the left."""
    n = len(is_left)
    everything = np.arange(n).astype(np.int32)
    scores, scratch = np.empty(n, np.float32), np.empty(n, np.float32)
    direction = np.zeros(n_words, np.float32)
    sums = np.zeros((2, n_words), np.float64)
    left_private, right_private = 0.0, 0.0
    for i in range(n):
        is_left[i] = False
        add_row(rows, i, 1.0, sums[1])
        right_private += rows.private[i]
    was_left = np.zeros(n, np.bool_)

    # The first cut is along the difference of two random rows.
    one = below(mix(seed), n)
    other = (one + 1 + below(mix(seed + np.uint64(1)), n - 1)) % n
    add_row(rows, one, np.float32(1), direction)
    add_row(rows, other, np.float32(-1), direction)
    for _ in range(MAX_ITERATIONS):
        score_rows(rows, everything, direction, scores)
        if cut(scores, n_left, scratch, is_left) <= n // 1000:
            break
        for i in range(n):
            if is_left[i] != was_left[i]:
                was_left[i] = is_left[i]
                sign = 1.0 if is_left[i] else -1.0
                add_row(rows, i, sign, sums[0])
                add_row(rows, i, -sign, sums[1])
                left_private += sign * rows.private[i]
                right_private -= sign * rows.private[i]
        write_direction(sums, left_private, right_private, direction)


@njit(cache=True, nogil=True)
def add_row(rows, row, factor, into):
    for p in range(rows.indptr[row], rows.indptr[row + 1]):
        into[rows.indices[p]] += factor * rows.data[p]


@njit(cache=True, nogil=True)
def write_direction(sums, left_private, right_private, direction):
    """direction = S_left / |S_left| − S_right / |S_right|."""
    left_square, right_square = left_private, right_private
    for word in range(len(direction)):
        left_square += sums[0, word] * sums[0, word]
        right_square += sums[1, word] * sums[1, word]
    left_scale = 1 / np.sqrt(max(left_square, SMALLEST_SQUARE))
    right_scale = 1 / np.sqrt(max(right_square, SMALLEST_SQUARE))
    for word in range(len(direction)):
        direction[word] = np.float32(sums[0, word] * left_scale - sums[1, word] * right_scale)


@njit(cache=True, nogil=True)
def some(rows, start, end):
    """Rows start..end-1, as a view."""
    return Rows(rows.indptr[start : end + 1], rows.indices, rows.data, rows.private[start:end])


@njit(cache=True, nogil=True)
def copy_buffer(rows, chosen):
    """Room for a copy of the chosen rows."""
    size = 0
    for i in range(len(chosen)):
        size += rows.indptr[chosen[i] + 1] - rows.indptr[chosen[i]]
    return Rows(
        np.zeros(len(chosen) + 1, np.int64),
        np.empty(size, np.uint32),
        np.empty(size, np.float32),
        np.zeros(len(chosen), np.float32),
    )


@njit(cache=True, nogil=True)
def compact(rows, chosen, scratch, into):
    """Copy the chosen rows without the words that only one of them has, the others numbered from 0 on.

    Starts writing at into.indptr[0]; returns the number of words. `scratch` (two numbers for each old word:
    its count, its new number + 1) must be zero, and is zero again afterwards.
    """
    for i in range(len(chosen)):
        for p in range(rows.indptr[chosen[i]], rows.indptr[chosen[i] + 1]):
            scratch[rows.indices[p], 0] += 1
    n_words = 0
    end = into.indptr[0]
    for i in range(len(chosen)):
        private = rows.private[chosen[i]]
        for p in range(rows.indptr[chosen[i]], rows.indptr[chosen[i] + 1]):
            word = rows.indices[p]
            if scratch[word, 0] == 1:
                private += rows.data[p] * rows.data[p]
                continue
            if scratch[word, 1] == 0:
                n_words += 1
                scratch[word, 1] = n_words
            into.indices[end] = scratch[word, 1] - 1
            into.data[end] = rows.data[p]
            end += 1
        into.indptr[i + 1] = end
        into.private[i] = private
    for i in range(len(chosen)):
        for p in range(rows.indptr[chosen[i]], rows.indptr[chosen[i] + 1]):
            scratch[rows.indices[p], 0] = 0
            scratch[rows.indices[p], 1] = 0
    return n_words
