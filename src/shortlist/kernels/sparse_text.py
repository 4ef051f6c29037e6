"""Reading the Extreme Classification Repository's sparse rows: `3:0.5 17:1.2`, with or without `l1,l2` first."""

from __future__ import annotations

from numba import njit

SPACE, TAB, RETURN, NEWLINE, COMMA, COLON, DOT, MINUS, PLUS = 32, 9, 13, 10, 44, 58, 46, 45, 43

LARGEST_VALUE = 3.4e38  # of float32, in which they are kept

# What can be wrong with a row.
FINE, NOT_A_PAIR, COLUMN_TOO_LARGE, LABEL_TOO_LARGE, NOT_A_LABEL = range(5)
# What the counters count.
ROWS, PAIRS, LABELS = range(3)


@njit(cache=True, nogil=True)
def _whole_number(data, at):
    """(value, position after it); -1 if there is no number."""
    value = 0
    start = at
    while 48 <= data[at] <= 57 and at - start < 18:
        value = value * 10 + data[at] - 48
        at += 1
    return (value if at > start else -1), at


@njit(cache=True, nogil=True)
def _decimal_number(data, at):
    """(value, position after it, whether there was one)."""
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
        exponent, after = _whole_number(data, at)
        if exponent < 0:
            return 0.0, at, False
        at = after
        scale += -exponent if minus else exponent
    return sign * mantissa * 10.0**scale, at, True


@njit(cache=True, nogil=True, inline="always")
def _ends_a_field(byte):
    return byte == SPACE or byte == TAB or byte == RETURN or byte == NEWLINE


@njit(cache=True, nogil=True)
def _read_labels(data, at, n_labels, labels, count):
    """`l1,l2,…` up to a space; (wrong, position, labels so far)."""
    if _ends_a_field(data[at]):
        return FINE, at, count
    start = at
    before = count
    while True:
        label, at = _whole_number(data, at)
        if label < 0:
            return NOT_A_LABEL, at, count
        if count == before and data[at] == COLON:
            return FINE, start, count  # no labels, and not even the space that should be in their place
        if label >= n_labels:
            return LABEL_TOO_LARGE, at, count
        labels[count] = label
        count += 1
        if _ends_a_field(data[at]):
            return FINE, at, count
        if data[at] != COMMA:
            return NOT_A_LABEL, at, count
        at += 1


@njit(cache=True, nogil=True)
def _read_pairs(data, at, n_columns, columns, values, count):
    """`column:value` or plain `column` up to the end of the line; (wrong, pairs so far)."""
    while True:
        while data[at] == SPACE or data[at] == TAB or data[at] == RETURN:
            at += 1
        if data[at] == NEWLINE:
            return FINE, count
        column, at = _whole_number(data, at)
        if column < 0:
            return NOT_A_PAIR, count
        if column >= n_columns:
            return COLUMN_TOO_LARGE, count
        value = 1.0
        if data[at] == COLON:
            value, at, fine = _decimal_number(data, at + 1)
            if not fine or not abs(value) <= LARGEST_VALUE:
                return NOT_A_PAIR, count
        if not _ends_a_field(data[at]):
            return NOT_A_PAIR, count
        columns[count] = column
        values[count] = value
        count += 1


@njit(cache=True, nogil=True)
def read_sparse_rows(
    data,
    with_labels,
    n_labels,
    n_columns,
    labels,
    label_counts,
    columns,
    values,
    pair_counts,
    wrong,
    counters,
):
    """Every line of `data`, which ends in a newline, becomes a row; a wrong one is empty and marked."""
    at = 0
    while at < len(data):
        row, pairs, label_count = counters[ROWS], counters[PAIRS], counters[LABELS]
        what = FINE
        labels_now = label_count
        pairs_now = pairs
        if with_labels:
            what, at, labels_now = _read_labels(data, at, n_labels, labels, label_count)
        if what == FINE:
            what, pairs_now = _read_pairs(data, at, n_columns, columns, values, pairs)
        if what != FINE:
            labels_now = label_count
            pairs_now = pairs
        wrong[row] = what
        label_counts[row] = labels_now - label_count
        pair_counts[row] = pairs_now - pairs
        counters[ROWS] = row + 1
        counters[PAIRS] = pairs_now
        counters[LABELS] = labels_now
        while data[at] != NEWLINE:
            at += 1
        at += 1
