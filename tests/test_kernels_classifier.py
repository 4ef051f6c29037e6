"""The top k, candidates and the scores of labels, against plain numpy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit, log_expit

from shortlist.arrays import QuantizedMatrix, Ragged
from shortlist.errors import ModelError
from shortlist.kernels.candidates import add_wanted, join_shortlists
from shortlist.kernels.classifier import best_of_clusters, score_all_rows, score_rows
from shortlist.kernels.native import native
from shortlist.kernels.top_k import best_of_row, top_columns
from shortlist.stages.candidates import top_clusters
from shortlist.stages.classifier import RowClassifier, best_of

NAN, INF = float("nan"), float("inf")


def best_first(scores, k):
    """Columns by decreasing score; of equals the first comes first."""
    return np.argsort(-np.asarray(scores), kind="stable")[:k]


def small_numbers(rng, *shape):
    """Integers from -2 to 2: sums of products are exact, and many are equal."""
    return rng.integers(-2, 3, shape).astype(np.float32)


class TestTopK:
    @given(st.integers(0, 10_000), st.integers(1, 60), st.sampled_from(["ties", "wide", "close", "infinite"]))
    def test_equals_a_stable_sort(self, seed, n, kind):
        """Close: floats that differ in their last bits only, so that selection looks at every byte."""
        rng = np.random.default_rng(seed)
        scores = {
            "ties": small_numbers(rng, n) + 0.0,
            "wide": rng.standard_normal(n).astype(np.float32) * np.float32(10) ** rng.integers(-30, 30, n),
            "close": (np.float32(-3.7).view(np.uint32) + rng.integers(0, 9, n)).astype(np.uint32).view(np.float32),
            "infinite": rng.choice(np.asarray([-INF, INF, 0, 1, -1], np.float32), n),
        }[kind].astype(np.float32)
        for k in {1, n, int(rng.integers(1, n + 1))}:
            canvas = np.full(k + 2, -7, np.int32)
            top_columns(scores[None], k, canvas[None, 1:-1])
            assert canvas.tolist() == [-7, *sorted(best_first(scores, k).tolist()), -7]

    def test_negative_zero_equals_zero(self):
        chosen = np.empty((1, 1), np.int32)
        top_columns(np.asarray([[-0.0, 0.0]], np.float32), 1, chosen)
        assert chosen.tolist() == [[0]]


class TestBestOfCandidates:
    @given(st.integers(0, 10_000), st.integers(0, 5), st.integers(0, 12), st.integers(0, 15))
    def test_equals_a_stable_sort(self, seed, n_texts, n_candidates, k):
        rng = np.random.default_rng(seed)
        ids = rng.integers(-1, 50, (n_texts, n_candidates)).astype(np.int32)
        odds = np.where(ids >= 0, small_numbers(rng, *ids.shape), -INF).astype(np.float32)
        best, probabilities = best_of(ids, odds, k)
        order = np.argsort(-odds, axis=1, kind="stable")[:, :k]
        assert best.dtype == np.int32
        assert best.tolist() == np.take_along_axis(ids, order, axis=1).tolist()
        np.testing.assert_allclose(probabilities, expit(np.take_along_axis(odds, order, axis=1)), rtol=1e-6)
        if min(k, n_candidates):
            canvases = [np.full((n_texts + 2, min(k, n_candidates)), -7, kind) for kind in (np.int32, np.float32)]
            native.best_of_candidates(ids, odds, *(canvas[1:-1] for canvas in canvases))
            assert canvases[0][1:-1].tolist() == best.tolist()
            assert all((canvas[[0, -1]] == -7).all() for canvas in canvases)

    def test_other_types_and_layouts_of_odds(self):
        ids = np.arange(12, dtype=np.int32).reshape(2, 6)
        odds = np.random.default_rng(0).standard_normal((2, 6))
        for same in (odds, np.asfortranarray(odds), odds.astype(np.float32)):
            assert best_of(ids, same, 3)[0].tolist() == best_of(ids, odds, 3)[0].tolist()


class TestScoresOfRows:
    """A kernel scores few samples, matrix products score many, and candidates are scored one by one."""

    @pytest.mark.parametrize("n_rows", [0, 1, 255, 256, 257, 600])
    @pytest.mark.parametrize("kind", [np.float32, np.int8])
    def test_kernels_fill_every_place_and_no_other(self, n_rows, kind):
        rng = np.random.default_rng(n_rows)
        rows = QuantizedMatrix(small_numbers(rng, n_rows, 5).astype(kind), 2 ** small_numbers(rng, n_rows))
        biases, features = small_numbers(rng, n_rows), small_numbers(rng, 3, 5)
        expected = features @ (rows.values * rows.scales[:, None]).T + biases
        canvas = np.full((5, n_rows), -7, np.float32)
        score_all_rows(rows.values, rows.scales, biases, features, canvas[1:-1])
        assert np.array_equal(canvas[1:-1], expected)
        assert (canvas[[0, -1]] == -7).all()
        candidates = np.tile(np.arange(-1, n_rows, dtype=np.int32), (3, 1))
        canvas = np.full((5, n_rows + 1), -7, np.float32)
        score_rows(rows.values, rows.scales, biases, features, candidates, canvas[1:-1])
        assert np.array_equal(canvas[1:-1, 1:], expected)
        assert (canvas[1:-1, 0] == -INF).all()
        assert (canvas[[0, -1]] == -7).all()


class TestTopClusters:
    @given(st.integers(0, 10_000), st.integers(0, 6), st.integers(1, 40), st.integers(1, 50), st.booleans())
    def test_the_best_in_increasing_order_and_of_equals_the_first(self, seed, n_samples, n_clusters, k, ties):
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
    def test_nan_gives_k_different_clusters_and_nothing_is_written_elsewhere(self, n_bad):
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
        from shortlist.training.learner import with_positives

        clusters, found = with_positives(top.reshape(n_samples, k), Ragged.from_lists(wanted))
        assert clusters.shape == (n_samples, k + max(map(len, wanted), default=0))
        for line, first, extra in zip(clusters.tolist(), top.tolist(), wanted, strict=True):
            expected = first + [cluster for cluster in extra if cluster not in first]
            assert line == expected + [-1] * (len(line) - len(expected))
        assert found == sum(len(set(a) & set(b)) for a, b in zip(top.tolist(), wanted, strict=True))

    def test_empty_places_are_not_clusters(self):
        chosen = np.asarray([[4, -1, 9, 9], [-1, -1, 9, 9]], np.int32)
        assert add_wanted(chosen, 2, np.asarray([0, 2, 3]), np.asarray([4, 0]).repeat([1, 2])) == 1
        assert chosen.tolist() == [[4, -1, 0, -1], [-1, -1, 0, -1]]


@given(st.integers(0, 10_000), st.integers(0, 5), st.integers(0, 5), st.integers(0, 4), st.integers(1, 9))
def test_joined_shortlists_are_sorted_unions(seed, n_rows, k, n_others, n_labels):
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
    @given(st.integers(0, 10_000), st.integers(0, 5), st.integers(1, 9), st.integers(0, 20), *2 * [st.booleans()])
    def test_equals_a_stable_sort(self, seed, n_texts, n_clusters, k, packed, multiplied):
        rng = np.random.default_rng(seed)
        starts = np.append(0, np.cumsum(rng.integers(0, 7, n_clusters)))
        n_rows = starts[-1]
        values, scales = small_numbers(rng, n_rows, 5), 2 ** small_numbers(rng, n_rows)
        weights = values.astype("i1" if packed else "f4")
        biases, features = small_numbers(rng, n_rows), small_numbers(rng, n_texts, 5)
        of_clusters = small_numbers(rng, n_texts, n_clusters)
        clusters = np.stack([rng.permutation(np.arange(-1, n_clusters)) for _ in range(n_texts + 1)]).astype(np.int32)
        clusters = np.ascontiguousarray(clusters[:n_texts, : rng.integers(1, n_clusters + 2)])
        ids, scores = np.full((n_texts + 2, k), -7, np.int32), np.full((n_texts + 2, k), -7, np.float32)
        out = ids[1:-1], scores[1:-1]
        best_of_clusters(weights, scales, biases, starts, features, clusters, of_clusters, multiplied, *out)
        assert (ids[[0, -1]] == -7).all() and (scores[[0, -1]] == -7).all()
        cluster_of_row = np.repeat(np.arange(n_clusters), np.diff(starts))
        for text in range(n_texts):
            own = np.flatnonzero(np.isin(cluster_of_row, clusters[text]))
            logits = scales[own] * (values[own] @ features[text]) + biases[own]
            if multiplied:
                logits = log_expit(logits) + log_expit(of_clusters[text, cluster_of_row[own]])
            order = best_first(logits, k)
            n = len(order)
            np.testing.assert_allclose(out[1][text, :n], logits[order], rtol=1e-4)
            assert (out[0][text, n:] == -1).all() and (out[1][text, n:] == -INF).all()
            if not multiplied:  # rounding may part equal products
                assert out[0][text, :n].tolist() == own[order].tolist()

    def test_nan_stays_within_the_clusters_and_nothing_is_written_elsewhere(self):
        """A row with NaN may take a place, even in a full list, but only once."""
        rng = np.random.default_rng(0)
        weights, features = rng.standard_normal((12, 4)).astype(np.float32), np.ones((3, 4), np.float32)
        weights[[1, 5, 6]] = NAN
        features[2] = NAN
        starts, clusters = np.asarray([0, 3, 8, 12]), np.asarray([[0, 1], [1, -1], [1, 2]], np.int32)
        ids, scores = np.full((5, 4), -7, np.int32), np.full((5, 4), -7, np.float32)
        none = np.zeros((0, 0), np.float32)
        best_of_clusters(
            weights,
            np.ones(12, np.float32),
            np.zeros(12, np.float32),
            starts,
            features,
            clusters,
            none,
            False,
            ids[1:-1],
            scores[1:-1],
        )
        assert (ids[[0, -1]] == -7).all()
        assert (scores[[0, -1]] == -7).all()
        for line, rows in zip(ids[1:-1].tolist(), (range(8), range(3, 8), range(3, 12)), strict=True):
            assert len(set(line)) == 4
            assert set(line) <= set(rows)


class TestBestOfAll:
    def test_nan_stays_within_the_list(self):
        """A NaN that is in the list keeps its place."""
        logits = np.asarray([[1, NAN, 3, 2], [NAN, NAN, NAN, NAN]], np.float32)
        ids, scores = np.full((4, 2), -7, np.int32), np.full((4, 2), -7, np.float32)
        best_of_row(logits, 0, 0, ids[1:-1], scores[1:-1])
        assert ids.tolist() == [[-7, -7], [0, 1], [0, 1], [-7, -7]]


@pytest.mark.parametrize("name", ["weights", "biases", "block", "something"])
def test_arrays_of_another_shape_or_type_are_refused(name):
    right = {"weights": np.ones((5, 3), "f4"), "biases": np.ones(5, "f4"), "block": np.ones((3, 3), "f4")}
    RowClassifier.from_arrays(right, {})
    for wrong in (np.ones((6, 4), "f4"), right.get(name, np.ones(1)).astype(np.float64)):
        with pytest.raises(ModelError):
            RowClassifier.from_arrays(right | {name: wrong}, {}, n_labels=5, n_features=3)


def test_rows_in_8_bits_without_their_scales_are_refused():
    right = {"weights": np.ones((5, 3), "i1"), "weights.scales": np.ones(5, "f4"), "biases": np.ones(5, "f4")}
    assert RowClassifier.from_arrays(right, {}).layer.logits(np.ones((1, 3), "f4")).tolist() == [[4.0] * 5]
    for wrong in (np.ones(4, "f4"), np.ones(5), np.ones((5, 1), "f4")):
        with pytest.raises(ModelError, match="one float32 scale for each of its 5 rows"):
            RowClassifier.from_arrays(right | {"weights.scales": wrong}, {})
    del right["weights.scales"]
    with pytest.raises(ModelError, match="one float32 scale for each of its 5 rows"):
        RowClassifier.from_arrays(right, {})
