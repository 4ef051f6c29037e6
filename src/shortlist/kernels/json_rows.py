"""Reading `{"text": …, "labels": […]}` lines at the speed of the disk.

The scanner knows the common shape only: one object a line, the text a string, the labels a list of
strings or whole numbers, other fields plain values. At the first line of any other shape, or with anything
wrong in it, it stops and says where: the caller reads that line with a real JSON parser, which also words
the complaints.
"""

from __future__ import annotations

import numpy as np
from numba import njit

QUOTE, BACKSLASH, NEWLINE, COMMA, COLON = 34, 92, 10, 44, 58
OPEN_LIST, CLOSE_LIST, OPEN_OBJECT, CLOSE_OBJECT = 91, 93, 123, 125
ODD = -1  # in place of a position: not something the scanner reads

LITERALS = tuple(np.frombuffer(word, np.uint8) for word in (b"true", b"false", b"null"))

# What the counters of `scan_rows` count.
ROWS, TEXT_BYTES, LABELS, LABEL_BYTES, LINES = range(5)


@njit(cache=True, nogil=True, inline="always")
def _skip_space(data, at):
    # The newline that ends the line is not space: every line ends in one, so no bound is needed.
    while data[at] == 32 or data[at] == 9 or data[at] == 13:
        at += 1
    return at


@njit(cache=True, nogil=True)
def utf8_length(data, at, end):
    """Bytes of the UTF-8 character that starts here with a byte above 127; 0 if it is not valid."""
    first = data[at]
    if first < 0xC2 or first > 0xF4:
        return 0
    size = 2 if first < 0xE0 else (3 if first < 0xF0 else 4)
    if at + size > end:
        return 0
    for i in range(1, size):
        if data[at + i] & 0xC0 != 0x80:
            return 0
    second = data[at + 1]
    too_long = (first == 0xE0 and second < 0xA0) or (first == 0xF0 and second < 0x90)
    surrogate = first == 0xED and second > 0x9F
    beyond = first == 0xF4 and second > 0x8F
    if too_long or surrogate or beyond:
        return 0
    return size


@njit(cache=True, nogil=True)
def _hex_value(data, at):
    value = 0
    for i in range(4):
        digit = data[at + i]
        if 48 <= digit <= 57:
            digit -= 48
        elif 97 <= digit <= 102:
            digit -= 87
        elif 65 <= digit <= 70:
            digit -= 55
        else:
            return -1
        value = value * 16 + digit
    return value


@njit(cache=True, nogil=True)
def _copy_surrogates(data, at, end, high, out, filled):
    """The character beyond 0xFFFF that two escapes make together; the `u` of the first is at `at`."""
    if high > 0xDBFF or at + 11 > end or data[at + 5] != BACKSLASH or data[at + 6] != 117:
        return ODD, filled
    low = _hex_value(data, at + 7)
    if not 0xDC00 <= low <= 0xDFFF:
        return ODD, filled
    code = 0x10000 + ((high - 0xD800) << 10) + low - 0xDC00
    out[filled] = 0xF0 | (code >> 18)
    out[filled + 1] = 0x80 | ((code >> 12) & 0x3F)
    out[filled + 2] = 0x80 | ((code >> 6) & 0x3F)
    out[filled + 3] = 0x80 | (code & 0x3F)
    return at + 11, filled + 4


@njit(cache=True, nogil=True)
def _copy_escape(data, at, end, out, filled):
    """Write the character of the escape whose letter is at `at`; (position after it, filled)."""
    letter = data[at]
    if letter == 117:  # u
        if at + 5 > end:
            return ODD, filled
        code = _hex_value(data, at + 1)
        if 0xD800 <= code <= 0xDFFF:
            return _copy_surrogates(data, at, end, code, out, filled)
        if code <= 0:  # NUL, or not hexadecimal
            return ODD, filled
        if code < 0x80:
            out[filled] = code
            return at + 5, filled + 1
        if code < 0x800:
            out[filled] = 0xC0 | (code >> 6)
            out[filled + 1] = 0x80 | (code & 0x3F)
            return at + 5, filled + 2
        out[filled] = 0xE0 | (code >> 12)
        out[filled + 1] = 0x80 | ((code >> 6) & 0x3F)
        out[filled + 2] = 0x80 | (code & 0x3F)
        return at + 5, filled + 3
    if letter == QUOTE or letter == BACKSLASH or letter == 47:
        out[filled] = letter
    elif letter == 110:
        out[filled] = 10
    elif letter == 116:
        out[filled] = 9
    elif letter == 114:
        out[filled] = 13
    elif letter == 98:
        out[filled] = 8
    elif letter == 102:
        out[filled] = 12
    else:
        return ODD, filled
    return at + 1, filled + 1


@njit(cache=True, nogil=True)
def _copy_string(data, at, end, out, filled):
    """Unescape the string that starts after the quote into `out`; (position after it, filled)."""
    while at < end:
        byte = data[at]
        if byte == QUOTE:
            return at + 1, filled
        if byte == BACKSLASH:
            at, filled = _copy_escape(data, at + 1, end, out, filled)
            if at == ODD:
                return ODD, filled
        elif byte < 32:
            return ODD, filled
        elif byte < 128:
            out[filled] = byte
            filled += 1
            at += 1
        else:
            size = utf8_length(data, at, end)
            if size == 0:
                return ODD, filled
            for i in range(size):
                out[filled + i] = data[at + i]
            filled += size
            at += size
    return ODD, filled


@njit(cache=True, nogil=True)
def _skip_digits(data, at):
    start = at
    while 48 <= data[at] <= 57:
        at += 1
    return at if at > start else ODD


@njit(cache=True, nogil=True)
def _skip_number(data, at):
    if data[at] == 45:
        at += 1
    leading_zero = data[at] == 48
    start = at
    at = _skip_digits(data, at)
    if at == ODD or (leading_zero and at - start > 1):
        return ODD
    if data[at] == 46:
        at = _skip_digits(data, at + 1)
        if at == ODD:
            return ODD
    if data[at] == 101 or data[at] == 69:
        at += 1
        if data[at] == 43 or data[at] == 45:
            at += 1
        at = _skip_digits(data, at)
    return at


@njit(cache=True, nogil=True)
def _skip_plain(data, at):
    """A number, true, false or null."""
    for word in LITERALS:
        if data[at] == word[0]:
            for letter in word:  # stops at the end of the line at the latest
                if data[at] != letter:
                    return ODD
                at += 1
            return at
    return _skip_number(data, at)


@njit(cache=True, nogil=True)
def _copy_whole_number(data, at, out, filled):
    """Digits as they stand; what follows them is for the caller to check. Signs are left to the parser."""
    start = at
    while 48 <= data[at] <= 57:
        out[filled] = data[at]
        filled += 1
        at += 1
    if at == start or (data[start] == 48 and at - start > 1):
        return ODD, filled
    return at, filled


@njit(cache=True, nogil=True)
def _same(data, start, end, key):
    if end - start != len(key):
        return False
    for i in range(len(key)):
        if data[start + i] != key[i]:
            return False
    return True


@njit(cache=True, nogil=True)
def _is_blank(data, start, end):
    for i in range(start, end):
        if data[i] != 32 and data[i] != 9 and data[i] != 10 and data[i] != 13:
            return False
    return True


@njit(cache=True, nogil=True)
def _scan_line(data, at, end, text_key, labels_key, text, text_filled, label, label_filled, label_sizes, labels):
    """One object; (whether it was understood, text bytes, label bytes, labels) filled so far."""
    odd = (False, text_filled, label_filled, labels)
    has_text = False
    has_labels = False
    if data[at] != OPEN_OBJECT:
        return odd
    at = _skip_space(data, at + 1)
    while True:
        if data[at] != QUOTE:
            return odd
        key_start = at + 1
        key_end = key_start
        while key_end < end and data[key_end] != QUOTE:
            if data[key_end] == BACKSLASH or data[key_end] < 32 or data[key_end] > 127:
                return odd
            key_end += 1
        at = _skip_space(data, min(key_end + 1, end))
        if data[at] != COLON:
            return odd
        at = _skip_space(data, at + 1)
        if _same(data, key_start, key_end, text_key):
            if has_text or data[at] != QUOTE:
                return odd
            has_text = True
            at, text_filled = _copy_string(data, at + 1, end, text, text_filled)
        elif _same(data, key_start, key_end, labels_key):
            if has_labels or data[at] != OPEN_LIST:
                return odd
            has_labels = True
            at = _skip_space(data, at + 1)
            if data[at] == CLOSE_LIST:
                at += 1
            else:
                while True:
                    before = label_filled
                    if data[at] == QUOTE:
                        at, label_filled = _copy_string(data, at + 1, end, label, label_filled)
                    else:
                        at, label_filled = _copy_whole_number(data, at, label, label_filled)
                    if at == ODD or _is_blank(label, before, label_filled):
                        return odd
                    label_sizes[labels] = label_filled - before
                    labels += 1
                    at = _skip_space(data, at)
                    if data[at] == CLOSE_LIST:
                        at += 1
                        break
                    if data[at] != COMMA:
                        return odd
                    at = _skip_space(data, at + 1)
        elif data[at] == QUOTE:
            # A field nobody asked for: check it and forget it (what is written here is overwritten).
            at, _ = _copy_string(data, at + 1, end, text, text_filled)
        else:
            at = _skip_plain(data, at)
        if at == ODD:
            return odd
        at = _skip_space(data, at)
        if data[at] == CLOSE_OBJECT:
            break
        if data[at] != COMMA:
            return odd
        at = _skip_space(data, at + 1)
    at = _skip_space(data, at + 1)
    return at == end and has_text and has_labels, text_filled, label_filled, labels


@njit(cache=True, nogil=True)
def scan_rows(data, at, text_key, labels_key, text, text_sizes, label, label_sizes, label_counts, counters):
    """Read lines from position `at` on until the data ends or a line is odd; the position reached.

    The data must end in a newline. Text and label bytes are put end to end into `text` and `label`, their
    sizes into `text_sizes` and `label_sizes`, and how many labels each row has into `label_counts`. No
    output can outgrow the data itself, which is how large the caller makes them.
    """
    size = len(data)
    while at < size:
        end = at
        while data[end] != NEWLINE:
            end += 1
        start = _skip_space(data, at)
        if start < end:
            rows, text_filled, labels, label_filled = (
                counters[ROWS],
                counters[TEXT_BYTES],
                counters[LABELS],
                counters[LABEL_BYTES],
            )
            understood, text_now, label_now, labels_now = _scan_line(
                data,
                start,
                end,
                text_key,
                labels_key,
                text,
                text_filled,
                label,
                label_filled,
                label_sizes,
                labels,
            )
            if not understood:
                return at
            text_sizes[rows] = text_now - text_filled
            label_counts[rows] = labels_now - labels
            counters[ROWS] = rows + 1
            counters[TEXT_BYTES] = text_now
            counters[LABELS] = labels_now
            counters[LABEL_BYTES] = label_now
        counters[LINES] += 1
        at = end + 1
    return at


def new_counters() -> np.ndarray:
    return np.zeros(5, np.int64)
