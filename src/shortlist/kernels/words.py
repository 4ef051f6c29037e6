"""Splitting UTF-8 text into words and looking them up, without a Python object per word."""

from __future__ import annotations

import math

import numpy as np

from shortlist.kernels.compile import kernel
from shortlist.kernels.strings import EMPTY, find_slot, hash_bytes

# What a character is to the tokenizer.
# NOTHING: dropped without ending the word it stands in. MARK: part of a word that has begun, else nothing.
SPACE, WORD, ALONE, NOTHING, MARK = range(5)

STEM_START, STEM_END = 60, 62  # "<" and ">" around a word before its parts are taken

TAB, NEWLINE, ZERO, NINE = 9, 10, 48, 57


@kernel
def ascii_rows(buffer, offsets):
    """True for every text that has only ASCII bytes."""
    plain = np.empty(len(offsets) - 1, np.bool_)
    for row in range(len(plain)):
        plain[row] = True
        for i in range(offsets[row], offsets[row + 1]):
            if buffer[i] > 127:
                plain[row] = False
                break
    return plain


@kernel(inline="always")
def _character(data, at):
    """(code point, bytes) of the UTF-8 character here; the data is known to be valid."""
    first = np.int64(data[at])
    if first < 0x80:
        return first, 1
    if first < 0xE0:
        return (first & 0x1F) << 6 | np.int64(data[at + 1]) & 0x3F, 2
    if first < 0xF0:
        return (first & 0x0F) << 12 | (np.int64(data[at + 1]) & 0x3F) << 6 | np.int64(data[at + 2]) & 0x3F, 3
    high = (first & 0x07) << 18 | (np.int64(data[at + 1]) & 0x3F) << 12
    return high | (np.int64(data[at + 2]) & 0x3F) << 6 | np.int64(data[at + 3]) & 0x3F, 4


@kernel
def split_words(buffer, offsets, kinds, lowercase, words, word_ends, word_counts):
    """Write the words of all texts end to end into `words`, their ends into `word_ends`; how many there are.

    `kinds` says for every code point what it is to the tokenizer. Lower-casing here is for ASCII only: texts
    with other letters come already lower-cased.
    """
    filled = 0
    count = 0
    for row in range(len(offsets) - 1):
        start_count = count
        word_start = filled
        at = offsets[row]
        end = offsets[row + 1]
        while at < end:
            code, size = _character(buffer, at)
            kind = kinds[code]
            if kind == WORD or (kind == MARK and filled > word_start):
                if size == 1 and lowercase and 65 <= code <= 90:
                    words[filled] = np.uint8(code + 32)
                    filled += 1
                else:
                    for i in range(size):
                        words[filled] = buffer[at + i]
                        filled += 1
            elif kind != NOTHING and kind != MARK:
                if filled > word_start:
                    word_ends[count] = filled
                    count += 1
                    word_start = filled
                if kind == ALONE:
                    for i in range(size):
                        words[filled] = buffer[at + i]
                        filled += 1
                    word_ends[count] = filled
                    count += 1
                    word_start = filled
            at += size
        if filled > word_start:
            word_ends[count] = filled
            count += 1
        word_counts[row] = count - start_count
    return count


@kernel
def cut_pieces(words, word_ends, word_counts, sizes, pair_size):
    """What stands for the words instead of them, as `split_words` gives words.

    Of every word its first so many characters, for each size it is longer than; and where `pair_size` is above zero,
    the first so many of it after those of the word before, with a space between.
    """
    out = np.empty(len(words) * (len(sizes) + 2) + len(word_ends), np.uint8)
    ends = np.empty(len(word_ends) * (len(sizes) + 1), np.int64)
    counts = np.zeros(len(word_counts), np.int64)
    filled = count = word = start = 0
    for row in range(len(word_counts)):
        before = before_end = 0  # the beginning of the word before
        for place in range(word_counts[row]):
            end = word_ends[word]
            for size in sizes:
                at = _end_of_beginning(words, start, end, size)
                if at < end:
                    filled = _put(out, filled, words, start, at)
                    ends[count] = filled
                    count += 1
                    counts[row] += 1
            if pair_size:
                at = _end_of_beginning(words, start, end, pair_size)
                if place:
                    filled = _put(out, filled, words, before, before_end)
                    out[filled] = 0x20
                    filled = _put(out, filled + 1, words, start, at)
                    ends[count] = filled
                    count += 1
                    counts[row] += 1
                before, before_end = start, at
            start = end
            word += 1
    return out[:filled], ends[:count], counts


@kernel
def _end_of_beginning(words, start, end, size):
    """Where the first so many characters end, or the word, if it is shorter."""
    n = 0
    while start < end and n < size:
        start += 1
        while start < end and words[start] & 0xC0 == 0x80:
            start += 1
        n += 1
    return start


@kernel
def _put(out, filled, words, start, end):
    out[filled : filled + end - start] = words[start:end]
    return filled + end - start


@kernel
def look_up(table, n_words, parts, shortest, longest, words, word_ends, word_counts, ids, id_counts):
    """The ids of all words, row by row; how many ids were written.

    Strings of the table from `n_words` on are stop words and left out. A word that is not in the table is
    left out, too; or, when `longest` is above zero, replaced by those of its parts of `shortest` to `longest`
    characters that the table `parts` holds, numbered from `n_words` on.
    """
    filled = 0
    start = 0
    word = 0
    stem = np.empty(256, np.uint8)
    for row in range(len(word_counts)):
        before = filled
        for _ in range(word_counts[row]):
            end = word_ends[word]
            slot = find_slot(table, words, start, end, hash_bytes(words, start, end))
            known = table[0][slot]
            if known == EMPTY:
                if longest > 0:
                    size = _stem(words, start, end, stem)
                    filled = _look_up_parts(parts, n_words, shortest, longest, stem, size, ids, filled)
            elif known < n_words:
                ids[filled] = known
                filled += 1
            start = end
            word += 1
        id_counts[row] = filled - before
    return filled


@kernel
def _stem(words, start, end, stem):
    """The word between its marks, cut to what the buffer holds; how many bytes."""
    size = min(end - start, len(stem) - 2)
    while size < end - start and words[start + size] & 0xC0 == 0x80:
        size -= 1  # never cut inside a character
    stem[0] = STEM_START
    for i in range(size):
        stem[i + 1] = words[start + i]
    stem[size + 1] = STEM_END
    return size + 2


@kernel
def _look_up_parts(parts, n_words, shortest, longest, stem, size, ids, filled):
    first = 0
    while first < size:
        last = first
        for length in range(1, longest + 1):
            if last >= size:
                break
            last += 1
            while last < size and stem[last] & 0xC0 == 0x80:
                last += 1
            if length >= shortest:
                slot = find_slot(parts, stem, first, last, hash_bytes(stem, first, last))
                if parts[0][slot] != EMPTY:
                    ids[filled] = n_words + parts[0][slot]
                    filled += 1
        first += 1
        while first < size and stem[first] & 0xC0 == 0x80:
            first += 1
    return filled


@kernel
def read_counts(data, words, ends, counts):
    """Take lines of a word, a tab and its count apart; an empty line parts the words from what follows.

    Gives how many words there are before the empty line (-1 if there is none), how many lines of words in all, and
    the number of the first line, from 1, that is something else (0 for none).
    """
    count, filled, before, line = 0, 0, -1, 0
    start = 0
    while start < len(data):
        line += 1
        end = start
        while end < len(data) and data[end] != NEWLINE:
            end += 1
        if end == start:
            if before >= 0:
                return before, count, line
            before = count
            start = end + 1
            continue
        digit = end
        while digit > start and ZERO <= data[digit - 1] <= NINE:
            digit -= 1
        if digit == end or digit == start or data[digit - 1] != TAB or end - digit > 18:
            return before, count, line
        number = 0
        for i in range(digit, end):
            number = 10 * number + (data[i] - ZERO)
        for i in range(start, digit - 1):
            words[filled] = data[i]
            filled += 1
        ends[count], counts[count] = filled, number
        count += 1
        start = end + 1
    return before, count, 0


@kernel
def _weigh(ids, idf, length, first, columns, values, filled):
    """Behind what is filled, the distinct ids of a text, rising, with tf-idf weights of this length together."""
    ids = np.sort(ids)
    begin, square = filled, 0.0
    i = 0
    while i < len(ids):
        same = i + 1
        while same < len(ids) and ids[same] == ids[i]:
            same += 1
        weight = (1 + math.log(same - i)) * idf[ids[i]]
        columns[filled], values[filled] = first + ids[i], weight
        square += weight * weight
        filled += 1
        i = same
    if square > 0:
        values[begin:filled] *= length / math.sqrt(square)
    return filled


@kernel
def weigh_texts(indptr, words, idf, length, more_indptr, more, more_idf, more_length, starts, columns, values):
    """Two bags of each text side by side, as sparse rows; the columns of the second follow those of the first."""
    filled = 0
    for text in range(len(indptr) - 1):
        starts[text] = filled
        own = words[indptr[text] : indptr[text + 1]]
        filled = _weigh(own, idf, length, 0, columns, values, filled)
        own = more[more_indptr[text] : more_indptr[text + 1]]
        filled = _weigh(own, more_idf, more_length, len(idf), columns, values, filled)
    starts[len(indptr) - 1] = filled
