"""`describe`: every number on data counted by hand, and against plain Python on random data."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shortlist.arrays import Ragged
from shortlist.data import Dataset, Texts, read
from shortlist.data.describe import FREQUENCY_STEPS, WORD_STEPS, Bucket, chart, describe, histogram, side_by_side
from shortlist.text import Tokenizer

TRAIN = [
    ("Red shoes", ["shoes", "red"]),
    ("red  SHOES!", ["shoes"]),  # the same words as the first
    ("a blue hat for cold winter days in town", ["hats", "blue"]),
    ("blue hat", ["hats", "blue"]),
    ("blue hat", ["hats"]),  # the same text as the one before
    ("", ["none"]),
    ("???", []),
    ("green hat for men and boys", ["hats"]),
]
TEST = [
    ("blue hat", ["hats"]),  # is in training
    ("RED SHOES", ["shoes", "boots"]),  # the words are in training, one label is not
    ("black boots", ["boots"]),  # neither text nor label is in training
    ("green coat", ["coats", "hats"]),
    ("white coat", []),
]


def spread(part) -> tuple[float, float, int]:
    return part["mean"], part["median"], part["max"]


def counts(buckets: list[Bucket]) -> dict[str, int]:
    return {bucket.name: bucket.count for bucket in buckets}


@pytest.fixture(scope="module")
def described():
    return describe(read(TRAIN), read(TEST))


def test_counts_of_the_training_part(described):
    train = described.parts["train"]
    assert (train["texts"], train["labels"], train["labels_that_occur"], train["pairs"]) == (8, 5, 5, 10)
    assert train["texts_without_labels"] == 1
    assert spread(train["labels_per_text"]) == (10 / 8, 1, 2)
    assert counts(train["labels_per_text"]["histogram"]) == {"0": 1, "1": 4, "2": 3}
    assert spread(train["texts_per_label"]) == (2, 2, 4)  # shoes 2, red 1, hats 4, blue 2, none 1
    assert counts(train["texts_per_label"]["histogram"]) == {"1": 2, "2": 2, "3–9": 1}
    assert train["share_of_labels_with_1_text"] == 2 / 5
    assert train["share_of_labels_with_at_most_2_texts"] == 4 / 5
    assert train["share_of_labels_with_at_most_5_texts"] == 1
    assert train["against_train"] is None


def test_words_of_the_training_part(described):
    words = described.parts["train"]["words"]
    # Words per text: 2, 2, 9, 2, 2, 0, 0, 6.
    assert spread(words["per_text"]) == (23 / 8, 2, 9)
    assert counts(words["per_text"]["histogram"]) == {"0": 2, "1–2": 4, "3–4": 0, "5–6": 1, "7–8": 0, "9–12": 1}
    assert words["distinct"] == len("red shoes a blue hat for cold winter days in town green men and boys".split())
    assert words["share_with_at_most_4"] == 6 / 8
    assert words["share_with_at_most_8"] == 7 / 8
    assert words["empty_texts"] == 1
    assert words["texts_without_words"] == 2
    assert words["repeated_texts"] == 1
    assert words["repeated_word_sequences"] == 3  # red shoes, blue hat, and no words at all


def test_test_part_compared_with_training(described):
    test = described.parts["test"]
    assert (test["texts"], test["labels"], test["labels_that_occur"], test["pairs"]) == (5, 4, 4, 6)
    assert test["texts_without_labels"] == 1
    against = test["against_train"]
    assert against["texts_in_train"] == 1
    assert against["word_sequences_in_train"] == 2
    assert against["labels_not_in_train"] == 2
    assert against["pairs_not_in_train"] == 3
    assert against["texts_with_no_label_in_train"] == 1


def test_paper_columns(described):
    assert described.papers == {
        "train_texts": 8,
        "test_texts": 5,
        "labels": 5,
        "points_per_label": 2,
        "labels_per_point": 1.25,
        "share_with_at_most_4_words": 0.75,
        "share_with_at_most_8_words": 0.875,
    }


def test_unused_label_names_do_not_count_as_training_labels():
    """A part of a larger data set has label names that none of its texts has."""
    whole = Dataset.from_lists(["one", "two", "three"], [["a"], ["b"], ["a", "c"]])
    described = describe(whole.take([0]), whole.take([1, 2]))
    train, test = described.parts["train"], described.parts["test"]
    assert (train["labels"], train["labels_that_occur"]) == (3, 1)
    assert test["against_train"]["labels_not_in_train"] == 2
    assert test["against_train"]["pairs_not_in_train"] == 2
    assert test["against_train"]["texts_with_no_label_in_train"] == 1
    assert "labels that occur" in described.table()
    assert "labels that occur" not in describe(whole).table()


def test_validation_part():
    described = describe(read(TRAIN), read(TEST), validation=read(TRAIN[:1]))
    assert list(described.parts) == ["train", "validation", "test"]
    assert described.parts["validation"]["against_train"]["texts_in_train"] == 1
    assert described.table().splitlines()[0].split() == ["train", "validation", "test"]
    assert str(described) == described.table()  # print(describe(data))


def test_empty_data_set():
    described = describe(read([]), read([]))
    train = described.parts["train"]
    assert (train["texts"], train["labels"], train["pairs"], train["words"]["distinct"]) == (0, 0, 0, 0)
    assert spread(train["words"]["per_text"]) == spread(train["texts_per_label"]) == (0, 0, 0)
    assert train["share_of_labels_with_1_text"] == train["words"]["share_with_at_most_4"] == 0
    assert described.papers["points_per_label"] == 0
    assert described.parts["test"]["against_train"]["texts_with_no_label_in_train"] == 0
    assert "words per text" in described.table()


def test_one_text_and_no_test():
    described = describe(Dataset.from_lists(["one text"], [["label"]]))
    assert spread(described.parts["train"]["words"]["per_text"]) == (2, 2, 2)
    assert described.papers["test_texts"] is None
    assert "compared with train" not in described.table()
    assert "(train)" not in described.table()  # no need with a single part


def test_features_instead_of_texts():
    """Data sets with features have no rows about words."""
    part = Dataset(
        Texts.from_strings(["", ""]), Ragged.from_lists([[0], [0, 1]]), ["a", "b"], features=np.eye(2, dtype=np.float32)
    )
    described = describe(part, part)
    assert described.parts["train"]["words"] is None
    assert described.parts["test"]["against_train"]["texts_in_train"] is None
    assert described.parts["test"]["against_train"]["labels_not_in_train"] == 0
    shown = described.table()
    assert "repeated" not in shown and "distinct words" not in shown
    assert "labels not in train" in shown


def test_read_warnings_appear_once():
    rows = [("good", ["a", "a"]), ("no labels at all",), ("", ["b"])]
    data = read(rows, on_error="skip")
    described = describe(data.take([0]), data.take([1]))
    text = "\n".join(described.warnings)
    assert text.count("skipped 1 bad line") == 1
    assert text.count("kept once") == 1
    assert text.count("empty") == 1  # the table counts them, the warning says what to do
    assert described.warnings[0].startswith("train: ")
    assert "warnings" in described.table()


def test_warnings_are_wrapped_but_paths_are_not_broken(tmp_path):
    path = tmp_path / "-".join(["long"] * 30) / "pairs.jsonl"
    path.parent.mkdir()
    path.write_text('{"text": "good", "labels": ["a"]}\n{"text": "bad"}\n')
    table = describe(read(path, on_error="skip")).table()
    assert f" {path}," in table
    assert all(len(line) <= 80 or str(path) in line for line in table.splitlines())


def test_table_is_aligned_and_fits_a_terminal():
    rng = np.random.default_rng(0)
    texts = [" ".join(["word"] * rng.integers(0, 120)) for _ in range(3000)]
    labels = [[f"label {i}" for i in set(rng.zipf(1.3, rng.integers(0, 40)) % 5000)] for _ in texts]
    data = Dataset.from_lists(texts, labels)
    described = describe(data, data, data)
    table = described.table()
    assert max(map(len, table.splitlines())) <= 80
    head, *body = table.split("\n\n")[0].splitlines()
    rows = [line for line in body if line.startswith("  ")]
    assert {len(line) for line in rows} == {len(head)}
    assert "3,000" in table
    assert "█" in table


def test_json_is_plain_and_complete(described):
    plain = json.loads(json.dumps(described.to_json()))
    assert plain["papers"] == described.papers
    assert plain["parts"]["train"]["words"]["repeated_texts"] == 1
    assert plain["parts"]["train"]["texts_per_label"]["histogram"][0] == {"first": 1, "last": 1, "count": 2}
    assert plain["parts"]["test"]["against_train"]["labels_not_in_train"] == 2
    assert plain["warnings"] == described.warnings


texts_of_any_kind = st.lists(st.text("aB ,é", max_size=6), max_size=12)


@given(texts_of_any_kind, texts_of_any_kind)
def test_repeats_and_leaks_agree_with_python_sets(train_texts, test_texts):
    described = describe(read([(t, ["a"]) for t in train_texts]), read([(t, ["a"]) for t in test_texts]))
    tokenizer = Tokenizer()
    sequences = [tuple(tokenizer.words(text)) for text in train_texts]
    words = described.parts["train"]["words"]
    assert words["repeated_texts"] == len(train_texts) - len(set(train_texts))
    assert words["repeated_word_sequences"] == len(sequences) - len(set(sequences))
    assert words["distinct"] == len({word for sequence in sequences for word in sequence})
    against = described.parts["test"]["against_train"]
    assert against["texts_in_train"] == sum(text in set(train_texts) for text in test_texts)
    assert against["word_sequences_in_train"] == sum(
        tuple(tokenizer.words(text)) in set(sequences) for text in test_texts
    )


@given(st.lists(st.integers(0, 200_000), max_size=30))
def test_histogram_agrees_with_counting(values):
    buckets = histogram(np.asarray(values, np.int64), FREQUENCY_STEPS)
    assert sum(bucket.count for bucket in buckets) == len(values)
    for bucket in buckets:
        last = np.inf if bucket.last is None else bucket.last
        assert bucket.count == sum(bucket.first <= value <= last for value in values)
    if buckets:
        assert buckets[0].count and buckets[-1].count


def test_bucket_names_are_short():
    buckets = histogram(np.asarray([1, 2, 150_000]), FREQUENCY_STEPS)
    names = "1, 2, 3–9, 10–29, 30–99, 100–299, 300–999, 1K–3K, 3K–10K, 10K–30K, 30K–100K, 100K+"
    assert ", ".join(bucket.name for bucket in buckets) == names


def test_chart_draws_bars_to_scale_and_shows_the_smallest():
    buckets = [Bucket(1, 1, 400), Bucket(2, 2, 200), Bucket(3, 9, 1), Bucket(10, None, 0)]
    assert chart("title", buckets, 20) == [
        "title               ",
        "  1 ██████████  67 %",
        "  2 █████       33 %",
        "3–9 ▏           <1 %",
        "10+              0 %",
    ]


def test_side_by_side_charts_of_different_heights():
    left = chart("left", histogram(np.asarray([1, 1, 5]), WORD_STEPS), 20)
    right = chart("right", [], 10)
    assert side_by_side([left, right]) == [
        "left                   right",
        "1–2 ██████████  67 %",
        "3–4              0 %",
        "5–6 █████       33 %",
    ]
