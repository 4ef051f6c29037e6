"""`DeviceRows`, CUDA's path, on the CPU: step for step what `LabelRows` does."""

from __future__ import annotations

from copy import deepcopy

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shortlist.arrays import Ragged
from shortlist.errors import DataError
from shortlist.heads import label_rows
from shortlist.heads.label_rows import LabelRows
from test_heads_label_rows import random_candidates, random_problem

torch = pytest.importorskip("torch")

from shortlist.heads import device_rows  # noqa: E402 - needs torch


@pytest.fixture(autouse=True)
def small_blocks_and_full_floats(monkeypatch):
    """Blocks so small that every problem has several; no 16-bit products, which are another test's matter."""
    monkeypatch.setattr(device_rows, "PAIRS_PER_BLOCK", 7)
    monkeypatch.setattr(device_rows, "ROWS_PER_BLOCK", 3)
    monkeypatch.setattr(label_rows, "ROWS_PER_BLOCK", 4)
    monkeypatch.setattr(label_rows, "has_short_products", lambda: False)


def twins(n_labels, n_features, seed=0):
    rows = LabelRows.start(n_labels, n_features, prior=0.1, seed=seed)
    return rows, device_rows.DeviceRows(deepcopy(rows), "cpu")


def assert_same(rows, twin, ours, theirs):
    """Losses, gradients for the features, and all that the rows are and remember."""
    assert theirs[0] == pytest.approx(ours[0], rel=1e-4, abs=1e-5)
    np.testing.assert_allclose(theirs[1].numpy(), ours[1], rtol=1e-3, atol=1e-5)
    expected, found = rows.to_arrays(), twin.to_arrays()
    assert list(found) == list(expected)
    for name, array in expected.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_allclose(found[name], array, rtol=1e-3, atol=2e-4, err_msg=name)


@settings(max_examples=25)
@given(
    st.integers(0, 10_000),
    st.integers(1, 9),
    st.integers(1, 7),
    st.integers(1, 6),
    st.integers(1, 7),
    st.sampled_from([1, 3, 17]),
)
def test_steps_on_clusters_are_the_same(seed, n_samples, n_clusters, most_labels, n_seen, n_features):
    rng = np.random.default_rng(seed)
    starts, clusters, _, positives, features = random_problem(
        rng, n_samples, n_clusters, most_labels, n_seen, n_features
    )
    rows, twin = twins(int(starts[-1]), n_features, seed)
    for _ in range(3):
        ours = rows.step_on_clusters(features, clusters, starts, positives, 0.01, threads=1)
        theirs = twin.step_on_clusters(torch.from_numpy(features), clusters, starts, positives, 0.01)
        assert_same(rows, twin, ours, theirs)
        features = rng.standard_normal(features.shape).astype(np.float32)


@settings(max_examples=25)
@given(st.integers(0, 10_000), st.integers(1, 9), st.integers(1, 20), st.integers(1, 9), st.sampled_from([1, 3, 17]))
def test_steps_on_labels_are_the_same(seed, n_samples, n_labels, k, n_features):
    rng = np.random.default_rng(seed)
    rows, twin = twins(n_labels, n_features, seed)
    for _ in range(3):
        candidates, positives, features = random_candidates(rng, n_samples, n_labels, k, n_features)
        ours = rows.step_on_labels(features, candidates, positives, 0.01, threads=1)
        theirs = twin.step_on_labels(torch.from_numpy(features), candidates, positives, 0.01)
        assert_same(rows, twin, ours, theirs)


@settings(max_examples=25)
@given(st.integers(0, 10_000), st.integers(1, 9), st.integers(1, 20), st.sampled_from([1, 3, 17]))
def test_steps_on_all_labels_are_the_same(seed, n_samples, n_labels, n_features):
    rng = np.random.default_rng(seed)
    rows, twin = twins(n_labels, n_features, seed)
    for _ in range(3):
        features = rng.standard_normal((n_samples, n_features)).astype(np.float32)
        positives = Ragged.from_lists(
            [rng.choice(n_labels, rng.integers(0, n_labels + 1), replace=False) for _ in features]
        )
        expected, logits = np.empty((2, n_samples, n_labels), np.float32)
        ours = rows.step_on_all(features, positives, 0.01, threads=1, logits_out=expected)
        theirs = twin.step_on_all(torch.from_numpy(features), positives, 0.01, logits_out=logits)
        np.testing.assert_allclose(logits, expected, rtol=1e-4, atol=1e-4)
        assert_same(rows, twin, ours, theirs)


@pytest.mark.parametrize("n_features", [1, 3, 17])
@pytest.mark.parametrize(
    ("sizes", "clusters", "positives"),
    [
        ([1], [[0]], [[0]]),
        ([5], [[0], [0]], [[2], []]),
        ([2, 3], [[0, 1], [1, -1]], [[0, 1, 2, 3, 4], [2, 3, 4]]),
        ([2, 3], [[-1, -1], [-1, 0]], [[], []]),
    ],
    ids=["one label", "one cluster", "all candidates right", "nothing seen, nothing right"],
)
def test_edge_shapes(sizes, clusters, positives, n_features):
    starts = np.cumsum([0, *sizes])
    rows, twin = twins(int(starts[-1]), n_features)
    features = np.random.default_rng(1).standard_normal((len(clusters), n_features)).astype(np.float32)
    clusters, positives = np.asarray(clusters, np.int32), Ragged.from_lists(positives)
    for _ in range(2):
        ours = rows.step_on_clusters(features, clusters, starts, positives, 0.01, threads=1)
        assert_same(rows, twin, ours, twin.step_on_clusters(features, clusters, starts, positives, 0.01))
    for _ in range(2):
        ours = rows.step_on_all(features, positives, 0.01, threads=1)
        assert_same(rows, twin, ours, twin.step_on_all(features, positives, 0.01))


def test_losses_of_certain_answers():
    """Logits of ±40 and more, right and wrong: the loss is the distance to zero, not what a float32 rounds to."""
    features = np.asarray([[40], [-80]], np.float32)
    starts, clusters, positives = np.asarray([0, 2]), np.zeros((2, 1), np.int32), Ragged.from_lists([[0], [1]])
    rows, twin = twins(2, 1)
    rows.weights[:], rows.biases[:] = 1, 0
    twin.weights[:], twin.biases[:] = 1, 0
    # 40 for saying yes to label 1 of the first text, 80 for saying no to label 1 of the second.
    assert deepcopy(rows).step_on_clusters(features, clusters, starts, positives, 0.01)[0] == pytest.approx(60)
    assert deepcopy(rows).step_on_all(features, positives, 0.01)[0] == pytest.approx(60)
    assert deepcopy(twin).step_on_clusters(features, clusters, starts, positives, 0.01)[0] == pytest.approx(60)
    assert deepcopy(twin).step_on_all(features, positives, 0.01)[0] == pytest.approx(60)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_not_finite_is_reported(bad):
    features, positives = np.asarray([[1, bad]], np.float32), Ragged.from_lists([[0]])
    for rows in twins(3, 2):
        with pytest.raises(DataError, match="Lower the learning rate"):
            rows.step_on_clusters(features, np.zeros((1, 1), np.int32), np.asarray([0, 3]), positives, 0.1)
    for rows in twins(3, 2):
        with pytest.raises(DataError, match="Lower the learning rate"):
            rows.step_on_all(features, positives, 0.1)
