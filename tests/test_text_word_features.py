"""Words and their pieces side by side, against bags made one by one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shortlist.arrays import Ragged
from shortlist.text import TfIdf, Tokenizer, Vocabulary
from shortlist.text.word_features import BEGINNINGS, PAIRS, SHARE, WordFeatures

TEXTS = ["houses in a row", "housing row", "rowing boats", "boat houses", "übergänge übergang", ""]

texts = st.lists(st.lists(st.text("aébß", min_size=1, max_size=9), max_size=6).map(" ".join), max_size=8)


def fitted(texts, tokenizer=None, min_count=1):
    return WordFeatures.fit(texts, Vocabulary.build(texts, tokenizer, min_count=min_count))


@given(texts, texts)
def test_two_bags_scaled_and_put_side_by_side(train, others):
    features = fitted(train)
    pieces = Vocabulary.build(train, Tokenizer(beginnings=BEGINNINGS, pairs=PAIRS), min_count=2)
    assert features.pieces.words == pieces.words
    assert features.n_features == len(features.words) + len(pieces)
    bags = [
        TfIdf.fit(known.encode(train), len(known)).transform(known.encode(others)).toarray()
        for known in (features.words, pieces)
    ]
    expected = np.hstack([bags[0], SHARE * bags[1]]) / np.sqrt(1 + SHARE**2)
    for matrix in (features.transform(others), features.transform(others, features.words.encode(others))):
        assert matrix.shape == (len(others), features.n_features)
        assert matrix.dtype == np.float32
        assert matrix.has_canonical_format
        np.testing.assert_allclose(matrix.toarray(), expected, rtol=1e-5, atol=1e-7)


@given(texts, texts)
def test_rows_are_the_matrix_with_rising_columns(train, others):
    features = fitted(train)
    rows, matrix = features.rows(others), features.transform(others)
    assert (rows.values.dtype, rows.weights.dtype, rows.indptr.dtype) == (np.int32, np.float32, np.int64)
    assert np.array_equal(rows.to_csr(features.n_features).toarray(), matrix.toarray())
    for row in range(len(others)):
        assert (np.diff(rows.row(row)) > 0).all()


def test_rows_have_length_one_or_less_where_one_of_the_bags_is_empty():
    lengths = np.sqrt(fitted(TEXTS).transform([*TEXTS, "row", "houseboat", "xyz"]).power(2).sum(axis=1))
    both, words_alone, pieces_alone = 1, 1 / np.hypot(1, SHARE), SHARE / np.hypot(1, SHARE)
    assert lengths == pytest.approx([both, both, words_alone, both, both, 0, words_alone, pieces_alone, 0], rel=1e-6)


def test_unknown_words_share_beginnings_with_known_ones():
    features = fitted(TEXTS)
    rows = features.transform(["household", "houses", "übergangen", "boats"]).toarray()
    assert not rows[[0, 2], : len(features.words)].any()
    assert rows[0] @ rows[1] > 0.1
    assert rows[2].any()
    assert rows[0] @ rows[3] == 0


def test_neighbours_say_more_than_their_words():
    features = fitted(["hot dog"] * 2 + ["dog", "hot", "dog hot"])
    rows = features.transform(["hot dog", "dog hot", "hot and dog"]).toarray()
    assert features.pieces.words == ["hot dog"]
    assert rows[0, len(features.words)] > 0
    assert not rows[1:, len(features.words) :].any()


def test_word_ids_that_are_given_are_used():
    features = fitted(TEXTS)
    row = features.words.words.index("row")
    given = features.transform(["boats"], Ragged.from_lists([[row]]))
    assert given.indices[given.indices < len(features.words)].tolist() == [row]


def test_the_tokenizer_of_the_words_is_that_of_the_pieces():
    features = fitted(["Houses HOUSES"] * 2, Tokenizer(lowercase=False))
    assert features.pieces.words == ["Hous", "HOUS", "Hous HOUS"]


@pytest.mark.parametrize("texts", [["a bc", "def"], [""], []], ids=["short words", "no words", "no texts"])
def test_no_pieces(texts):
    features = fitted(texts)
    assert len(features.pieces) == 0
    assert features.transform([*texts, "a", "unheard"]).shape == (len(texts) + 2, features.n_features)
    assert features.transform([]).shape == (0, features.n_features)
