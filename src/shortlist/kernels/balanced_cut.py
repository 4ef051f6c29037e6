"""Cutting scored rows into a left part of exactly the wanted size and a right part."""

from __future__ import annotations

from numba import njit


@njit(cache=True, nogil=True)
def shares(n_rows, n_clusters):
    """How many clusters and rows go to the left: proportional, so that leaf sizes differ by at most one."""
    left_clusters = (n_clusters + 1) // 2
    size, n_larger = n_rows // n_clusters, n_rows % n_clusters
    left_larger = (n_larger * left_clusters + n_clusters // 2) // n_clusters
    return left_clusters, left_clusters * size + left_larger


@njit(cache=True, nogil=True)
def cut(scores, n_left, scratch, is_left):
    """Give the n_left highest scores to the left, the earlier row first among equals; returns how many moved."""
    threshold = kth_largest(scores, n_left, scratch)
    ties_to_left = n_left
    for i in range(len(scores)):
        if scores[i] > threshold:
            ties_to_left -= 1
    n_moved = 0
    for i in range(len(scores)):
        left = scores[i] > threshold
        if scores[i] == threshold and ties_to_left > 0:
            left = True
            ties_to_left -= 1
        if left != is_left[i]:
            is_left[i] = left
            n_moved += 1
    return n_moved


@njit(cache=True, nogil=True)
def kth_largest(values, k, scratch):
    """The k-th largest value (the largest is the first), by quickselect on a copy."""
    for i in range(len(values)):
        scratch[i] = values[i]
    low, high, wanted = 0, len(values) - 1, k - 1
    while low < high:
        a, b, c = scratch[low], scratch[(low + high) >> 1], scratch[high]
        pivot = max(min(a, b), min(max(a, b), c))
        i, j = low, high
        while i <= j:
            while scratch[i] > pivot:
                i += 1
            while scratch[j] < pivot:
                j -= 1
            if i <= j:
                scratch[i], scratch[j] = scratch[j], scratch[i]
                i += 1
                j -= 1
        if wanted <= j:
            high = j
        elif wanted >= i:
            low = i
        else:
            break
    return scratch[wanted]
