"""Split UTF-8 texts into words, look the words up and weight them, without a Python object per word."""

from __future__ import annotations

from shortlist.kernels.native import native

# Kinds of characters. NOTHING is dropped without ending a word. MARK is part of a word that has begun, else dropped.
SPACE, WORD, ALONE, NOTHING, MARK = range(5)


def ascii_rows(buffer, offsets, plain):
    """Set `plain` for each text that is ASCII only."""
    native.ascii_rows(buffer, offsets, plain)


def split_words(buffer, offsets, kinds, words, word_ends, word_counts):
    """Write the words of all texts end to end into `words` and their ends into `word_ends`; returns their number.

    The texts must be valid UTF-8. `kinds` is the kind of each code point. ASCII becomes lower case; other characters
    must be in lower case already.
    """
    return native.split_words(buffer, offsets, kinds, words, word_ends, word_counts)


def cut_pieces(words, word_ends, word_counts, sizes, pair_size, out, ends, counts):
    """Write the prefixes and adjacent pairs of words, in the format of `split_words`; returns their number.

    For each word, its prefixes of `sizes` characters, as far as it is longer; and if `pair_size` is above zero, the
    prefixes of that size of the previous word and of this word, with a space between.
    """
    return native.cut_pieces(words, word_ends, word_counts, sizes, pair_size, out, ends, counts)


def look_up(table, n_words, parts, shortest, longest, of_all, words, word_ends, word_counts, ids, id_counts):
    """Write the ids of all words, row by row; returns their number.

    Strings of the table from `n_words` on are stop words and left out. A word that is not in the table is left out
    too, or if `longest` is above zero, replaced by its subwords of `shortest` to `longest` characters that are in the
    table `parts`; their ids start at `n_words`. If `of_all`, the subwords of a word in the table follow it, too.
    Subwords are those of the word between "<" and ">", of which the first 256 bytes count.
    """
    return native.look_up(
        table, n_words, parts, shortest, longest, of_all, words, word_ends, word_counts, ids, id_counts
    )


def hash_parts(words, word_ends, word_counts, idf, starts, parts, weights):
    """Write the distinct parts of the words of each text, sorted, with their idf, scaled to length 1; returns how many.

    Parts are the 3 to 5 characters that stand side by side in a word, with a space on either side of it, hashed to the
    numbers of `idf`. There are at most three for each byte of the words.
    """
    return native.hash_parts(words, word_ends, word_counts, idf, starts, parts, weights)


def weigh_texts(indptr, words, idf, length, more_indptr, more, more_idf, more_length, starts, columns, values):
    """Two bags of words per text side by side, as sparse rows; the second one's columns follow the first one's.

    Each bag has its distinct ids, sorted, with tf-idf weights scaled to its length.
    """
    native.weigh_texts(indptr, words, idf, length, more_indptr, more, more_idf, more_length, starts, columns, values)
