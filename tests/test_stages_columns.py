"""Features instead of texts: how matrices are read and checked, and bags of columns against dense numpy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from shortlist.arrays import QuantizedMatrix, Ragged
from shortlist.errors import DataError, ModelError, OptionError
from shortlist.stages.columns import Columns, checked_matrix
from shortlist.stages.encoders import BagEncoder


def random_rows(rng, n_rows, n_columns):
    """Sparse rows with empty ones among them, and negative values."""
    return np.where(rng.random((n_rows, n_columns)) < 0.3, rng.standard_normal((n_rows, n_columns)), 0)


def unit_rows(matrix):
    return matrix / np.maximum(np.linalg.norm(matrix, axis=1, keepdims=True), 1e-9)


class TestSparse:
    @given(st.integers(0, 10_000), st.integers(0, 6), st.integers(1, 9))
    def test_bags_are_the_rows_with_the_largest_weights_first(self, seed, n_rows, n_columns):
        matrix = random_rows(np.random.default_rng(seed), n_rows, n_columns)
        bags = Columns(n_columns).encode(sparse.csr_array(matrix))
        np.testing.assert_allclose(bags.to_csr(n_columns).toarray(), unit_rows(matrix), rtol=1e-5, atol=1e-7)
        for row in range(n_rows):
            weights = np.abs(bags.weights[bags.indptr[row] : bags.indptr[row + 1]])
            assert (np.diff(weights) <= 0).all() and (weights > 0).all()

    @pytest.mark.parametrize(
        "form", [sparse.csr_array, sparse.csc_array, sparse.coo_array, sparse.coo_matrix, sparse.bsr_array, np.asarray]
    )
    @pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, bool])
    def test_any_format_and_type_gives_the_same(self, form, dtype):
        matrix = np.asarray([[0, 1, 1], [0, 0, 0], [1, 0, 0]], dtype)
        expected = Columns(3).encode(sparse.csr_array(matrix.astype(np.float32)))
        found = Columns(3).encode(form(matrix))
        assert found.values.tolist() == expected.values.tolist() == [1, 2, 0]
        assert found.indptr.tolist() == expected.indptr.tolist()
        np.testing.assert_allclose(found.weights, [0.5**0.5, 0.5**0.5, 1])

    def test_repeated_columns_are_added_and_zeros_dropped_without_changing_the_matrix(self):
        matrix = sparse.csr_array(([3.0, 1.0, 0.0, 3.0], [2, 1, 0, 1], [0, 4]), shape=(1, 3))
        bags = Columns(3).encode(matrix)
        assert bags.values.tolist() == [1, 2]
        np.testing.assert_allclose(bags.weights, [0.8, 0.6], rtol=1e-6)
        assert matrix.indices.tolist() == [2, 1, 0, 1]

    @pytest.mark.parametrize("unit", [1e-30, 1.0, 1e30])
    def test_the_unit_of_the_features_does_not_matter(self, unit):
        bags = Columns(2).encode(np.asarray([[3, 4]]) * unit)
        np.testing.assert_allclose(bags.weights, [0.8, 0.6], rtol=1e-5)

    @given(st.integers(0, 10_000), st.integers(0, 6), st.integers(1, 9), st.integers(1, 12), *3 * [st.booleans()])
    def test_the_bag_encoder_is_a_dense_product(self, seed, n_rows, n_columns, max_words, hashed, relu, packed):
        """Of unit rows, or of the largest weights of each, with the vectors of the columns."""
        rng = np.random.default_rng(seed)
        matrix = random_rows(rng, n_rows, n_columns)
        vectors = QuantizedMatrix.of_floats(rng.standard_normal((n_columns, 4)).astype(np.float32))
        vectors = vectors.in_8_bits() if packed else vectors
        arrays = {**vectors.to_arrays("words"), "idf": np.ones(n_columns, np.float32)}
        own = vectors[np.arange(n_columns)]
        if hashed:
            arrays["buckets"] = rng.integers(n_columns, size=n_columns).astype(np.int32)
            arrays["biases"] = rng.standard_normal(4).astype(np.float32)
            own = own[arrays["buckets"]]
        encoder = BagEncoder.from_arrays(arrays, {"max_words": max_words, "relu": relu}, n_words=n_columns)
        found = encoder.encode(Columns(n_columns).encode(sparse.csr_array(matrix)))
        largest = np.argsort(-np.abs(matrix), axis=1, kind="stable")[:, :max_words]
        kept = np.zeros_like(matrix)
        np.put_along_axis(kept, largest, np.take_along_axis(matrix, largest, axis=1), axis=1)
        expected = unit_rows(kept) @ own + arrays.get("biases", 0)
        np.testing.assert_allclose(found, np.maximum(expected, 0) if relu else expected, rtol=1e-4, atol=1e-5)


class TestDense:
    def test_any_format_and_type_gives_the_same(self):
        features = np.asarray([[0, 1.5], [2, 0], [0, 0]])
        for same in (features, sparse.csr_array(features), sparse.coo_matrix(features), features.astype(np.float16)):
            matrix = Columns(2, dense=True).encode(same)
            assert matrix.dtype == np.float32 and matrix.flags.c_contiguous
            assert matrix.tolist() == features.tolist()
        assert Columns(2, dense=True).encode([[True, False]]).tolist() == [[1, 0]]


@pytest.mark.parametrize(
    ("features", "message"),
    [
        ([[1, 2], [np.nan, 0], [np.inf, 0]], "row 1 of the features contains NaN or infinity; rows like this: 2"),
        (sparse.csr_array(np.asarray([[0, 1], [0, np.inf]])), "row 1"),
        ([[0, 1e300]], "row 0"),
        ([["a"]], "2 axes of <U1"),
        ([1, 2], "1 axes"),
        ([[1j]], "complex"),
    ],
)
def test_anything_but_a_finite_matrix_is_refused(features, message):
    with pytest.raises(DataError, match=message):
        checked_matrix(features)


@pytest.mark.parametrize("dense", [False, True])
def test_another_number_of_columns_is_refused(dense):
    columns = Columns(3, dense)
    for matrix in (np.zeros((1, 4)), sparse.csr_array((1, 2))):
        n_columns = matrix.shape[1]
        with pytest.raises(OptionError, match=f"takes 3 features; the matrix has {n_columns} columns. Give it the col"):
            columns.encode(matrix)
    assert Columns.from_config(columns.to_config()) == columns
    with pytest.raises(ModelError, match="n_columns"):
        Columns.from_config({"n_columns": -1})
    assert isinstance(Columns(3).encode(np.zeros((0, 3))), Ragged)
