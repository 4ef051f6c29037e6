"""The label tree: a balanced, deterministic partition into similar labels."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from shortlist.errors import DataError, OptionError
from shortlist.labels import LabelTree
from shortlist.labels import tree as label_tree


def similarity(tree, centroids):
    """The mean cosine between a label's centroid and the mean direction of its cluster."""
    rows = centroids.toarray() / np.linalg.norm(centroids.toarray(), axis=1, keepdims=True)
    return sum(np.linalg.norm(rows[tree.labels_of(i)].sum(axis=0)) for i in range(tree.n_clusters)) / len(rows)


def random_centroids(n_labels, n_words=50, words_per_label=5, seed=0):
    rng = np.random.default_rng(seed)
    words = rng.integers(0, n_words, (n_labels, words_per_label))
    indptr = np.arange(n_labels + 1) * words_per_label
    matrix = sparse.csr_array((rng.random(words.size) + 0.1, words.ravel(), indptr), shape=(n_labels, n_words))
    matrix.sum_duplicates()
    return matrix


def planted_centroids(n_clusters, size, seed=0):
    """Labels of a cluster share five words; each has two random words more. Shuffled."""
    rng = np.random.default_rng(seed)
    truth = rng.permutation(np.repeat(np.arange(n_clusters), size))
    words = truth[:, None] * 5 + np.arange(5)
    noise = n_clusters * 5 + rng.integers(0, 100 * len(truth), (len(truth), 2))
    indices = np.hstack([words, noise]).ravel()
    matrix = sparse.csr_array((np.ones(indices.size), indices, np.arange(len(truth) + 1) * 7))
    matrix.sum_duplicates()
    return matrix, truth


def assert_partition(tree, n_labels, n_clusters):
    assert (tree.n_labels, tree.n_clusters) == (n_labels, n_clusters)
    assert tree.order.dtype == np.int32 and tree.cluster_starts.dtype == np.int64
    np.testing.assert_array_equal(np.sort(tree.order), np.arange(n_labels))
    assert tree.cluster_starts[0] == 0 and tree.cluster_starts[-1] == n_labels
    assert set(tree.cluster_sizes) <= {n_labels // n_clusters, -(-n_labels // n_clusters)}
    for cluster in range(n_clusters):
        assert (tree.cluster_of_label[tree.labels_of(cluster)] == cluster).all()


def assert_same(one, other):
    np.testing.assert_array_equal(one.order, other.order)
    np.testing.assert_array_equal(one.cluster_starts, other.cluster_starts)


@given(data=st.data(), n_labels=st.integers(1, 90), seed=st.integers(0, 1000))
def test_any_number_of_clusters_is_a_balanced_partition(data, n_labels, seed):
    n_clusters = data.draw(st.integers(1, n_labels))
    centroids = random_centroids(n_labels, seed=seed)
    assert_partition(LabelTree.build(centroids, n_clusters, seed=seed), n_labels, n_clusters)


@pytest.fixture
def small_nodes(monkeypatch):
    """Reaches all code paths with few labels: a root split by sample, subtrees by rows, exchanges by cosines."""
    monkeypatch.setattr(label_tree, "MAX_SUBTREE_SIZE", 1500)
    monkeypatch.setattr(label_tree, "MIN_SAMPLE_SIZE", 300)
    monkeypatch.setattr(label_tree, "LABELS_PER_TASK", 700)


@pytest.mark.parametrize("n_clusters", [2, 3, 5, 64, 1000, 3001, 5000])
def test_partition_through_all_code_paths(small_nodes, n_clusters):
    centroids = random_centroids(5000, n_words=400)
    assert_partition(LabelTree.build(centroids, n_clusters), 5000, n_clusters)


def test_seed_decides_and_threads_do_not(small_nodes):
    centroids = random_centroids(5000, n_words=400)
    one, two, again = (LabelTree.build(centroids, 300, seed=1, threads=threads) for threads in (1, 2, 2))
    assert_same(one, two)
    assert_same(two, again)
    assert (LabelTree.build(centroids, 300, seed=2).order != one.order).any()


def test_recovers_planted_clusters(small_nodes):
    centroids, truth = planted_centroids(32, 64)
    tree = LabelTree.build(centroids, 32)
    pure = sum(len(set(truth[tree.labels_of(cluster)])) == 1 for cluster in range(32))
    assert pure >= 26
    planted = LabelTree.from_clusters(truth)
    assert similarity(tree, centroids) > 0.95 * similarity(planted, centroids)


@pytest.mark.parametrize("n_clusters", [16, 100])
def test_clusters_are_more_similar_than_random_ones(small_nodes, n_clusters):
    centroids = random_centroids(3000, n_words=300)
    tree = LabelTree.build(centroids, n_clusters)
    shuffled = LabelTree.from_clusters(np.random.default_rng(0).permutation(tree.cluster_of_label))
    assert similarity(tree, centroids) > 1.2 * similarity(shuffled, centroids)


def test_only_directions_matter():
    centroids = random_centroids(300)
    scaled = sparse.csr_array(sparse.diags_array(2.0 ** np.random.default_rng(0).integers(-9, 9, 300)) @ centroids)
    assert_same(LabelTree.build(centroids, 20), LabelTree.build(scaled, 20))


def test_tiny_and_huge_values():
    rows = np.array([[1e-30, 0], [1e-30, 1e-32], [0, 1e30], [1e28, 1e30]], dtype=np.float32)
    tree = LabelTree.build(sparse.csr_array(rows), 2)
    assert tree.cluster_of_label[0] == tree.cluster_of_label[1] != tree.cluster_of_label[2]


@pytest.mark.parametrize(
    "rows",
    [
        np.ones((1, 1)),
        np.ones((7, 1)),
        np.zeros((9, 3)),
        np.zeros((5, 0)),
        np.ones((40, 6)),
        -np.eye(12),
        np.vstack([np.eye(10), np.zeros((30, 10))]),
        np.vstack([np.ones((500, 2)), np.zeros((700, 2))]),
    ],
    ids=["one label", "one word", "all empty", "no words", "identical", "negative", "mostly empty", "two kinds"],
)
def test_edge_shapes(rows):
    n_labels = len(rows)
    for n_clusters in {1, (n_labels + 1) // 2, n_labels}:
        assert_partition(LabelTree.build(sparse.csr_array(rows), n_clusters), n_labels, n_clusters)


def test_empty_rows_fill_up_the_smaller_cluster():
    rows = np.repeat([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]], [10, 5, 5], axis=0)
    tree = LabelTree.build(sparse.csr_array(rows), 2)
    assert len(set(tree.cluster_of_label[:10])) == 1
    assert len(set(tree.cluster_of_label[10:])) == 1


def test_cluster_size_and_the_default():
    centroids = random_centroids(100)
    assert LabelTree.build(centroids, cluster_size=30).n_clusters == 4
    assert LabelTree.build(centroids, cluster_size=1).n_clusters == 100
    assert LabelTree.build(centroids, cluster_size=1000).n_clusters == 1
    assert LabelTree.build(centroids).cluster_sizes.max() == 8


def test_dense_and_other_sparse_matrices():
    centroids = random_centroids(60)
    tree = LabelTree.build(centroids, 6)
    assert_same(tree, LabelTree.build(centroids.toarray(), 6))
    assert_same(tree, LabelTree.build(sparse.csc_matrix(centroids, dtype=np.float32), 6))
    halves = sparse.csr_array(
        (np.tile(centroids.data / 2, 2), np.tile(centroids.indices, 2), [*centroids.indptr, *[2 * centroids.nnz] * 60]),
        shape=(120, 50),
    )
    assert LabelTree.build(halves, 6).n_labels == 120


def test_duplicate_values_are_summed():
    twice = sparse.csr_array((np.array([0.5, 0.5, 1.0]), [0, 0, 1], [0, 2, 3]), shape=(2, 2))
    once = sparse.csr_array(np.eye(2))
    assert_same(LabelTree.build(twice, 2), LabelTree.build(once, 2))
    assert twice.nnz == 3


def test_wrong_arguments_are_refused():
    centroids = random_centroids(10)
    for options in [{"n_clusters": 0}, {"n_clusters": 11}, {"cluster_size": 0}, {"n_clusters": 2, "cluster_size": 5}]:
        with pytest.raises(OptionError):
            LabelTree.build(centroids, **options)
    with pytest.raises(DataError, match="no labels"):
        LabelTree.build(sparse.csr_array((0, 5)))
    with pytest.raises(DataError, match="NaN"):
        LabelTree.build(sparse.csr_array([[1.0, np.nan], [1.0, 0.0]]), 2)
