"""Rows of numbers, one a label or word: in 32 bits as they were learnt, or in 8 bits with a scale for each row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from shortlist.errors import ModelError

LARGEST = 127
ROWS_PER_BLOCK = 8192
# How the names of such arrays end.
ROWS = (".weights", ".words", ".vectors", ".cells")


@dataclass(frozen=True, eq=False)
class Rows:
    """Row i is `values[i] · scales[i]`. Values are float32, with scales of 1, or int8.

    >>> rows = Rows.of_floats(np.array([[0.5, -1.0], [0.0, 0.0]], np.float32)).in_8_bits()
    >>> rows.values.tolist(), rows[np.array([0])].round(2).tolist()
    ([[64, -127], [0, 0]], [[0.5, -1.0]])
    """

    values: np.ndarray
    scales: np.ndarray

    @staticmethod
    def of_floats(values: np.ndarray) -> Rows:
        return Rows(values, np.ones(len(values), np.float32))

    @staticmethod
    def of_arrays(arrays: Mapping[str, np.ndarray], name: str) -> Rows:
        """The rows under a name among the arrays of a model, looked at: compiled loops will follow them blindly."""
        values, scales = arrays.get(name), arrays.get(f"{name}.scales")
        if values is None or values.ndim != 2 or values.dtype not in (np.float32, np.int8):
            raise ModelError(f"there is no array {name!r} of float32 or int8 with 2 axes")
        if not values.shape[1]:
            raise ModelError(f"the rows of {name!r} are empty")
        if values.dtype == np.float32:
            return Rows.of_floats(values)
        if scales is None or scales.dtype != np.float32 or scales.shape != (len(values),):
            raise ModelError(f"there is not one scale for each of the {len(values):,} rows of {name!r}")
        check_finite(f"{name}.scales", scales)
        return Rows(values, scales)

    def to_arrays(self, name: str) -> dict[str, np.ndarray]:
        if self.values.dtype == np.float32:
            return {name: self.values}
        return {name: self.values, f"{name}.scales": self.scales}

    def in_8_bits(self) -> Rows:
        """The same, with each value rounded to one of 255 steps of its row."""
        if self.values.dtype == np.int8:
            return self
        values, scales = np.empty(self.values.shape, np.int8), np.empty(len(self.values), np.float32)
        for begin in range(0, len(values), ROWS_PER_BLOCK):
            block = slice(begin, begin + ROWS_PER_BLOCK)
            rows = self.values[block]
            scales[block] = np.abs(rows).max(axis=1, initial=0) / LARGEST
            values[block] = np.rint(rows / np.where(scales[block] > 0, scales[block], 1)[:, None])
        return Rows(values, scales)

    def __len__(self) -> int:
        return len(self.values)

    @property
    def shape(self) -> tuple[int, int]:
        return self.values.shape

    def __getitem__(self, which: Any) -> np.ndarray:
        """Some rows (a slice, or an array of numbers in any shape) as float32."""
        values = self.values[which]
        return values if values.dtype == np.float32 else values * self.scales[which][..., None]


def check_finite(name: str, array: np.ndarray) -> None:
    """Refuse infinity and NaN in an array of a model; for small ones, as all of it is read."""
    if not np.isfinite(array).all():
        raise ModelError(f"{name!r} holds numbers that are infinite or none")


def in_8_bits(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The arrays of a model with all that are rows of labels or of words in 8 bits."""
    packed: dict[str, np.ndarray] = {}
    for name, array in arrays.items():
        is_rows = name.endswith(ROWS) and array.ndim == 2 and array.dtype == np.float32
        packed |= Rows.of_floats(array).in_8_bits().to_arrays(name) if is_rows else {name: array}
    return packed
