"""Sparse sums of texts per label, and random walks between labels that share texts.

A label's sum is collected in a dense array over the words. A first pass counts the words, so that the second can write
each sum to its final place: memory grows with the result only.
"""

from __future__ import annotations

import numpy as np

from shortlist.kernels.compile import kernel
from shortlist.kernels.random import below, mix
from shortlist.kernels.top_k import mark_top

FRACTION = 2.0**-64


@kernel
def inverse_lengths(indptr, data, scales):
    """1 / length of each row; 0 for rows without length."""
    for row in range(len(indptr) - 1):
        square = 0.0
        for p in range(indptr[row], indptr[row + 1]):
            square += np.float64(data[p]) * np.float64(data[p])
        scales[row] = 1 / np.sqrt(square) if square > 0 else 0.0


@kernel
def count_words(member_indptr, members, indptr, indices, n_words, enough, first, last, counts):
    """How many different words the members of labels first to last - 1 have, at most `enough`."""
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


@kernel
def sum_members(
    member_indptr, members, weights, indptr, indices, data, scales, n_words, unit, first, last, out_indptr,
    out_indices, out_data,
):  # fmt: skip
    """Write the weighted sums of the scaled members of labels first to last - 1, with sorted words; length 1 if `unit`.

    `out_indptr` says how many words each label may keep; if it has more, the largest stay.
    """
    sums = np.zeros(n_words, np.float64)
    seen_by = np.full(n_words, -1, np.int64)
    words = np.empty(n_words, np.int32)
    sizes, is_kept = np.empty(n_words, np.float32), np.zeros(n_words, np.bool_)
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
            mark_top(sizes[:n], n_kept, is_kept[:n])
            filled = 0
            for i in range(n):
                if is_kept[i]:
                    words[filled] = words[i]
                    filled += 1
                else:
                    sums[words[i]] = 0
        words[:n_kept].sort()
        square = 0.0
        for i in range(n_kept):
            square += sums[words[i]] * sums[words[i]]
        scale = 1 / np.sqrt(square) if unit and square > 0 else 1.0
        start = out_indptr[label]
        for i in range(n_kept):
            out_indices[start + i] = words[i]
            out_data[start + i] = sums[words[i]] * scale
            sums[words[i]] = 0


@kernel
def walk(labels_indptr, labels, texts_indptr, texts, first, last, n_steps, restart, seed, neighbours, visits):
    """One random walk from each of the labels first to last - 1; writes its most visited labels and their visits.

    A step goes from a label to one of its texts, and on to one of the labels of that text, both with equal probability.
    Before each step the walk returns to its origin with probability `restart`. Unused places in `neighbours` (labels ×
    places) have 0 visits. Each label draws random numbers of its own.
    """
    places = neighbours.shape[1]
    visited, distinct = np.empty(n_steps, np.int32), np.empty(n_steps, np.int32)
    counts, is_kept = np.empty(n_steps, np.float32), np.empty(n_steps, np.bool_)
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
        is_kept[:n] = False
        mark_top(counts[:n], min(n, places), is_kept[:n])
        place = 0
        for i in range(n):
            if is_kept[i]:
                neighbours[origin, place], visits[origin, place] = distinct[i], counts[i]
                place += 1
