"""Texts as sparse rows for linear classifiers: the words, and beside them how words begin."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import sparse

from shortlist.ragged import Ragged
from shortlist.text.bag import TfIdf
from shortlist.text.tokenizer import Tokenizer
from shortlist.text.vocabulary import Vocabulary

# What "houses" and "housing" share, and what an unknown word shares with known ones. Nearly as good as all parts of
# words (character n-grams), at a fourth of the features: docs/lab-book.md.
BEGINNINGS = (4, 6)
# Weight of the beginnings beside the words.
SHARE = 0.7


@dataclass(frozen=True, eq=False)
class WordFeatures:
    """Two bags, each with tf-idf weights: the columns of the words, then those of the beginnings."""

    words: Vocabulary
    beginnings: Vocabulary
    word_weights: TfIdf
    beginning_weights: TfIdf

    @staticmethod
    def fit(texts: Sequence[str], words: Vocabulary) -> WordFeatures:
        """Learn which beginnings there are, and how common they and the words are."""
        tokenizer = Tokenizer(**{**words.tokenizer.to_config(), "beginnings": BEGINNINGS})
        beginnings, beginning_ids = Vocabulary.build_and_encode(texts, tokenizer, min_count=2)
        return WordFeatures(
            words,
            beginnings,
            TfIdf.fit(words.encode(texts), len(words)),
            TfIdf.fit(beginning_ids, len(beginnings)),
        )

    @property
    def n_features(self) -> int:
        return len(self.words) + len(self.beginnings)

    def transform(self, texts: Sequence[str], word_ids: Ragged | None = None) -> sparse.csr_array:
        """A row a text, at length 1 or, where it has no word or no beginning that is known, shorter.

        `word_ids` where the caller has them already.
        """
        words = self.word_weights.transform(self.words.encode(texts) if word_ids is None else word_ids)
        beginnings = self.beginning_weights.transform(self.beginnings.encode(texts))
        scale = np.float32(1 / np.hypot(1, SHARE))
        return sparse.hstack([words * scale, beginnings * (scale * np.float32(SHARE))], format="csr", dtype=np.float32)
