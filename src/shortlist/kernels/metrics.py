"""The loops behind the metrics: cleaning label rows, finding hits, ranking by score.

Every row of texts is handled on its own, so the results are the same for any number of threads.
"""

from __future__ import annotations

import numpy as np
from numba import njit, prange

NOTHING = np.int32(-1)


@njit(cache=True, nogil=True, parallel=True)
def sort_rows(indptr, values, first):
    """Sort every row of `values` in place; mark in `first` each value that does not repeat the one before."""
    for row in prange(len(indptr) - 1):
        start, stop = indptr[row], indptr[row + 1]
        values[start:stop].sort()
        for i in range(start, stop):
            first[i] = i == start or values[i] != values[i - 1]


@njit(cache=True, nogil=True)
def holds(values, start, stop, wanted):
    """Whether the sorted slice values[start:stop] holds the wanted value."""
    while start < stop:
        middle = (start + stop) // 2
        if values[middle] < wanted:
            start = middle + 1
        elif values[middle] > wanted:
            stop = middle
        else:
            return True
    return False


@njit(cache=True, nogil=True, parallel=True)
def find_hits(predictions, indptr, truth, ranked, correct):
    """Turn predictions (texts × places) into places × texts, without repeats, and mark the correct ones.

    Rows of `truth` are sorted. A label that already stood further up in its row becomes "nothing".
    """
    n_texts, n_places = predictions.shape
    for text in prange(n_texts):
        for place in range(n_places):
            label = predictions[text, place]
            for earlier in range(place):
                if predictions[text, earlier] == label:
                    label = NOTHING
                    break
            ranked[place, text] = label
            correct[place, text] = label >= 0 and holds(truth, indptr[text], indptr[text + 1], label)


@njit(cache=True, nogil=True, parallel=True)
def best_gains(indptr, truth, gains, best):
    """For each text the largest gains among its true labels, best first, then zeros (places × texts)."""
    n_places = best.shape[0]
    for text in prange(len(indptr) - 1):
        top = np.zeros(n_places, np.float64)
        found = 0
        for i in range(indptr[text], indptr[text + 1]):
            gain = gains[truth[i]]
            if found < n_places:
                place = found
                found += 1
            elif gain > top[n_places - 1]:
                place = n_places - 1
            else:
                continue
            while place > 0 and top[place - 1] < gain:
                top[place] = top[place - 1]
                place -= 1
            top[place] = gain
        for place in range(n_places):
            best[place, text] = top[place]


@njit(cache=True, nogil=True, parallel=True)
def top_of_rows(indptr, values, scores, top):
    """The values with the largest scores of each row, best first; of equal scores the earlier one."""
    width = top.shape[1]
    for row in prange(len(indptr) - 1):
        kept = np.empty(width, np.float64)
        found = 0
        for i in range(indptr[row], indptr[row + 1]):
            score = scores[i]
            if found < width:
                place = found
                found += 1
            elif score > kept[width - 1]:
                place = width - 1
            else:
                continue
            while place > 0 and kept[place - 1] < score:
                kept[place] = kept[place - 1]
                top[row, place] = top[row, place - 1]
                place -= 1
            kept[place] = score
            top[row, place] = values[i]
        for place in range(found, width):
            top[row, place] = NOTHING


@njit(cache=True, nogil=True)
def count_labels(ranked, correct, predicted_counts, correct_counts):
    """Add up how often each label is predicted, and how often correctly, over places × texts."""
    n_places, n_texts = ranked.shape
    for place in range(n_places):
        for text in range(n_texts):
            label = ranked[place, text]
            if label >= 0:
                predicted_counts[label] += 1
                if correct[place, text]:
                    correct_counts[label] += 1
