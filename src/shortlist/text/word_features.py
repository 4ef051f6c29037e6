"""Texts as sparse rows for linear classifiers: the words, and beside them how words begin and which are neighbours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from shortlist.arrays import Ragged
from shortlist.kernels.words import weigh_texts
from shortlist.lazy import sparse
from shortlist.text.bag import TfIdf
from shortlist.text.vocabulary import Vocabulary

# What "houses" and "housing" share, and what an unknown word shares with known ones. Nearly as good as all parts of
# words (character n-grams), at a fourth of the features: docs/lab-book.md.
BEGINNINGS = (4, 6)
# Neighbouring words by their first so many characters: what "ice cream" says that ice and cream do not.
PAIRS = 4
# Weight of beginnings and pairs beside the words.
SHARE = 1.3


@dataclass(frozen=True, eq=False)
class WordFeatures:
    """Two bags, each with tf-idf weights: the columns of the words, then those of their pieces."""

    words: Vocabulary
    pieces: Vocabulary
    word_weights: TfIdf
    piece_weights: TfIdf

    @staticmethod
    def fit(texts: Sequence[str], words: Vocabulary) -> WordFeatures:
        """Learn which pieces there are, and how common they and the words are."""
        tokenizer = replace(words.tokenizer, beginnings=BEGINNINGS, pairs=PAIRS)
        pieces, piece_ids = Vocabulary.build_and_encode(texts, tokenizer, min_count=2)
        return WordFeatures(
            words,
            pieces,
            TfIdf.fit(words.encode(texts), len(words)),
            TfIdf.fit(piece_ids, len(pieces)),
        )

    @property
    def n_features(self) -> int:
        return len(self.words) + len(self.pieces)

    def rows(self, texts: Sequence[str], word_ids: Ragged | None = None) -> Ragged:
        """For each text the columns, rising, and weights; of length 1 or, with no word or no piece known, shorter.

        `word_ids` where the caller has them already.
        """
        words = self.words.encode(texts) if word_ids is None else word_ids
        pieces = self.pieces.encode(texts)
        most = len(words.values) + len(pieces.values)
        starts = np.empty(len(words) + 1, np.int64)
        columns, values = np.empty(most, np.int32), np.empty(most, np.float32)
        scale = 1 / np.hypot(1, SHARE)
        weigh_texts(
            words.indptr,
            words.values,
            self.word_weights.idf,
            scale,
            pieces.indptr,
            pieces.values,
            self.piece_weights.idf,
            scale * SHARE,
            starts,
            columns,
            values,
        )
        return Ragged(starts, columns[: starts[-1]], values[: starts[-1]])

    def transform(self, texts: Sequence[str], word_ids: Ragged | None = None) -> sparse.csr_array:
        """The same as a matrix."""
        rows = self.rows(texts, word_ids)
        return sparse.csr_array((rows.weights, rows.values, rows.indptr), shape=(len(rows), self.n_features))
