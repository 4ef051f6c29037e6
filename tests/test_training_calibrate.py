"""Fitting calibrations to predictions whose probabilities are known."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import logit

from shortlist.evaluation.calibration import calibration_error, reliability
from shortlist.odds import expit
from shortlist.stages.calibration import Calibration
from shortlist.training.calibrate import METHODS, MIN_PAIRS, fit_calibration, fit_platt

# From the probability of a pair to the wrong score that a model gives it.
DISTORTED = {
    "overconfident": lambda p: expit(3 * logit(p)),
    "underconfident": lambda p: expit(0.3 * logit(p)),
    "too high": lambda p: expit(logit(p) + 2),
    "too low": lambda p: p / 5,
    "steps": lambda p: np.where(p < 0.5, 0.1 * p, 0.9 + 0.1 * p),
}


def drawn(n, seed=0):
    """Probabilities such as the best labels of a model have, and whether each pair is a hit."""
    rng = np.random.default_rng(seed)
    probabilities = np.clip(rng.beta(0.5, 0.8, n), 1e-4, 1 - 1e-4)
    return probabilities, rng.random(n) < probabilities


class TestFitCalibration:
    @pytest.mark.parametrize("how", DISTORTED)
    def test_distorted_scores_become_probabilities(self, how):
        probabilities, hits = drawn(4000)
        scores = DISTORTED[how](probabilities).astype(np.float32)
        calibration, errors, unseen = fit_calibration(scores, hits)
        assert set(errors) == {"none", "logistic", "isotonic"}
        assert errors[calibration.method] == min(errors.values()) < errors["none"] / 2
        assert errors["none"] == pytest.approx(calibration_error(scores, hits))
        assert calibration_error(unseen, hits) == pytest.approx(errors[calibration.method])
        new_probabilities, new_hits = drawn(4000, seed=1)
        new_scores = DISTORTED[how](new_probabilities).astype(np.float32)
        before, after = (calibration_error(s, new_hits) for s in (new_scores, calibration.apply(new_scores)))
        assert after < min(0.04, before / 2)
        assert np.abs(calibration.apply(new_scores) - new_probabilities).mean() < 0.03

    def test_platt_scaling_finds_a_line_in_log_odds(self):
        probabilities, hits = drawn(20_000)
        scores = expit(2 * logit(probabilities) + 1)
        found = fit_platt(scores, hits).apply(scores)
        assert np.abs(found - probabilities).max() < 0.02

    @pytest.mark.parametrize("seed", range(4))
    def test_calibrated_scores_hardly_change(self, seed):
        probabilities, hits = drawn(4000, seed)
        calibration, errors, unseen = fit_calibration(probabilities, hits)
        assert errors["none"] < 0.03
        if calibration is None:
            assert unseen is probabilities
            assert errors["none"] <= min(errors.values()) + 1e-4
        else:
            assert np.abs(calibration.apply(probabilities) - probabilities).mean() < 0.03

    def test_scores_stay_as_they_are_where_nothing_is_better(self):
        """Scores of 0 and 1 that are always right."""
        hits = np.arange(400) % 3 == 0
        calibration, errors, unseen = fit_calibration(hits.astype(np.float32), hits)
        assert calibration is None
        assert errors["none"] == pytest.approx(0, abs=1e-6)
        assert np.array_equal(unseen, hits)

    @pytest.mark.parametrize("n", [0, 1, MIN_PAIRS - 1])
    def test_too_few_pairs_change_nothing(self, n):
        probabilities, hits = drawn(n)
        calibration, errors, unseen = fit_calibration(np.sqrt(probabilities), hits)
        assert (calibration, errors) == (None, {})
        assert np.array_equal(unseen, np.sqrt(probabilities))

    @pytest.mark.filterwarnings("error")
    @pytest.mark.parametrize(
        "change",
        [
            lambda s, hits: (s, np.ones(len(s), bool)),
            lambda s, hits: (s, np.zeros(len(s), bool)),
            lambda s, hits: (np.full(len(s), 0.3), hits),
            lambda s, hits: (np.zeros(len(s)), hits),
            lambda s, hits: (np.ones(len(s)), hits),
            lambda s, hits: ((s > 0.5).astype(float), hits),
            lambda s, hits: (s, s < 0.5),
            lambda s, hits: (np.where(s > 0.3, s, 0), hits),
        ],
        ids=["only hits", "only misses", "constant", "zeros", "ones", "0 and 1", "inverted", "many zeros"],
    )
    def test_the_curve_never_decreases_and_stays_between_0_and_1(self, change):
        scores, hits = change(*drawn(400))
        scores = scores.astype(np.float32)
        calibration, errors, unseen = fit_calibration(scores, hits)
        assert all(0 <= error <= 1 for error in errors.values())
        assert ((unseen >= 0) & (unseen <= 1)).all()
        for fit in METHODS.values():
            curve = fit(scores, hits).apply(np.linspace(0, 1, 999))
            assert (np.diff(curve) >= 0).all()
            assert ((curve >= 0) & (curve <= 1)).all()
        if calibration is not None:
            Calibration.from_arrays(calibration.arrays(), calibration.config())

    @given(st.integers(0, 1000), st.sampled_from(sorted(METHODS)), st.sampled_from(sorted(DISTORTED)))
    def test_the_order_of_scores_stays(self, seed, method, how):
        probabilities, hits = drawn(300, seed)
        calibration = METHODS[method](DISTORTED[how](probabilities), hits)
        assert calibration.method == method
        scores = np.sort(np.random.default_rng(seed).random((4, 9)), axis=1).astype(np.float32)
        applied = calibration.apply(scores)
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
