"""Parts of words: character n-grams within words, hashed.

They match compounds and inflected forms that share no whole word with a name, in words that no vocabulary has.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from shortlist.arrays import Ragged, counts_to_indptr
from shortlist.text.texts import Texts
from shortlist.text.tokenizer import Tokenizer
from shortlist.text.vocabulary import Vocabulary

SHORTEST, LONGEST = 3, 5  # characters, with a boundary on either side of a word
BITS = 17
N_PARTS = 1 << BITS
BOUNDARY = ord(" ")
BASE, MIX = np.uint64(0xD1342543DE82EF95), np.uint64(0x9E3779B97F4A7C15)
WORDS_PER_BLOCK = 1 << 16


def hashed_parts(texts: Sequence[str], tokenizer: Tokenizer) -> Ragged:
    """The distinct parts of the words of each text, in ascending order: numbers below `N_PARTS`.

    >>> rows = hashed_parts(["Obstgarten", "Gartenbau"], Tokenizer())
    >>> len(np.intersect1d(rows.row(0), rows.row(1)))  # gar, art, rte, ten, gart, arte, rten, garte, arten
    9
    """
    words, ends, counts = tokenizer.split_texts(Texts.from_strings(texts))
    n_words = len(ends)
    codes = np.frombuffer(words.tobytes().decode().encode("utf-32-le"), np.uint32)
    ends = np.append(0, np.cumsum(words & 0xC0 != 0x80))[ends]  # in characters instead of bytes
    sizes = np.diff(ends, prepend=0)
    word_of = np.repeat(np.arange(n_words), sizes + 2)
    padded = np.full(len(word_of), BOUNDARY, np.uint64)
    padded[np.arange(len(codes)) + 2 * np.repeat(np.arange(n_words), sizes) + 1] = codes
    text_of = np.repeat(np.arange(len(counts)), counts)[word_of]
    hashes, keys = padded, []
    for size in range(2, LONGEST + 1):
        hashes = hashes[:-1] * BASE + padded[size - 1 :]
        if size >= SHORTEST:
            inside = np.flatnonzero(word_of[: len(hashes)] == word_of[size - 1 :])
            parts = (hashes[inside] * MIX) >> np.uint64(64 - BITS)
            keys.append(text_of[inside] << BITS | parts.astype(np.int64))
    distinct = np.unique(np.concatenate(keys))
    indptr = counts_to_indptr(np.bincount(distinct >> BITS, minlength=len(counts)))
    return Ragged(indptr, (distinct & (N_PARTS - 1)).astype(np.int32))


@dataclass(frozen=True, eq=False)
class WordParts:
    """Texts to their parts, with weights: rare parts say more. Rows have length 1.

    idf  of each of the `N_PARTS` numbers
    """

    tokenizer: Tokenizer
    idf: np.ndarray

    @staticmethod
    def of(vocabulary: Vocabulary) -> WordParts:
        """With the frequencies of parts in the words of a vocabulary."""
        frequencies, words = np.zeros(N_PARTS), Texts.from_strings(vocabulary.words)
        for begin in range(0, len(words), WORDS_PER_BLOCK):
            block = slice(begin, begin + WORDS_PER_BLOCK)
            parts = hashed_parts(words[block], vocabulary.tokenizer)
            frequencies += np.bincount(parts.values, vocabulary.counts[block][parts.row_ids], N_PARTS)
        n_words = vocabulary.counts[: len(words)].sum()
        idf = np.log((1 + n_words) / (1 + np.minimum(frequencies, n_words))) + 1
        return WordParts(vocabulary.tokenizer, idf.astype(np.float32))

    def rows(self, texts: Sequence[str]) -> Ragged:
        parts = hashed_parts(texts, self.tokenizer)
        weights = self.idf[parts.values]
        lengths = np.sqrt(np.bincount(parts.row_ids, weights**2, len(parts)))
        lengths[lengths == 0] = 1
        return Ragged(parts.indptr, parts.values, (weights / lengths[parts.row_ids]).astype(np.float32))
