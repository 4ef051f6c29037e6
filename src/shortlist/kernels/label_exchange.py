"""The last step of a label tree: clusters that are close in the tree exchange labels.

Once the cosines between the rows of a few clusters are known, moving a row costs a few additions instead of a pass over
words. So single labels can be exchanged between any two of these clusters as long as that raises the sum of |S|, where
S is the sum of a cluster's rows.
"""

from __future__ import annotations

import numpy as np

from shortlist.kernels.compile import kernel

MAX_SWEEPS = 8
SMALLEST_GAIN = np.float32(1e-5)
SMALLEST_SQUARE = np.float32(1e-12)


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
def exchange(cosines, order, ends):
    """Exchange labels between clusters while that raises the sum of |S|.

    A label is tried only against clusters that it is closer to than to the rest of its own cluster: where an exchange
    of two labels helps, this is nearly always true of one of them.
    """
    n, n_clusters = len(order), len(ends)
    cluster_of = np.empty(n, np.int64)
    to_cluster = np.zeros((n, n_clusters), np.float32)
    square = np.zeros(n_clusters, np.float32)
    length = np.empty(n_clusters, np.float32)
    start = 0
    for cluster in range(n_clusters):
        for p in range(start, ends[cluster]):
            cluster_of[order[p]] = cluster
            for i in range(n):
                to_cluster[i, cluster] += cosines[order[p], i]
        start = ends[cluster]
    for i in range(n):
        square[cluster_of[i]] += to_cluster[i, cluster_of[i]]
    for cluster in range(n_clusters):
        length[cluster] = np.sqrt(max(square[cluster], SMALLEST_SQUARE))

    for _ in range(MAX_SWEEPS):
        n_exchanged = 0
        position = 0
        for a in range(n_clusters):
            while position < ends[a]:
                i = order[position]
                without_i = square[a] - 2 * to_cluster[i, a] + cosines[i, i]
                pull = (to_cluster[i, a] - cosines[i, i]) / np.sqrt(max(without_i, SMALLEST_SQUARE))
                best_gain, best_position, best_cluster = SMALLEST_GAIN, -1, -1
                best_a, best_b = np.float32(0), np.float32(0)
                for b in range(n_clusters):
                    if b == a or to_cluster[i, b] <= pull * length[b]:
                        continue
                    with_i = square[b] + 2 * to_cluster[i, b] + cosines[i, i]
                    for q in range(ends[b - 1] if b > 0 else 0, ends[b]):
                        j = order[q]
                        new_a = without_i + 2 * (to_cluster[j, a] - cosines[i, j]) + cosines[j, j]
                        new_b = with_i - 2 * (to_cluster[j, b] + cosines[i, j]) + cosines[j, j]
                        new_a, new_b = max(new_a, SMALLEST_SQUARE), max(new_b, SMALLEST_SQUARE)
                        gain = np.sqrt(new_a) + np.sqrt(new_b) - length[a] - length[b]
                        if gain > best_gain:
                            best_gain, best_position, best_cluster = gain, q, b
                            best_a, best_b = new_a, new_b
                if best_position >= 0:
                    j = order[best_position]
                    order[position], order[best_position] = j, i
                    square[a], length[a] = best_a, np.sqrt(best_a)
                    square[best_cluster], length[best_cluster] = best_b, np.sqrt(best_b)
                    for row in range(n):
                        change = cosines[row, j] - cosines[row, i]
                        to_cluster[row, a] += change
                        to_cluster[row, best_cluster] -= change
                    n_exchanged += 1
                position += 1
        if n_exchanged == 0:
            break
