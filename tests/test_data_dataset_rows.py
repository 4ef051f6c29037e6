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
        with pytest.raises(IndexError, match=rf"row {number} is out of range \(3 texts\)"):
            DATA[number]
    for wrong in ("text", 1.5, [7]):
        with pytest.raises(IndexError, match="give a number, a slice, row numbers, or a mask"):
            DATA[wrong]


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
    assert shortlist.evaluate(model, ROWS, train=DATA).values == expected.values
    with pytest.raises(shortlist.DataError, match=r"expected \(text, labels\) pairs"):
        shortlist.evaluate(model, [["shoes"]])
    with pytest.raises(shortlist.OptionError, match=r"shortlist\.load\('model/'\)"):
        shortlist.evaluate("model/", DATA)


def test_texts_without_labels_say_what_to_do():
    with pytest.raises(shortlist.DataError, match=r"train\(texts, labels\)"):
        shortlist.train(["red shoes", "blue hat"])


def test_a_misspelt_name_of_the_library_is_suggested():
    with pytest.raises(AttributeError) as raised:
        shortlist.trian  # noqa: B018
    assert (raised.value.name, raised.value.obj) == ("trian", shortlist)  # from which Python suggests `train`
