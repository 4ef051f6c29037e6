"""Hierarchical precision, recall and F1 against a slow twin."""

from __future__ import annotations

import numpy as np
import pytest

import shortlist
from shortlist.errors import DataError, OptionError

PARENTS = {"boots": "shoes", "sandals": "shoes", "shoes": "clothes", "hats": "clothes", "clothes": "all",
           "robots": ["toys", "machines"], "toys": "all", "machines": "all"}  # fmt: skip
LABELS = ["boots", "sandals", "shoes", "hats", "robots", "unknown"]


def slow_set(labels):
    """Labels and all above them, without the root."""
    found = set(labels)
    for _ in range(5):
        for label in list(found):
            parents = PARENTS.get(label, [])
            found |= set([parents] if isinstance(parents, str) else parents)
    return found - {"all"}


@pytest.mark.parametrize("seed", range(5))
def test_agrees_with_a_slow_twin(seed):
    rng = np.random.default_rng(seed)
    predictions, truth = (
        [[LABELS[i] for i in rng.permutation(6)[: rng.integers(0, 5)]] for _ in range(7)] for _ in range(2)
    )
    found = shortlist.evaluate(predictions, truth, k=(1, 3), hierarchy=PARENTS)
    for k in (1, 3):
        pairs = [(slow_set(row[:k]), slow_set(right)) for row, right in zip(predictions, truth, strict=True)]
        shared = sum(len(one & other) for one, other in pairs)
        precision = 100 * shared / max(sum(len(one) for one, _ in pairs), 1)
        recall = 100 * shared / max(sum(len(other) for _, other in pairs), 1)
        assert found[f"hP@{k}"] == pytest.approx(precision)
        assert found[f"hR@{k}"] == pytest.approx(recall)
        assert found[f"hF1@{k}"] == pytest.approx(2 * precision * recall / max(precision + recall, 1e-9))


def test_a_near_miss_counts_more_than_a_far_one():
    near, far = (shortlist.evaluate([[label]], [["boots"]], k=1, hierarchy=PARENTS) for label in ("sandals", "robots"))
    assert near["P@1"] == far["P@1"] == 0
    assert near["hP@1"] == pytest.approx(100 * 2 / 3) and far["hP@1"] == 0


def test_the_top_counts_if_there_are_several():
    found = shortlist.evaluate([["a"]], [["b"]], k=1, hierarchy={"a": "top", "b": "top", "c": "other"})
    assert found["hP@1"] == 50


def test_beside_the_flat_metrics_with_intervals(tmp_path):
    (tmp_path / "h.csv").write_text("boots,shoes\nshoes,clothes\nhats,clothes\n")
    truth = [["boots"], ["hats"]] * 10
    found = shortlist.evaluate([["boots"], ["boots"]] * 10, truth, k=1, hierarchy=tmp_path / "h.csv", intervals=True)
    low, high = found.intervals["hF1@1"]
    assert low <= found["hF1@1"] <= high and found["P@1"] == 50
    assert "hF1" in str(found) and "hF1@1" in found.to_json()["values"]
    assert "hP@1" not in shortlist.evaluate([["boots"]], [["boots"]], k=1).values


def test_wrong_arguments():
    with pytest.raises(OptionError, match="predictions and truth have ids"):
        shortlist.evaluate([[1]], [[1]], hierarchy={"a": "b"})
    with pytest.raises(DataError, match="none of the labels that are measured: it has 'a' and others"):
        shortlist.evaluate([["boots"]], [["boots"]], hierarchy={"a": "b"})
