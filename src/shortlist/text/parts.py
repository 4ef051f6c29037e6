"""Parts of words: character n-grams within words, hashed.

They match compounds and inflected forms that share no whole word with a name, in words that no vocabulary has.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from shortlist.arrays import Ragged
from shortlist.kernels.words import hash_parts
from shortlist.text.texts import Texts
from shortlist.text.tokenizer import Tokenizer
from shortlist.text.vocabulary import Vocabulary

N_PARTS = 1 << 17
WORDS_PER_BLOCK = 1 << 16


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
        unweighted = WordParts(vocabulary.tokenizer, np.ones(N_PARTS, np.float32))
        for begin in range(0, len(words), WORDS_PER_BLOCK):
            block = slice(begin, begin + WORDS_PER_BLOCK)
            parts = unweighted.rows(words[block])
            frequencies += np.bincount(parts.values, vocabulary.counts[block][parts.row_ids], N_PARTS)
        n_words = vocabulary.counts[: len(words)].sum()
        idf = np.log((1 + n_words) / (1 + np.minimum(frequencies, n_words))) + 1
        return WordParts(vocabulary.tokenizer, idf.astype(np.float32))

    def rows(self, texts: Sequence[str]) -> Ragged:
        """The parts of each text.

        >>> rows = WordParts(Tokenizer(), np.ones(N_PARTS, np.float32)).rows(["Obstgarten", "Gartenbau"])
        >>> len(np.intersect1d(rows.row(0), rows.row(1)))  # gar, art, rte, ten, gart, arte, rten, garte, arten
        9
        """
        words, ends, counts = self.tokenizer.split_texts(Texts.from_strings(texts))
        starts = np.empty(len(counts) + 1, np.int64)
        parts, weights = np.empty(3 * len(words), np.int32), np.empty(3 * len(words), np.float32)
        n_parts = hash_parts(words, ends, counts, self.idf, starts, parts, weights)
        return Ragged(starts, parts[:n_parts], weights[:n_parts])
