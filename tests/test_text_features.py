"""Sparse features against their formulas, computed slowly."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from shortlist.arrays import Ragged
from shortlist.text import LexicalFeatures, TfIdf, Tokenizer, Vocabulary
from shortlist.text.features import BIGRAM_PREFIX_LENGTH, NGRAM_WEIGHT, PREFIX_LENGTHS, normalize_sparse_rows

N_WORDS = 12
lists_of_ids = st.lists(st.lists(st.integers(0, N_WORDS - 1), max_size=10), max_size=8)


def slow_tfidf(fitted, rows):
    """scikit-learn's smooth idf, sublinear tf and l2 norm, word by word."""
    idf = [math.log((1 + len(fitted)) / (1 + sum(word in row for row in fitted))) + 1 for word in range(N_WORDS)]
    result = np.zeros((len(rows), N_WORDS))
    for i, row in enumerate(rows):
        for word in set(row):
            result[i, word] = (1 + math.log(row.count(word))) * idf[word]
        length = math.sqrt(sum(value**2 for value in result[i]))
        if length:
            result[i] /= length
    return idf, result


@given(lists_of_ids, lists_of_ids)
def test_tfidf(rows, others):
    tfidf = TfIdf.fit(Ragged.from_lists(rows), N_WORDS)
    idf, _ = slow_tfidf(rows, rows)
    assert np.allclose(tfidf.idf, idf, rtol=1e-6)
    for batch in (rows, others):
        features = tfidf.transform(Ragged.from_lists(batch))
        assert features.shape == (len(batch), N_WORDS)
        assert features.dtype == np.float32
        assert np.allclose(features.toarray(), slow_tfidf(rows, batch)[1], rtol=1e-5, atol=1e-7)


def test_tfidf_by_hand():
    features = TfIdf.fit(Ragged.from_lists([[0, 1], [0]]), 3).transform(Ragged.from_lists([[0, 1, 1], [], [2]]))
    rare = math.log(3 / 2) + 1
    first = np.array([1, (1 + math.log(2)) * rare, 0])
    assert np.allclose(features.toarray(), [first / np.linalg.norm(first), [0, 0, 0], [0, 0, 1]])


@given(st.lists(st.lists(st.sampled_from([0.0, 0.0, 1.0, -2.0, 0.25]), min_size=4, max_size=4), max_size=7))
def test_normalize_sparse_rows(rows):
    dense = np.asarray(rows, np.float64).reshape(-1, 4)
    lengths = np.linalg.norm(dense, axis=1, keepdims=True)
    normalized = normalize_sparse_rows(sparse.csr_array(dense))
    assert np.allclose(normalized.toarray(), dense / np.where(lengths == 0, 1, lengths))


def test_normalize_sparse_rows_with_stored_zeros():
    matrix = sparse.csr_array((np.zeros(2), np.array([0, 1]), np.array([0, 2, 2])), shape=(2, 2))
    assert np.array_equal(normalize_sparse_rows(matrix).toarray(), np.zeros((2, 2)))


TEXTS = ["houses in a row", "housing row", "rowing boats", "boat houses", "übergänge übergang", ""]
texts = st.lists(st.lists(st.text("aébß", min_size=1, max_size=9), max_size=6).map(" ".join), max_size=8)


def fit(texts, tokenizer=None):
    return LexicalFeatures.fit(texts, Vocabulary.build(texts, tokenizer))


class TestLexicalFeatures:
    @given(texts, texts)
    def test_are_two_scaled_tfidf_matrices_side_by_side(self, train, others):
        features = fit(train)
        tokenizer = Tokenizer(prefix_lengths=PREFIX_LENGTHS, bigram_prefix_length=BIGRAM_PREFIX_LENGTH)
        ngrams = Vocabulary.build(train, tokenizer, min_count=2)
        assert features.ngrams.words == ngrams.words
        assert features.n_features == len(features.words) + len(ngrams)
        blocks = [
            TfIdf.fit(vocabulary.encode(train), len(vocabulary)).transform(vocabulary.encode(others)).toarray()
            for vocabulary in (features.words, ngrams)
        ]
        expected = np.hstack([blocks[0], NGRAM_WEIGHT * blocks[1]]) / np.sqrt(1 + NGRAM_WEIGHT**2)
        for matrix in (features.transform(others), features.transform(others, features.words.encode(others))):
            assert matrix.shape == (len(others), features.n_features)
            assert matrix.dtype == np.float32
            assert matrix.has_canonical_format
            np.testing.assert_allclose(matrix.toarray(), expected, rtol=1e-5, atol=1e-7)

    @given(texts, texts)
    def test_rows_equal_the_matrix_and_have_ascending_columns(self, train, others):
        features = fit(train)
        rows, matrix = features.rows(others), features.transform(others)
        assert (rows.values.dtype, rows.weights.dtype, rows.indptr.dtype) == (np.int32, np.float32, np.int64)
        assert np.array_equal(rows.to_csr(features.n_features).toarray(), matrix.toarray())
        for row in range(len(others)):
            assert (np.diff(rows.row(row)) > 0).all()

    def test_rows_are_shorter_without_known_words_or_without_known_ngrams(self):
        lengths = np.sqrt(fit(TEXTS).transform([*TEXTS, "row", "houseboat", "xyz"]).power(2).sum(axis=1))
        words_only, ngrams_only = 1 / np.hypot(1, NGRAM_WEIGHT), NGRAM_WEIGHT / np.hypot(1, NGRAM_WEIGHT)
        assert lengths == pytest.approx([1, 1, words_only, 1, 1, 0, words_only, ngrams_only, 0], rel=1e-6)

    def test_unknown_words_share_prefixes_with_known_ones(self):
        features = fit(TEXTS)
        rows = features.transform(["household", "houses", "übergangen", "boats"]).toarray()
        assert not rows[[0, 2], : len(features.words)].any()
        assert rows[0] @ rows[1] > 0.1
        assert rows[2].any()
        assert rows[0] @ rows[3] == 0

    def test_adjacent_pairs_are_ordered(self):
        features = fit(["hot dog"] * 2 + ["dog", "hot", "dog hot"])
        rows = features.transform(["hot dog", "dog hot", "hot and dog"]).toarray()
        assert features.ngrams.words == ["hot dog"]
        assert rows[0, len(features.words)] > 0
        assert not rows[1:, len(features.words) :].any()

    def test_given_word_ids_are_used(self):
        features = fit(TEXTS)
        row = features.words.words.index("row")
        given = features.transform(["boats"], Ragged.from_lists([[row]]))
        assert given.indices[given.indices < len(features.words)].tolist() == [row]
        fitted = LexicalFeatures.fit(TEXTS, features.words, features.words.encode(TEXTS))
        assert np.array_equal(fitted.words_tfidf.idf, features.words_tfidf.idf)

    def test_ngrams_use_the_options_of_the_words_tokenizer(self):
        features = fit(["houses houses"] * 2, Tokenizer(stop_words=["hous"]))
        assert features.ngrams.words == ["hous hous"]

    @pytest.mark.parametrize("texts", [["a bc", "def"], [""], []], ids=["short words", "no words", "no texts"])
    def test_without_ngrams(self, texts):
        features = fit(texts)
        assert len(features.ngrams) == 0
        assert features.transform([*texts, "a", "unheard"]).shape == (len(texts) + 2, features.n_features)
        assert features.transform([]).shape == (0, features.n_features)
