"""Cross-validation: means and deviations over folds, each with its own model."""

from __future__ import annotations

import statistics

import pytest

import shortlist
from shortlist.data.split import folds
from shortlist.errors import OptionError


@pytest.fixture
def data():
    rows = [(f"{color} {thing} {i}", [thing, f"{color} {thing}"]) for i in range(6)
            for color in ("red", "blue") for thing in ("hat", "bag", "shoe")]  # fmt: skip
    return shortlist.read([*rows, *((f"a riddle {i}", [f"only {i}"]) for i in range(4))])


def test_values_are_those_of_a_loop_over_the_folds(data):
    found = shortlist.cross_validate(data, "centroid", folds=4, seed=2, min_count=2)
    by_hand = []
    for train, test in folds(data, 4, seed=2):
        model = shortlist.train(train, "centroid", min_count=2)
        by_hand.append(shortlist.evaluate(model.predict_dataset(test, 5), test, train=train))
    assert len(found.evaluations) == 4 and found.texts == 40
    for name in ("P@1", "PSP@5", "coverage@3"):
        values = [one[name] for one in by_hand]
        assert found[name] == pytest.approx(statistics.mean(values))
        assert found.deviations[name] == pytest.approx(statistics.stdev(values))
    assert f"{found['P@1']:.2f} ± {found.deviations['P@1']:.2f}" in found.table()
    assert "at most" in found.table() and "They count" in found.table()


def test_unseen_labels_can_be_ignored(data):
    counted, ignored = (shortlist.cross_validate(data, "centroid", folds=4, unseen=how) for how in ("count", "ignore"))
    assert ignored["P@1"] > counted["P@1"]
    assert "They do not count" in " ".join(ignored.table().split())


def test_the_seed_decides_the_folds(data):
    first, again, other = (shortlist.cross_validate(data, "centroid", folds=3, seed=seed) for seed in (1, 1, 2))
    assert first.values == again.values != other.values


def test_the_recipe_gets_the_seed_too(data, monkeypatch):
    seeds = []

    def train(part, recipe, **options):
        seeds.append(options.get("seed"))
        return shortlist.train(part, "centroid")

    monkeypatch.setattr("shortlist.training.cross_validation.train", train)
    shortlist.cross_validate(data, "astec", folds=2, seed=7)
    shortlist.cross_validate(data, "popular", folds=2, seed=7)
    assert seeds == [7, 7, 7, 7]


def test_what_cannot_be_is_refused(data, tmp_path):
    with pytest.raises(OptionError, match="folds=1"):
        shortlist.cross_validate(data, folds=1)
    with pytest.raises(OptionError, match="checkpoint_dir"):
        shortlist.cross_validate(data, "astec", checkpoint_dir=str(tmp_path))
    with pytest.raises(OptionError, match="no_such_option"):
        shortlist.cross_validate(data, "centroid", no_such_option=1)
