"""Balanced spherical 2-means over sparse rows: the splits of a label tree.

A split of rows z into a left half of a given size and a right half looks for the largest |S_left| + |S_right|, where S
is the sum of a half's rows: of unit rows, this is the sum of the cosines between each row and the mean direction of its
half; of others, the cosines are weighted with the lengths.
An iteration scores the rows by z · (S_left / |S_left| − S_right / |S_right|) and moves the highest scores to the left.

Values are multiples of 2**-24 (`scaled_rows` rounds them), so their sums in float64 are exact: they do not depend on
the order of the rows, and rows can be added and subtracted without drift. No kernel uses fastmath: its gather
instructions are slower here, and the result would depend on the processor.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from shortlist.kernels.compile import kernel
from shortlist.kernels.label_exchange import all_cosines, exchange
from shortlist.kernels.random import below, mix
from shortlist.kernels.top_k import mark_top

MAX_ITERATIONS = 20
EXCHANGED_ROWS = 512  # of clusters that exchange labels with each other
GRID = 2.0**24
SMALLEST_SQUARE = 1e-30


class Rows(NamedTuple):
    """Sparse rows. Words that only one row has are left out; `private` is the sum of their squares.

    They do not count in dot products between rows, but they count in lengths.
    """

    indptr: np.ndarray  # int64
    indices: np.ndarray  # uint32: without a sign, numba need not test for negative indices
    data: np.ndarray  # float32
    private: np.ndarray  # float32, one per row


@kernel
def scaled_rows(indptr, indices, data, first, last, length, new_word, into):
    """Copy rows first to last - 1 into `into`, divided by `length`, or by their own length where that is 0.

    Values are rounded to the grid, and words renumbered.
    """
    for row in range(first, last):
        square = np.float64(length) * np.float64(length)
        if length == 0:
            for p in range(indptr[row], indptr[row + 1]):
                square += np.float64(data[p]) * np.float64(data[p])
        scale = GRID / np.sqrt(square) if square > 0 else 0.0
        for p in range(indptr[row], indptr[row + 1]):
            into.indices[p] = new_word[indices[p]]
            into.data[p] = np.rint(data[p] * scale) / GRID
        into.private[row] = 0


@kernel
def score_labels(rows, chosen, direction, scores):
    """scores[i] = row chosen[i] · direction."""
    for i in range(len(chosen)):
        score = np.float32(0)
        for p in range(rows.indptr[chosen[i]], rows.indptr[chosen[i] + 1]):
            score += rows.data[p] * direction[rows.indices[p]]
        scores[i] = score


@kernel
def sample_direction(rows, n_words, sample, n_left, seed):
    """The direction in which 2-means splits a sample of the rows, in the words of all rows."""
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


@kernel
def grow_subtree(rows, n_words, labels, n_clusters, seed, cluster_ends):
    """Split the rows `labels` into clusters: reorders `labels`, and writes where each cluster ends.

    Goes level by level over compact copies of the nodes. Those of the next level are packed into a second buffer, which
    always has room because copies only shrink; then the buffers change places.
    """
    here, there = copy_buffer(rows, labels), copy_buffer(rows, labels)
    scratch = np.zeros((n_words, 2), np.int32)
    is_left, order = np.empty(len(labels), np.bool_), np.empty(len(labels), np.int32)
    # Where each node ends, and its numbers of clusters and words.
    nodes = [(len(labels), n_clusters, compact(rows, labels, scratch, here))]
    while len(nodes) < n_clusters:
        next_nodes = nodes[:0]
        start = 0
        for end, k, node_words in nodes:
            if k == 1:
                next_nodes.append((end, 1, 0))
                there.indptr[start + 1 : end + 1] = there.indptr[start]
            else:
                node, node_order = some(here, start, end), order[start:end]
                node_seed = mix(seed ^ mix(np.uint64(start) << np.uint64(32) | np.uint64(len(nodes))))
                left_k, n_left = split_sizes(end - start, k)
                split_rows(node, node_words, n_left, node_seed, is_left[start:end])
                partition(is_left[start:end], n_left, node_order)
                middle = start + n_left
                left_words = compact(node, node_order[:n_left], scratch, some(there, start, middle))
                right_words = compact(node, node_order[n_left:], scratch, some(there, middle, end))
                next_nodes.append((middle, left_k, left_words))
                next_nodes.append((end, k - left_k, right_words))
                labels[start:end] = labels[start:end][node_order]
            start = end
        here, there = there, here
        nodes = next_nodes
    for cluster in range(n_clusters):
        cluster_ends[cluster] = nodes[cluster][0]
    exchange_labels(rows, labels, scratch, cluster_ends)


@kernel
def exchange_labels(rows, labels, scratch, cluster_ends):
    """Exchange labels between clusters that are close in the tree; `scratch` is that of `compact`."""
    n_together = 1
    while 2 * n_together * len(labels) <= EXCHANGED_ROWS * len(cluster_ends):
        n_together *= 2
    start = 0
    for first in range(0, len(cluster_ends), n_together):
        ends = cluster_ends[first : first + n_together]
        chosen = labels[start : ends[-1]].copy()
        if len(ends) > 1:
            copy = copy_buffer(rows, chosen)
            cosines = all_cosines(copy, compact(rows, chosen, scratch, copy))
            order = np.arange(len(chosen))
            exchange(cosines, order, ends - start)
            labels[start : ends[-1]] = chosen[order]
        start = ends[-1]


@kernel
def split_sizes(n_rows, n_clusters):
    """How many clusters and rows go to the left half, so that the sizes of all clusters differ by at most one."""
    left_clusters = (n_clusters + 1) // 2
    size, n_larger = n_rows // n_clusters, n_rows % n_clusters
    left_larger = (n_larger * left_clusters + n_clusters // 2) // n_clusters
    return left_clusters, left_clusters * size + left_larger


@kernel
def partition(is_left, n_left, order):
    """Write the positions of the left half, then those of the right half; each in increasing order."""
    to_left, to_right = 0, n_left
    for i in range(len(is_left)):
        if is_left[i]:
            order[to_left] = i
            to_left += 1
        else:
            order[to_right] = i
            to_right += 1


@kernel
def split_rows(rows, n_words, n_left, seed, is_left):
    """2-means over all rows of a compact node: marks those that go to the left."""
    n = len(is_left)
    everything = np.arange(n).astype(np.int32)
    scores = np.empty(n, np.float32)
    direction = np.zeros(n_words, np.float32)
    sums = np.zeros((2, n_words), np.float64)
    left_private, right_private = 0.0, 0.0
    for i in range(n):
        is_left[i] = False
        add_row(rows, i, 1.0, sums[1])
        right_private += rows.private[i]
    was_left = np.zeros(n, np.bool_)

    # The first split is in the direction of the difference of two random rows.
    one = below(mix(seed), n)
    other = (one + 1 + below(mix(seed + np.uint64(1)), n - 1)) % n
    add_row(rows, one, np.float32(1), direction)
    add_row(rows, other, np.float32(-1), direction)
    for _ in range(MAX_ITERATIONS):
        score_labels(rows, everything, direction, scores)
        if mark_top(scores, n_left, is_left) <= n // 1000:
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


@kernel
def add_row(rows, row, factor, into):
    for p in range(rows.indptr[row], rows.indptr[row + 1]):
        into[rows.indices[p]] += factor * rows.data[p]


@kernel
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


@kernel
def some(rows, start, end):
    """Rows start to end - 1, as a view."""
    return Rows(rows.indptr[start : end + 1], rows.indices, rows.data, rows.private[start:end])


@kernel
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


@kernel
def compact(rows, chosen, scratch, into):
    """Copy the chosen rows without the words that only one of them has; renumber the others from 0.

    Starts writing at into.indptr[0]; returns the number of words. `scratch` (for each old word its count and its new
    number + 1) must be zero, and is zero again afterwards.
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
