"""Parses sparse rows of the Extreme Classification Repository: `3:0.5 17:1.2`, with or without `label,label` first."""

from __future__ import annotations

import numpy as np

from shortlist.kernels.native import native

# Error codes of a row.
OK, NOT_A_PAIR, COLUMN_TOO_LARGE, LABEL_TOO_LARGE, NOT_A_LABEL = range(5)

NEWLINE = ord("\n")


def parse_rows(data, n_lines, n_labels, n_columns):
    """Parse all lines of `data`, which ends with a newline. Bad rows are empty and have an error code.

    n_labels  number of labels if each line starts with its labels; -1 if it does not

    Returns columns and values of all rows, the number of them per row, the labels of all rows, the number of them per
    row, and the error codes.
    """
    if len(data) and data[-1] != NEWLINE:
        raise ValueError("the data does not end with a newline")
    # Every label and every pair takes at least two bytes, including the separator.
    capacity = len(data) // 2
    columns, values = np.empty(capacity, np.int32), np.empty(capacity, np.float32)
    labels = np.empty(capacity if n_labels >= 0 else 0, np.int32)
    pair_counts, label_counts, errors = np.zeros((3, n_lines), np.int64)
    native.parse_rows(data, n_labels, n_columns, columns, values, labels, pair_counts, label_counts, errors)
    n_pairs, n_labels_read = pair_counts.sum(), label_counts.sum()
    return (
        columns[:n_pairs].copy(),
        values[:n_pairs].copy(),
        pair_counts,
        labels[:n_labels_read].copy(),
        label_counts,
        errors,
    )
