"""The k largest of many scores: by insertion into a short sorted list, or by selection among all of them.

Insertion suits short lists and scores that come one by one; selection suits long lists.
"""

from __future__ import annotations

import numpy as np

from shortlist.kernels.native import native
from shortlist.kernels.threads import run_ranges


def best_of_row(logits, first, filled, ids, scores):
    """Insert the columns of each row of `logits`, numbered from `first`, into lists that hold `filled` entries.

    Lists are sorted by decreasing score, then increasing id.
    """
    run_ranges(native.best_of_row, len(logits), 16, logits, first, filled, ids, scores)


def top_columns(scores, k, chosen):
    """The columns of the k largest scores of each row in increasing order; of equal scores the first.

    NaN is larger than any number.
    """
    run_ranges(native.top_columns, len(scores), 8, scores, k, chosen)


def best_of_candidates(ids, odds, k):
    """The k candidates of each text with the largest odds, the largest first, and these; of equal odds the first."""
    k = min(k, ids.shape[1])
    best, best_odds = np.empty((len(ids), k), np.int32), np.empty((len(ids), k), np.float32)
    native.best_of_candidates(ids, np.ascontiguousarray(odds, np.float32), best, best_odds)
    return best, best_odds
