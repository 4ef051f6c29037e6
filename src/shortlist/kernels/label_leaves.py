"""The last levels of a label tree: a small node is split into all its leaves from its matrix of cosines.

Once the cosines between the rows of a node are known, moving a row costs a few additions instead of a pass over words.
That allows what would be too slow higher up: after the recursive 2-means, single labels are exchanged between any two
leaves as long as that raises the sum of |S| over the leaves, where S is the sum of a leaf's rows.
"""

from __future__ import annotations

import numpy as np

from shortlist.kernels.compile import kernel
from shortlist.kernels.random import below, mix
from shortlist.kernels.top_k import mark_top

MAX_ITERATIONS = 20
MAX_SWEEPS = 8
SMALLEST_GAIN = np.float32(1e-5)
SMALLEST_SQUARE = np.float32(1e-12)


@kernel
def split_sizes(n_rows, n_clusters):
    """How many clusters and rows go to the left half, so that the sizes of all leaves differ by at most one."""
    left_clusters = (n_clusters + 1) // 2
    size, n_larger = n_rows // n_clusters, n_rows % n_clusters
    left_larger = (n_larger * left_clusters + n_clusters // 2) // n_clusters
    return left_clusters, left_clusters * size + left_larger


@kernel
def partition(values, is_left, n_left, out):
    """Copy the values with those of the left half first; each half keeps its order."""
    to_left, to_right = 0, n_left
    for i in range(len(values)):
        if is_left[i]:
            out[to_left] = values[i]
            to_left += 1
        else:
            out[to_right] = values[i]
            to_right += 1


@kernel
def split_into_leaves(rows, n_words, seed, order, ends):
    """Write the rows of a compact node in the order of its len(ends) leaves, and the end of each leaf."""
    for i in range(len(order)):
        order[i] = i
    ends[0] = len(order)
    if len(ends) > 1:
        cosines = all_cosines(rows, n_words)
        halve_repeatedly(cosines, seed, order, ends)
        exchange(cosines, order, ends)


@kernel
def all_cosines(rows, n_words):
    """The dot products of all pairs of rows. The longer row is made dense: a pair costs as much as the shorter one."""
    indptr, indices, data = rows.indptr, rows.indices, rows.data
    n = len(rows.private)
    cosines = np.empty((n, n), np.float32)
    dense = np.zeros(n_words, np.float32)
    for i in range(n):
        length = indptr[i + 1] - indptr[i]
        for p in range(indptr[i], indptr[i + 1]):
            dense[indices[p]] = data[p]
        for j in range(n):
            other_length = indptr[j + 1] - indptr[j]
            if other_length < length or (other_length == length and j <= i):
                product = np.float32(0)
                for p in range(indptr[j], indptr[j + 1]):
                    product += data[p] * dense[indices[p]]
                cosines[i, j] = product
                cosines[j, i] = product
        cosines[i, i] += rows.private[i]
        for p in range(indptr[i], indptr[i + 1]):
            dense[indices[p]] = 0
    return cosines


@kernel
def halve_repeatedly(cosines, seed, order, ends):
    """Balanced 2-means, level by level, from one node to len(ends) leaves."""
    is_left = np.empty(len(order), np.bool_)
    nodes = [(len(order), len(ends))]  # where each node ends, and how many leaves it has
    while len(nodes) < len(ends):
        next_nodes = nodes[:0]
        start = 0
        for end, n_leaves in nodes:
            if n_leaves > 1:
                left_leaves, n_left = split_sizes(end - start, n_leaves)
                before = order[start:end].copy()
                seed = mix(seed)
                halve(cosines, before, n_left, seed, is_left[start:end])
                partition(before, is_left[start:end], n_left, order[start:end])
                next_nodes.append((start + n_left, left_leaves))
                n_leaves -= left_leaves
            next_nodes.append((end, n_leaves))
            start = end
        nodes = next_nodes
    for leaf in range(len(ends)):
        ends[leaf] = nodes[leaf][0]


@kernel
def halve(cosines, rows, n_left, seed, is_left):
    """2-means over some rows as in `split_rows`, but from cosines: to_left[i] = row i · S_left."""
    n = len(rows)
    one = rows[below(mix(seed), n)]
    other = rows[0]
    for i in range(n):
        if cosines[one, rows[i]] < cosines[one, other]:
            other = rows[i]
    scores = np.empty(n, np.float32)
    was_left = np.zeros(n, np.bool_)
    to_all = np.zeros(n, np.float32)
    to_left = np.zeros(n, np.float32)
    for i in range(n):
        scores[i] = cosines[one, rows[i]] - cosines[other, rows[i]]
        is_left[i] = False
        for j in range(n):
            to_all[j] += cosines[rows[i], rows[j]]
    for _ in range(MAX_ITERATIONS):
        if mark_top(scores, n_left, is_left) == 0:
            break
        for i in range(n):
            if is_left[i] != was_left[i]:
                was_left[i] = is_left[i]
                sign = np.float32(1) if is_left[i] else np.float32(-1)
                for j in range(n):
                    to_left[j] += sign * cosines[rows[i], rows[j]]
        left_square, right_square = SMALLEST_SQUARE, SMALLEST_SQUARE
        for i in range(n):
            if is_left[i]:
                left_square += to_left[i]
            else:
                right_square += to_all[i] - to_left[i]
        left_scale, right_scale = 1 / np.sqrt(left_square), 1 / np.sqrt(right_square)
        for i in range(n):
            scores[i] = to_left[i] * left_scale - (to_all[i] - to_left[i]) * right_scale


@kernel
def exchange(cosines, order, ends):
    """Exchange labels between leaves while that raises the sum of |S|.

    A label is tried only against leaves that it is closer to than to the rest of its own leaf: where an exchange of
    two labels helps, this is nearly always true of one of them.
    """
    n, n_leaves = len(order), len(ends)
    leaf_of = np.empty(n, np.int64)
    to_leaf = np.zeros((n, n_leaves), np.float32)
    square = np.zeros(n_leaves, np.float32)
    length = np.empty(n_leaves, np.float32)
    start = 0
    for leaf in range(n_leaves):
        for p in range(start, ends[leaf]):
            leaf_of[order[p]] = leaf
            for i in range(n):
                to_leaf[i, leaf] += cosines[order[p], i]
        start = ends[leaf]
    for i in range(n):
        square[leaf_of[i]] += to_leaf[i, leaf_of[i]]
    for leaf in range(n_leaves):
        length[leaf] = np.sqrt(max(square[leaf], SMALLEST_SQUARE))

    for _ in range(MAX_SWEEPS):
        n_exchanged = 0
        position = 0
        for a in range(n_leaves):
            while position < ends[a]:
                i = order[position]
                without_i = square[a] - 2 * to_leaf[i, a] + cosines[i, i]
                pull = (to_leaf[i, a] - cosines[i, i]) / np.sqrt(max(without_i, SMALLEST_SQUARE))
                best_gain, best_position, best_leaf = SMALLEST_GAIN, -1, -1
                best_a, best_b = np.float32(0), np.float32(0)
                for b in range(n_leaves):
                    if b == a or to_leaf[i, b] <= pull * length[b]:
                        continue
                    with_i = square[b] + 2 * to_leaf[i, b] + cosines[i, i]
                    for q in range(ends[b - 1] if b > 0 else 0, ends[b]):
                        j = order[q]
                        new_a = without_i + 2 * (to_leaf[j, a] - cosines[i, j]) + cosines[j, j]
                        new_b = with_i - 2 * (to_leaf[j, b] + cosines[i, j]) + cosines[j, j]
                        new_a, new_b = max(new_a, SMALLEST_SQUARE), max(new_b, SMALLEST_SQUARE)
                        gain = np.sqrt(new_a) + np.sqrt(new_b) - length[a] - length[b]
                        if gain > best_gain:
                            best_gain, best_position, best_leaf = gain, q, b
                            best_a, best_b = new_a, new_b
                if best_position >= 0:
                    j = order[best_position]
                    order[position], order[best_position] = j, i
                    square[a], length[a] = best_a, np.sqrt(best_a)
                    square[best_leaf], length[best_leaf] = best_b, np.sqrt(best_b)
                    for row in range(n):
                        change = cosines[row, j] - cosines[row, i]
                        to_leaf[row, a] += change
                        to_leaf[row, best_leaf] -= change
                    n_exchanged += 1
                position += 1
        if n_exchanged == 0:
            break
