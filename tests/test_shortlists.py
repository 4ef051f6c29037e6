"""Shortlists of clusters and the best labels within them, against plain numpy."""

from __future__ import annotations

import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import log_expit

from shortlist.errors import ModelError
from shortlist.heads import runtime
from shortlist.heads.runtime import HeadRuntime
from shortlist.kernels.shortlists import add_wanted, best_of_clusters, best_of_row, join_shortlists, top_columns
from shortlist.ragged import Ragged, bounds_of
from shortlist.shortlisters.clusters import top_clusters, with_positives

NAN, INF = float("nan"), float("inf")


def best_first(scores, k):
    """Columns by falling score, the first of equals first."""
    return np.argsort(-np.asarray(scores), kind="stable")[:k]


def expected_lists(ids_and_scores, k):
    """The k best of (ids, scores) of each sample, filled up with -1 and -inf."""
    ids, scores = np.full((len(ids_and_scores), k), -1), np.full((len(ids_and_scores), k), -np.inf)
    for sample, (candidates, values) in enumerate(ids_and_scores):
        order = np.lexsort((candidates, -values))[:k]
        ids[sample, : len(order)], scores[sample, : len(order)] = candidates[order], values[order]
    return ids, scores


def small_numbers(rng, *shape):
    """Whole numbers from -2 to 2: sums of products are exact, and many are equal."""
    return rng.integers(-2, 3, shape).astype(np.float32)


def random_head(rng, n_rows, n_features, residual=True):
    arrays = {"weights": small_numbers(rng, n_rows, n_features), "biases": small_numbers(rng, n_rows)}
    if residual:
        arrays["block"] = small_numbers(rng, n_features, n_features)
    return HeadRuntime(arrays, n_rows, n_features)


class TestTopClusters:
    @given(st.integers(0, 10_000), st.integers(0, 6), st.integers(1, 40), st.integers(1, 50), st.booleans())
    def test_the_best_in_rising_order_and_of_equals_the_first(self, seed, n_samples, n_clusters, k, ties):
        rng = np.random.default_rng(seed)
        shape = n_samples, n_clusters
        scores = small_numbers(rng, *shape) if ties else 1e3 * rng.standard_normal(shape, dtype=np.float32)
        assert top_clusters(scores, k).tolist() == [sorted(best_first(line, k).tolist()) for line in scores]

    def test_infinite_and_extreme_scores(self):
        scores = np.asarray([[-INF, 3e38, INF, -3e38, 1e-45, -1e-45, 0]], np.float32)
        order = [2, 1, 4, 6, 5, 3, 0]
        for k in range(1, 8):
            assert top_clusters(scores, k).tolist() == [sorted(order[:k])]

    @pytest.mark.parametrize("change", [np.asfortranarray, np.float64], ids=["Fortran order", "float64"])
    def test_other_layouts_and_types_of_scores(self, change):
        scores = np.random.default_rng(0).standard_normal((4, 9)).astype(np.float32)
        assert top_clusters(change(scores), 3).tolist() == top_clusters(scores, 3).tolist()

    @pytest.mark.parametrize("n_bad", [1, 4, 9])
    def test_nan_still_gives_k_different_clusters_and_nothing_is_written_elsewhere(self, n_bad):
        rng = np.random.default_rng(n_bad)
        scores = rng.standard_normal((5, 9)).astype(np.float32)
        for line in scores:
            line[rng.permutation(9)[:n_bad]] = NAN
        canvas = np.full((7, 4), -7, np.int32)
        top_columns(scores, 4, canvas[1:-1])
        assert (canvas[[0, -1]] == -7).all()
        for chosen in canvas[1:-1].tolist():
            assert chosen == sorted(set(chosen))
            assert 0 <= chosen[0] <= chosen[-1] < 9


class TestWithPositives:
    @given(st.integers(0, 10_000), st.integers(0, 6), st.integers(1, 12), st.integers(1, 12))
    def test_adds_what_is_missing_and_counts_the_rest(self, seed, n_samples, n_clusters, k):
        rng = np.random.default_rng(seed)
        k = min(k, n_clusters)
        top = np.asarray([np.sort(rng.permutation(n_clusters)[:k]) for _ in range(n_samples)], np.int32)
        wanted = [rng.permutation(n_clusters)[: rng.integers(0, n_clusters + 1)].tolist() for _ in range(n_samples)]
        clusters, found = with_positives(top.reshape(n_samples, k), Ragged.from_lists(wanted))
        assert clusters.shape == (n_samples, k + max(map(len, wanted), default=0))
        for line, first, extra in zip(clusters.tolist(), top.tolist(), wanted, strict=True):
            expected = first + [cluster for cluster in extra if cluster not in first]
            assert line == expected + [-1] * (len(line) - len(expected))
        assert found == sum(len(set(a) & set(b)) for a, b in zip(top.tolist(), wanted, strict=True))

    def test_places_that_are_empty_are_not_taken_for_clusters(self):
        chosen = np.asarray([[4, -1, 9, 9], [-1, -1, 9, 9]], np.int32)
        assert add_wanted(chosen, 2, np.asarray([0, 2, 3]), np.asarray([4, 0], np.int32).repeat([1, 2])) == 1
        assert chosen.tolist() == [[4, -1, 0, -1], [-1, -1, 0, -1]]


@given(st.integers(0, 10_000), st.integers(0, 5), st.integers(0, 5), st.integers(0, 4), st.integers(1, 9))
def test_shortlists_joined(seed, n_rows, k, n_others, n_labels):
    rng = np.random.default_rng(seed)
    shortlists = rng.integers(-1, n_labels, (7, k)).astype(np.int32)
    rows, others = rng.integers(7, size=n_rows), rng.integers(-1, n_labels, (n_rows, n_others)).astype(np.int32)
    own = [rng.integers(n_labels, size=rng.integers(0, 4)).tolist() for _ in range(n_rows)]
    positives = Ragged.from_lists(own)
    joined = np.full((n_rows + 2, k + n_others + 3), -7, np.int32)
    join_shortlists(shortlists, rows, others, positives.indptr, positives.values, joined[1:-1])
    assert (joined[[0, -1]] == -7).all()
    for line, row, other, labels in zip(joined[1:-1].tolist(), rows, others.tolist(), own, strict=True):
        expected = sorted({*shortlists[row].tolist(), *other, *labels} - {-1})
        assert line == expected + [-1] * (len(line) - len(expected))


class TestBestOfClusters:
    @given(st.integers(0, 10_000), st.integers(0, 5), st.integers(1, 6), st.integers(1, 30), st.booleans())
    def test_the_best_rows_of_the_clusters_seen(self, seed, n_samples, n_clusters, k, residual):
        rng = np.random.default_rng(seed)
        starts = bounds_of(rng.integers(0, 5, n_clusters) + (np.arange(n_clusters) == 0))
        head = random_head(rng, int(starts[-1]), 3, residual)
        features = small_numbers(rng, n_samples, 3)
        clusters = np.full((n_samples, n_clusters), -1, np.int32)
        for line in clusters:
            seen = rng.permutation(n_clusters)[: rng.integers(0, n_clusters + 1)]
            line[rng.permutation(n_clusters)[: len(seen)]] = seen
        logits = head.logits(features)
        rows = [
            np.asarray([row for c in line if c >= 0 for row in range(starts[c], starts[c + 1])], int)
            for line in clusters
        ]
        ids, scores = head.best_of(features, clusters, starts, k)
        expected = expected_lists([(r, line[r]) for r, line in zip(rows, logits, strict=True)], min(k, int(starts[-1])))
        assert ids.tolist() == expected[0].tolist()
        assert scores.tolist() == expected[1].tolist()

    @given(st.integers(0, 10_000), st.integers(1, 5), st.integers(1, 6), st.integers(1, 30))
    def test_multiplied_by_the_probability_of_the_cluster(self, seed, n_samples, n_clusters, k):
        rng = np.random.default_rng(seed)
        starts = bounds_of(rng.integers(1, 5, n_clusters))
        head = random_head(rng, int(starts[-1]), 3)
        features = rng.standard_normal((n_samples, 3)).astype(np.float32)
        cluster_logits = 20 * rng.standard_normal((n_samples, n_clusters)).astype(np.float32)
        every = np.tile(np.arange(n_clusters, dtype=np.int32), (n_samples, 1))
        ids, scores = head.best_of(features, every, starts, k, multiplied_by=cluster_logits)
        sums = log_expit(head.logits(features)) + log_expit(np.repeat(cluster_logits, np.diff(starts), axis=1))
        rows = np.arange(int(starts[-1]))
        expected = expected_lists([(rows, line) for line in sums], min(k, len(rows)))
        np.testing.assert_allclose(scores, expected[1], rtol=1e-5, atol=1e-6)
        # By the scores of the rows found: where two are all but equal, rounding may turn them round.
        np.testing.assert_allclose(np.take_along_axis(sums, ids, axis=1), expected[1], rtol=1e-5, atol=1e-6)
        assert all(len(set(line)) == len(line) for line in ids.tolist())

    def test_nan_keeps_within_the_clusters_and_nothing_is_written_elsewhere(self):
        """A row with NaN may take a place, even the last one of a list that is full; it never comes twice."""
        rng = np.random.default_rng(0)
        weights, features = rng.standard_normal((12, 4)).astype(np.float32), np.ones((3, 4), np.float32)
        weights[[1, 5, 6]] = NAN
        features[2] = NAN
        starts, clusters = np.asarray([0, 3, 8, 12]), np.asarray([[0, 1], [1, -1], [1, 2]], np.int32)
        ids, scores = np.full((5, 4), -7, np.int32), np.full((5, 4), -7, np.float32)
        none = np.zeros((0, 0), np.float32)
        best_of_clusters(
            weights, np.zeros(12, np.float32), starts, features, clusters, none, False, ids[1:-1], scores[1:-1]
        )
        assert (ids[[0, -1]] == -7).all()
        assert (scores[[0, -1]] == -7).all()
        for line, rows in zip(ids[1:-1].tolist(), (range(8), range(3, 8), range(3, 12)), strict=True):
            assert len(set(line)) == 4
            assert set(line) <= set(rows)


class TestBestOfAll:
    @given(st.integers(0, 10_000), st.integers(0, 5), st.integers(1, 20), st.integers(1, 30), st.integers(1, 9))
    def test_the_best_rows_in_blocks_of_any_size(self, seed, n_samples, n_rows, k, block):
        rng = np.random.default_rng(seed)
        head, features = random_head(rng, n_rows, 3), small_numbers(rng, n_samples, 3)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(runtime, "ROWS_PER_BLOCK", block)
            ids, scores = head.best(features, k)
        logits = head.logits(features)
        expected = expected_lists([(np.arange(n_rows), line) for line in logits], min(k, n_rows))
        assert ids.tolist() == expected[0].tolist()
        assert scores.tolist() == expected[1].tolist()

    def test_nan_stays_within_the_list(self):
        """A NaN that came into the list keeps its place: what is worse stands before it, what comes later behind."""
        logits = np.asarray([[1, NAN, 3, 2], [NAN, NAN, NAN, NAN]], np.float32)
        ids, scores = np.full((4, 2), -7, np.int32), np.full((4, 2), -7, np.float32)
        best_of_row(logits, 0, 0, ids[1:-1], scores[1:-1])
        assert ids.tolist() == [[-7, -7], [0, 1], [0, 1], [-7, -7]]


@pytest.mark.skipif(numba.config.NUMBA_NUM_THREADS < 2, reason="numba was started with one thread")
def test_threads_change_nothing():
    rng = np.random.default_rng(1)
    head = HeadRuntime(
        {"weights": rng.standard_normal((50, 7)).astype(np.float32), "biases": np.zeros(50, "f4")}, 50, 7
    )
    features, starts = rng.standard_normal((40, 7)).astype(np.float32), np.arange(0, 51, 5)
    cluster_logits = rng.standard_normal((40, 10)).astype(np.float32)
    results = []
    for threads in (1, 2):
        clusters = top_clusters(cluster_logits, 4, threads)
        lists = (
            head.best(features, 6, threads),
            head.best_of(features, clusters, starts, 6, threads=threads),
            head.best_of(features, clusters, starts, 6, cluster_logits, threads),
        )
        results.append([clusters, *(array for pair in lists for array in pair)])
    for one, two in zip(*results, strict=True):
        assert np.array_equal(one, two)


@pytest.mark.parametrize("residual", [True, False])
def test_runtime_equals_the_head_in_torch(residual):
    torch = pytest.importorskip("torch")
    from shortlist.heads.head import Head
    from shortlist.heads.label_rows import LabelRows

    torch.manual_seed(0)
    head = Head(LabelRows.start(20, 9, prior=0.1), torch.device("cpu"), residual)
    for _ in range(3):  # the spectral norm is another after each step of its power iteration
        head.block(torch.randn(4, 9))
    arrays = head.to_arrays()
    assert head.block.training
    assert set(arrays) == {"weights", "biases"} | ({"block"} if residual else set())
    features = torch.randn(6, 9)
    head.block.eval()
    expected = head.block(features) @ torch.from_numpy(head.rows.weights).T + torch.from_numpy(head.rows.biases)
    logits = HeadRuntime(arrays, 20, 9).logits(features.numpy())
    np.testing.assert_allclose(logits, expected.detach().numpy(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["weights", "biases", "block", "something"])
def test_arrays_of_another_shape_or_type_are_refused(name):
    right = {"weights": np.ones((5, 3), "f4"), "biases": np.ones(5, "f4"), "block": np.ones((3, 3), "f4")}
    HeadRuntime(right, 5, 3)
    for wrong in (np.ones((5, 4), "f4"), right.get(name, np.ones(1)).astype(np.float64)):
        with pytest.raises(ModelError, match=name):
            HeadRuntime(right | {name: wrong}, 5, 3)
