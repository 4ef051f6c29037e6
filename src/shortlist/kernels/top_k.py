"""The k largest of many scores: by insertion into a short sorted list, or by selection among all of them.

Insertion suits short lists and scores that come one by one; selection suits long lists.
"""

from __future__ import annotations

import numpy as np

from shortlist.kernels.compile import kernel
from shortlist.kernels.threads import parallel_kernel


@kernel
def insert_best(label, score, ids, scores, filled):
    """Insert into a list sorted by decreasing score, then increasing label; returns the new length.

    `ids` and `scores` hold `filled` entries; if they are full, the last one is dropped.
    """
    k = len(ids)
    if filled == k:
        if score < scores[k - 1] or (score == scores[k - 1] and label > ids[k - 1]):
            return filled
        filled -= 1
    at = filled
    while at > 0 and (score > scores[at - 1] or (score == scores[at - 1] and label < ids[at - 1])):
        ids[at] = ids[at - 1]
        scores[at] = scores[at - 1]
        at -= 1
    ids[at] = label
    scores[at] = score
    return filled + 1


@parallel_kernel(rows="logits", minimum=16)
def best_of_row(begin, end, logits, first, filled, ids, scores):
    """Insert the columns of each row of `logits`, numbered from `first`, into lists that hold `filled` entries."""
    for row in range(begin, end):
        n = filled
        for column in range(logits.shape[1]):
            score = logits[row, column]
            if n < ids.shape[1] or score > scores[row, -1]:
                n = insert_best(first + column, score, ids[row], scores[row], n)


@kernel
def _kth_largest(keys, k):
    """The k-th largest of unsigned 32-bit keys, by radix selection; overwrites `keys`.

    Each pass finds one byte of the result, and keeps the keys that share it.
    """
    counts = np.empty(256, np.int64)
    n = len(keys)
    for shift in (24, 16, 8, 0):
        counts[:] = 0
        for i in range(n):
            counts[(keys[i] >> np.uint32(shift)) & np.uint32(255)] += 1
        byte = 255
        while counts[byte] < k:
            k -= counts[byte]
            byte -= 1
        n_kept = 0
        for i in range(n):
            if (keys[i] >> np.uint32(shift)) & np.uint32(255) == np.uint32(byte):
                keys[n_kept] = keys[i]
                n_kept += 1
        n = n_kept
        if n == 1:
            break
    return keys[0]


@kernel
def top_k(scores, k, positions):
    """Write the positions of the k largest scores (contiguous float32) in increasing order; of equal scores the first.

    NaN is larger than any number.
    """
    if k == 0:
        return
    # The bits of floats sort like integers, once those of negative numbers are inverted.
    bits = scores.view(np.uint32)
    keys = np.empty(len(bits), np.uint32)
    for i in range(len(bits)):
        if bits[i] <= np.uint32(0x80000000):  # also maps -0 to 0
            keys[i] = bits[i] | np.uint32(0x80000000)
        else:
            keys[i] = ~bits[i]
    threshold = _kth_largest(keys.copy(), k)
    n_ties = k
    for key in keys:
        n_ties -= key > threshold
    filled = 0
    for i in range(len(keys)):
        if keys[i] > threshold or (keys[i] == threshold and n_ties > 0):
            n_ties -= keys[i] == threshold
            positions[filled] = i
            filled += 1


@kernel
def top_k_sorted(scores, k):
    """The positions of the k largest scores, the largest first; of equal scores the first."""
    positions = np.empty(k, np.int32)
    top_k(scores, k, positions)
    return positions[np.argsort(-scores[positions], kind="mergesort")]


@kernel
def mark_top(scores, k, is_top):
    """Mark the k largest scores, the first of equal ones; returns how many marks changed."""
    positions = np.empty(k, np.int32)
    top_k(scores, k, positions)
    filled, n_changed = 0, 0
    for i in range(len(scores)):
        top = filled < k and positions[filled] == i
        filled += top
        n_changed += top != is_top[i]
        is_top[i] = top
    return n_changed


@parallel_kernel(rows="scores", minimum=8)
def top_columns(begin, end, scores, k, chosen):
    """`top_k` of each row of scores."""
    for row in range(begin, end):
        top_k(scores[row], k, chosen[row])


@kernel
def best_of_candidates(ids, odds, best, best_odds):
    """The candidates of each text with the largest odds, the largest first; of equal odds the first."""
    for text in range(len(ids)):
        order = top_k_sorted(odds[text], best.shape[1])
        best[text], best_odds[text] = ids[text][order], odds[text][order]
