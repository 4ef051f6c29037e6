"""Metrics, intervals and differences to the best system, compared with slow and obvious twins."""

from __future__ import annotations

import numpy as np
import pytest

from comparing import write_data
from shortlist.compare.measure import Convention, differences_to_best, measure
from shortlist.compare.results import Entry
from shortlist.compare.splits import Splits
from shortlist.evaluation import compare, evaluate

CONVENTION = Convention("ignore", resamples=200, seed=4)


@pytest.fixture(scope="module")
def splits(tmp_path_factory):
    return Splits.read(str(write_data(tmp_path_factory.mktemp("data"))), 0)


def systems(splits, n_systems=3):
    """Predictions of systems, each better than the one before."""
    rng, test = np.random.default_rng(1), splits.test
    found = {}
    for system in range(n_systems):
        ids = rng.permuted(np.tile(np.arange(splits.train.n_labels), (len(test), 1)), axis=1)[:, :10]
        for row in np.flatnonzero(rng.random(len(test)) < 0.3 * system):
            own = test.labels.row(row)
            rest = [label for label in ids[row] if label not in own]
            ids[row] = [*own, *rest][:10]
        found[f"system {system}"] = ids.astype(np.int32)
    return found


def differences(predictions, splits):
    entries = {name: Entry(name=name) for name in predictions}
    resampled = {name: measured(entries[name], ids, splits) for name, ids in predictions.items()}
    return differences_to_best({name: entry.scores for name, entry in entries.items()}, resampled)


def measured(entry, ids, splits):
    return measure(entry, {"ids": ids, "scores": np.zeros(ids.shape, np.float32)}, splits, CONVENTION)


def test_differences_agree_with_compare(splits):
    found = differences(systems(splits), splits)
    train = (splits.train.label_frequencies, len(splits.train))
    evaluated = {
        name: evaluate(ids, splits.test.labels, train=train, unseen="ignore") for name, ids in systems(splits).items()
    }
    assert found["system 2"] == {}
    for name in ("system 0", "system 1"):
        assert len(found[name]) == 15
        slow = compare(evaluated[name], evaluated["system 2"], resamples=200, seed=4)
        for metric, one in found[name].items():
            expected = slow[metric]
            assert [one["difference"], one["low"], one["high"], one["p"]] == pytest.approx(
                [expected.value, expected.low, expected.high, expected.p], abs=1e-9
            )


def test_differences_of_precision_by_hand(splits):
    """A twin that resamples texts in a plain loop."""
    ids = systems(splits)
    kept = np.flatnonzero(splits.test.labels.counts)
    right = {
        name: np.array([found[row, 0] in splits.test.labels.row(row) for row in kept], float)
        for name, found in ids.items()
    }
    rng = np.random.default_rng(CONVENTION.seed)
    drawn = [rng.integers(len(kept), size=len(kept)) for _ in range(CONVENTION.resamples)]
    moved = np.array([100 * (right["system 0"][rows].mean() - right["system 2"][rows].mean()) for rows in drawn])
    one = differences(ids, splits)["system 0"]["P@1"]
    assert one["difference"] == pytest.approx(100 * (right["system 0"].mean() - right["system 2"].mean()))
    assert (one["low"], one["high"]) == pytest.approx(tuple(np.quantile(moved, [0.025, 0.975])))
    entry = Entry(name="system 0")
    measured(entry, ids["system 0"], splits)
    low, high = entry.intervals["P@1"]
    alone = np.array([100 * right["system 0"][rows].mean() for rows in drawn])
    assert (low, high) == pytest.approx(tuple(np.quantile(alone, [0.025, 0.975])))


def test_equal_systems_do_not_differ(splits):
    ids = systems(splits)["system 1"]
    found = differences({"one": ids, "twin": ids}, splits)
    assert found["one"] == {}
    assert found["twin"]["P@1"] == {"difference": 0, "low": 0, "high": 0, "p": 1}
