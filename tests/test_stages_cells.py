"""The index of cells: against products with all vectors, and against damaged arrays."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_files import replaced
from shortlist.arrays import QuantizedMatrix, check_arrays, counts_to_indptr
from shortlist.errors import DataError, ModelError, OptionError
from shortlist.kernels.candidates import search_cells
from shortlist.kernels.threads import n_cores, use_threads
from shortlist.labels.centroids import normalize_rows
from shortlist.stages.candidates import cells as cells_module
from shortlist.stages.candidates.cells import CellIndex

ALL_CELLS = 1 << 20


def clustered(n, n_features, seed=0):
    """Vectors around a few centres."""
    rng = np.random.default_rng(seed)
    centres = rng.standard_normal((max(n // 20, 1), n_features))
    return (centres[rng.integers(len(centres), size=n)] + rng.standard_normal((n, n_features)) / 2).astype(np.float32)


def index_of(vectors, seed=0):
    """An index with many small cells."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cells_module, "ONE_CELL_UP_TO", 16)
        return CellIndex.build(vectors, seed)


def in_8_bits(index):
    return CellIndex(index.cells, index.starts, index.order, index.vectors.in_8_bits())


def assert_best(ids, cosines, all_cosines, k, atol=1e-5):
    """The k best of all, each once, best first; equals may come in any order."""
    assert ids.shape == cosines.shape == (len(all_cosines), min(k, all_cosines.shape[1]))
    expected = -np.sort(-all_cosines, axis=1)[:, :k]
    np.testing.assert_allclose(cosines, expected, atol=atol)
    np.testing.assert_allclose(np.take_along_axis(all_cosines, ids, axis=1), expected, atol=2 * atol)
    assert all(len(set(row)) == len(row) for row in ids.tolist())


@pytest.fixture(scope="module")
def index():
    return index_of(clustered(500, 12))


class TestSearch:
    @given(st.integers(0, 10_000), st.integers(1, 200), st.integers(1, 8), st.integers(0, 5), st.integers(1, 250))
    def test_of_all_cells_equals_products_with_all_vectors(self, seed, n, n_features, n_queries, k):
        vectors, queries = clustered(n, n_features, seed), clustered(n_queries, n_features, seed + 1)
        index = index_of(vectors, seed)
        ids, cosines = index.search(queries, k, ALL_CELLS)
        assert (ids.dtype, cosines.dtype) == (np.int32, np.float32)
        assert_best(ids, cosines, normalize_rows(queries) @ normalize_rows(vectors).T, k)

    def test_in_8_bits_gives_nearly_the_same_cosines(self, index):
        queries = clustered(30, 12, 1)
        packed = in_8_bits(index)
        expected = normalize_rows(queries) @ normalize_rows(clustered(500, 12)).T
        ids, cosines = packed.search(queries, 20, ALL_CELLS)
        assert_best(ids, cosines, expected, 20, atol=0.01)

    @given(st.integers(1, 40), st.integers(1, 600))
    def test_of_some_cells_finds_the_vectors_of_the_nearest_cells(self, n_cells, k):
        index = index_of(clustered(500, 12))
        queries = normalize_rows(clustered(10, 12, 2))
        ids, cosines = index.search(queries, k, n_cells)
        to_cells = queries @ index.cells[:].T
        place = np.argsort(index.order)
        cell_of = np.searchsorted(index.starts, place, side="right") - 1
        vectors = normalize_rows(clustered(500, 12))
        for row, query in enumerate(queries):
            seen = np.argsort(-to_cells[row], kind="stable")[:n_cells]
            candidates = np.flatnonzero(np.isin(cell_of, seen))
            expected = -np.sort(-(vectors[candidates] @ query))[:k]
            found = ids[row][: len(expected)]
            assert set(found.tolist()) <= set(candidates.tolist())
            assert len(set(found.tolist())) == len(found)
            np.testing.assert_allclose(cosines[row, : len(expected)], expected, atol=1e-5)
            np.testing.assert_allclose(vectors[found] @ query, expected, atol=1e-5)
            assert (ids[row, len(expected) :] == -1).all()
            assert (cosines[row, len(expected) :] == -np.inf).all()

    def test_recall_grows_with_the_number_of_cells(self, index):
        queries = clustered(40, 12, 3)
        exact = index.search(queries, 10, ALL_CELLS)[0]
        recalls = [
            np.mean([len(set(a) & set(b)) for a, b in zip(index.search(queries, 10, n)[0], exact, strict=True)])
            for n in (1, 4, 16, ALL_CELLS)
        ]
        assert recalls == sorted(recalls)
        assert recalls[0] < recalls[-1] == 10

    def test_half_of_the_cells_have_nearly_all_neighbours(self, index):
        queries = clustered(100, 12, 4)
        some, exact = (index.search(queries, 10, n)[0] for n in (len(index.cells) // 2, ALL_CELLS))
        assert np.mean([len(set(a) & set(b)) for a, b in zip(some, exact, strict=True)]) > 9.9

    def test_zero_vectors_have_a_cosine_of_0_with_everything(self):
        vectors = clustered(60, 5)
        vectors[[3, 40]] = 0
        index = index_of(vectors)
        ids, cosines = index.search(np.concatenate([np.zeros((1, 5), np.float32), vectors[:2]]), 60, ALL_CELLS)
        assert not cosines[0].any()
        assert sorted(ids[0].tolist()) == list(range(60))
        for row in (1, 2):
            assert cosines[row][np.isin(ids[row], [3, 40])].tolist() == [0, 0]

    def test_no_vectors_no_queries_and_one_of_each(self):
        assert CellIndex.build(np.zeros((0, 4))).search(np.ones((2, 4), np.float32), 3, 1)[0].shape == (2, 0)
        one = CellIndex.build(np.asarray([[0.0, 2.0]]))
        assert [array.tolist() for array in one.search(np.asarray([[3.0, 4.0]], np.float32), 9, 9)] == [
            [[0]],
            [[pytest.approx(0.8)]],
        ]
        assert one.search(np.zeros((0, 2), np.float32), 1, 1)[0].shape == (0, 1)

    @pytest.mark.parametrize("n_cells", [0, -3])
    def test_at_least_one_cell_is_searched(self, index, n_cells):
        queries = clustered(5, 12, 5)
        assert np.array_equal(index.search(queries, 4, n_cells)[0], index.search(queries, 4, 1)[0])

    def test_wrong_arguments_are_refused(self, index):
        with pytest.raises(OptionError, match="k must be at least 1"):
            index.search(np.ones((1, 12), np.float32), 0, 1)
        for queries in (np.ones((1, 11)), np.ones(12)):
            with pytest.raises(DataError, match="the index has 12 dimensions"):
                index.search(queries, 1, 1)

    @pytest.mark.skipif(n_cores() < 2, reason="there is one core")
    def test_threads_change_nothing(self, index):
        queries = clustered(50, 12, 6)
        results = []
        for threads in (1, 2):
            with use_threads(threads):
                results.append(index.search(queries, 7, 5))
        one, two = results
        assert all(np.array_equal(a, b) for a, b in zip(one, two, strict=True))

    def test_one_query_as_in_a_batch(self, index):
        queries = clustered(20, 12, 7)
        together = index.search(queries, 7, 5)
        for row in range(20):
            alone = index.search(queries[row : row + 1], 7, 5)
            assert all(np.array_equal(a[0], b[row]) for a, b in zip(alone, together, strict=True))


class TestKernel:
    @given(st.integers(0, 10_000), st.integers(1, 6), st.integers(0, 4), st.integers(1, 9), st.booleans())
    def test_equals_a_loop_in_python(self, seed, n_cells, n_queries, k, packed):
        """On whole numbers: sums are exact, and many are equal. Cells may be empty."""
        rng = np.random.default_rng(seed)
        starts = counts_to_indptr(rng.integers(0, 4, n_cells))
        cells, queries = (rng.integers(-2, 3, (n, 3)).astype(np.float32) for n in (n_cells, n_queries))
        values = rng.integers(-3, 4, (starts[-1], 3)).astype(np.float32)
        rows = (
            QuantizedMatrix(values.astype(np.int8), np.full(len(values), 2, np.float32))
            if packed
            else QuantizedMatrix.of_floats(values)
        )
        searched = int(rng.integers(1, n_cells + 1))
        places = np.full((n_queries + 2, k), -7, np.int32)
        products = np.full((n_queries + 2, k), -7, np.float32)
        scales = rng.integers(1, 3, n_cells).astype(np.float32)
        searched_cells = cells.astype(np.int8) if packed else cells
        arguments = (queries, searched_cells, scales, starts, rows.values, rows.scales, searched)
        search_cells(*arguments, places[1:-1], products[1:-1])
        cells = cells * scales[:, None]
        order = np.argsort(-products, axis=1, kind="stable")
        places, products = np.take_along_axis(places, order, axis=1), np.take_along_axis(products, order, axis=1)
        assert (places[[0, -1]] == -7).all()
        assert (products[[0, -1]] == -7).all()
        for row, query in enumerate(queries, start=1):
            nearest = sorted(np.argsort(-(cells @ query), kind="stable")[:searched].tolist())
            seen = [place for cell in nearest for place in range(starts[cell], starts[cell + 1])]
            of_place = {place: float(rows[place : place + 1][0] @ query) for place in seen}
            expected = sorted(seen, key=lambda place: (-of_place[place], place))[:k]
            assert places[row].tolist() == expected + [-1] * (k - len(expected))
            assert products[row].tolist() == [of_place[place] for place in expected] + [-np.inf] * (k - len(expected))


class TestBuild:
    def test_few_vectors_make_one_cell(self):
        vectors = clustered(2048, 4)
        assert len(CellIndex.build(vectors).cells) == 1
        assert len(CellIndex.build(np.concatenate([vectors, vectors[:1]])).cells) > 1
        assert repr(CellIndex.build(vectors)) == "CellIndex(2,048 × 4 in 1 cells)"

    def test_every_vector_is_in_its_nearest_cell(self, index):
        vectors = normalize_rows(clustered(500, 12))
        assert sorted(index.order.tolist()) == list(range(500))
        assert np.array_equal(index.vectors[:], vectors[index.order])
        own = np.repeat(np.arange(len(index.cells)), np.diff(index.starts))
        assert np.array_equal((vectors[index.order] @ index.cells[:].T).argmax(axis=1), own)

    def test_the_same_seed_gives_the_same_index(self):
        one, two, other = (index_of(clustered(300, 6), seed).arrays() for seed in (1, 1, 2))
        assert all(np.array_equal(one[name], two[name]) for name in one)
        assert not np.array_equal(one["cells"], other["cells"])

    @pytest.mark.parametrize("value", [1, 0])
    def test_vectors_that_are_all_the_same(self, value):
        index = index_of(np.full((100, 3), value, np.float32))
        ids, cosines = index.search(np.ones((1, 3), np.float32), 100, ALL_CELLS)
        assert sorted(ids[0].tolist()) == list(range(100))
        assert np.allclose(cosines, value, atol=1e-5)


def read(arrays):
    """As the candidate stage reads it."""
    check_arrays(arrays, CellIndex.spec)
    return CellIndex.from_arrays(arrays)


class TestArrays:
    @pytest.mark.parametrize("packed", [False, True])
    def test_round_trip(self, index, packed):
        index = in_8_bits(index) if packed else index
        again = read(index.arrays())
        queries = clustered(5, 12, 8)
        for one, two in zip(index.search(queries, 9, 4), again.search(queries, 9, 4), strict=True):
            assert np.array_equal(one, two)

    @pytest.mark.parametrize("name", ["cells", "starts", "order", "vectors"])
    def test_missing_arrays_and_other_types_and_shapes_are_refused(self, index, name):
        for wrong in (None, lambda a: a.astype(np.float64), lambda a: a[None], lambda a: a[0]):
            with pytest.raises(ModelError, match=f"array '{name}'"):
                read(replaced(index.arrays(), {name: wrong}))

    @pytest.mark.parametrize(
        ("name", "change", "message"),
        [
            ("order", lambda a: a[:-1], "'vectors' has shape"),
            ("vectors", lambda a: a[:-1], "'vectors' has shape"),
            ("vectors", lambda a: a[:, :-1], "'vectors' has shape"),
            ("cells", lambda a: a[:-1], "'starts' has shape"),
            ("cells", lambda a: a[:, :-1], "'vectors' has shape"),
            ("starts", lambda a: a[:-1], "'starts' has shape"),
            ("starts", lambda a: a + 1, "'starts' must start at 0"),
            ("starts", lambda a: np.append(a[:-1], a[-1] + 1), "'starts' must start at 0"),
            ("starts", lambda a: np.append(a[:-1], a[-1] - 1), "'starts' must start at 0"),
            ("starts", lambda a: np.where(np.arange(len(a)) == 2, 501, a), "'starts' must start at 0"),
            ("starts", lambda a: np.where(np.arange(len(a)) == 2, -1, a), "'starts' must start at 0"),
            ("order", lambda a: np.where(a == 3, np.int32(500), a), "'order' has a value of 500"),
            ("order", lambda a: np.where(a == 3, np.int32(-1), a), "'order' has a value of -1"),
            ("order", lambda a: np.where(a == 3, np.int32(4), a), "'order' has a value twice"),
        ],
    )
    def test_damage_is_refused_before_a_kernel_follows_it(self, index, name, change, message):
        with pytest.raises(ModelError, match=message):
            read(replaced(index.arrays(), {name: change}))

    def test_an_index_without_cells_is_refused(self):
        nothing = {
            "cells": np.zeros((0, 12), np.float32),
            "starts": np.zeros(1, np.int64),
            "order": np.zeros(0, np.int32),
            "vectors": np.zeros((0, 12), np.float32),
        }
        with pytest.raises(ModelError, match="at least one cell"):
            read(nothing)


@pytest.mark.parametrize("share", [0.02, 0.3, 0.9, 1.0])
def test_only_some_vectors(share):
    vectors, queries = clustered(1500, 12), clustered(5, 12, seed=1)
    index = index_of(vectors)
    kept = np.random.default_rng(0).random(len(index)) < share
    positions = np.flatnonzero(kept)
    for n_cells in (1, len(index.cells)):
        some, n_searched = index.only(kept, n_cells)
        assert len(some) == len(positions) and 1 <= n_searched <= len(some.cells)
    ids, cosines = some.search(queries, 10, n_searched)
    all_cosines = normalize_rows(queries) @ normalize_rows(vectors)[index.order[positions]].T
    assert_best(ids, cosines, all_cosines, 10)
