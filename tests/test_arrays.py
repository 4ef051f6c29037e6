"""Ragged rows, matrices in 8 bits, and the one checker of arrays that come from files."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from model_files import replaced
from shortlist import arrays as arrays_module
from shortlist.arrays import INT8_MAX, ArraySpec, QuantizedMatrix, Ragged, check_arrays, counts_to_indptr
from shortlist.errors import ModelError
from shortlist.kernels.ragged import SHORT_ROW, first_in_row

lists_of_rows = st.lists(st.lists(st.integers(0, 40), max_size=6), max_size=12)


def as_lists(ragged):
    return [ragged.row(i).tolist() for i in range(len(ragged))]


def with_weights(rows):
    ragged = Ragged.from_lists(rows)
    return Ragged(ragged.indptr, ragged.values, np.arange(len(ragged.values), dtype=np.float32))


class TestRagged:
    @given(lists_of_rows, st.data())
    def test_rows_counts_and_take(self, rows, data):
        ragged = with_weights(rows)
        assert as_lists(ragged) == rows
        assert len(ragged) == len(rows)
        assert ragged.counts.tolist() == [len(row) for row in rows]
        assert ragged.row_ids.tolist() == [i for i, row in enumerate(rows) for _ in row]
        wanted = data.draw(st.lists(st.integers(-len(rows), len(rows) - 1), max_size=10) if rows else st.just([]))
        taken = ragged.take(wanted)
        assert as_lists(taken) == [rows[i] for i in wanted]
        weights = np.split(ragged.weights, ragged.indptr[1:-1]) if rows else []
        assert taken.weights.tolist() == [weight for i in wanted for weight in weights[i].tolist()]

    @given(lists_of_rows, st.integers(-15, 15), st.integers(-15, 15))
    def test_slices_are_those_of_a_list(self, rows, begin, end):
        ragged = with_weights(rows)
        part = ragged[begin:end]
        assert as_lists(part) == rows[begin:end]
        assert part.weights.tolist() == ragged.take(np.arange(len(rows))[begin:end]).weights.tolist()

    @given(lists_of_rows, st.randoms())
    def test_keep(self, rows, random):
        ragged = with_weights(rows)
        mask = np.asarray([random.random() < 0.5 for _ in ragged.values], bool)
        kept = ragged.keep(mask)
        wanted = iter(mask)
        assert as_lists(kept) == [[value for value in row if next(wanted)] for row in rows]
        assert kept.weights.tolist() == ragged.weights[mask].tolist()

    @given(lists_of_rows)
    def test_distinct_sorts_and_drops_duplicates(self, rows):
        distinct = with_weights(rows).distinct(41)
        assert as_lists(distinct) == [sorted(set(row)) for row in rows]
        assert distinct.weights is None
        assert distinct.values.dtype == np.int32

    @given(lists_of_rows)
    def test_to_csr_and_back(self, rows):
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

    def test_from_csr_drops_stored_zeros(self):
        matrix = sparse.csr_array((np.array([0.0, 2.0, 0.0]), np.array([0, 3, 1]), np.array([0, 2, 3])), shape=(2, 4))
        rows = Ragged.from_csr(matrix)
        assert as_lists(rows) == [[3], []]
        assert rows.weights.tolist() == [2.0]

    @given(st.lists(lists_of_rows, max_size=4))
    def test_concatenate(self, parts):
        whole = Ragged.concatenate([Ragged.from_lists(part) for part in parts])
        assert as_lists(whole) == [row for part in parts for row in part]
        assert whole.weights is None
        assert whole.indptr.dtype == np.int64
        assert whole.values.dtype == np.int32

    def test_concatenate_gives_parts_without_weights_a_weight_of_1(self):
        whole = Ragged.concatenate([Ragged.from_lists([[1], [2, 3]]), with_weights([[4], [5]])])
        assert as_lists(whole) == [[1], [2, 3], [4], [5]]
        assert whole.weights.tolist() == [1, 1, 1, 0, 1]

    def test_take_by_mask_and_out_of_range(self):
        ragged = Ragged.from_lists([[1], [2], [3]])
        assert as_lists(ragged.take(np.array([True, False, True]))) == [[1], [3]]
        for rows in ([3], [-4], np.array([True, False])):
            with pytest.raises(IndexError):
                ragged.take(rows)

    def test_counts_to_indptr(self):
        assert counts_to_indptr([]).tolist() == [0]
        assert counts_to_indptr([2, 0, 3]).tolist() == [0, 2, 2, 5]
        many = counts_to_indptr(np.full(3, 2**30, np.int32))
        assert many[-1] == 3 * 2**30

    @given(st.lists(st.lists(st.integers(0, 60), max_size=2 * SHORT_ROW), max_size=8))
    def test_first_in_row(self, rows):
        ragged = Ragged.from_lists(rows)
        expected = [value not in row[:i] for row in rows for i, value in enumerate(row)]
        assert first_in_row(ragged.indptr, ragged.values, 61).tolist() == expected


def random_rows(seed, n_rows, width):
    """Rows of very different lengths, some of them zero."""
    rng = np.random.default_rng(seed)
    lengths = 10.0 ** rng.integers(-6, 7, n_rows) * (rng.random(n_rows) < 0.8)
    return (rng.standard_normal((n_rows, width)) * lengths[:, None]).astype(np.float32)


class TestQuantizedMatrix:
    @given(st.integers(0, 10_000), st.integers(0, 20), st.integers(0, 9), st.integers(1, 7))
    def test_values_are_rounded_by_at_most_half_a_step(self, seed, n_rows, width, block):
        values = random_rows(seed, n_rows, width)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(arrays_module, "ROWS_PER_BLOCK", block)
            packed = QuantizedMatrix.of_floats(values).in_8_bits()
        assert packed.shape == values.shape == packed.values.shape
        assert (packed.values.dtype, packed.scales.dtype) == (np.int8, np.float32)
        largest = np.abs(values).max(axis=1, initial=0)
        np.testing.assert_allclose(packed.scales, largest / INT8_MAX, rtol=1e-6)
        error = np.abs(packed[:].astype(np.float64) - values)
        assert (error <= largest[:, None] / INT8_MAX * 0.5001).all()
        # The largest value of a row takes the whole range of int8.
        assert ((np.abs(packed.values).max(axis=1, initial=0) == INT8_MAX) == ((largest > 0) & (width > 0))).all()

    def test_zero_rows_stay_zero(self):
        packed = QuantizedMatrix.of_floats(np.zeros((3, 4), np.float32)).in_8_bits()
        assert not packed.values.any()
        assert packed[:].tolist() == np.zeros((3, 4)).tolist()

    def test_a_matrix_in_8_bits_stays_as_it_is(self):
        packed = QuantizedMatrix.of_floats(random_rows(0, 5, 3)).in_8_bits()
        assert packed.in_8_bits() is packed

    @pytest.mark.parametrize("packed", [False, True])
    @pytest.mark.parametrize(
        "rows",
        [slice(1, 3), slice(0, 0), np.array([4, 0, 0]), np.array([[1, 2], [3, 1]]), np.zeros((2, 0), int)],
        ids=["slice", "empty slice", "repeats", "two axes", "two axes, empty"],
    )
    def test_selected_rows_equal_those_of_the_whole_matrix(self, packed, rows):
        values = random_rows(1, 6, 4)
        matrix = QuantizedMatrix.of_floats(values).in_8_bits() if packed else QuantizedMatrix.of_floats(values)
        whole = matrix.values * matrix.scales[:, None]
        assert matrix[rows].dtype == np.float32
        assert np.array_equal(matrix[rows], whole[rows])
        assert len(matrix) == 6

    def test_float_rows_are_not_copied(self):
        values = random_rows(1, 6, 4)
        assert np.shares_memory(QuantizedMatrix.of_floats(values)[2:4], values)

    @pytest.mark.parametrize("packed", [False, True])
    def test_arrays_round_trip(self, packed):
        matrix = QuantizedMatrix.of_floats(random_rows(2, 5, 3))
        matrix = matrix.in_8_bits() if packed else matrix
        arrays = matrix.to_arrays("meta.weights")
        assert set(arrays) == {"meta.weights"} | ({"meta.weights.scales"} if packed else set())
        again = QuantizedMatrix.of_arrays(arrays, "meta.weights")
        assert again.values is matrix.values
        assert np.array_equal(again.scales, matrix.scales)


SPEC = {
    "rows": ArraySpec("rows", ("n", "width"), finite=False),
    "biases": ArraySpec("float32", ("n",)),
    "large": ArraySpec("float32|int8", ("m",), finite=False),
    "starts": ArraySpec("int64", ("n+1",), indptr="m"),
    "ids": ArraySpec("int32", ("m",), below="n"),
    "order": ArraySpec("int32", ("n",), below="n", unique=True),
    "digits": ArraySpec("uint8", (4,), below=10),
    "more": ArraySpec("float32", ("n",), optional=True),
    "more_starts": ArraySpec("int64", ("k+1",), optional=True, indptr="n_more_ids"),
    "more_ids": ArraySpec("int32", ("n_more_ids",), optional=True),
}
N, WIDTH, M = 3, 2, 5


def right_arrays(packed=False):
    rows = QuantizedMatrix.of_floats(np.ones((N, WIDTH), np.float32))
    return {
        **(rows.in_8_bits() if packed else rows).to_arrays("rows"),
        "biases": np.zeros(N, np.float32),
        "large": np.zeros(M, np.int8 if packed else np.float32),
        "starts": np.array([0, 2, 2, M]),
        "ids": np.array([0, 1, 2, 2, 0], np.int32),
        "order": np.array([2, 0, 1], np.int32),
        "digits": np.array([0, 9, 5, 5], np.uint8),
    }


class TestCheckArrays:
    @pytest.mark.parametrize("packed", [False, True])
    def test_right_arrays_pass_and_the_sizes_come_back(self, packed):
        assert check_arrays(right_arrays(packed), SPEC) == {"n": N, "width": WIDTH, "m": M}
        assert check_arrays(right_arrays(packed), SPEC, n=N, other=7) == {"n": N, "width": WIDTH, "m": M, "other": 7}
        with_optional = right_arrays(packed) | {"more": np.ones(N, np.float32)}
        assert check_arrays(with_optional, SPEC)["n"] == N

    def test_arrays_may_be_empty(self):
        spec = {"starts": ArraySpec("int64", ("n+1",), indptr="m"), "ids": ArraySpec("int32", ("m",), below="n")}
        empty = {"starts": np.zeros(1, np.int64), "ids": np.zeros(0, np.int32)}
        assert check_arrays(empty, spec) == {"n": 0, "m": 0}
        unique = {"order": ArraySpec("int32", ("n",), below="n", unique=True)}
        assert check_arrays({"order": np.zeros(0, np.int32)}, unique) == {"n": 0}

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"biases": None}, "array 'biases' is missing"),
            ({"rows": None}, "array 'rows' is missing"),
            ({"extra": np.zeros(1)}, "array 'extra' is not part of this stage"),
            ({"biases.scales": np.ones(N, np.float32)}, "array 'biases.scales' is not part of this stage"),
            ({"biases": np.zeros(N)}, "array 'biases' is float64; expected float32"),
            ({"large": np.zeros(M)}, "array 'large' is float64; expected float32 or int8"),
            ({"rows": np.ones((N, WIDTH))}, "array 'rows' is float64; expected float32 or int8"),
            ({"ids": np.zeros(M, np.uint32)}, "array 'ids' is uint32; expected int32"),
            ({"biases": np.zeros((N, 1), np.float32)}, "array 'biases' has 2 axes; expected 1"),
            ({"biases": np.float32(1)}, "array 'biases' has 0 axes; expected 1"),
            ({"rows": np.ones(N, np.float32)}, "array 'rows' has 1 axes; expected 2"),
            ({"biases": np.zeros(N + 1, np.float32)}, r"'biases' has shape \(4,\); expected 3 where it has 4"),
            ({"digits": np.zeros(5, np.uint8)}, r"'digits' has shape \(5,\); expected 4 where it has 5"),
            ({"more": np.zeros(2, np.float32)}, r"'more' has shape \(2,\); expected 3 where it has 2"),
            ({"starts": np.array([0, 2, M])}, r"'starts' has shape \(3,\); expected 4 where it has 3"),
            ({"starts": np.zeros(0, np.int64)}, r"'starts' has shape \(0,\); expected 4 where it has 0"),
            ({"rows": np.ones((N, 0), np.float32)}, "the rows of 'rows' are empty"),
            ({"biases": np.array([0, np.nan, 0], np.float32)}, "array 'biases' contains NaN or infinity"),
            ({"biases": np.array([0, 0, -np.inf], np.float32)}, "array 'biases' contains NaN or infinity"),
            ({"more": np.full(N, np.inf, np.float32)}, "array 'more' contains NaN or infinity"),
            ({"ids": np.array([0, 1, 2, 3, 0], np.int32)}, "'ids' has a value of 3; expected values from 0 to below 3"),
            ({"ids": np.array([0, -1, 2, 9, 0], np.int32)}, "array 'ids' has a value of -1"),
            ({"digits": np.full(4, 10, np.uint8)}, "'digits' has a value of 10; expected values from 0 to below 10"),
            ({"starts": np.array([1, 2, 2, M])}, "array 'starts' must start at 0, never decrease, and end at 5"),
            ({"starts": np.array([0, 3, 2, M])}, "array 'starts' must start at 0"),
            ({"starts": np.array([0, 2, 2, M - 1])}, "array 'starts' must start at 0"),
            ({"starts": np.array([0, 2, M + 1, M])}, "array 'starts' must start at 0"),
            ({"starts": np.array([0, -1, 2, M])}, "array 'starts' must start at 0"),
            ({"order": np.array([2, 0, 2], np.int32)}, "array 'order' has a value twice"),
            ({"order": np.array([2, 0, -1], np.int32)}, "array 'order' has a value of -1"),
            ({"more_starts": np.array([0, 2])}, "'more_starts' is there, but no array of size 'n_more_ids'"),
        ],
        ids=lambda value: value if isinstance(value, str) else "",
    )
    def test_every_violation_is_refused(self, change, message):
        with pytest.raises(ModelError, match=message):
            check_arrays(replaced(right_arrays(), change), SPEC)

    @pytest.mark.parametrize(
        "scales",
        [None, np.ones(N - 1, np.float32), np.ones(N + 1, np.float32), np.ones((N, 1), np.float32), np.ones(N)],
        ids=["missing", "too few", "too many", "two axes", "float64"],
    )
    def test_int8_rows_need_one_scale_each(self, scales):
        with pytest.raises(ModelError, match="'rows' is int8 and needs one float32 scale for each of its 3 rows"):
            check_arrays(replaced(right_arrays(True), {"rows.scales": scales}), SPEC)

    def test_scales_must_be_finite_and_float_rows_have_none(self):
        bad = np.array([1, np.nan, 1], np.float32)
        with pytest.raises(ModelError, match=r"array 'rows.scales' contains NaN or infinity"):
            check_arrays(right_arrays(True) | {"rows.scales": bad}, SPEC)
        with pytest.raises(ModelError, match=r"array 'rows.scales' is not part of this stage"):
            check_arrays(right_arrays() | {"rows.scales": bad}, SPEC)

    def test_sizes_that_the_caller_knows_must_hold(self):
        with pytest.raises(ModelError, match=r"'rows' has shape \(3, 2\); expected 4 where it has 3"):
            check_arrays(right_arrays(), SPEC, n=4)

    @pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
    def test_large_arrays_are_not_read(self, value):
        """`finite=False` saves reading gigabytes at every start."""
        check_arrays(right_arrays() | {"large": np.full(M, value, np.float32)}, SPEC)
        check_arrays(right_arrays() | {"rows": np.full((N, WIDTH), value, np.float32)}, SPEC)
