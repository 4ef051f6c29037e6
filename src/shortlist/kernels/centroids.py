"""Sums of sparse rows, one for each label, in memory that grows with the result and nothing else.

A label's sum is collected in a dense scratch vector over the words. The words are counted in a first pass,
so that the result can be written straight to its place in the second.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from shortlist.kernels.balanced_cut import cut


@njit(cache=True, nogil=True)
def inverse_lengths(indptr, data, scales):
    """1 / length of each row; 0 for rows without length."""
    for row in range(len(indptr) - 1):
        square = 0.0
        for p in range(indptr[row], indptr[row + 1]):
            square += np.float64(data[p]) * np.float64(data[p])
        scales[row] = 1 / np.sqrt(square) if square > 0 else 0.0


@njit(cache=True, nogil=True)
def count_words(member_indptr, members, indptr, indices, n_words, enough, first, last, counts):
    """How many different words the members of labels first..last-1 have; never says more than `enough`."""
    seen_by = np.full(n_words, -1, np.int64)
    for label in range(first, last):
        count = 0
        for m in range(member_indptr[label], member_indptr[label + 1]):
            if count >= enough:
                break
            for p in range(indptr[members[m]], indptr[members[m] + 1]):
                if seen_by[indices[p]] != label:
                    seen_by[indices[p]] = label
                    count += 1
        counts[label] = min(count, enough)


@njit(cache=True, nogil=True)
def sum_members(
    member_indptr, members, weights, indptr, indices, data, scales, n_words, first, last, out_indptr, out_indices,
    out_data,
):  # fmt: skip
    """Write the weighted sums of the scaled members of labels first..last-1, words sorted, with length 1.

    `out_indptr` says how many words each label may keep; if it has more, the largest stay.
    """
    sums = np.zeros(n_words, np.float64)
    seen_by = np.full(n_words, -1, np.int64)
    words = np.empty(n_words, np.int32)
    sizes, scratch, is_kept = np.empty(n_words, np.float32), np.empty(n_words, np.float32), np.empty(n_words, np.bool_)
    for label in range(first, last):
        n = 0
        for m in range(member_indptr[label], member_indptr[label + 1]):
            factor = weights[m] * scales[members[m]]
            for p in range(indptr[members[m]], indptr[members[m] + 1]):
                word = indices[p]
                if seen_by[word] != label:
                    seen_by[word] = label
                    words[n] = word
                    n += 1
                sums[word] += factor * data[p]
        n_kept = out_indptr[label + 1] - out_indptr[label]
        if n_kept < n:
            for i in range(n):
                sizes[i] = abs(sums[words[i]])
                is_kept[i] = False
            cut(sizes[:n], n_kept, scratch[:n], is_kept[:n])
            kept = 0
            for i in range(n):
                if is_kept[i]:
                    words[kept] = words[i]
                    kept += 1
                else:
                    sums[words[i]] = 0
        words[:n_kept].sort()
        square = 0.0
        for i in range(n_kept):
            square += sums[words[i]] * sums[words[i]]
        scale = 1 / np.sqrt(square) if square > 0 else 0.0
        start = out_indptr[label]
        for i in range(n_kept):
            out_indices[start + i] = words[i]
            out_data[start + i] = sums[words[i]] * scale
            sums[words[i]] = 0


@njit(cache=True, nogil=True)
def summed_lengths(indptr, indices, data, scales, n_words, order, starts):
    """For each cluster the length of the sum of its scaled rows, added up over the clusters."""
    sums = np.zeros(n_words, np.float64)
    total = 0.0
    for cluster in range(len(starts) - 1):
        square = 0.0
        for i in range(starts[cluster], starts[cluster + 1]):
            for p in range(indptr[order[i]], indptr[order[i] + 1]):
                sums[indices[p]] += scales[order[i]] * data[p]
        for i in range(starts[cluster], starts[cluster + 1]):
            for p in range(indptr[order[i]], indptr[order[i] + 1]):
                square += sums[indices[p]] * sums[indices[p]]
                sums[indices[p]] = 0
        total += np.sqrt(square)
    return total
