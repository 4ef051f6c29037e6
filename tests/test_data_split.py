"""Splitting: no text in two parts, no label missing in training, the latest texts held out by time."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import shortlist
from shortlist.data.split import merge_identical_texts, split
from shortlist.errors import DataError, OptionError


def random_dataset(n_texts: int, n_labels: int, seed: int) -> shortlist.Dataset:
    rng = np.random.default_rng(seed)
    rows = [
        (f"text {rng.integers(n_texts)}", [f"label {i}" for i in rng.integers(n_labels, size=rng.integers(0, 4))])
        for _ in range(n_texts)
    ]
    return shortlist.read(rows)


def labels_in(dataset: shortlist.Dataset) -> set[str]:
    return {name for row in range(len(dataset)) for name in dataset.labels_of(row)}


@settings(max_examples=30)
@given(st.integers(1, 60), st.integers(1, 30), st.integers(0, 1000), st.sampled_from([0.0, 0.1, 0.3]))
def test_parts_are_disjoint_and_complete_and_training_has_all_labels(n_texts, n_labels, seed, validation):
    dataset = random_dataset(n_texts, n_labels, seed)
    parts = split(dataset, test=0.3, validation=validation, seed=seed)
    texts = [list(part.texts) for part in (parts.train, parts.validation, parts.test)]
    assert sorted(itertools.chain.from_iterable(texts)) == sorted(set(dataset.texts))
    assert labels_in(parts.validation) | labels_in(parts.test) <= labels_in(parts.train)
    assert parts.held_out_labels_not_in_train == 0
    assert parts.merged_texts == len(dataset) - len(set(dataset.texts))


def test_fractions_are_exact_if_nothing_has_to_move():
    dataset = shortlist.read([(f"text {i}", ["a", "b"]) for i in range(100)])
    parts = split(dataset, test=0.2, validation=0.1)
    assert (len(parts.train), len(parts.validation), len(parts.test)) == (70, 10, 20)
    assert parts.moved_to_train == 0


def test_the_seed_decides_the_parts():
    dataset = shortlist.read([(f"text {i}", ["a"]) for i in range(50)])
    first, again, other = (list(split(dataset, seed=seed).test.texts) for seed in (1, 1, 2))
    assert first == again
    assert first != other


def test_identical_texts_are_merged_with_all_their_labels():
    merged = merge_identical_texts(shortlist.read([("x", ["a", "b"]), ("y", ["c"]), ("x", ["b", "d"]), ("z", [])]))
    assert list(merged.texts) == ["x", "y", "z"]
    assert [merged.labels_of(row) for row in range(3)] == [["a", "b", "d"], ["c"], []]


def test_merged_labels_keep_the_largest_weight():
    merged = merge_identical_texts(shortlist.read([("x", {"a": 0.2, "b": 1.0}), ("x", {"a": 0.7}), ("y", {"c": 0.5})]))
    weights = dict(zip(merged.labels_of(0), merged.labels.weights.tolist(), strict=False))
    assert weights == pytest.approx({"a": 0.7, "b": 1.0})


def test_split_by_time_holds_out_the_latest_and_moves_nothing():
    rows = [{"text": f"t{i}", "labels": [f"only {i}"], "when": str(i)} for i in range(1, 21)]
    parts = split(shortlist.read(rows, time="when"), test=0.2, by_time=True)
    # As strings, "9" would be the latest.
    assert sorted(parts.test.texts) == ["t17", "t18", "t19", "t20"]
    assert parts.moved_to_train == 0
    assert parts.held_out_labels_not_in_train == 4


def test_repeated_texts_have_their_latest_time():
    rows = [{"text": "old and new", "labels": ["a"], "when": 1}]
    rows += [{"text": f"t{i}", "labels": ["a"], "when": i} for i in range(2, 10)]
    rows += [{"text": "old and new", "labels": ["b"], "when": 99}]
    parts = split(shortlist.read(rows, time="when"), test=0.1, by_time=True)
    assert list(parts.test.texts) == ["old and new"]


def test_dates_sort_as_dates():
    rows = [{"text": t, "labels": ["a"], "when": t} for t in ("2024-01-05", "2023-12-31", "2024-02-01", "2022-07-07")]
    parts = split(shortlist.read(rows, time="when"), test=0.25, by_time=True)
    assert list(parts.test.texts) == ["2024-02-01"]


def test_merged_texts_have_the_latest_time_if_numbers_are_strings():
    rows = [{"text": "same", "labels": ["a"], "when": when} for when in ("9", "10")]
    merged = merge_identical_texts(shortlist.read([*rows, {"text": "x", "labels": [], "when": "1"}], time="when"))
    assert merged.times.tolist() == ["10", "1"]


def test_time_zones_are_respected():
    times = ("2024-01-01T23:00-05:00", "2024-01-02T01:00+00:00")  # the first is later
    rows = [{"text": time, "labels": ["a"], "when": time} for time in times]
    assert list(split(shortlist.read(rows, time="when"), test=0.5, by_time=True).test.texts) == [times[0]]


@pytest.mark.parametrize("bad", ["31.12.2024", "12/31/2024", "yesterday", ""])
def test_invalid_times_are_refused(bad):
    rows = [{"text": "a", "labels": ["x"], "when": "2024-01-01"}, {"text": "b", "labels": ["x"], "when": bad}]
    with pytest.raises(DataError, match="text 2: the time"):
        split(shortlist.read(rows, time="when"), by_time=True)


def test_merging_keeps_filter_pairs_with_their_texts():
    dataset = shortlist.read([("a", ["x"]), ("a", ["y"]), ("b", ["x"])])
    dataset.filter_pairs = np.asarray([[1, 0], [2, 1]])
    assert merge_identical_texts(dataset).filter_pairs.tolist() == [[0, 0], [1, 1]]


def test_a_path_can_be_split(tmp_path):
    shortlist.read([(f"t{i}", ["a"]) for i in range(10)]).write(tmp_path / "pairs.jsonl")
    assert len(split(tmp_path / "pairs.jsonl", test=0.2).test) == 2


@pytest.mark.parametrize("shares", [(1.0, 0.0), (-0.1, 0.0), (0.6, 0.4), (0.5, 0.9)])
def test_invalid_fractions_are_refused(shares):
    with pytest.raises(OptionError, match="nothing to train on"):
        split(shortlist.read([("a", ["b"])]), test=shares[0], validation=shares[1])


@pytest.mark.parametrize("source", [[("a", ["b"])], shortlist.read([("a", ["b"])])], ids=["list", "Dataset"])
def test_by_time_needs_times(source):
    with pytest.raises(OptionError, match="--time"):
        split(source, by_time=True)


def test_filter_pairs_follow_their_texts():
    dataset = shortlist.read([("a", ["x"]), ("b", ["y"]), ("c", ["x"])])
    dataset.filter_pairs = np.asarray([[0, 1], [2, 0]])
    assert dataset.take([2, 1]).filter_pairs.tolist() == [[0, 0]]
