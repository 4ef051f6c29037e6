"""The best labels for sparse texts against sparse label weights, by way of an inverted index."""

from __future__ import annotations

import numpy as np
from numba import njit, prange


@njit(cache=True, nogil=True)
def insert_best(label, score, ids, scores, filled):
    """Put a label into its place in a short list kept best first; among equals the smaller label leads."""
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


@njit(cache=True, nogil=True, parallel=True)
def top_labels(text_ptr, words, values, word_ptr, labels, weights, n_labels, n_chunks, ids, scores):
    """For each text, the labels with the largest dot products; -1 where fewer share a word with it.

    `word_ptr`, `labels`, `weights` list for every word the labels that have it. `ids` and `scores` (texts × k)
    take the result. Texts are cut into `n_chunks` runs, each with its own row of sums.
    """
    n_texts = len(text_ptr) - 1
    for chunk in prange(n_chunks):
        sums = np.zeros(n_labels, np.float32)
        touched = np.empty(n_labels, np.int32)
        # A sum can be zero, or come back to it: whether a label was met is kept apart.
        met_by = np.full(n_labels, -1, np.int64)
        for text in range(chunk * n_texts // n_chunks, (chunk + 1) * n_texts // n_chunks):
            n_touched = 0
            for i in range(text_ptr[text], text_ptr[text + 1]):
                word, value = words[i], values[i]
                for j in range(word_ptr[word], word_ptr[word + 1]):
                    label = labels[j]
                    if met_by[label] != text:
                        met_by[label] = text
                        touched[n_touched] = label
                        n_touched += 1
                    sums[label] += value * weights[j]
            filled = 0
            for i in range(n_touched):
                label = touched[i]
                filled = insert_best(label, sums[label], ids[text], scores[text], filled)
                sums[label] = 0
            ids[text, filled:] = -1
            scores[text, filled:] = 0
