"""Calibrations: how they are applied, averaged and checked."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_files import replaced
from shortlist.errors import ModelError
from shortlist.odds import CLIP, expit
from shortlist.stages.calibration import MIN_OTHERS, N_POINTS, N_RANKED, PLACES, Calibration

IDENTITY = [1, 0, 0, 0]


def random_calibration(rng, n_curves=1):
    weights = rng.standard_normal((n_curves, 4))
    weights[:, 0], weights[:, 1] = np.abs(weights[:, 0]), -np.abs(weights[:, 1])
    return Calibration.of_curves("isotonic", weights, np.sort(rng.random((n_curves, N_POINTS)), axis=1))


def slow_apply(weights, curve, score, best, known):
    """One score of a text whose best labels have these scores."""
    score, best = min(max(score, 0), 1), [min(max(other, 0), 1) for other in best[:N_RANKED]]
    clipped = min(max(score, CLIP), 1 - CLIP)
    odds = weights[0] * math.log(clipped / (1 - clipped))
    odds += weights[1] * math.log(max(sum(best) - score, MIN_OTHERS)) + weights[2] * (known - 1) + weights[3]
    return np.interp(1 / (1 + math.exp(-odds)), PLACES, curve)


@given(st.integers(0, 10_000), st.integers(0, 4), st.integers(0, 14), st.booleans(), st.integers(1, 3))
def test_apply_equals_one_score_at_a_time(seed, n_texts, k, given_labels, n_curves):
    """Also where the scores are not those of the best labels, and where these are fewer, or more than count."""
    rng = np.random.default_rng(seed)
    calibration = random_calibration(rng, n_curves)
    scores = -np.sort(-rng.beta(0.3, 1, (n_texts, k)).astype(np.float32), axis=1)
    scores[rng.random(scores.shape) < 0.2] = 0
    best = -np.sort(-rng.random((n_texts, N_RANKED)).astype(np.float32), axis=1) if given_labels else None
    known = rng.random(n_texts)
    applied = calibration.apply(scores, known, best)
    assert (applied.dtype, applied.shape) == (np.float32, scores.shape)
    arrays = calibration.arrays()
    for text in range(n_texts):
        of_text = (scores if best is None else best)[text].tolist()
        for i in range(k):
            expected = [
                slow_apply(weights, curve, float(scores[text, i]), of_text, known[text])
                for weights, curve in zip(arrays["weights"], arrays["curves"], strict=True)
            ]
            assert applied[text, i] == pytest.approx(np.mean(expected), abs=2e-3)


def test_constant_beyond_the_points():
    curve = Calibration.of_curves("isotonic", [IDENTITY], [np.linspace(0.1, 0.9, N_POINTS)])
    applied = curve.apply(np.array([[-np.inf, 0.0, 0.5, 1.0, 1.01]]), np.ones(1))
    assert applied[0].tolist() == pytest.approx([0.1, 0.1, 0.5, 0.9, 0.9])
    assert (curve.method, curve.config()) == ("isotonic", {"method": "isotonic"})


def test_a_score_counts_less_beside_other_high_scores_and_in_a_text_of_unknown_words():
    calibration = Calibration.of_curves("logistic", [[1, -1, 2, 0]], [PLACES])
    scores = np.array([[0.5, 0.1], [0.5, 0.4], [0.5, 0.1]])
    alone, beside_another, unknown = calibration.apply(scores, np.array([1.0, 1.0, 0.0]))[:, 0]
    assert alone > beside_another
    assert alone > unknown


@given(st.integers(0, 10_000), st.integers(1, 12))
def test_the_order_of_labels_stays(seed, k):
    rng = np.random.default_rng(seed)
    scores = -np.sort(-(rng.random((20, k)) ** rng.integers(1, 30)), axis=1).astype(np.float32)
    applied = random_calibration(rng, n_curves=2).apply(scores, rng.random(20))
    assert (np.diff(applied, axis=1) <= 0).all()
    assert ((applied >= 0) & (applied <= 1)).all()


ROW = np.array([IDENTITY], np.float64)
CURVE = PLACES[None].astype(np.float64)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"curves": CURVE[:, ::-1]}, "curves .* must not decrease"),
        ({"curves": 1.5 * CURVE}, "between 0 and 1"),
        ({"curves": CURVE - 0.5}, "between 0 and 1"),
        ({"curves": CURVE * np.nan}, "'curves' contains NaN"),
        ({"weights": ROW * np.nan}, "'weights' contains NaN"),
        ({"weights": np.full((1, 4), np.inf)}, "'weights' contains NaN or infinity"),
        ({"weights": -ROW}, "must not change the order"),
        ({"weights": ROW[:, [1, 0, 2, 3]]}, "must not change the order"),
        ({"weights": ROW[:, :3]}, "'weights' has shape"),
        ({"curves": CURVE[:, 1:]}, "'curves' has shape"),
        ({"curves": np.tile(CURVE, (2, 1))}, "'curves' has shape"),
        ({"weights": ROW[:0], "curves": CURVE[:0]}, "one row of weights per curve"),
        ({"curves": CURVE.astype(str)}, "'curves' is str"),
        ({"weights": ROW.astype(int)}, "'weights' is int64"),
        ({"curves": CURVE[0]}, "'curves' has 1 axes"),
        ({"weights": None}, "'weights' is missing"),
        ({"curves": None}, "'curves' is missing"),
        ({"scores": CURVE}, "'scores' is not part of this stage"),
    ],
)
def test_anything_that_could_change_the_order_is_refused(change, message):
    arrays = {"weights": ROW, "curves": CURVE}
    Calibration.from_arrays(arrays, {})
    with pytest.raises(ModelError, match=message):
        Calibration.from_arrays(replaced(arrays, change), {})


class TestMean:
    def test_is_that_of_its_members_everywhere(self):
        rng = np.random.default_rng(0)
        one, two = random_calibration(rng), random_calibration(rng)
        scores, known = expit(np.linspace(7, -7, 60)).reshape(6, 10), rng.random(6)
        mean = Calibration.mean([one, two, None])
        expected = (one.apply(scores, known) + two.apply(scores, known) + scores) / 3
        np.testing.assert_allclose(mean.apply(scores, known), expected, atol=2e-3)
        assert mean.method == "mean"
        same = Calibration.mean([one, one])
        np.testing.assert_allclose(same.apply(scores, known), one.apply(scores, known), rtol=1e-6)

    def test_of_none_is_none(self):
        assert Calibration.mean([None, None]) is None
