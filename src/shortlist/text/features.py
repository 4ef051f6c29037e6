"""Sparse features of texts: tf-idf over words, and the lexical features of the re-ranker."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from shortlist.arrays import Ragged
from shortlist.kernels.words import weigh_texts
from shortlist.lazy import sparse
from shortlist.text.vocabulary import Vocabulary

# Prefixes match inflected forms ("houses", "housing") and words that are not in the vocabulary. They are nearly as
# accurate as all character n-grams with a quarter of the features: docs/lab-book.md.
PREFIX_LENGTHS = (4, 6)
BIGRAM_PREFIX_LENGTH = 4
NGRAM_WEIGHT = 1.3  # relative to the words


@dataclass(frozen=True, eq=False)
class TfIdf:
    """Sublinear tf-idf: (1 + log tf) · idf with idf = log((1 + N) / (1 + df)) + 1; rows have unit length.

    >>> word_ids = Ragged.from_lists([[0, 1], [0]])
    >>> print(TfIdf.fit(word_ids, n_words=2).transform(word_ids).toarray().round(2))
    [[0.58 0.81]
     [1.   0.  ]]
    """

    idf: np.ndarray

    @staticmethod
    def fit(word_ids: Ragged, n_words: int) -> TfIdf:
        """Compute the idf of every word from the word ids of the training texts; 1 if they come with weights."""
        if word_ids.weights is not None:
            return TfIdf(np.ones(n_words, np.float32))
        document_frequencies = np.bincount(word_ids.to_csr(n_words).indices, minlength=n_words)
        idf = np.log((1 + len(word_ids)) / (1 + document_frequencies)) + 1
        return TfIdf(idf.astype(np.float32))

    def transform(self, word_ids: Ragged) -> sparse.csr_array:
        """Return a matrix with one row per text and one column per word."""
        features = word_ids.to_csr(len(self.idf))
        sublinear = 1 + np.log(features.data) if word_ids.weights is None else features.data
        features.data = sublinear * self.idf[features.indices]
        return normalize_sparse_rows(features)


def normalize_sparse_rows(matrix: sparse.csr_array) -> sparse.csr_array:
    """Scale every row to Euclidean length 1; empty rows stay empty."""
    rows = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    lengths = np.sqrt(np.bincount(rows, matrix.data**2, matrix.shape[0])).astype(np.float32)
    lengths[lengths == 0] = 1
    return sparse.csr_array((matrix.data / lengths[rows], matrix.indices, matrix.indptr), shape=matrix.shape)


class Words(Protocol):
    """A `Vocabulary`; or the columns of features, which are words that come with weights."""

    def __len__(self) -> int: ...

    def encode(self, inputs: Any) -> Ragged: ...


@dataclass(frozen=True, eq=False)
class LexicalFeatures:
    """Tf-idf over words, 4- and 6-character prefixes, and adjacent word pairs.

    The columns of `words` come first, then those of `ngrams`: the prefixes, and the pairs by the first four
    characters of both words.

    >>> texts = ["ice cream", "ice creams", "hot ice"]
    >>> features = LexicalFeatures.fit(texts, Vocabulary.build(texts))
    >>> features.words.words, features.ngrams.words
    (['ice', 'cream', 'creams', 'hot'], ['crea', 'ice crea'])
    >>> features.transform(["creamy ice"]).indices.tolist()
    [0, 4]
    """

    words: Words
    ngrams: Vocabulary
    words_tfidf: TfIdf
    ngrams_tfidf: TfIdf

    @staticmethod
    def fit(texts: Sequence[str], words: Words, word_ids: Ragged | None = None) -> LexicalFeatures:
        """Find the n-grams that occur at least twice in the texts, and compute all idf weights.

        `word_ids` are those of the texts; without them, the texts are encoded here. Words that come with weights are
        columns of features, and have no n-grams.
        """
        if word_ids is not None and word_ids.weights is not None:
            no_ngrams = Vocabulary([], np.zeros(0)), TfIdf(np.zeros(0, np.float32))
            return LexicalFeatures(words, no_ngrams[0], TfIdf.fit(word_ids, len(words)), no_ngrams[1])
        assert isinstance(words, Vocabulary)
        tokenizer = replace(words.tokenizer, prefix_lengths=PREFIX_LENGTHS, bigram_prefix_length=BIGRAM_PREFIX_LENGTH)
        ngrams, ngram_ids = Vocabulary.build_and_encode(texts, tokenizer, min_count=2)
        word_ids = words.encode(texts) if word_ids is None else word_ids
        return LexicalFeatures(words, ngrams, TfIdf.fit(word_ids, len(words)), TfIdf.fit(ngram_ids, len(ngrams)))

    @property
    def n_features(self) -> int:
        return len(self.words) + len(self.ngrams)

    def rows(self, texts: Sequence[str], word_ids: Ragged | None = None) -> Ragged:
        """Return the columns of each text in ascending order, with their weights.

        Rows have length 1, or less where a text has no known word or no known n-gram.
        """
        if word_ids is not None and word_ids.weights is not None:
            rows = self.words_tfidf.transform(word_ids)
            columns, weights = rows.indices.astype(np.int32), rows.data.astype(np.float32)
            return Ragged(rows.indptr.astype(np.int64), columns, weights)
        words = self.words.encode(texts) if word_ids is None else word_ids
        ngrams = self.ngrams.encode(texts)
        size = len(words.values) + len(ngrams.values)
        indptr = np.empty(len(words) + 1, np.int64)
        columns, weights = np.empty(size, np.int32), np.empty(size, np.float32)
        word_length = 1 / np.hypot(1, NGRAM_WEIGHT)
        weigh_texts(
            words.indptr, words.values, self.words_tfidf.idf, word_length,
            ngrams.indptr, ngrams.values, self.ngrams_tfidf.idf, word_length * NGRAM_WEIGHT,
            indptr, columns, weights,
        )  # fmt: skip
        return Ragged(indptr, columns[: indptr[-1]], weights[: indptr[-1]])

    def transform(self, texts: Sequence[str], word_ids: Ragged | None = None) -> sparse.csr_array:
        """Return the same as a sparse matrix with one row per text."""
        rows = self.rows(texts, word_ids)
        return sparse.csr_array((rows.weights, rows.values, rows.indptr), shape=(len(rows), self.n_features))
