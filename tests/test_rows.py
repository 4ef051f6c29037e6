"""Rows in 8 bits: how near they are to what was learnt, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shortlist import arrays as arrays_module
from shortlist.arrays import LARGEST, QuantizedMatrix, in_8_bits
from shortlist.errors import ModelError


def random_rows(seed, n_rows, width):
    """Rows of very different lengths, some of them of zeros."""
    rng = np.random.default_rng(seed)
    lengths = 10.0 ** rng.integers(-6, 7, n_rows) * (rng.random(n_rows) < 0.8)
    return (rng.standard_normal((n_rows, width)) * lengths[:, None]).astype(np.float32)


class TestIn8Bits:
    @given(st.integers(0, 10_000), st.integers(0, 20), st.integers(0, 9), st.integers(1, 7))
    def test_no_value_is_further_away_than_half_a_step_of_its_row(self, seed, n_rows, width, block):
        values = random_rows(seed, n_rows, width)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(arrays_module, "ROWS_PER_BLOCK", block)
            packed = QuantizedMatrix.of_floats(values).in_8_bits()
        assert packed.shape == values.shape == packed.values.shape
        assert (packed.values.dtype, packed.scales.dtype) == (np.int8, np.float32)
        largest = np.abs(values).max(axis=1, initial=0)
        np.testing.assert_allclose(packed.scales, largest / LARGEST, rtol=1e-6)
        away = np.abs(packed[:].astype(np.float64) - values)
        assert (away <= largest[:, None] / LARGEST * 0.5001).all()
        # The largest value of a row is kept exactly, and so is the sign of those that are more than half a step.
        assert ((np.abs(packed.values).max(axis=1, initial=0) == LARGEST) == ((largest > 0) & (width > 0))).all()

    def test_rows_of_zeros_stay_zero(self):
        packed = QuantizedMatrix.of_floats(np.zeros((3, 4), np.float32)).in_8_bits()
        assert not packed.values.any()
        assert packed[:].tolist() == np.zeros((3, 4)).tolist()

    def test_what_is_in_8_bits_stays_as_it_is(self):
        packed = QuantizedMatrix.of_floats(random_rows(0, 5, 3)).in_8_bits()
        assert packed.in_8_bits() is packed


class TestSomeRows:
    @pytest.mark.parametrize("packed", [False, True])
    @pytest.mark.parametrize(
        "which",
        [slice(1, 3), slice(0, 0), np.array([4, 0, 0]), np.array([[1, 2], [3, 1]]), np.zeros((2, 0), int)],
        ids=["slice", "nothing", "repeats", "two axes", "two axes of nothing"],
    )
    def test_are_those_of_the_whole_in_any_shape(self, packed, which):
        values = random_rows(1, 6, 4)
        rows = QuantizedMatrix.of_floats(values).in_8_bits() if packed else QuantizedMatrix.of_floats(values)
        whole = rows.values * rows.scales[:, None]
        assert rows[which].dtype == np.float32
        assert np.array_equal(rows[which], whole[which])
        assert len(rows) == 6

    def test_floats_are_not_copied(self):
        values = random_rows(1, 6, 4)
        assert np.shares_memory(QuantizedMatrix.of_floats(values)[2:4], values)


class TestArrays:
    @pytest.mark.parametrize("packed", [False, True])
    def test_come_back(self, packed):
        rows = QuantizedMatrix.of_floats(random_rows(2, 5, 3))
        rows = rows.in_8_bits() if packed else rows
        arrays = rows.to_arrays("extreme.weights")
        assert set(arrays) == {"extreme.weights"} | ({"extreme.weights.scales"} if packed else set())
        again = QuantizedMatrix.of_arrays(arrays, "extreme.weights")
        assert again.values is rows.values
        assert np.array_equal(again.scales, rows.scales)

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"w": None}, "no array 'w' of float32 or int8"),
            ({"w": np.zeros((4, 3))}, "no array 'w' of float32 or int8"),
            ({"w": np.zeros((4, 3), np.uint8)}, "no array 'w' of float32 or int8"),
            ({"w": np.zeros(4, np.int8)}, "no array 'w' of float32 or int8"),
            ({"w": np.zeros((4, 3, 1), np.int8)}, "no array 'w' of float32 or int8"),
            ({"w.scales": None}, "not one scale for each of the 4 rows of 'w'"),
            ({"w.scales": np.ones(3, np.float32)}, "not one scale for each"),
            ({"w.scales": np.ones(5, np.float32)}, "not one scale for each"),
            ({"w.scales": np.ones((4, 1), np.float32)}, "not one scale for each"),
            ({"w.scales": np.ones(4)}, "not one scale for each"),
        ],
    )
    def test_damage_is_refused_before_a_loop_follows_it(self, change, message):
        right = {"w": np.zeros((4, 3), np.int8), "w.scales": np.ones(4, np.float32)}
        arrays = {name: array for name, array in (right | change).items() if array is not None}
        with pytest.raises(ModelError, match=message):
            QuantizedMatrix.of_arrays(arrays, "w")

    def test_of_a_model_only_rows_of_labels_and_words_are_packed(self):
        arrays = {
            "extreme.weights": random_rows(3, 4, 3),
            "0.encoder.words": random_rows(4, 4, 3),
            "centres.vectors": random_rows(7, 4, 3),
            "meta.weights": np.zeros((2, 2), np.int8),  # in 8 bits already
            "meta.weights.scales": np.ones(2, np.float32),
            "extreme.biases": np.ones(4, np.float32),
            "encoder.branch_weights": random_rows(5, 4, 3),
            "weights": random_rows(6, 4, 3),
            "other.weights": np.ones(4, np.float32),
            "owner.words": np.ones((2, 2), np.int32),
        }
        packed = in_8_bits(arrays)
        rows = {"extreme.weights", "0.encoder.words", "centres.vectors"}
        assert set(packed) == set(arrays) | {f"{name}.scales" for name in rows}
        for name in rows:
            assert packed[name].dtype == np.int8
            assert np.array_equal(
                QuantizedMatrix.of_arrays(packed, name)[:], QuantizedMatrix.of_floats(arrays[name]).in_8_bits()[:]
            )
        for name in set(arrays) - rows:
            assert packed[name] is arrays[name]
