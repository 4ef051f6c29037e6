"""`DeviceRows`, the path for CUDA, on the CPU: step by step the same as `LabelRows`."""

from __future__ import annotations

from copy import deepcopy

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shortlist.arrays import Ragged
from shortlist.errors import DataError
from shortlist.kernels.threads import use_threads
from shortlist.training import label_rows
from shortlist.training.label_rows import OUR_ROW_OPTIONS, Clusters, LabelRows, RowOptions
from test_training_label_rows import random_candidates, random_problem

torch = pytest.importorskip("torch")

from shortlist.training import device_rows  # noqa: E402 - needs torch


@pytest.fixture(autouse=True)
def small_blocks_and_full_floats(monkeypatch):
    """Blocks so small that every problem has several; float32 products, because bfloat16 is tested elsewhere."""
    monkeypatch.setattr(device_rows, "PAIRS_PER_BLOCK", 7)
    monkeypatch.setattr(device_rows, "ROWS_PER_BLOCK", 3)
    monkeypatch.setattr(label_rows, "ROWS_PER_BLOCK", 4)
    with use_threads(1):
        yield


PUBLISHED = RowOptions("adam", "mean", "xavier", "none")
OPTIONS = st.sampled_from(
    [OUR_ROW_OPTIONS, PUBLISHED, RowOptions("adam", bias_init="zero"), RowOptions("row-adam", "mean")]
)
SIZES = st.sampled_from([1, 3, 17])


def twins(n_labels, n_features, seed=0, options=OUR_ROW_OPTIONS):
    rows = LabelRows.start(n_labels, n_features, 0.1, seed, options)
    return rows, device_rows.DeviceRows(deepcopy(rows), "cpu")


def assert_same(rows, twin, ours, theirs):
    """Loss, gradient to the features, and every array of the rows."""
    assert theirs[0] == pytest.approx(ours[0], rel=1e-4, abs=1e-5)
    np.testing.assert_allclose(theirs[1].numpy(), ours[1], rtol=1e-3, atol=1e-5)
    expected, found = rows.arrays(), twin.arrays()
    assert list(found) == list(expected)
    for name, array in expected.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_allclose(found[name], array, rtol=1e-3, atol=2e-4, err_msg=name)


@given(
    st.integers(0, 10_000),
    st.integers(1, 9),
    st.integers(1, 7),
    st.integers(1, 6),
    st.integers(1, 7),
    SIZES,
    OPTIONS,
)
def test_steps_on_clusters_are_the_same(seed, n_texts, n_clusters, most_labels, n_seen, n_features, options):
    rng = np.random.default_rng(seed)
    starts, clusters, _, positives, features = random_problem(rng, n_texts, n_clusters, most_labels, n_seen, n_features)
    rows, twin = twins(int(starts[-1]), n_features, seed, options)
    for _ in range(3):
        ours = rows.step(features, Clusters(clusters, starts), positives, 0.01)
        theirs = twin.step(torch.from_numpy(features), Clusters(clusters, starts), positives, 0.01)
        assert_same(rows, twin, ours, theirs)
        features = rng.standard_normal(features.shape).astype(np.float32)


@given(st.integers(0, 10_000), st.integers(1, 9), st.integers(1, 20), st.integers(1, 9), SIZES, OPTIONS)
def test_steps_on_labels_are_the_same(seed, n_texts, n_labels, k, n_features, options):
    rng = np.random.default_rng(seed)
    rows, twin = twins(n_labels, n_features, seed, options)
    for _ in range(3):
        candidates, positives, features = random_candidates(rng, n_texts, n_labels, k, n_features)
        ours = rows.step(features, candidates, positives, 0.01)
        theirs = twin.step(torch.from_numpy(features), candidates, positives, 0.01)
        assert_same(rows, twin, ours, theirs)


@given(st.integers(0, 10_000), st.integers(1, 9), st.integers(1, 20), SIZES, OPTIONS)
def test_steps_on_all_labels_are_the_same(seed, n_texts, n_labels, n_features, options):
    rng = np.random.default_rng(seed)
    rows, twin = twins(n_labels, n_features, seed, options)
    for _ in range(3):
        features = rng.standard_normal((n_texts, n_features)).astype(np.float32)
        positives = Ragged.from_lists(
            [rng.choice(n_labels, rng.integers(0, n_labels + 1), replace=False) for _ in features]
        )
        expected, logits = np.empty((2, n_texts, n_labels), np.float32)
        ours = rows.step(features, None, positives, 0.01, logits_out=expected)
        theirs = twin.step(torch.from_numpy(features), None, positives, 0.01, logits_out=logits)
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
    ids=["one label", "one cluster", "all candidates positive", "no candidates"],
)
def test_edge_shapes(sizes, clusters, positives, n_features):
    starts = np.cumsum([0, *sizes])
    rows, twin = twins(int(starts[-1]), n_features)
    features = np.random.default_rng(1).standard_normal((len(clusters), n_features)).astype(np.float32)
    clusters, positives = np.asarray(clusters, np.int32), Ragged.from_lists(positives)
    for _ in range(2):
        ours = rows.step(features, Clusters(clusters, starts), positives, 0.01)
        assert_same(rows, twin, ours, twin.step(features, Clusters(clusters, starts), positives, 0.01))
    for _ in range(2):
        ours = rows.step(features, None, positives, 0.01)
        assert_same(rows, twin, ours, twin.step(features, None, positives, 0.01))


def test_losses_of_extreme_logits():
    """Logits of ±40 and more, right and wrong: the loss is the distance to 0, whatever float32 rounds to."""
    features, positives = np.asarray([[40], [-80]], np.float32), Ragged.from_lists([[0], [1]])
    everything = Clusters(np.zeros((2, 1), np.int32), np.asarray([0, 2]))
    for rows in twins(2, 1):
        rows.weights[:], rows.biases[:] = 1, 0
        # 40 for yes to label 1 of the first text, 80 for no to label 1 of the second.
        for candidates in (everything, None):
            assert deepcopy(rows).step(features, candidates, positives, 0.01)[0] == pytest.approx(60)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("candidates", [Clusters(np.zeros((1, 1), np.int32), np.asarray([0, 3])), None])
def test_nan_and_infinity_are_reported(bad, candidates):
    features, positives = np.asarray([[1, bad]], np.float32), Ragged.from_lists([[0]])
    for rows in twins(3, 2):
        with pytest.raises(DataError, match=r"training diverged: .* Lower the learning rate"):
            rows.step(features, candidates, positives, 0.1)
