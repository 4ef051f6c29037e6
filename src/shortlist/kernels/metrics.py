"""The loops behind the metrics. Each text is independent, so results do not depend on the number of threads."""

from __future__ import annotations

import numpy as np

from shortlist.kernels.compile import kernel
from shortlist.kernels.threads import parallel_kernel
from shortlist.kernels.top_k import insert_best

NOTHING = np.int32(-1)


@parallel_kernel(bounds="indptr", minimum=1024)
def sort_rows(begin, end, indptr, values, first):
    """Sort each row of `values` in place, and mark in `first` the values that differ from the one before."""
    for row in range(begin, end):
        start, stop = indptr[row], indptr[row + 1]
        values[start:stop].sort()
        for i in range(start, stop):
            first[i] = i == start or values[i] != values[i - 1]


@parallel_kernel(rows="predictions", minimum=1024)
def find_hits(begin, end, predictions, indptr, truth, ranked, correct):
    """Transpose predictions (texts × places) to places × texts, drop repeated labels, and mark the correct ones.

    Rows of `truth` are sorted. A label that occurs earlier in its row becomes `NOTHING`.
    """
    for text in range(begin, end):
        true_labels = truth[indptr[text] : indptr[text + 1]]
        for place in range(predictions.shape[1]):
            label = predictions[text, place]
            for earlier in range(place):
                if predictions[text, earlier] == label:
                    label = NOTHING
                    break
            ranked[place, text] = label
            at = np.searchsorted(true_labels, label)
            correct[place, text] = label >= 0 and at < len(true_labels) and true_labels[at] == label


@parallel_kernel(bounds="indptr", minimum=1024)
def best_gains(begin, end, indptr, truth, gains, best):
    """The largest gains among each text's true labels, the largest first, then zeros (places × texts)."""
    n_places = best.shape[0]
    ids = np.empty(n_places, np.int64)
    for text in range(begin, end):
        top = np.zeros(n_places, np.float64)
        filled = 0
        for i in range(indptr[text], indptr[text + 1]):
            filled = insert_best(i, gains[truth[i]], ids, top, filled)
        best[:, text] = top


@parallel_kernel(rows="top", minimum=1024)
def top_of_rows(begin, end, indptr, values, scores, top):
    """The values with the largest scores of each row, the largest first; of equal scores the first value."""
    positions, best = np.empty(top.shape[1], np.int64), np.empty(top.shape[1], np.float64)
    for row in range(begin, end):
        filled = 0
        for i in range(indptr[row], indptr[row + 1]):
            filled = insert_best(i, scores[i], positions, best, filled)
        top[row, :filled] = values[positions[:filled]]
        top[row, filled:] = NOTHING


@kernel
def count_labels(ranked, correct, predicted_counts, correct_counts):
    """Count how often each label is predicted, and how often correctly (places × texts)."""
    for place in range(ranked.shape[0]):
        for text in range(ranked.shape[1]):
            label = ranked[place, text]
            if label >= 0:
                predicted_counts[label] += 1
                correct_counts[label] += correct[place, text]
