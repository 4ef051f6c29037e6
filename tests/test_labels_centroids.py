"""Label centroids against a dense computation."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from shortlist.arrays import Ragged
from shortlist.errors import DataError, OptionError
from shortlist.labels import label_centroids


def unit(matrix):
    lengths = np.linalg.norm(matrix, axis=1, keepdims=True)
    return matrix / np.where(lengths > 0, lengths, 1)


def dense_centroids(features, labels, n_labels, max_words=None):
    """The slow, obvious twin."""
    sums = labels.to_csr(n_labels).toarray().T.astype(np.float64) @ unit(features.toarray().astype(np.float64))
    if max_words is not None:
        for row in sums:
            row[np.argsort(-np.abs(row), kind="stable")[max_words:]] = 0
    return unit(sums)


def random_problem(seed, n_texts, n_words, n_labels, weighted=False):
    rng = np.random.default_rng(seed)
    features = sparse.random(n_texts, n_words, 0.3, format="csr", dtype=np.float32, random_state=seed)
    labels = [rng.permutation(n_labels)[: rng.integers(0, min(n_labels, 4) + 1)] for _ in range(n_texts)]
    rows = Ragged.from_lists(labels)
    if weighted:
        rows = Ragged(rows.indptr, rows.values, rng.random(len(rows.values)).astype(np.float32) + 0.1)
    return features, rows


@settings(max_examples=50, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    n_texts=st.integers(0, 30),
    n_words=st.integers(1, 20),
    n_labels=st.integers(1, 12),
    weighted=st.booleans(),
    max_words=st.none() | st.integers(1, 8),
)
def test_equals_the_dense_computation(seed, n_texts, n_words, n_labels, weighted, max_words):
    features, labels = random_problem(seed, n_texts, n_words, n_labels, weighted)
    centroids = label_centroids(features, labels, n_labels, threads=2, max_words=max_words)
    assert centroids.shape == (n_labels, n_words)
    assert centroids.dtype == np.float32
    assert centroids.has_canonical_format
    expected = dense_centroids(features, labels, n_labels, max_words)
    np.testing.assert_allclose(centroids.toarray(), expected, atol=1e-5)


def test_labels_without_texts_are_empty_and_others_have_length_one():
    features, labels = random_problem(1, 50, 30, 10)
    centroids = label_centroids(features, labels, n_labels=15)
    lengths = np.linalg.norm(centroids.toarray(), axis=1)
    np.testing.assert_allclose(lengths[:10], 1, rtol=1e-6)
    assert np.diff(centroids.indptr)[10:].sum() == 0


def test_the_number_of_threads_changes_nothing():
    features, labels = random_problem(2, 300, 50, 40, weighted=True)
    one, two = (label_centroids(features, labels, 40, threads=threads) for threads in (1, 2))
    np.testing.assert_array_equal(one.indptr, two.indptr)
    np.testing.assert_array_equal(one.indices, two.indices)
    np.testing.assert_array_equal(one.data, two.data)


def test_max_words_keeps_the_largest():
    features, labels = random_problem(3, 100, 40, 5)
    centroids = label_centroids(features, labels, 5, max_words=3)
    assert np.diff(centroids.indptr).max() == 3


def test_a_text_without_words_adds_nothing():
    features = sparse.csr_array([[1.0, 1.0], [0.0, 0.0]])
    centroids = label_centroids(features, Ragged.from_lists([[0], [0, 1]]), 2)
    np.testing.assert_allclose(centroids.toarray(), [[0.5**0.5, 0.5**0.5], [0, 0]], rtol=1e-6)


def test_wrong_sizes_are_refused():
    features = sparse.csr_array(np.eye(2))
    with pytest.raises(DataError, match="features of 2 texts but labels of 1"):
        label_centroids(features, Ragged.from_lists([[0]]), 1)
    with pytest.raises(DataError, match="label ids run from 0 to 5"):
        label_centroids(features, Ragged.from_lists([[0], [5]]), 5)
    with pytest.raises(OptionError, match="max_words"):
        label_centroids(features, Ragged.from_lists([[0], [1]]), 2, max_words=0)
