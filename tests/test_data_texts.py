"""Packed texts against plain lists, and what a data set does with its parts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from shortlist.data import Dataset, Texts
from shortlist.errors import DataError

strings = st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=12), max_size=30)


@given(strings, st.data())
def test_texts_are_a_sequence(items, data):
    texts = Texts.from_strings(items)
    assert list(texts) == items
    assert len(texts) == len(items)
    assert texts == items
    assert texts == Texts.from_strings(items)
    assert texts != [*items, ""]
    assert texts.sizes.tolist() == [len(item.encode()) for item in items]
    for i in range(-len(items), len(items)):
        assert texts[i] == items[i]
    for i in (len(items), -len(items) - 1):
        with pytest.raises(IndexError):
            texts[i]
    edge = st.none() | st.integers(-40, 40)
    cut = slice(data.draw(edge), data.draw(edge), data.draw(st.sampled_from([None, 1, 2, 3, -1, -2])))
    part = texts[cut]
    assert list(part) == items[cut]
    # In a slice of a slice, offsets no longer start at 0.
    assert list(part[1:]) == items[cut][1:]
    assert [part[i] for i in range(len(part))] == items[cut]
    if part:
        rows = data.draw(st.lists(st.integers(-len(part), len(part) - 1), max_size=9))
        assert list(part.take(rows)) == [items[cut][i] for i in rows]


@given(st.lists(st.tuples(strings, st.integers(0, 3), st.integers(0, 3)), max_size=4))
def test_concatenate_texts(parts):
    """Slices, too, whose bytes are only a part of their buffer."""
    cut = [items[first : len(items) - last] for items, first, last in parts]
    texts = Texts.concatenate([Texts.from_strings(i)[first : len(i) - last] for i, first, last in parts])
    assert list(texts) == [text for part in cut for text in part]
    assert texts.offsets[0] == 0
    assert texts.offsets[-1] == len(texts.buffer)
    assert texts.offsets.dtype == np.int64


def test_iterate_over_more_texts_than_one_block():
    items = [f"text {i} ü" for i in range(25_000)]
    texts = Texts.from_strings(items)
    assert list(texts) == items
    assert list(texts[9_990:10_010]) == items[9_990:10_010]
    assert "text 20000 ü" in texts
    assert repr(texts).startswith("Texts(25,000 texts")


def test_items_that_are_not_texts_are_refused():
    for items, what in ((["a", None], "item 2 .* None"), (["\ud800"], "item 1"), ("a text", "one text")):
        with pytest.raises(DataError, match=what):
            Texts.from_strings(items)
    texts = Texts.from_strings(["a", "b"])
    assert Texts.from_strings(texts) is texts
    with pytest.raises(TypeError):
        hash(texts)


@pytest.fixture
def dataset():
    data = Dataset.from_lists(["a", "b", "c", "d"], [["x", "y"], ["y"], [], ["z", "x"]])
    data.features = sparse.csr_array(np.eye(4, 3, dtype=np.float32))
    data.times = np.array([4, 3, 2, 1])
    data.filter_pairs = np.array([[0, 1], [3, 0], [3, 2]])
    return data


def test_dataset_take_selects_the_rows_of_every_field(dataset):
    part = dataset.take([3, 0, 3])
    assert list(part.texts) == ["d", "a", "d"]
    assert [part.labels_of(i) for i in range(3)] == [["z", "x"], ["x", "y"], ["z", "x"]]
    assert part.label_names == dataset.label_names
    assert np.array_equal(part.features.toarray(), dataset.features.toarray()[[3, 0, 3]])
    assert part.times.tolist() == [1, 4, 1]
    assert sorted(part.filter_pairs.tolist()) == [[0, 0], [0, 2], [1, 1], [2, 0], [2, 2]]
    assert part.label_frequencies.tolist() == [3, 1, 2]
    assert len(dataset.take([])) == 0
    assert dataset.take([1, 2]).filter_pairs.tolist() == []
    assert list(dataset.take(np.array([False, True, False, True])).texts) == ["b", "d"]
    assert list(dataset.take([-1]).texts) == ["d"]


def test_dataset_relabelled_maps_labels_and_filter_pairs(dataset):
    moved = dataset.relabelled(["new", "z", "x"])
    assert [moved.labels_of(i) for i in range(4)] == [["x"], [], [], ["z", "x"]]
    assert moved.filter_pairs.tolist() == [[3, 2], [3, 1]]
    assert moved.label_frequencies.tolist() == [0, 1, 2]
    assert moved.without_unused_labels().label_names == ["z", "x"]
    assert Dataset.from_lists([], []).relabelled(["a"]).n_labels == 1


def test_dataset_basics(dataset):
    assert repr(dataset) == "Dataset(4 texts, 3 labels, 5 pairs)"
    assert dataset.label_frequencies.tolist() == [2, 2, 1]
    assert dataset.label_index == {"x": 0, "y": 1, "z": 2}
    dataset.display_names = {"x": "the X"}
    assert [dataset.display_name(name) for name in "xy"] == ["the X", "y"]
    with pytest.raises(DataError, match="2 texts but 1 lists"):
        Dataset.from_lists(["a", "b"], [["x"]])
    with pytest.raises(DataError, match="4 texts but 3 times"):
        Dataset(dataset.texts, dataset.labels, dataset.label_names, times=np.arange(3))
