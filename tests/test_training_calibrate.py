"""Fitting calibrations to predictions whose probabilities are known."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import logit

from shortlist.evaluation.calibration import calibration_error, reliability
from shortlist.odds import expit
from shortlist.stages.calibration import PLACES, Calibration
from shortlist.training.calibrate import METHODS, MIN_PAIRS, RERANKED, Prior, fit_calibration, fit_weights

# From the probability of a pair to the wrong score that a model gives it.
DISTORTED = {
    "overconfident": lambda p: expit(3 * logit(p)),
    "underconfident": lambda p: expit(0.3 * logit(p)),
    "too high": lambda p: expit(logit(p) + 2),
    "too low": lambda p: p / 5,
    "steps": lambda p: np.where(p < 0.5, 0.1 * p, 0.9 + 0.1 * p),
}


def drawn(n, seed=0):
    """Texts with one label each: probabilities such as the best labels of a model have, whether each is a hit, and
    that all words are known."""
    rng = np.random.default_rng(seed)
    probabilities = np.clip(rng.beta(0.5, 0.8, (n, 1)), 1e-4, 1 - 1e-4)
    return probabilities, rng.random((n, 1)) < probabilities, np.ones(n)


def ranked(n, weights, seed=0):
    """Rankings of ten labels, of which the first five are hits as often as these weights say: see `Calibration`."""
    rng = np.random.default_rng(seed)
    scores = -np.sort(-rng.beta(0.3, 2, (n, 10)), axis=1).astype(np.float32)
    known = rng.random(n)
    probabilities = Calibration.of_curves("planted", [weights], [PLACES]).apply(scores, known)[:, :5]
    return scores, rng.random(probabilities.shape) < probabilities, known, probabilities


class TestFitCalibration:
    @pytest.mark.parametrize("how", DISTORTED)
    def test_distorted_scores_become_probabilities(self, how):
        probabilities, hits, known = drawn(4000)
        scores = DISTORTED[how](probabilities).astype(np.float32)
        calibration, errors, unseen = fit_calibration(scores, hits, known)
        assert set(errors) == {"none", "logistic", "isotonic"}
        assert errors[calibration.method] < errors["none"] / 2
        assert errors["none"] == pytest.approx(calibration_error(scores.ravel(), hits.ravel()))
        assert calibration_error(unseen.ravel(), hits.ravel()) == pytest.approx(errors[calibration.method])
        assert ((unseen - hits) ** 2).mean() < ((scores - hits) ** 2).mean()
        new_probabilities, new_hits, _ = drawn(4000, seed=1)
        new_scores = DISTORTED[how](new_probabilities).astype(np.float32)
        applied = calibration.apply(new_scores, known)
        before, after = (calibration_error(s.ravel(), new_hits.ravel()) for s in (new_scores, applied))
        assert after < min(0.04, before / 2)
        assert np.abs(applied - new_probabilities).mean() < 0.03

    @pytest.mark.parametrize(
        "planted", [(2, 0, 0, 1), (0.5, -1, 0, -0.5), (1, 0, 3, -2), (0.7, -0.4, 1.5, -1)], ids=str
    )
    def test_logistic_regression_finds_what_moves_the_probability(self, planted):
        """The score, the text's other scores, and how many of its words are known."""
        scores, hits, known, probabilities = ranked(8000, planted)
        fitted = fit_weights(scores, hits, known)
        assert fitted.arrays()["weights"][0] == pytest.approx(planted, abs=0.25)
        assert np.abs(fitted.apply(scores, known)[:, :5] - probabilities).mean() < 0.01

    def test_a_text_of_unknown_words_gets_lower_scores(self):
        scores, hits, known, _ = ranked(2000, (1, -0.3, 3, 0))
        calibration, errors, _ = fit_calibration(scores, hits, known)
        assert errors[calibration.method] < errors["none"] / 2
        all_known, half, unknown = (calibration.apply(scores, np.full(2000, share)) for share in (1, 0.5, 0))
        assert (all_known[:, 0] >= half[:, 0]).all() and (half[:, 0] >= unknown[:, 0]).all()
        assert all_known[:, 0].mean() > unknown[:, 0].mean() + 0.2

    def test_unknown_words_never_make_a_model_surer(self):
        """Where held-out texts have none, and where those that have some are right more often."""
        scores, hits, _, _ = ranked(2000, (1, -0.3, 0, -2))
        for share in (np.ones(2000), np.where(hits.any(axis=1), 0.5, 1.0)):
            for fit in METHODS.values():
                fitted = fit(scores, hits, share)
                assert fitted.arrays()["weights"][0, 2] == 0
                sure, unsure = (fitted.apply(scores, np.full(2000, some)) for some in (1.0, 0.0))
                assert np.array_equal(sure, unsure)

    def test_weights_that_would_change_the_order_of_labels_are_not_learnt(self):
        """Where labels beside other high scores are right more often, or low scores more often than high ones."""
        rng = np.random.default_rng(0)
        scores = -np.sort(-rng.random((2000, 10)), axis=1).astype(np.float32)
        for hits in (rng.random((2000, 5)) < scores.sum(axis=1, keepdims=True) / 10, scores[:, :5] < 0.5):
            for fit in METHODS.values():
                fitted = fit(scores, hits, np.ones(2000))
                assert (np.diff(fitted.apply(scores, np.ones(2000)), axis=1) <= 0).all()

    @pytest.mark.parametrize("seed", range(4))
    def test_calibrated_scores_hardly_change(self, seed):
        probabilities, hits, known = drawn(4000, seed)
        calibration, errors, unseen = fit_calibration(probabilities, hits, known)
        assert errors["none"] < 0.03
        if calibration is None:
            assert np.array_equal(unseen, probabilities)
        else:
            assert np.abs(calibration.apply(probabilities, known) - probabilities).mean() < 0.03

    def test_scores_stay_as_they_are_where_nothing_is_better(self):
        """Scores of 0 and 1 that are always right."""
        hits = np.arange(400)[:, None] % 3 == 0
        calibration, errors, unseen = fit_calibration(hits.astype(np.float32), hits, np.ones(400))
        assert calibration is None
        assert errors["none"] == pytest.approx(0, abs=1e-6)
        assert np.array_equal(unseen, hits)

    def test_a_prior_counts_where_texts_are_few(self):
        planted = (0.7, -0.2, 1.5, -0.6)
        prior = Prior(planted, (100.0, 100.0, 10.0, 5.0))
        gaps = {"with": [], "without": []}
        for seed in range(5):
            scores, hits, known, _ = ranked(50, planted, seed)
            new_scores, _, new_known, probabilities = ranked(1000, planted, seed=100 + seed)
            for name, fitted in (
                ("with", fit_weights(scores, hits, known, prior)),
                ("without", fit_weights(scores, hits, known)),
            ):
                gaps[name].append(np.abs(fitted.apply(new_scores, new_known)[:, :5] - probabilities).mean())
        assert np.mean(gaps["with"]) < 0.7 * np.mean(gaps["without"])
        far_off = Prior((2.0, 0.0, 0.0, 2.0), prior.penalty)
        scores, hits, known, probabilities = ranked(20_000, planted)
        fitted = fit_weights(scores, hits, known, far_off)
        assert np.abs(fitted.apply(scores, known)[:, :5] - probabilities).mean() < 0.02

    @pytest.mark.parametrize("bend", [(1.3, 0.1, 0.8), (1.0, 1.0, 0.0), (0.5, 1.5, -0.5)], ids=str)
    def test_scores_of_the_re_ranker_may_be_bent(self, bend):
        """A prior says how; texts say otherwise where there are enough. The order of labels stays."""
        weights, rng = (0.7, -0.1, 1.7, -0.4), np.random.default_rng(0)
        scores, _, known, straight = ranked(20_000, weights)
        a, b, c = bend
        probabilities = expit(a * np.log(straight) - b * np.log1p(-straight) + c)
        hits = rng.random(probabilities.shape) < probabilities
        calibration, _, _ = fit_calibration(scores, hits, known, RERANKED)
        applied = calibration.apply(scores, known)
        assert np.abs(applied[:, :5] - probabilities).mean() < 0.015
        assert (np.diff(applied, axis=1) <= 0).all()
        few = fit_weights(scores[:0], hits[:0], known[:0], RERANKED)
        assert few.apply(np.full((1, 2), 0.999), np.ones(1))[0, 0] < 0.95  # never that sure without a text

    @pytest.mark.parametrize("n", [0, 1, MIN_PAIRS - 1])
    def test_too_few_pairs_change_nothing(self, n):
        probabilities, hits, known = drawn(n)
        calibration, errors, unseen = fit_calibration(np.sqrt(probabilities), hits, known)
        assert (calibration, errors) == (None, {})
        assert np.array_equal(unseen, np.sqrt(probabilities))

    def test_only_the_first_labels_of_a_text_are_judged(self):
        scores, hits, known, _ = ranked(MIN_PAIRS // 5, (2, 0, 0, 1))
        assert fit_calibration(scores, hits, known)[2].shape == hits.shape == (40, 5)
        assert fit_calibration(scores[:39], hits[:39], known[:39])[1] == {}

    @pytest.mark.filterwarnings("error")
    @pytest.mark.parametrize(
        "change",
        [
            lambda s, hits: (s, np.ones(s.shape, bool)),
            lambda s, hits: (s, np.zeros(s.shape, bool)),
            lambda s, hits: (np.full(s.shape, 0.3), hits),
            lambda s, hits: (np.zeros(s.shape), hits),
            lambda s, hits: (np.ones(s.shape), hits),
            lambda s, hits: ((s > 0.5).astype(float), hits),
            lambda s, hits: (s, s < 0.5),
            lambda s, hits: (np.where(s > 0.3, s, 0), hits),
        ],
        ids=["only hits", "only misses", "constant", "zeros", "ones", "0 and 1", "inverted", "many zeros"],
    )
    def test_the_curve_never_decreases_and_stays_between_0_and_1(self, change):
        scores, hits = change(*drawn(400)[:2])
        scores, known = scores.astype(np.float32), np.arange(400) % 3 / 2
        calibration, errors, unseen = fit_calibration(scores, hits, known)
        assert all(0 <= error <= 1 for error in errors.values())
        assert ((unseen >= 0) & (unseen <= 1)).all()
        for fit in METHODS.values():
            curve = fit(scores, hits, known).apply(np.linspace(0, 1, 999)[:, None], np.ones(999))
            assert (np.diff(curve.ravel()) >= 0).all()
            assert ((curve >= 0) & (curve <= 1)).all()
        if calibration is not None:
            Calibration.from_arrays(calibration.arrays(), calibration.config())

    @given(st.integers(0, 1000), st.sampled_from(sorted(METHODS)), st.sampled_from(sorted(DISTORTED)))
    def test_the_order_of_scores_stays(self, seed, method, how):
        probabilities, hits, known = drawn(300, seed)
        calibration = METHODS[method](DISTORTED[how](probabilities).reshape(100, 3), hits.reshape(100, 3), known[:100])
        assert calibration.method == method
        rng = np.random.default_rng(seed)
        scores = np.sort(rng.random((4, 9)), axis=1).astype(np.float32)
        applied = calibration.apply(scores, rng.random(4))
        assert (applied.dtype, applied.shape) == (np.float32, (4, 9))
        assert (np.diff(applied, axis=1) >= 0).all()


class TestErrors:
    def test_of_perfect_and_of_constant_scores(self):
        hits = np.arange(1000) % 4 == 0
        assert calibration_error(np.full(1000, 0.25), hits) == pytest.approx(0, abs=0.02)
        assert calibration_error(np.full(1000, 0.75), hits) == pytest.approx(0.5, abs=0.02)
        assert calibration_error(hits.astype(float), hits) == 0
        assert calibration_error(np.zeros(0), np.zeros(0, bool)) == 0
        assert calibration_error(np.array([0.25]), np.array([True])) == 0.75

    def test_is_the_mean_gap_of_bins_of_equal_size(self):
        scores, hits = np.repeat([0.1, 0.9], [140, 160]), np.repeat([True, False], [140, 160])  # bins of 20
        assert calibration_error(scores, hits) == pytest.approx(0.9)

    def test_table_of_tenths(self):
        scores = np.array([0.05, 0.05, 0.15, 0.95, 1.0])
        hits = np.array([False, True, False, True, True])
        assert reliability(scores, hits) == [
            {"from": 0.0, "to": 0.1, "labels": 2, "mean_score": 0.05, "right": 0.5},
            {"from": 0.1, "to": 0.2, "labels": 1, "mean_score": 0.15, "right": 0.0},
            {"from": 0.9, "to": 1.0, "labels": 2, "mean_score": 0.975, "right": 1.0},
        ]
        assert reliability(np.zeros(0), np.zeros(0, bool)) == []
