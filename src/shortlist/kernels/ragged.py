"""Passes over ragged rows of ids."""

from __future__ import annotations

import numpy as np

from shortlist.kernels.native import native

SHORT_ROW = 32  # in c/metrics.c


def first_in_row(indptr, values, n_values):
    """True for each value that does not occur earlier in its row."""
    first = np.empty(len(values), np.bool_)
    native.first_in_row(indptr, values, n_values, first)
    return first


def copy_rows(values, indptr, rows, bounds, out):
    """Copy the given rows end to end; row i of the result is `out[bounds[i]:bounds[i + 1]]`."""
    native.copy_rows(values, indptr, rows, bounds, out)
