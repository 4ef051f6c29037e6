"""Classifiers: the best labels and their probabilities, against plain numpy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from scipy.special import expit

from model_files import replaced
from reference_astec import mixed_score, similarity
from shortlist.errors import ModelError
from shortlist.stages import classifier as classifier_module
from shortlist.stages.blend import MIN_VOTES, Blend, MeanBlend
from shortlist.stages.candidates import Candidates
from shortlist.stages.classifier import (
    BucketClassifier,
    PriorClassifier,
    RowClassifier,
    SparseClassifier,
    VoteClassifier,
    best_of,
    bucket_arrays,
)
from shortlist.stages.output_layer import OutputLayer
from test_stages_output_layer import dense_logits, expected_lists, layer_arrays

INF = float("inf")


class TestBestOf:
    def test_other_types_and_layouts_of_log_odds(self):
        ids = np.arange(12, dtype=np.int32).reshape(2, 6)
        odds = np.random.default_rng(0).standard_normal((2, 6))
        for same in (odds, np.asfortranarray(odds), odds.astype(np.float32)):
            assert best_of(ids, same, 3)[0].tolist() == best_of(ids, odds, 3)[0].tolist()


class TestRowClassifier:
    N_LABELS, N_FEATURES = 12, 3

    def new(self, order=False, blend=None, seed=0):
        rng = np.random.default_rng(seed)
        arrays = layer_arrays(rng, self.N_LABELS, self.N_FEATURES)
        if order:
            arrays["order"] = rng.permutation(self.N_LABELS).astype(np.int32)
        stage = RowClassifier.from_arrays(arrays, {} if blend is None else {"blend": blend}, n_labels=self.N_LABELS)
        features = rng.standard_normal((7, self.N_FEATURES)).astype(np.float32)
        logits = dense_logits(stage.layer, features)
        by_label = np.empty_like(logits)
        by_label[:, arrays.get("order", np.arange(self.N_LABELS))] = logits
        return stage, features, by_label

    def test_all_labels(self):
        stage, features, logits = self.new()
        ids, scores = stage.best(features, Candidates(), 4)
        expected = np.argsort(-logits, axis=1, kind="stable")[:, :4]
        assert np.array_equal(ids, expected)
        np.testing.assert_allclose(scores, expit(np.take_along_axis(logits, expected, axis=1)), rtol=1e-5)
        assert stage.best(features, Candidates(), 99)[0].shape == (7, self.N_LABELS)

    @pytest.mark.parametrize("use_logits", [False, True])
    def test_rows_of_clusters_become_labels(self, use_logits):
        stage, features, logits = self.new(order=True)
        starts, order = np.array([0, 3, 3, 8, 12]), stage.arrays()["order"]
        clusters = np.tile(np.array([0, 2], np.int32), (7, 1))
        cluster_logits = np.random.default_rng(1).standard_normal((7, 4)).astype(np.float32)
        evidence = (cluster_logits,) if use_logits else ()
        ids, scores = stage.best(features, Candidates(None, clusters, starts, evidence), 9)
        assert ids.dtype == np.int32
        assert (ids[:, 8:] == -1).all()
        labels = np.concatenate([order[0:3], order[3:8]])
        assert all(set(row) == set(labels.tolist()) for row in ids[:, :8].tolist())
        cluster_of_label = np.empty(self.N_LABELS, int)
        cluster_of_label[order] = np.repeat(np.arange(4), np.diff(starts))
        probabilities = expit(logits)
        if use_logits:
            probabilities = probabilities * expit(cluster_logits[:, cluster_of_label])
        np.testing.assert_allclose(
            scores[:, :8], np.take_along_axis(probabilities, ids[:, :8], axis=1), rtol=1e-4, atol=1e-6
        )
        assert (np.diff(scores[:, :8], axis=1) <= 1e-6).all()
        own = (np.take_along_axis(cluster_logits, cluster_of_label[ids[:, :8]], axis=1),) if use_logits else ()
        np.testing.assert_allclose(stage.scores(features, ids[:, :8], own), scores[:, :8], rtol=1e-4, atol=1e-6)

    @pytest.mark.parametrize("blend", [{}, {"classifier": 0.5, "cosine": -2.0, "votes": 0.3, "bias": 1.0}])
    def test_blend_of_logits_cosines_and_votes(self, blend):
        stage, features, logits = self.new(blend=blend)
        rng = np.random.default_rng(1)
        ids = np.stack([rng.permutation(self.N_LABELS)[:6] for _ in range(7)]).astype(np.int32)
        ids[2, 4:] = -1
        cosines, votes = rng.standard_normal((2, 7, 6)).astype(np.float32)
        votes = np.maximum(votes, 0)
        parts = {"classifier": 1.0, "cosine": 1.0, "votes": 0.1, "bias": 0.0, **blend}
        odds = parts["classifier"] * np.take_along_axis(logits, np.maximum(ids, 0), axis=1)
        odds += parts["cosine"] * cosines + parts["votes"] * np.log(np.maximum(votes, MIN_VOTES)) + parts["bias"]
        odds = np.where(ids >= 0, odds, -INF)
        best, scores = stage.best(features, Candidates(ids, evidence=(cosines, votes)), 6)
        order = np.argsort(-odds, axis=1, kind="stable")
        assert np.array_equal(best, np.take_along_axis(ids, order, axis=1))
        np.testing.assert_allclose(scores, expit(np.take_along_axis(odds, order, axis=1)), rtol=1e-4)
        known = stage.scores(features[:2], ids[:2], (cosines[:2], votes[:2]))
        np.testing.assert_allclose(known, expit(odds[:2]), rtol=1e-4)
        assert stage.config() == {"blend": parts}

    @pytest.mark.parametrize("classifier", [1.0, 0.0, -0.5])
    def test_missing_candidates_come_last_whatever_the_blend(self, classifier):
        stage, features, _ = self.new(blend={"classifier": classifier})
        ids = np.tile(np.array([-1, 3, -1, 5], np.int32), (7, 1))
        zeros = np.zeros(ids.shape, np.float32)
        best, scores = stage.best(features, Candidates(ids, evidence=(zeros, zeros)), 4)
        assert all(sorted(row[:2]) == [3, 5] for row in best.tolist())
        assert (best[:, 2:] == -1).all()
        assert not scores[:, 2:].any()

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"weights": lambda a: a[:, :-1]}, "'block' has shape"),
            ({"weights": lambda a: a.astype(np.float64)}, "'weights' is float64"),
            ({"weights": lambda a: a.astype(np.int8)}, "'weights' is int8 and needs one float32 scale"),
            ({"weights": None}, "'weights' is missing"),
            ({"biases": lambda a: a[:-1]}, "'biases' has shape"),
            ({"biases": lambda a: a.astype(np.float64)}, "'biases' is float64"),
            ({"block": lambda a: a[:-1]}, "'block' has shape"),
            ({"block": lambda a: a * np.inf}, "'block' contains NaN or infinity"),
            ({"order": lambda a: a + 1}, "'order' has a value of 12"),
            ({"order": lambda a: a * 0}, "'order' has a value twice"),
            ({"something": np.ones(3, np.float32)}, "'something' is not part of this stage"),
        ],
    )
    def test_damaged_arrays_are_refused(self, change, message):
        arrays = self.new(order=True)[0].arrays()
        with (
            np.errstate(invalid="ignore"),
            pytest.raises(ModelError, match=message),
        ):
            RowClassifier.from_arrays(replaced(arrays, change), {}, n_labels=self.N_LABELS)

    def test_another_number_of_labels_is_refused(self):
        with pytest.raises(ModelError, match="expected 13 where it has 12"):
            RowClassifier.from_arrays(self.new()[0].arrays(), {}, n_labels=13)

    @pytest.mark.parametrize("value", [None, "1", True, [1], 1e300, float("nan")])
    def test_a_damaged_blend_is_refused(self, value):
        with pytest.raises(ModelError, match="cosine"):
            RowClassifier.from_arrays(self.new()[0].arrays(), {"blend": {"cosine": value}})


class TestMeanBlend:
    @pytest.mark.parametrize(("alpha", "scale"), [(0.0, 1.0), (0.3, 1.0), (1.0, 1.0), (0.5, 2.5)])
    def test_is_the_published_mean(self, alpha, scale):
        rng = np.random.default_rng(0)
        logits, cosines = (rng.normal(0, 5, (4, 6)).astype(np.float32) for _ in range(2))
        votes = rng.random((4, 6)).astype(np.float32)
        logits[0, 0] = -INF  # no candidate
        odds = MeanBlend(alpha, 0.075, scale).log_odds(logits, cosines, votes)
        assert odds[0, 0] == -INF
        similarities = scale * similarity(cosines, votes, gamma=0.075)
        expected = mixed_score(logits, similarities, alpha).ravel()[1:]
        np.testing.assert_allclose(expit(odds).ravel()[1:], expected, atol=1e-6)

    def test_ranks_what_hardly_differs(self):
        logits, zeros = np.float32([[-40, -39, 30, 31]]), np.zeros((1, 4), np.float32)
        odds = MeanBlend(1.0).log_odds(logits, zeros, zeros)
        np.testing.assert_allclose(odds, logits, rtol=1e-3)

    def test_is_saved_with_the_classifier(self):
        arrays = {"weights": np.eye(3, dtype=np.float32), "biases": np.zeros(3, np.float32)}
        stage = RowClassifier(arrays, {"blend": {"alpha": 0.25, "vote_weight": 0.5, "scale": 2.0}})
        again = RowClassifier.from_arrays(arrays, stage.config())
        assert again.blend == MeanBlend(0.25, 0.5, 2.0)
        for name, value in (("alpha", 1.1), ("alpha", -0.1), ("vote_weight", 2), ("scale", None)):
            with pytest.raises(ModelError, match=name):
                RowClassifier.from_arrays(arrays, {"blend": {**stage.config()["blend"], name: value}})


def test_rows_over_directions_of_features():
    rng = np.random.default_rng(0)
    arrays = {"weights": rng.random((5, 3), np.float32), "biases": rng.random(5, np.float32)}
    features = rng.random((4, 3), np.float32)
    unit = features / np.linalg.norm(features, axis=1, keepdims=True)
    plain, of_unit = RowClassifier(arrays), RowClassifier(arrays, {"unit_features": True})
    assert of_unit.config() == {"unit_features": True}
    ids = np.tile(np.arange(5, dtype=np.int32), (4, 1))
    np.testing.assert_allclose(of_unit.scores(features, ids, ()), plain.scores(unit, ids, ()), rtol=1e-5)
    for candidates in (Candidates(), Candidates(ids[:, :3])):
        for found, expected in zip(of_unit.best(features, candidates, 2), plain.best(unit, candidates, 2), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-5)


class TestVoteClassifier:
    def test_ranks_candidates_by_their_votes(self):
        stage = VoteClassifier({}, {"n_labels": 9, "n_features": 2})
        ids, votes = np.int32([[4, 7, -1, 2], [1, -1, -1, -1]]), np.float32([[0.1, 0.6, 0, 0.3], [0, 0, 0, 0]])
        found, scores = stage.best(np.zeros((2, 2)), Candidates(ids, evidence=(votes, votes)), 3)
        assert found.tolist() == [[7, 2, 4], [1, -1, -1]]
        np.testing.assert_allclose(scores, [[0.6, 0.3, 0.1], [0, 0, 0]])
        assert stage.best(np.zeros((2, 2)), Candidates(ids, evidence=(votes, votes)), 99)[0].shape == (2, 4)
        assert stage.scores(np.zeros((2, 2)), ids, (votes, votes)) is votes
        assert stage.multiply_adds(4, None) == 0

    def test_another_number_of_labels_is_refused(self):
        with pytest.raises(ModelError, match="n_labels is 9; the model has 8"):
            VoteClassifier.from_arrays({}, {"n_labels": 9, "n_features": 2}, n_labels=8)


def test_blend_defaults_are_a_classifier_and_its_cosine():
    assert Blend().log_odds(np.float32([[2]]), np.float32([[0.5]]), np.float32([[1]])).tolist() == [[2.5]]


class TestBucketClassifier:
    N_LABELS = 30

    def new(self, n_repetitions=3, seed=0):
        rng = np.random.default_rng(seed)
        layers = [layer_arrays(rng, 5 + i, 3 + i) for i in range(n_repetitions)]
        buckets = np.stack([rng.integers(5 + i, size=self.N_LABELS) for i in range(n_repetitions)]).astype(np.int32)
        arrays = bucket_arrays(layers, buckets)
        features = rng.standard_normal((7, sum(3 + i for i in range(n_repetitions)))).astype(np.float32)
        means, begin = np.zeros((7, self.N_LABELS)), 0
        for i, (layer, own) in enumerate(zip(layers, buckets, strict=True)):
            logits = dense_logits(OutputLayer(layer), features[:, begin : begin + 3 + i])
            means += expit(logits)[:, own] / n_repetitions
            begin += 3 + i
        return arrays, features, means

    @pytest.mark.parametrize("n_repetitions", [1, 3, 11])
    @pytest.mark.parametrize("block", [7, 8192])
    def test_the_score_of_a_label_is_the_mean_of_its_buckets(self, monkeypatch, n_repetitions, block):
        monkeypatch.setattr(classifier_module, "LABELS_PER_BLOCK", block)
        arrays, features, means = self.new(n_repetitions)
        stage = BucketClassifier.from_arrays(arrays, {}, n_labels=self.N_LABELS)
        ids, scores = stage.best(features, Candidates(), 6)
        np.testing.assert_allclose(scores, -np.sort(-means, axis=1)[:, :6], rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(np.take_along_axis(means, ids, axis=1), scores, rtol=1e-4, atol=1e-6)
        assert all(len(set(row)) == 6 for row in ids.tolist())
        np.testing.assert_allclose(stage.scores(features, ids, ()), scores, rtol=1e-4, atol=1e-6)

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"buckets": None}, "'buckets' is missing"),
            ({"buckets": lambda a: a.astype(np.int64)}, "'buckets' is int64"),
            ({"buckets": lambda a: a[0]}, "'buckets' has 1 axes"),
            ({"buckets": lambda a: a[0, 0]}, "'buckets' has 0 axes"),
            ({"buckets": lambda a: a[:0]}, "'0.biases' is not part of this stage"),
            ({"buckets": lambda a: a[:, :-1]}, "'buckets' has shape"),
            ({"buckets": lambda a: a + 5}, "'buckets' has a value of"),
            ({"buckets": lambda a: a - 1}, "'buckets' has a value of -1"),
            ({"buckets": lambda a: a[:2]}, "'2.biases' is not part of this stage"),
            ({"1.weights": None}, "'1.weights' is missing"),
            ({"2.biases": lambda a: a[:-1]}, "'2.biases' has shape"),
        ],
    )
    def test_damaged_arrays_are_refused(self, change, message):
        with pytest.raises(ModelError, match=message):
            BucketClassifier.from_arrays(replaced(self.new()[0], change), {}, n_labels=self.N_LABELS)

    def test_no_repetitions_are_refused(self):
        with pytest.raises(ModelError, match="at least one repetition"):
            BucketClassifier.from_arrays({"buckets": np.zeros((0, 4), np.int32)}, {})


class TestSparseClassifier:
    def new(self, n_labels=6, n_features=9, seed=0):
        rng = np.random.default_rng(seed)
        weights = sparse.random_array((n_labels, n_features), density=0.4, rng=rng, dtype=np.float32)
        features = sparse.random_array((8, n_features), density=0.3, rng=rng, dtype=np.float32)
        return sparse.csr_array(weights), sparse.csr_array(features)

    @given(st.integers(0, 1000), st.integers(1, 9), st.integers(1, 12), st.integers(1, 12))
    def test_equals_a_dense_product(self, seed, n_labels, n_features, k):
        weights, features = self.new(n_labels, n_features, seed)
        stage = SparseClassifier.of_rows(weights)
        stage = SparseClassifier.from_arrays(stage.arrays(), stage.config(), n_labels=n_labels)
        ids, scores = stage.best(features, Candidates(), k)
        products = features.toarray() @ weights.toarray().T
        shared = (features.toarray() > 0) @ (weights.toarray() > 0).T  # labels without a common word are not found
        for row in range(8):
            labels = np.flatnonzero(shared[row])
            expected = expected_lists([(labels, products[row, labels])], min(k, n_labels))
            np.testing.assert_allclose(scores[row], np.where(np.isfinite(expected[1][0]), expected[1][0], 0), rtol=1e-5)
            assert (ids[row] >= 0).sum() == min(k, len(labels))
            found = ids[row][ids[row] >= 0]
            np.testing.assert_allclose(products[row, found], scores[row][: len(found)], rtol=1e-5)
        every = np.tile(np.arange(n_labels), (8, 1))
        np.testing.assert_allclose(stage.scores(features, every, ()), products, rtol=1e-5, atol=1e-7)

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"indptr": lambda a: a[::-1].copy()}, "'indptr' must start at 0"),
            ({"indptr": lambda a: a + 1}, "'indptr' must start at 0"),
            ({"labels": lambda a: a + 6}, "'labels' has a value of"),
            ({"labels": lambda a: a - 6}, "'labels' has a value of -6"),
            ({"weights": lambda a: a[:-1]}, "'weights' has shape"),
            ({"weights": lambda a: a.astype(np.float64)}, "'weights' is float64"),
            ({"labels": None}, "'labels' is missing"),
        ],
    )
    def test_damaged_arrays_are_refused(self, change, message):
        stage = SparseClassifier.of_rows(self.new()[0])
        with pytest.raises(ModelError, match=message):
            SparseClassifier.from_arrays(replaced(stage.arrays(), change), stage.config(), n_labels=6)

    @pytest.mark.parametrize("n_labels", [1, 5, 7, 10**9, 0, -1, None, "6", 6.0])
    def test_another_number_of_labels_is_refused(self, n_labels):
        """A kernel has room for as many labels as the config says."""
        stage = SparseClassifier.of_rows(self.new()[0])
        with pytest.raises(ModelError, match="n_labels is"):
            SparseClassifier.from_arrays(stage.arrays(), {"n_labels": n_labels}, n_labels=6)


class TestPriorClassifier:
    def test_the_same_frequent_labels_for_every_text(self):
        stage = PriorClassifier.from_arrays({"frequencies": np.array([0.1, 0.5, 0, 0.5], np.float32)}, {}, n_labels=4)
        ids, scores = stage.best(np.zeros((2, 0)), Candidates(), 9)
        assert ids.tolist() == [[1, 3, 0]] * 2
        assert scores.tolist() == [pytest.approx([0.5, 0.5, 0.1])] * 2
        assert stage.best(np.zeros((2, 0)), Candidates(), 1)[0].tolist() == [[1], [1]]
        assert stage.scores(np.zeros((1, 0)), np.array([[2, 3]]), ()).tolist() == [[0, 0.5]]

    def test_damaged_arrays_are_refused(self):
        for wrong in (np.zeros(3, np.float32), np.zeros(4), np.full(4, np.nan, np.float32)):
            with pytest.raises(ModelError, match="'frequencies'"):
                PriorClassifier.from_arrays({"frequencies": wrong}, {}, n_labels=4)
