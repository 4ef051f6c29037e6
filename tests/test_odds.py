"""Probabilities, log-odds and logistic regression, against scipy and planted weights."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import optimize, special

from shortlist.odds import CLIP, L2, expit, fit_logistic, log_odds


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_probabilities_of_any_log_odds(dtype):
    odds = np.concatenate([np.linspace(-120, 120, 999), [-np.inf, np.inf, 0, 1e30, -1e30]]).astype(dtype)
    assert expit(odds).dtype == dtype
    np.testing.assert_allclose(expit(odds), special.expit(odds), rtol=1e-5, atol=1e-30)
    moderate = odds[np.abs(odds) < 9]
    np.testing.assert_allclose(log_odds(expit(moderate)), moderate, rtol=0.01, atol=0.01)


def test_log_odds_are_finite():
    found = log_odds(np.array([0.0, 0.5, 1.0]))
    assert np.isfinite(found).all()
    assert found.tolist() == pytest.approx([special.logit(CLIP), 0, special.logit(1 - CLIP)], rel=0.02, abs=1e-9)


def test_logistic_regression_finds_planted_weights_and_stays_at_the_start_without_data():
    rng = np.random.default_rng(0)
    columns = rng.standard_normal((20_000, 2))
    hits = rng.random(20_000) < expit(columns @ [2.0, -1.0] + 0.5)
    assert fit_logistic(columns, hits, np.array([1.0, 0.0, 0.0])) == pytest.approx([2.0, -1.0, 0.5], abs=0.1)
    assert fit_logistic(np.zeros((0, 2)), np.zeros(0, bool), np.array([1.0, 2.0, 3.0])) == [1.0, 2.0, 3.0]


@pytest.mark.parametrize("shift", [0.0, 8.0, -30.0])
@pytest.mark.parametrize("share", [0.5, 0.01])
def test_logistic_regression_finds_the_least_loss_from_any_start(shift, share):
    """Scores that are all far too high, as those of a classifier after few epochs, once made it swing to and fro."""
    rng = np.random.default_rng(1)
    hits = rng.random(5000) < share
    columns = np.column_stack([shift + rng.normal(hits, 0.2), rng.normal(0.5 * hits, 1), np.full(5000, -2.3)])
    start = np.array([1.0, 0.0, 1.0, 0.0])

    def loss(values):
        odds = columns @ values[:-1] + values[-1]
        return np.logaddexp(0, odds).sum() - odds[hits].sum() + L2 / 2 * ((values - start) ** 2).sum()

    best = optimize.minimize(loss, start, method="L-BFGS-B", options={"maxiter": 5000, "ftol": 1e-13}).fun
    assert loss(np.array(fit_logistic(columns, hits, start))) <= best * (1 + 1e-6)
