"""The loops behind the metrics. Each text is independent, so results do not depend on the number of threads."""

from __future__ import annotations

import numpy as np

from shortlist.kernels.native import native
from shortlist.kernels.threads import run_ranges

NOTHING = np.int32(-1)
MINIMUM = 1024  # rows that are worth a thread


def sort_rows(indptr, values, first):
    """Sort each row of `values` in place, and mark in `first` the values that differ from the one before."""
    run_ranges(native.sort_rows, len(indptr) - 1, MINIMUM, indptr, values, first)


def find_hits(predictions, indptr, truth, ranked, correct):
    """Transpose predictions (texts × places) to places × texts, drop repeated labels, and mark the correct ones.

    Rows of `truth` are sorted. A label that occurs earlier in its row becomes `NOTHING`.
    """
    run_ranges(native.find_hits, len(predictions), MINIMUM, predictions, indptr, truth, ranked, correct)


def best_gains(indptr, truth, gains, best):
    """The largest gains among each text's true labels, the largest first, then zeros (places × texts)."""
    run_ranges(native.best_gains, len(indptr) - 1, MINIMUM, indptr, truth, gains, best)


def top_of_rows(indptr, values, scores, top):
    """The values with the largest scores of each row, the largest first; of equal scores the first value."""
    run_ranges(native.top_of_rows, len(top), MINIMUM, indptr, values, scores, top)


def count_labels(ranked, correct, predicted_counts, correct_counts):
    """Count how often each label is predicted, and how often correctly (places × texts)."""
    native.count_labels(ranked, correct, predicted_counts, correct_counts)
