"""Ragged rows and packed texts against plain lists, and what a data set does with both."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from shortlist.arrays import Ragged, counts_to_indptr
from shortlist.data import Dataset, Texts
from shortlist.errors import DataError
from shortlist.kernels.ragged import SHORT_ROW, first_in_row

lists_of_rows = st.lists(st.lists(st.integers(0, 40), max_size=6), max_size=12)
strings = st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=12), max_size=30)


def as_lists(ragged):
    return [ragged.row(i).tolist() for i in range(len(ragged))]


def with_weights(rows):
    ragged = Ragged.from_lists(rows)
    return Ragged(ragged.indptr, ragged.values, np.arange(len(ragged.values), dtype=np.float32))


@given(lists_of_rows, st.data())
def test_rows_counts_and_take(rows, data):
    ragged = with_weights(rows)
    assert as_lists(ragged) == rows
    assert len(ragged) == len(rows)
    assert ragged.counts.tolist() == [len(row) for row in rows]
    assert ragged.row_ids.tolist() == [i for i, row in enumerate(rows) for _ in row]
    chosen = data.draw(st.lists(st.integers(-len(rows), len(rows) - 1), max_size=10) if rows else st.just([]))
    taken = ragged.take(chosen)
    assert as_lists(taken) == [rows[i] for i in chosen]
    weights = np.split(ragged.weights, ragged.indptr[1:-1]) if rows else []
    assert taken.weights.tolist() == [weight for i in chosen for weight in weights[i].tolist()]


@given(lists_of_rows, st.randoms())
def test_keep(rows, random):
    ragged = with_weights(rows)
    mask = np.asarray([random.random() < 0.5 for _ in ragged.values], bool)
    kept = ragged.keep(mask)
    wanted = iter(mask)
    assert as_lists(kept) == [[value for value in row if next(wanted)] for row in rows]
    assert kept.weights.tolist() == ragged.weights[mask].tolist()


@given(lists_of_rows)
def test_to_matrix_and_back(rows):
    matrix = Ragged.from_lists(rows).to_csr(41)
    dense = np.zeros((len(rows), 41), np.float32)
    for i, row in enumerate(rows):
        for value in row:
            dense[i, value] += 1
    assert matrix.dtype == np.float32
    assert np.array_equal(matrix.toarray(), dense)
    back = Ragged.from_csr(matrix)
    assert as_lists(back) == [sorted(set(row)) for row in rows]
    assert np.array_equal(back.to_csr(41).toarray(), dense)


def test_stored_zeros_are_no_values():
    matrix = sparse.csr_array((np.array([0.0, 2.0, 0.0]), np.array([0, 3, 1]), np.array([0, 2, 3])), shape=(2, 4))
    rows = Ragged.from_csr(matrix)
    assert as_lists(rows) == [[3], []]
    assert rows.weights.tolist() == [2.0]


@given(st.lists(lists_of_rows, max_size=4))
def test_concatenate(parts):
    whole = Ragged.concatenate([Ragged.from_lists(part) for part in parts])
    assert as_lists(whole) == [row for part in parts for row in part]
    assert whole.weights is None
    assert whole.indptr.dtype == np.int64
    assert whole.values.dtype == np.int32


def test_concatenate_with_weights_here_and_there():
    whole = Ragged.concatenate([Ragged.from_lists([[1], [2, 3]]), with_weights([[4], [5]])])
    assert as_lists(whole) == [[1], [2, 3], [4], [5]]
    assert whole.weights.tolist() == [1, 1, 1, 0, 1]


def test_take_by_mask_and_out_of_range():
    ragged = Ragged.from_lists([[1], [2], [3]])
    assert as_lists(ragged.take(np.array([True, False, True]))) == [[1], [3]]
    for rows in ([3], [-4], np.array([True, False])):
        with pytest.raises(IndexError):
            ragged.take(rows)


def test_bounds():
    assert counts_to_indptr([]).tolist() == [0]
    assert counts_to_indptr([2, 0, 3]).tolist() == [0, 2, 2, 5]
    many = counts_to_indptr(np.full(3, 2**30, np.int32))
    assert many[-1] == 3 * 2**30


@given(st.lists(st.lists(st.integers(0, 60), max_size=2 * SHORT_ROW), max_size=8))
def test_first_in_row(rows):
    ragged = Ragged.from_lists(rows)
    expected = [value not in row[:i] for row in rows for i, value in enumerate(row)]
    assert first_in_row(ragged.indptr, ragged.values, 61).tolist() == expected


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
    # A slice of a slice: offsets no longer start at nought.
    assert list(part[1:]) == items[cut][1:]
    assert [part[i] for i in range(len(part))] == items[cut]
    if part:
        chosen = data.draw(st.lists(st.integers(-len(part), len(part) - 1), max_size=9))
        assert list(part.take(chosen)) == [items[cut][i] for i in chosen]


@given(st.lists(st.tuples(strings, st.integers(0, 3), st.integers(0, 3)), max_size=4))
def test_texts_one_after_the_other(parts):
    """Parts of larger sets of texts, too: their bytes do not start at nought, and end before the others do."""
    cut = [items[first : len(items) - last] for items, first, last in parts]
    texts = Texts.concatenate([Texts.from_strings(i)[first : len(i) - last] for i, first, last in parts])
    assert list(texts) == [text for part in cut for text in part]
    assert texts.offsets[0] == 0
    assert texts.offsets[-1] == len(texts.buffer)
    assert texts.offsets.dtype == np.int64


def test_texts_beyond_one_stretch_of_iteration():
    items = [f"text {i} ü" for i in range(25_000)]
    texts = Texts.from_strings(items)
    assert list(texts) == items
    assert list(texts[9_990:10_010]) == items[9_990:10_010]
    assert "text 20000 ü" in texts
    assert repr(texts).startswith("Texts(25,000 texts")


def test_texts_that_are_none():
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


def test_dataset_take_takes_everything_along(dataset):
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


def test_dataset_relabelled_moves_the_filter_pairs_too(dataset):
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
