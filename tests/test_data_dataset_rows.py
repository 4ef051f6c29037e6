"""Rows of a data set: by number, by slice, one after the other, and as a pandas frame."""

from __future__ import annotations

import numpy as np
import pytest

import shortlist

ROWS = [("red shoes", ["shoes"]), ("blue hat", ["hats", "blue"]), ("hat", ["hats"])]
DATA = shortlist.read(ROWS)


def test_one_row():
    assert DATA[0] == ROWS[0]
    assert DATA[-1] == DATA[np.int64(2)] == ROWS[2]
    for number in (3, -4):
        with pytest.raises(IndexError):
            DATA[number]


def test_several_rows():
    for rows in (slice(1, 3), [1, 2], np.array([1, 2]), [False, True, True]):
        some = DATA[rows]
        assert isinstance(some, shortlist.Dataset) and list(some) == ROWS[1:]
    assert len(DATA[[]]) == 0


def test_iterating():
    assert list(DATA) == ROWS
    assert dict(DATA)["hat"] == ["hats"]


def test_to_pandas_and_back():
    pytest.importorskip("pandas")
    data = shortlist.read(
        [{"text": text, "labels": labels, "id": i} for i, (text, labels) in enumerate(ROWS)], keep=["id"]
    )
    frame = data.to_pandas()
    assert frame.columns.tolist() == ["text", "labels", "id"]
    assert frame.id.tolist() == [0, 1, 2] and frame.labels[1] == ["hats", "blue"]
    pytest.importorskip("pyarrow")
    assert list(shortlist.read(frame)) == ROWS


def test_one_label_per_text():
    assert list(shortlist.Dataset.from_lists(["a", "b"], ["x", 7])) == [("a", ["x"]), ("b", ["7"])]


def test_evaluate_a_model():
    model = shortlist.train(DATA, "centroid")
    expected = shortlist.evaluate(model.predict_dataset(DATA), DATA, train=DATA)
    assert shortlist.evaluate(model, DATA, train=DATA).values == expected.values
    with pytest.raises(shortlist.OptionError, match="give a Dataset"):
        shortlist.evaluate(model, [["shoes"]])
