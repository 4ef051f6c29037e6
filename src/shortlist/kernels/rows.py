"""Small passes over rows of ids."""

from __future__ import annotations

import numpy as np
from numba import njit

SHORT_ROW = 32


@njit(cache=True, nogil=True)
def first_in_row(indptr, values, n_values):
    """True for every value that did not stand earlier in its row."""
    # The memory of where a value was seen is made for long rows only: a call with a few short rows out of
    # millions of values costs next to nothing.
    seen_in = np.empty(0, np.int64)
    first = np.ones(len(values), np.bool_)
    for row in range(len(indptr) - 1):
        start, end = indptr[row], indptr[row + 1]
        if end - start <= SHORT_ROW:
            for i in range(start, end):
                for earlier in range(start, i):
                    if values[earlier] == values[i]:
                        first[i] = False
                        break
            continue
        if len(seen_in) == 0:
            seen_in = np.full(n_values, -1, np.int64)
        for i in range(start, end):
            first[i] = seen_in[values[i]] != row
            seen_in[values[i]] = row
    return first


@njit(cache=True, nogil=True)
def copy_rows(values, indptr, rows, bounds, out):
    """Put the chosen rows end to end; row i of the result is `out[bounds[i]:bounds[i + 1]]`."""
    for i in range(len(rows)):
        start = indptr[rows[i]]
        for j in range(bounds[i + 1] - bounds[i]):
            out[bounds[i] + j] = values[start + j]
