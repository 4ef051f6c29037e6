"""Passes over ragged rows of ids."""

from __future__ import annotations

import numpy as np

from shortlist.kernels.compile import kernel

SHORT_ROW = 32


@kernel
def first_in_row(indptr, values, n_values):
    """True for each value that does not occur earlier in its row."""
    # Short rows are searched, so that a few short rows out of millions of values need no array over all values.
    last_row = np.empty(0, np.int64)
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
        if len(last_row) == 0:
            last_row = np.full(n_values, -1, np.int64)
        for i in range(start, end):
            first[i] = last_row[values[i]] != row
            last_row[values[i]] = row
    return first


@kernel
def copy_rows(values, indptr, rows, bounds, out):
    """Copy the given rows end to end; row i of the result is `out[bounds[i]:bounds[i + 1]]`."""
    for i in range(len(rows)):
        start = indptr[rows[i]]
        for j in range(bounds[i + 1] - bounds[i]):
            out[bounds[i] + j] = values[start + j]
