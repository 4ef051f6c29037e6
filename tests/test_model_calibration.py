"""Scores made into probabilities: on pairs whose chances are known."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special
from scipy.special import logit

from shortlist.evaluation.calibration import calibration_error, reliability
from shortlist.model.calibration import (
    FEWEST_PAIRS,
    Calibration,
    _isotonic,
    _logistic,
    fit_odds,
)
from shortlist.odds import SUREST, expit, log_odds

LEARN = {"logistic": _logistic, "isotonic": _isotonic}
# From the chance of a pair to the score that a model gives it, wrongly.
DISTORTED = {
    "too sure": lambda p: expit(3 * logit(p)),
    "not sure enough": lambda p: expit(0.3 * logit(p)),
    "too high": lambda p: expit(logit(p) + 2),
    "too low": lambda p: p / 5,
    "steps": lambda p: np.where(p < 0.5, 0.1 * p, 0.9 + 0.1 * p),
}


def drawn(n, seed=0):
    """Chances as a model's best labels have them, and whether each pair is right."""
    rng = np.random.default_rng(seed)
    chances = np.clip(rng.beta(0.5, 0.8, n), 1e-4, 1 - 1e-4)
    return chances, rng.random(n) < chances


class TestFit:
    @pytest.mark.parametrize("how", DISTORTED)
    def test_distorted_scores_come_near_to_the_chances(self, how):
        chances, right = drawn(4000)
        scores = DISTORTED[how](chances).astype(np.float32)
        calibration, errors, unseen = Calibration.fit(scores, right)
        assert set(errors) == {"none", "logistic", "isotonic"}
        assert errors[calibration.method] == min(errors.values()) < errors["none"] / 2
        assert errors["none"] == pytest.approx(calibration_error(scores, right))
        assert calibration_error(unseen, right) == pytest.approx(errors[calibration.method])
        new_chances, new_right = drawn(4000, seed=1)
        new_scores = DISTORTED[how](new_chances).astype(np.float32)
        before, after = (calibration_error(s, new_right) for s in (new_scores, calibration.apply(new_scores)))
        assert after < min(0.04, before / 2)
        assert np.abs(calibration.apply(new_scores) - new_chances).mean() < 0.03

    def test_what_is_straight_in_log_odds_is_found_exactly(self):
        chances, right = drawn(20_000)
        scores = expit(2 * logit(chances) + 1)
        found = _logistic(scores, right).apply(scores)
        assert np.abs(found - chances).max() < 0.02

    @pytest.mark.parametrize("seed", range(4))
    def test_scores_that_are_right_already_are_hardly_touched(self, seed):
        chances, right = drawn(4000, seed)
        calibration, errors, unseen = Calibration.fit(chances, right)
        assert errors["none"] < 0.03
        if calibration is None:
            assert unseen is chances
            assert errors["none"] <= min(errors.values()) + 1e-4
        else:
            assert np.abs(calibration.apply(chances) - chances).mean() < 0.03

    def test_scores_as_they_are_win_where_nothing_is_better(self):
        """Scores of 0 and 1 that are always right: there is nothing to gain, and so nothing is done."""
        right = np.arange(400) % 3 == 0
        calibration, errors, unseen = Calibration.fit(right.astype(np.float32), right)
        assert calibration is None
        assert errors["none"] == pytest.approx(0, abs=1e-6)
        assert np.array_equal(unseen, right)

    @pytest.mark.parametrize("n", [0, 1, FEWEST_PAIRS - 1])
    def test_too_few_pairs_change_nothing(self, n):
        chances, right = drawn(n)
        calibration, errors, unseen = Calibration.fit(np.sqrt(chances), right)
        assert (calibration, errors) == (None, {})
        assert np.array_equal(unseen, np.sqrt(chances))

    @pytest.mark.filterwarnings("error")
    @pytest.mark.parametrize(
        "change",
        [
            lambda s, right: (s, np.ones(len(s), bool)),
            lambda s, right: (s, np.zeros(len(s), bool)),
            lambda s, right: (np.full(len(s), 0.3), right),
            lambda s, right: (np.zeros(len(s)), right),
            lambda s, right: (np.ones(len(s)), right),
            lambda s, right: ((s > 0.5).astype(float), right),
            lambda s, right: (s, s < 0.5),
            lambda s, right: (np.where(s > 0.3, s, 0), right),
        ],
        ids=["all right", "all wrong", "constant", "zeros", "ones", "certain", "turned round", "many zeros"],
    )
    def test_whatever_it_is_fitted_to_it_is_a_rising_curve_within_bounds(self, change):
        scores, right = change(*drawn(400))
        scores = scores.astype(np.float32)
        calibration, errors, unseen = Calibration.fit(scores, right)
        assert all(0 <= error <= 1 for error in errors.values())
        assert ((unseen >= 0) & (unseen <= 1)).all()
        for learn in LEARN.values():
            curve = learn(scores, right).apply(np.linspace(0, 1, 999))
            assert (np.diff(curve) >= 0).all()
            assert ((curve >= 0) & (curve <= 1)).all()
        if calibration is not None:
            assert Calibration(**vars(calibration)) == calibration


class TestApply:
    @given(st.integers(0, 1000), st.sampled_from(sorted(LEARN)), st.sampled_from(sorted(DISTORTED)))
    def test_keeps_the_order_of_scores(self, seed, method, how):
        chances, right = drawn(300, seed)
        calibration = LEARN[method](DISTORTED[how](chances), right)
        assert calibration.method == method
        scores = np.sort(np.random.default_rng(seed).random((4, 9)), axis=1).astype(np.float32)
        applied = calibration.apply(scores)
        assert (applied.dtype, applied.shape) == (np.float32, (4, 9))
        assert (np.diff(applied, axis=1) >= 0).all()

    def test_beyond_the_ends_it_stays_at_them(self):
        calibration = Calibration("curve", [0.2, 0.4], [0.1, 0.9])
        assert calibration.apply(np.array([-np.inf, 0.0, 0.3, 0.4, 1.0])).tolist() == pytest.approx(
            [0.1, 0.1, 0.5, 0.9, 0.9]
        )
        assert calibration.apply(np.zeros((0, 5), np.float32)).shape == (0, 5)

    @pytest.mark.parametrize(
        ("scores", "probabilities"),
        [
            ([0.0, 1.0], [1.0, 0.0]),
            ([1.0, 0.0], [0.0, 1.0]),
            ([0.0, 1.0], [0.0, 1.5]),
            ([0.0, 1.0], [-0.5, 1.0]),
            ([0.0, float("nan")], [0.0, 1.0]),
            ([0.0, float("inf")], [0.0, 1.0]),
            ([0.0], [0.0]),
            ([], []),
            ([0.0, 1.0], [0.0]),
            (["a", "b"], [0.0, 1.0]),
            ([[0.0, 1.0]], [[0.0, 1.0]]),
        ],
    )
    def test_what_is_no_rising_curve_is_refused(self, scores, probabilities):
        with pytest.raises((ValueError, TypeError)):
            Calibration("curve", scores, probabilities)


class TestErrors:
    def test_of_perfect_and_of_constant_scores(self):
        right = np.arange(1000) % 4 == 0
        assert calibration_error(np.full(1000, 0.25), right) == pytest.approx(0, abs=0.02)
        assert calibration_error(np.full(1000, 0.75), right) == pytest.approx(0.5, abs=0.02)
        assert calibration_error(right.astype(float), right) == 0
        assert calibration_error(np.zeros(0), np.zeros(0, bool)) == 0
        assert calibration_error(np.array([0.25]), np.array([True])) == 0.75

    def test_is_the_mean_gap_of_bins_of_equally_many_pairs(self):
        scores, right = np.repeat([0.1, 0.9], [140, 160]), np.repeat([True, False], [140, 160])  # bins of 20
        assert calibration_error(scores, right) == pytest.approx(0.9)

    def test_table_of_tenths(self):
        scores = np.array([0.05, 0.05, 0.15, 0.95, 1.0])
        right = np.array([False, True, False, True, True])
        assert reliability(scores, right) == [
            {"from": 0.0, "to": 0.1, "labels": 2, "mean_score": 0.05, "right": 0.5},
            {"from": 0.1, "to": 0.2, "labels": 1, "mean_score": 0.15, "right": 0.0},
            {"from": 0.9, "to": 1.0, "labels": 2, "mean_score": 0.975, "right": 1.0},
        ]
        assert reliability(np.zeros(0), np.zeros(0, bool)) == []


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_probabilities_of_any_odds(kind):
    odds = np.concatenate([np.linspace(-120, 120, 999), [-np.inf, np.inf, 0, 1e30, -1e30]]).astype(kind)
    assert expit(odds).dtype == kind
    np.testing.assert_allclose(expit(odds), special.expit(odds), rtol=1e-5, atol=1e-30)
    within = odds[np.abs(odds) < 9]
    np.testing.assert_allclose(log_odds(expit(within)), within, rtol=0.01, atol=0.01)


def test_log_odds_stay_within_bounds():
    found = log_odds(np.array([0.0, 0.5, 1.0]))
    assert np.isfinite(found).all()
    assert found.tolist() == pytest.approx([logit(SUREST), 0, logit(1 - SUREST)], rel=0.02, abs=1e-9)


def test_fit_odds_finds_planted_factors_and_stays_at_the_start_where_there_is_nothing():
    rng = np.random.default_rng(0)
    inputs = rng.standard_normal((20_000, 2))
    right = rng.random(20_000) < expit(inputs @ [2.0, -1.0] + 0.5)
    assert fit_odds(inputs, right, np.array([1.0, 0.0, 0.0])) == pytest.approx([2.0, -1.0, 0.5], abs=0.1)
    assert fit_odds(np.zeros((0, 2)), np.zeros(0, bool), np.array([1.0, 2.0, 3.0])) == [1.0, 2.0, 3.0]


class TestMean:
    def test_lies_between_its_curves_everywhere(self):
        steep = Calibration("isotonic", [0.0, 0.3, 1.0], [0.0, 0.9, 1.0])
        flat = Calibration("isotonic", [0.0, 0.6, 1.0], [0.1, 0.2, 0.3])
        scores = np.linspace(0, 1, 50)
        mean = Calibration.mean([steep, flat, None])
        expected = (steep.apply(scores) + flat.apply(scores) + scores) / 3
        np.testing.assert_allclose(mean.apply(scores), expected, atol=1e-6)

    def test_of_none_is_none(self):
        assert Calibration.mean([None, None]) is None
