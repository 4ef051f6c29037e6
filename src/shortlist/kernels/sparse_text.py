"""Parses sparse rows of the Extreme Classification Repository: `3:0.5 17:1.2`, with or without `label,label` first."""

from __future__ import annotations

import numpy as np

from shortlist.kernels.compile import kernel

SPACE, TAB, RETURN, NEWLINE, COMMA, COLON, DOT, MINUS, PLUS = 32, 9, 13, 10, 44, 58, 46, 45, 43

MAX_VALUE = 3.4e38  # of float32

# Error codes of a row.
OK, NOT_A_PAIR, COLUMN_TOO_LARGE, LABEL_TOO_LARGE, NOT_A_LABEL = range(5)


@kernel
def _parse_integer(data, at):
    """The value, -1 if there is none, and the position after it."""
    value = 0
    start = at
    while 48 <= data[at] <= 57 and at - start < 18:
        value = value * 10 + data[at] - 48
        at += 1
    return (value if at > start else -1), at


@kernel
def _parse_decimal(data, at):
    """The value, the position after it, and whether there is one."""
    sign = 1.0
    if data[at] == MINUS or data[at] == PLUS:
        sign = -1.0 if data[at] == MINUS else 1.0
        at += 1
    mantissa = 0.0
    scale = 0
    digits = 0
    while 48 <= data[at] <= 57:
        mantissa = mantissa * 10.0 + (data[at] - 48)
        at += 1
        digits += 1
    if data[at] == DOT:
        at += 1
        while 48 <= data[at] <= 57:
            mantissa = mantissa * 10.0 + (data[at] - 48)
            scale -= 1
            at += 1
            digits += 1
    if digits == 0:
        return 0.0, at, False
    if data[at] == 101 or data[at] == 69:
        at += 1
        minus = data[at] == MINUS
        if minus or data[at] == PLUS:
            at += 1
        exponent, after = _parse_integer(data, at)
        if exponent < 0:
            return 0.0, at, False
        at = after
        scale += -exponent if minus else exponent
    if mantissa == 0.0:  # 0 · 10^625 would be 0 · ∞
        return 0.0, at, True
    return sign * mantissa * 10.0**scale, at, True


@kernel(inline="always")
def _is_separator(byte):
    return byte == SPACE or byte == TAB or byte == RETURN or byte == NEWLINE


@kernel
def _parse_labels(data, at, n_labels, labels, count):
    """`label,label,…` up to a separator. Returns the error code, the position, and the labels so far."""
    if _is_separator(data[at]):
        return OK, at, count
    start = at
    before = count
    while True:
        label, at = _parse_integer(data, at)
        if label < 0:
            return NOT_A_LABEL, at, count
        if count == before and data[at] == COLON:
            return OK, start, count  # no labels, and not the leading space either
        if label >= n_labels:
            return LABEL_TOO_LARGE, at, count
        labels[count] = label
        count += 1
        if _is_separator(data[at]):
            return OK, at, count
        if data[at] != COMMA:
            return NOT_A_LABEL, at, count
        at += 1


@kernel
def _parse_pairs(data, at, n_columns, columns, values, count):
    """`column:value` or just `column`, up to the end of the line. Returns the error code and the pairs so far."""
    while True:
        while data[at] == SPACE or data[at] == TAB or data[at] == RETURN:
            at += 1
        if data[at] == NEWLINE:
            return OK, count
        column, at = _parse_integer(data, at)
        if column < 0:
            return NOT_A_PAIR, count
        if column >= n_columns:
            return COLUMN_TOO_LARGE, count
        value = 1.0
        if data[at] == COLON:
            value, at, is_number = _parse_decimal(data, at + 1)
            if not is_number or not abs(value) <= MAX_VALUE:
                return NOT_A_PAIR, count
        if not _is_separator(data[at]):
            return NOT_A_PAIR, count
        columns[count] = column
        values[count] = value
        count += 1


@kernel
def parse_rows(data, n_lines, n_labels, n_columns):
    """Parse all lines of `data`, which ends with a newline. Bad rows are empty and have an error code.

    n_labels  number of labels if each line starts with its labels; -1 if it does not

    Returns columns and values of all rows, the number of them per row, the labels of all rows, the number of them per
    row, and the error codes.
    """
    # Every label and every pair takes at least two bytes, including the separator.
    capacity = len(data) // 2 + 1
    columns, values = np.empty(capacity, np.int32), np.empty(capacity, np.float32)
    labels = np.empty(capacity if n_labels >= 0 else 0, np.int32)
    pair_counts, label_counts = np.zeros(n_lines, np.int64), np.zeros(n_lines, np.int64)
    errors = np.zeros(n_lines, np.int64)
    at = 0
    n_pairs = 0
    n_labels_read = 0
    for row in range(n_lines):
        error = OK
        pairs_end = n_pairs
        labels_end = n_labels_read
        if n_labels >= 0:
            error, at, labels_end = _parse_labels(data, at, n_labels, labels, n_labels_read)
        if error == OK:
            error, pairs_end = _parse_pairs(data, at, n_columns, columns, values, n_pairs)
        if error == OK:
            label_counts[row] = labels_end - n_labels_read
            pair_counts[row] = pairs_end - n_pairs
            n_labels_read = labels_end
            n_pairs = pairs_end
        errors[row] = error
        while data[at] != NEWLINE:
            at += 1
        at += 1
    return (
        columns[:n_pairs].copy(),
        values[:n_pairs].copy(),
        pair_counts,
        labels[:n_labels_read].copy(),
        label_counts,
        errors,
    )
