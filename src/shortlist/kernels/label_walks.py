"""Random walks with restart between labels that share texts."""

from __future__ import annotations

import numpy as np
from numba import njit

from shortlist.kernels.balanced_cut import cut
from shortlist.kernels.splitmix import below, mix

FRACTION = 2.0**-64


@njit(cache=True, nogil=True)
def walk(
    labels_indptr, labels, texts_indptr, texts, first, last, n_steps, restart, seed, neighbours, visits
):  # fmt: skip
    """One walk from each of the labels first..last-1; writes its most visited labels and their visits.

    A step goes from a label to one of its texts, and on to one of the labels of that text, both by equal
    chance. Before each step the walk returns to its origin with probability `restart`. Unused places in
    `neighbours` (labels × places) have 0 visits. Each label draws from random numbers of its own.
    """
    places = neighbours.shape[1]
    visited = np.empty(n_steps, np.int32)
    distinct = np.empty(n_steps, np.int32)
    counts, scratch = np.empty(n_steps, np.float32), np.empty(n_steps, np.float32)
    is_kept = np.empty(n_steps, np.bool_)
    for origin in range(first, last):
        if texts_indptr[origin] == texts_indptr[origin + 1]:
            neighbours[origin, 0], visits[origin, 0] = origin, 1
            continue
        counter = mix(seed ^ mix(np.uint64(origin)))
        at = np.int64(origin)
        for step in range(n_steps):
            counter += np.uint64(3)
            if np.float64(mix(counter)) * FRACTION < restart:
                at = np.int64(origin)
            n_texts = texts_indptr[at + 1] - texts_indptr[at]
            text = texts[texts_indptr[at] + below(mix(counter + np.uint64(1)), n_texts)]
            n_labels = labels_indptr[text + 1] - labels_indptr[text]
            at = np.int64(labels[labels_indptr[text] + below(mix(counter + np.uint64(2)), n_labels)])
            visited[step] = at
        visited.sort()
        n = 0
        for step in range(n_steps):
            if step == 0 or visited[step] != visited[step - 1]:
                distinct[n], counts[n] = visited[step], 0
                n += 1
            counts[n - 1] += 1
        for i in range(n):
            is_kept[i] = n <= places
        if n > places:
            cut(counts[:n], places, scratch[:n], is_kept[:n])
        place = 0
        for i in range(n):
            if is_kept[i]:
                neighbours[origin, place], visits[origin, place] = distinct[i], counts[i]
                place += 1
