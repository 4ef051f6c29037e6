"""Tf-idf against the formula written out."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from shortlist.arrays import Ragged
from shortlist.text import TfIdf
from shortlist.text.bag import unit_rows

N_WORDS = 12
lists_of_ids = st.lists(st.lists(st.integers(0, N_WORDS - 1), max_size=10), max_size=8)


def slow_tf_idf(fitted, rows):
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
def test_tf_idf(rows, others):
    tf_idf = TfIdf.fit(Ragged.from_lists(rows), N_WORDS)
    idf, _ = slow_tf_idf(rows, rows)
    assert np.allclose(tf_idf.idf, idf, rtol=1e-6)
    for batch in (rows, others):
        features = tf_idf.transform(Ragged.from_lists(batch))
        assert features.shape == (len(batch), N_WORDS)
        assert features.dtype == np.float32
        assert np.allclose(features.toarray(), slow_tf_idf(rows, batch)[1], rtol=1e-5, atol=1e-7)


def test_known_values():
    features = TfIdf.fit(Ragged.from_lists([[0, 1], [0]]), 3).transform(Ragged.from_lists([[0, 1, 1], [], [2]]))
    rare = math.log(3 / 2) + 1
    first = np.array([1, (1 + math.log(2)) * rare, 0])
    assert np.allclose(features.toarray(), [first / np.linalg.norm(first), [0, 0, 0], [0, 0, 1]])


@given(st.lists(st.lists(st.sampled_from([0.0, 0.0, 1.0, -2.0, 0.25]), min_size=4, max_size=4), max_size=7))
def test_unit_rows(rows):
    dense = np.asarray(rows, np.float64).reshape(-1, 4)
    lengths = np.linalg.norm(dense, axis=1, keepdims=True)
    scaled = unit_rows(sparse.csr_array(dense))
    assert np.allclose(scaled.toarray(), dense / np.where(lengths == 0, 1, lengths))


def test_unit_rows_with_stored_zeros():
    matrix = sparse.csr_array((np.zeros(2), np.array([0, 1]), np.array([0, 2, 2])), shape=(2, 2))
    assert np.array_equal(unit_rows(matrix).toarray(), np.zeros((2, 2)))
