"""Weights of true labels: graded gains in nDCG, and nothing else."""

from __future__ import annotations

import numpy as np
import pytest

import shortlist
from shortlist.arrays import Ragged
from shortlist.evaluation import evaluate

NAMES = ["ant", "bee", "cat", "dog", "elk", "fox"]


def slow_ndcg(predicted, weights, k):
    """By the definition, with the weight as gain."""
    gains = [max(weights.get(label, 0), 0) for label in predicted[:k]]
    best = sorted((max(weight, 0) for weight in weights.values()), reverse=True)[:k]
    gained, ideal = (sum(gain / np.log2(j + 2) for j, gain in enumerate(row)) for row in (gains, best))
    return gained / ideal if ideal else 0.0


def random_rows(seed, n_texts=20):
    rng = np.random.default_rng(seed)
    predicted = [[NAMES[i] for i in rng.permutation(6)[: rng.integers(0, 6)]] for _ in range(n_texts)]
    truth = [
        {NAMES[i]: float(rng.choice([0.1, 0.5, 1.0, 3.0, 0.0, -1.0])) for i in rng.permutation(6)[: rng.integers(0, 5)]}
        for _ in range(n_texts)
    ]
    return predicted, truth


@pytest.mark.parametrize("seed", range(5))
def test_ndcg_agrees_with_its_definition(seed):
    predicted, truth = random_rows(seed)
    data = shortlist.read([("", weights) for weights in truth])
    found = evaluate(predicted, data, k=(1, 3, 5), train=data)
    plain = evaluate(predicted, [list(weights) for weights in truth], k=(1, 3, 5), train=data)
    for k in (1, 3, 5):
        expected = np.mean([slow_ndcg(row, weights, k) for row, weights in zip(predicted, truth, strict=True)])
        assert found[f"N@{k}"] == pytest.approx(100 * expected)
    for name in set(found.values) - {"N@1", "N@3", "N@5"}:
        assert found[name] == pytest.approx(plain[name]), name


def test_a_more_relevant_label_counts_more():
    data = shortlist.read([("", {"ant": 1.0, "bee": 0.25})])
    assert evaluate([["ant"]], data, k=1)["N@1"] == 100
    assert evaluate([["bee"]], data, k=1)["N@1"] == pytest.approx(25)


def test_weights_of_one_change_nothing():
    data = shortlist.read([("", {"ant": 1.0, "bee": 1.0})])
    assert evaluate([["bee", "cat"]], data, k=2)["N@2"] == evaluate([["bee", "cat"]], [["ant", "bee"]], k=2)["N@2"]


def test_of_repeated_labels_the_first_keeps_its_weight():
    truth = Ragged(np.array([0, 3]), np.array([4, 2, 4]), np.array([1.0, 1.0, 9.0]))
    assert evaluate([[4, 2]], truth, k=2)["N@2"] == pytest.approx(100)


def test_weights_survive_filters():
    data = shortlist.read([("a", {"ant": 0.2, "bee": 0.5, "cat": 1.0})])
    found = evaluate([["cat", "ant", "bee"]], data, k=1, filter_pairs=[(0, "cat")])
    assert found["N@1"] == pytest.approx(40)  # of bee's 0.5
