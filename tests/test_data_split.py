"""Splitting: no text in two parts; at random, by time, by group, or evenly for every label; folds."""

from __future__ import annotations

import itertools
import json
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import shortlist
from shortlist.data.split import folds, merge_identical_texts, split
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
def test_parts_are_disjoint_and_complete_and_training_may_have_all_labels(n_texts, n_labels, seed, validation):
    dataset = random_dataset(n_texts, n_labels, seed)
    parts = split(dataset, test=0.3, validation=validation, seed=seed, keep_labels=True)
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


def test_a_plain_split_moves_nothing():
    dataset = shortlist.read([(f"text {i}", [f"only {i}"]) for i in range(100)])
    parts = split(dataset, test=0.2, validation=0.1)
    assert (len(parts.train), len(parts.validation), len(parts.test)) == (70, 10, 20)
    assert (parts.moved_to_train, parts.held_out_labels, parts.held_out_labels_not_in_train) == (0, 30, 30)
    assert parts.train.n_labels == 70  # training does not see the names of the others


def test_keep_labels_says_by_how_much_it_flatters(caplog):
    rows = [(f"rare {i}", [f"only {i}"]) for i in range(50)] + [(f"text {i}", ["a"]) for i in range(50)]
    parts = split(rows, test=0.2, seed=1, keep_labels=True)
    assert len(parts.test) + parts.moved_to_train == 20
    assert parts.moved_share == parts.moved_to_train / 20 > 0
    said, percent = " ".join(caplog.text.split()), 100 * parts.moved_share
    assert f"moved {parts.moved_to_train} held-out texts ({percent:.1f} %)" in said
    assert f"P@1 by up to {percent:.1f} % of its value, which is {percent / 2:.1f} points if P@1 is 50" in said


def test_nothing_is_said_if_nothing_had_to_move(caplog):
    split([(f"text {i}", ["a"]) for i in range(50)], keep_labels=True)
    assert not caplog.text


def test_texts_with_the_same_words_stay_in_one_part():
    rows = [(text, ["a"]) for i in range(100) for text in (f"Red shoe {i}", f"red  shoe {i}!", f"red-shoe {i}")]
    for options in ({}, {"stratified": True}, {"keep_labels": True}):
        parts = split(rows, test=0.3, **options)
        words = [{" ".join(text.lower().replace("-", " ").strip("!").split()) for text in part.texts}
                 for part in (parts.train, parts.test)]  # fmt: skip
        assert not words[0] & words[1]
        assert len(words[0]) + len(words[1]) == 100 and len(words[1]) >= 25


def test_keep_labels_moves_a_text_with_its_twin():
    for seed in range(10):
        parts = split([("Hat", ["x"]), ("hat!", ["a"]), ("b", ["a"]), ("c", ["a"])], test=0.5, seed=seed,
                      keep_labels=True)  # fmt: skip
        assert {"Hat", "hat!"} <= set(parts.train.texts)


# By group


def grouped(n_groups, size, **extra):
    return [{"text": f"t{g} {i}", "labels": ["a"], "author": f"author {g}", **extra}
            for g in range(n_groups) for i in range(size)]  # fmt: skip


@pytest.mark.parametrize("suffix", ["jsonl", "csv", "tsv.gz", "parquet"])
def test_groups_stay_in_one_part_in_every_format(tmp_path, suffix):
    pandas = pytest.importorskip("pandas")
    rows, path = grouped(20, 5), tmp_path / f"pairs.{suffix}"
    if suffix == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif suffix == "parquet":
        pandas.DataFrame(rows).to_parquet(path)
    else:
        frame = pandas.DataFrame(rows)
        frame["labels"] = "a"
        frame.to_csv(path, index=False, sep="\t" if "tsv" in suffix else ",")
    for source in (path, shortlist.read(path, group="author")):
        parts = split(source, test=0.2, validation=0.1, group="author")
        groups = [{text.split()[0] for text in part.texts} for part in (parts.train, parts.validation, parts.test)]
        assert [len(group) for group in groups] == [14, 2, 4]
        assert len(set.union(*groups)) == 20


def test_a_text_in_two_groups_joins_them():
    rows = grouped(10, 3)
    rows += [{"text": "shared", "labels": ["a"], "author": f"author {g}"} for g in (0, 1)]
    rows += [{"text": f"Shared {i}{end}", "labels": ["a"], "author": f"author {g}"}
             for i, pair in enumerate([(2, 3), (3, 4)]) for g, end in zip(pair, (".", "!"), strict=True)]  # fmt: skip
    for seed in range(5):
        parts = split(rows, test=0.4, seed=seed, group="author")
        for joined in ({"t0", "t1"}, {"t2", "t3", "t4"}):
            sides = [joined & {text.split()[0] for text in part.texts} for part in (parts.train, parts.test)]
            assert sorted(map(len, sides)) == [0, len(joined)]


@pytest.mark.parametrize("missing", [None, ""])
def test_a_text_without_a_group_is_on_its_own(missing):
    rows = [{"text": f"t{i}", "labels": ["a"], "author": missing} for i in range(10)]
    assert len(split(rows, test=0.2, group="author").test) == 2


def test_large_groups_are_held_out_as_often_as_small_ones():
    rows = [{"text": f"t{i}", "labels": ["a"], "author": "big" if i < 30 else str(i)} for i in range(100)]
    n_held_out = sum("t0" in list(split(rows, test=0.5, seed=seed, group="author").test.texts) for seed in range(40))
    assert 8 <= n_held_out <= 32


def test_groups_need_their_field():
    with pytest.raises(OptionError, match="read the data with group='author'"):
        split(shortlist.read(grouped(3, 2)), group="author")
    with pytest.raises(OptionError, match="read the data with group='journal'"):
        split(shortlist.read(grouped(3, 2), group="author"), group="journal")
    with pytest.raises(DataError, match="no field 'journal'"):
        split(grouped(3, 2), group="journal")
    with pytest.raises(DataError, match="'author' is a list"):
        split([{"text": "a", "labels": ["x"], "author": ["b"]}], group="author")


# Stratified


def skewed_dataset(n_texts, n_labels, seed=0):
    rng = np.random.default_rng(seed)
    popularity = 1 / np.arange(1, n_labels + 1)
    labels = rng.choice(n_labels, size=(n_texts, 3), p=popularity / popularity.sum())
    return shortlist.read([(f"text {i}", [str(label) for label in set(row)]) for i, row in enumerate(labels.tolist())])


def unevenness(parts, fraction):
    held_out = parts.test.label_frequencies
    all_texts = held_out + parts.train.relabelled(parts.test.label_names).label_frequencies
    return np.abs(held_out - fraction * all_texts)[all_texts >= 5]


def test_stratified_parts_have_the_same_labels_in_the_same_shares():
    dataset = skewed_dataset(3000, 500)
    stratified, plain = (split(dataset, test=0.2, seed=2, stratified=way) for way in (True, False))
    assert len(stratified.test) == pytest.approx(600, rel=0.02)
    assert unevenness(stratified, 0.2).mean() < 0.5 * unevenness(plain, 0.2).mean()
    assert np.quantile(unevenness(stratified, 0.2), 0.9) <= 1.2


def test_rare_labels_are_held_out_as_often_as_others():
    """A label with one text must not always go to training: that would be keep_labels under another name."""
    dataset = shortlist.read([(f"text {i}", [f"only {i}"]) for i in range(500)] + [(f"b {i}", []) for i in range(100)])
    parts = split(dataset, test=0.2, validation=0.1, stratified=True)
    assert (len(parts.train), len(parts.validation), len(parts.test)) == (420, 60, 120)
    assert np.count_nonzero(parts.test.labels.counts) == 100


def test_each_label_is_divided_exactly_where_that_is_possible():
    dataset = shortlist.read([(f"text {i}", [f"label {i % 20}"]) for i in range(200)])
    parts = split(dataset, test=0.2, validation=0.1, stratified=True)
    assert [set(part.label_frequencies.tolist()) for part in (parts.train, parts.validation, parts.test)] == [
        {7}, {1}, {2}
    ]  # fmt: skip


@pytest.mark.slow
def test_a_hundred_thousand_texts_are_stratified_in_seconds():
    dataset = skewed_dataset(100_000, 30_000)
    start = time.perf_counter()
    split(dataset, stratified=True)
    assert time.perf_counter() - start < 20


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"by_time": True, "group": "author"}, "--time.* and .*--group.*choose one"),
        ({"by_time": True, "stratified": True}, "--time.* and .*--stratified"),
        ({"group": "author", "stratified": True}, "--group.* and .*--stratified"),
        ({"by_time": True, "keep_labels": True}, "--keep-labels.*later texts"),
        ({"group": "author", "keep_labels": True}, "--keep-labels.*groups together"),
    ],
)
def test_ways_that_contradict_each_other_are_refused(options, message):
    with pytest.raises(OptionError, match=message):
        split(shortlist.read(grouped(3, 2, when=1), time="when", group="author"), **options)


# Folds


@pytest.mark.parametrize("n_folds", [2, 3, 7])
def test_every_text_is_tested_once(n_folds):
    rows = [(f"text {i}", [f"only {i}", "a"]) for i in range(40)] + [("Text 0!", ["b"]), ("text 1", ["c"])]
    tested = []
    for train, test in folds(rows, n_folds):
        tested += list(test.texts)
        assert len(train) + len(test) == 41 and not set(train.texts) & set(test.texts)
        assert train.label_frequencies.all()
        assert ("text 0" in test.texts) == ("Text 0!" in test.texts)
        assert abs(len(test) - 41 / n_folds) < 2
    assert sorted(tested) == sorted({text for text, _ in rows})


@pytest.mark.parametrize("n_folds", [0, 1, 4])
def test_impossible_numbers_of_folds_are_refused(n_folds):
    with pytest.raises(OptionError, match="from 2 to 3 folds"):
        list(folds([("a", ["x"]), ("b", ["x"]), ("c", ["x"]), ("c!", ["x"])], n_folds))


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
