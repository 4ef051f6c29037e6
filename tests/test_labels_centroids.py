"""Label centroids against a dense computation."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from shortlist.arrays import Ragged
from shortlist.errors import DataError, OptionError
from shortlist.labels import label_centroids
from shortlist.labels.centroids import label_representatives, nearest_centroid, normalize_rows, spherical_kmeans


def dense_centroids(features, labels, n_labels, max_words=None):
    sums = labels.to_csr(n_labels).toarray().T.astype(np.float64) @ normalize_rows(
        features.toarray().astype(np.float64)
    )
    if max_words is not None:
        for row in sums:
            row[np.argsort(-np.abs(row), kind="stable")[max_words:]] = 0
    return normalize_rows(sums)


def random_problem(seed, n_texts, n_words, n_labels, weighted=False):
    rng = np.random.default_rng(seed)
    features = sparse.random(n_texts, n_words, 0.3, format="csr", dtype=np.float32, random_state=seed)
    labels = [rng.permutation(n_labels)[: rng.integers(0, min(n_labels, 4) + 1)] for _ in range(n_texts)]
    rows = Ragged.from_lists(labels)
    if weighted:
        rows = Ragged(rows.indptr, rows.values, rng.random(len(rows.values)).astype(np.float32) + 0.1)
    return features, rows


@given(
    seed=st.integers(0, 10_000),
    n_texts=st.integers(0, 30),
    n_words=st.integers(1, 20),
    n_labels=st.integers(1, 12),
    weighted=st.booleans(),
    max_words=st.none() | st.integers(1, 8),
)
def test_equal_the_dense_computation(seed, n_texts, n_words, n_labels, weighted, max_words):
    features, labels = random_problem(seed, n_texts, n_words, n_labels, weighted)
    centroids = label_centroids(features, labels, n_labels, threads=2, max_words=max_words)
    assert centroids.shape == (n_labels, n_words)
    assert centroids.dtype == np.float32
    assert centroids.has_canonical_format
    expected = dense_centroids(features, labels, n_labels, max_words)
    np.testing.assert_allclose(centroids.toarray(), expected, atol=1e-5)


@pytest.mark.parametrize("max_words", [None, 500])
def test_many_words_equal_the_dense_computation(max_words):
    features, labels = random_problem(0, 20, 70_000, 3, weighted=True)
    centroids = label_centroids(features, labels, 3, max_words=max_words)
    assert centroids.has_canonical_format
    np.testing.assert_allclose(centroids.toarray(), dense_centroids(features, labels, 3, max_words), atol=1e-5)


def test_labels_without_texts_are_empty_and_others_have_length_one():
    features, labels = random_problem(1, 50, 30, 10)
    centroids = label_centroids(features, labels, n_labels=15)
    lengths = np.linalg.norm(centroids.toarray(), axis=1)
    np.testing.assert_allclose(lengths[:10], 1, rtol=1e-6)
    assert np.diff(centroids.indptr)[10:].sum() == 0


def test_threads_do_not_change_the_result():
    features, labels = random_problem(2, 300, 50, 40, weighted=True)
    one, two = (label_centroids(features, labels, 40, threads=threads) for threads in (1, 2))
    np.testing.assert_array_equal(one.indptr, two.indptr)
    np.testing.assert_array_equal(one.indices, two.indices)
    np.testing.assert_array_equal(one.data, two.data)


def test_max_words_limits_the_values():
    features, labels = random_problem(3, 100, 40, 5)
    centroids = label_centroids(features, labels, 5, max_words=3)
    assert np.diff(centroids.indptr).max() == 3


def test_a_text_without_words_adds_nothing():
    features = sparse.csr_array([[1.0, 1.0], [0.0, 0.0]])
    centroids = label_centroids(features, Ragged.from_lists([[0], [0, 1]]), 2)
    np.testing.assert_allclose(centroids.toarray(), [[0.5**0.5, 0.5**0.5], [0, 0]], rtol=1e-6)


def test_wrong_arguments_are_refused():
    features = sparse.csr_array(np.eye(2))
    with pytest.raises(DataError, match="features of 2 texts but labels of 1"):
        label_centroids(features, Ragged.from_lists([[0]]), 1)
    with pytest.raises(DataError, match=r"label id 5 is out of range \(5 labels\)"):
        label_centroids(features, Ragged.from_lists([[0], [5]]), 5)
    with pytest.raises(OptionError, match="max_words"):
        label_centroids(features, Ragged.from_lists([[0], [1]]), 2, max_words=0)


class TestLabelRepresentatives:
    def test_a_label_is_represented_by_its_centroid(self):
        features = np.asarray([[2, 0], [0, 3], [0, 1]], np.float32)
        vectors, owners = label_representatives(features, Ragged.from_lists([[0], [0, 1], [1]]), 3)
        assert owners.tolist() == [0, 1, 2]
        assert np.allclose(vectors, [[0.5**0.5, 0.5**0.5], [0, 1], [0, 0]])

    def test_a_common_label_has_several_representatives(self):
        rng = np.random.default_rng(0)
        directions = np.eye(4, 16, dtype=np.float32)
        features = np.repeat(directions, 100, axis=0) + rng.normal(0, 0.05, (400, 16)).astype(np.float32)
        labels = Ragged.from_lists([[0]] * 400)
        vectors, owners = label_representatives(features, labels, 2, common=0.5, per_common=20)
        assert set(owners[2:]) == {0}
        # The centroid is far from all four directions; the other representatives are close to one each.
        assert (normalize_rows(features) @ vectors[0]).max() < 0.7
        assert (normalize_rows(features) @ vectors[2:].T).max(axis=1).min() > 0.9
        again, _ = label_representatives(features, labels, 2, common=0.5, per_common=20)
        assert np.array_equal(vectors, again)

    def test_so_many_of_the_most_frequent_labels_have_several(self):
        features = np.random.default_rng(0).random((30, 4)).astype(np.float32)
        labels = Ragged.from_lists([[0, 1]] * 10 + [[1, 2]] * 4 + [[3]] + [[]] * 15)
        vectors, owners = label_representatives(features, labels, 5, per_common=6, n_common=3)
        assert np.bincount(owners).tolist() == [1 + 5, 1 + 6, 1 + 2, 1, 1]  # at least two texts per vector
        assert len(label_representatives(features, labels, 5, n_common=9)[0]) == len(vectors) + 1  # 7 for label 1
        assert len(label_representatives(features, labels, 5, n_common=0)[0]) == 5

    def test_lengths_of_features_count_if_asked(self):
        features = np.asarray([[2, 0], [0, 6]], np.float32)
        vectors, _ = label_representatives(features, Ragged.from_lists([[0], [0]]), 1, unit=False)
        assert np.allclose(vectors, np.asarray([[1, 3]]) / 10**0.5)

    def test_kmeans_finds_planted_directions(self):
        rng = np.random.default_rng(1)
        truth = rng.integers(0, 3, 300)
        vectors = normalize_rows(np.eye(3)[truth] + 0.1 * rng.standard_normal((300, 3)))
        centroids = spherical_kmeans(vectors, 12, rng)
        nearest = nearest_centroid(vectors, centroids)
        assert all(len(set(truth[nearest == one])) == 1 for one in set(nearest))
        np.testing.assert_allclose(np.linalg.norm(centroids, axis=1), 1, rtol=1e-5)

    def test_kmeans_of_zeros(self):
        assert not spherical_kmeans(np.zeros((5, 2), np.float32), 2, np.random.default_rng(0)).any()
