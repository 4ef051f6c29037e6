"""Small passes over rows of ids."""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def first_in_row(indptr, values, n_values):
    """True for every value that did not stand earlier in its row."""
    seen_in = np.full(n_values, -1, np.int64)
    first = np.empty(len(values), np.bool_)
    for row in range(len(indptr) - 1):
        for i in range(indptr[row], indptr[row + 1]):
            first[i] = seen_in[values[i]] != row
            seen_in[values[i]] = row
    return first
