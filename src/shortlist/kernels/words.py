"""Split UTF-8 texts into words, look the words up and weight them, without a Python object per word."""

from __future__ import annotations

import math

import numpy as np

from shortlist.kernels.compile import kernel
from shortlist.kernels.strings import EMPTY, find_slot

# Kinds of characters. NOTHING is dropped without ending a word. MARK is part of a word that has begun, else dropped.
SPACE, WORD, ALONE, NOTHING, MARK = range(5)

STEM_START, STEM_END = 60, 62  # "<" and ">" around a word that is cut into subwords


@kernel
def ascii_rows(buffer, offsets, plain):
    """Set `plain` for each text that is ASCII only."""
    for row in range(len(plain)):
        plain[row] = True
        for i in range(offsets[row], offsets[row + 1]):
            if buffer[i] > 127:
                plain[row] = False
                break


@kernel(inline="always")
def _character(data, at):
    """(code point, number of bytes) of a UTF-8 character; the data must be valid."""
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
def _next_character(data, at, end):
    """Where the UTF-8 character after the one at `at` begins, or `end`."""
    at += 1
    while at < end and data[at] & 0xC0 == 0x80:
        at += 1
    return at


@kernel
def split_words(buffer, offsets, kinds, words, word_ends, word_counts):
    """Write the words of all texts end to end into `words` and their ends into `word_ends`; returns their number.

    `kinds` is the kind of each code point. ASCII becomes lower case; other characters must be in lower case already.
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
                if size == 1 and 65 <= code <= 90:
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
def cut_pieces(words, word_ends, word_counts, sizes, pair_size, out, ends, counts):
    """Write the prefixes and adjacent pairs of words, in the format of `split_words`; returns their number.

    For each word, its prefixes of `sizes` characters, as far as it is longer; and if `pair_size` is above zero, the
    prefixes of that size of the previous word and of this word, with a space between.
    """
    filled = count = word = start = 0
    for row in range(len(word_counts)):
        before = before_end = 0  # the prefix of the previous word
        counts[row] = 0
        for place in range(word_counts[row]):
            end = word_ends[word]
            for size in sizes:
                at = _prefix_end(words, start, end, size)
                if at < end:
                    filled = _put(out, filled, words, start, at)
                    ends[count] = filled
                    count += 1
                    counts[row] += 1
            if pair_size:
                at = _prefix_end(words, start, end, pair_size)
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
    return count


@kernel
def _prefix_end(words, start, end, size):
    """Where the first `size` characters end, or the word if it is shorter."""
    for _ in range(size):
        if start < end:
            start = _next_character(words, start, end)
    return start


@kernel
def _put(out, filled, words, start, end):
    out[filled : filled + end - start] = words[start:end]
    return filled + end - start


@kernel
def look_up(table, n_words, parts, shortest, longest, of_all, words, word_ends, word_counts, ids, id_counts):
    """Write the ids of all words, row by row; returns their number.

    Strings of the table from `n_words` on are stop words and left out. A word that is not in the table is left out
    too, or if `longest` is above zero, replaced by its subwords of `shortest` to `longest` characters that are in the
    table `parts`; their ids start at `n_words`. If `of_all`, the subwords of a word in the table follow it, too.
    """
    filled = 0
    start = 0
    word = 0
    stem = np.empty(256, np.uint8)
    for row in range(len(word_counts)):
        before = filled
        for _ in range(word_counts[row]):
            end = word_ends[word]
            slot = find_slot(table, words, start, end)
            known = table[0][slot]
            if known != EMPTY and known < n_words:
                ids[filled] = known
                filled += 1
            if longest > 0 and (known == EMPTY or (of_all and known < n_words)):
                size = _stem(words, start, end, stem)
                filled = _look_up_parts(parts, n_words, shortest, longest, stem, size, ids, filled)
            start = end
            word += 1
        id_counts[row] = filled - before
    return filled


@kernel
def _stem(words, start, end, stem):
    """Copy the word into the buffer between "<" and ">", cut to fit; returns the number of bytes."""
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
            last = _next_character(stem, last, size)
            if length >= shortest:
                slot = find_slot(parts, stem, first, last)
                if parts[0][slot] != EMPTY:
                    ids[filled] = n_words + parts[0][slot]
                    filled += 1
        first = _next_character(stem, first, size)
    return filled


@kernel
def _append_weighted(ids, idf, length, first, columns, values, filled):
    """Append a text's distinct ids, sorted, with tf-idf weights scaled to this length; returns the new end."""
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
    """Two bags of words per text side by side, as sparse rows; the second one's columns follow the first one's."""
    filled = 0
    for text in range(len(indptr) - 1):
        starts[text] = filled
        own = words[indptr[text] : indptr[text + 1]]
        filled = _append_weighted(own, idf, length, 0, columns, values, filled)
        own = more[more_indptr[text] : more_indptr[text + 1]]
        filled = _append_weighted(own, more_idf, more_length, len(idf), columns, values, filled)
    starts[len(indptr) - 1] = filled
