"""Probabilities, log-odds and logistic regression, against scipy and planted weights."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import optimize, special

from shortlist.odds import CLIP, L2, expit, fit_logistic, fit_ranking, log_odds


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


def slow_ranking_loss(columns, hits, misses, weights, start):
    loss = L2 / 2 * ((weights - start) ** 2).sum()
    for of_text, hit, miss in zip(columns, hits, misses, strict=True):
        if hit.any() and miss.any():
            for right in of_text[hit]:
                scores = np.array([right @ weights, *(of_text[miss] @ weights)])
                loss += (special.logsumexp(scores) - scores[0]) / hit.sum()
    return loss


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("scale", [1.0, 300.0])
def test_ranking_weights_have_the_least_loss(scale):
    rng = np.random.default_rng(2)
    columns = scale * rng.standard_normal((60, 8, 3))
    there = rng.random((60, 8)) < 0.8
    hits = there & (columns @ [2.0, -1.0, 0.0] / scale + rng.logistic(size=(60, 8)) > 1)
    columns[~there] = np.nan  # what is no candidate is not looked at
    start = np.array([1.0, 1.0, 1.0])
    found = fit_ranking(columns, hits, there & ~hits, start)
    arguments = columns, hits, there & ~hits
    least = slow_ranking_loss(*arguments, found, start)
    assert least < slow_ranking_loss(*arguments, start, start)
    for step in np.vstack([np.eye(3), -np.eye(3)]) * 0.02 / scale:
        assert slow_ranking_loss(*arguments, found + step, start) > least


def test_ranking_weights_stay_at_the_start_without_data():
    start = np.array([1.0, 2.0])
    for n_texts, is_hit in ((0, True), (3, True), (3, False)):
        hits = np.full((n_texts, 4), is_hit)
        assert fit_ranking(np.ones((n_texts, 4, 2)), hits, ~hits, start).tolist() == [1.0, 2.0]
