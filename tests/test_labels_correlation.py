"""Random walks against the exact probabilities of a tiny graph, and clusters against the published objective."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from reference_astec import best_halves, correlation_objective
from shortlist.arrays import Ragged
from shortlist.errors import OptionError
from shortlist.labels import LabelTree, correlated_centroids, label_correlations

LABELS = Ragged.from_lists([[0, 1], [1, 2], [0], [3], [2, 3, 1], [], [5]])
N_LABELS = 6  # label 4 has no text


def exact_visits(labels, n_labels, n_steps, restart):
    """The expected share of visits: p(t+1) = (restart · origin + (1 − restart) · p(t)) · P, averaged over t."""
    truth = labels.to_csr(n_labels).toarray()
    to_text = truth.T / np.maximum(truth.sum(axis=0), 1)[:, None]
    to_label = truth / np.maximum(truth.sum(axis=1), 1)[:, None]
    steps = to_text @ to_label
    steps[truth.sum(axis=0) == 0] = 0
    origin = np.eye(n_labels)
    at, total = origin, np.zeros((n_labels, n_labels))
    for _ in range(n_steps):
        at = (restart * origin + (1 - restart) * at) @ steps
        total += at
    rows = total / n_steps
    lonely = truth.sum(axis=0) == 0
    rows[lonely] = origin[lonely]
    return rows


@pytest.mark.parametrize("restart", [*(pytest.param(p, marks=pytest.mark.slow) for p in (0.0, 1.0)), 0.3])
def test_long_walks_approach_the_exact_probabilities(restart):
    found = label_correlations(LABELS, N_LABELS, n_steps=60_000, restart=restart, max_neighbours=6)
    np.testing.assert_allclose(found.toarray(), exact_visits(LABELS, N_LABELS, 60_000, restart), atol=0.015)


@pytest.mark.slow
def test_short_walks_are_unbiased():
    walks = [label_correlations(LABELS, N_LABELS, n_steps=3, seed=seed).toarray() for seed in range(1500)]
    np.testing.assert_allclose(np.mean(walks, axis=0), exact_visits(LABELS, N_LABELS, 3, 0.8), atol=0.04)


def random_labels(n_texts=3000, n_labels=9000, seed=0):
    rng = np.random.default_rng(seed)
    return Ragged.from_lists([rng.integers(0, n_labels, rng.integers(0, 6)) for _ in range(n_texts)])


def test_rows_are_sparse_probabilities():
    rows = label_correlations(random_labels(), 9000, n_steps=50, max_neighbours=4)
    np.testing.assert_allclose(rows.sum(axis=1), 1, rtol=1e-5)
    assert np.diff(rows.indptr).max() == 4
    assert np.diff(rows.indptr).min() == 1


def test_seed_decides_and_threads_do_not():
    labels = random_labels()
    one, two = (label_correlations(labels, 9000, seed=5, threads=threads) for threads in (1, 2))
    other = label_correlations(labels, 9000, seed=6, threads=2)
    assert (one != two).nnz == 0
    assert (one != other).nnz > 0


def test_only_the_most_visited_neighbours_are_kept():
    every = label_correlations(LABELS, N_LABELS, n_steps=1000).toarray()
    few = label_correlations(LABELS, N_LABELS, n_steps=1000, max_neighbours=2).toarray()
    for all_neighbours, few_neighbours in zip(every, few, strict=True):
        best = np.sort(all_neighbours)[::-1][:2]
        np.testing.assert_allclose(np.sort(few_neighbours)[::-1][:2], best / best.sum(), rtol=1e-5)


def test_correlated_centroids_are_weighted_sums_of_unit_centroids():
    centroids = sparse.random(N_LABELS, 12, 0.5, format="csr", dtype=np.float32, random_state=0)
    dense = centroids.toarray()
    dense /= np.linalg.norm(dense, axis=1, keepdims=True)
    correlations = label_correlations(LABELS, N_LABELS, seed=3)
    weights = correlations.toarray() + np.diag(correlations.diagonal())
    np.testing.assert_allclose(correlated_centroids(centroids, correlations).toarray(), weights @ dense, atol=1e-6)
    few = correlated_centroids(centroids, correlations, max_words=2).toarray()
    assert ((few > 0).sum(axis=1) <= 2).all()
    np.testing.assert_allclose(few.max(axis=1), (weights @ dense).max(axis=1), atol=1e-6)


def test_labels_of_the_same_texts_become_similar():
    centroids = sparse.csr_array(np.eye(N_LABELS, dtype=np.float32))
    rows = correlated_centroids(centroids, label_correlations(LABELS, N_LABELS)).toarray()
    products = rows @ rows.T
    assert products[0, 1] > 0.2
    assert products[0, 5] == 0
    np.testing.assert_array_equal(rows[4], 2 * np.eye(N_LABELS)[4])


@pytest.mark.parametrize("seed", range(6))
def test_halves_reach_the_best_value_of_the_published_objective(seed):
    rng = np.random.default_rng(seed)
    labels = Ragged.from_lists([rng.choice(8, rng.integers(1, 4), replace=False) for _ in range(12)] + [range(8)])
    centroids = rng.random((8, 5)).astype(np.float32)
    correlations = label_correlations(labels, 8, seed=seed)
    rows = correlated_centroids(sparse.csr_array(centroids), correlations)
    tree = LabelTree.build(rows, n_clusters=2, normalize=False)
    reached = correlation_objective(centroids, correlations.toarray(), tree.cluster_of_label == 0)
    assert reached == pytest.approx(best_halves(centroids, correlations.toarray()), abs=1e-5)


def test_lengths_count_only_where_asked():
    rng = np.random.default_rng(0)
    n_different = 0
    for _ in range(10):
        unit = rng.random((8, 3))
        unit /= np.linalg.norm(unit, axis=1, keepdims=True)
        rows = unit * rng.integers(1, 20, (8, 1))
        normalized, weighted, same = (
            LabelTree.build(sparse.csr_array(of), 2, normalize=normalize).cluster_of_label
            for of, normalize in ((rows, True), (rows, False), (unit, False))
        )
        np.testing.assert_array_equal(normalized, same)
        n_different += min((weighted != normalized).sum(), (weighted == normalized).sum()) > 0
    assert n_different > 2


@pytest.mark.parametrize("options", [{"restart": 1.5}, {"n_steps": 0}, {"max_neighbours": 0}])
def test_wrong_options_are_refused(options):
    with pytest.raises(OptionError):
        label_correlations(LABELS, N_LABELS, **options)
