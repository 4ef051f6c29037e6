"""Arrays that a model is made of: ragged rows, quantised matrices, and one checker for what comes from files.

`Ragged` keeps the order within a row, which a scipy matrix does not promise: words have an order, and so do ranked
predictions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from shortlist.errors import ModelError
from shortlist.lazy import sparse


@dataclass(frozen=True, eq=False)
class Ragged:
    """`values[indptr[i]:indptr[i + 1]]` is row i; `weights`, where there are any, run beside `values`."""

    indptr: np.ndarray
    values: np.ndarray
    weights: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.indptr) - 1

    def row(self, index: int) -> np.ndarray:
        return self.values[self.indptr[index] : self.indptr[index + 1]]

    @property
    def counts(self) -> np.ndarray:
        """How many values each row has."""
        return np.diff(self.indptr)

    @property
    def row_ids(self) -> np.ndarray:
        """The row each value stands in."""
        return np.repeat(np.arange(len(self), dtype=np.int64), self.counts)

    def take(self, rows: np.ndarray | Sequence[int]) -> Ragged:
        """The given rows, in the given order."""
        rows = row_numbers(rows, len(self))
        positions, indptr = gather_positions(self.indptr, rows)
        weights = None if self.weights is None else self.weights[positions]
        return Ragged(indptr, self.values[positions], weights)

    def keep(self, mask: np.ndarray) -> Ragged:
        """Only the values whose mask is true; rows stay, and may become empty."""
        weights = None if self.weights is None else self.weights[mask]
        return Ragged(counts_to_indptr(mask)[self.indptr], self.values[mask], weights)

    def to_csr(self, n_columns: int) -> sparse.csr_array:
        """As a float32 matrix; a value that stands twice in a row is added up."""
        data = np.ones(len(self.values), np.float32) if self.weights is None else self.weights
        matrix = sparse.csr_array(
            (data.astype(np.float32), self.values.copy(), self.indptr.copy()), shape=(len(self), n_columns)
        )
        matrix.sum_duplicates()
        return matrix

    @staticmethod
    def from_lists(rows: Iterable[Sequence[int]]) -> Ragged:
        rows = list(rows)
        indptr = counts_to_indptr([len(row) for row in rows])
        flat = [value for row in rows for value in row]
        return Ragged(indptr, np.asarray(flat, dtype=np.int32))

    @staticmethod
    def from_csr(matrix: Any) -> Ragged:
        """The columns of a scipy matrix's stored non-zero values, with the values as weights."""
        matrix = sparse.csr_array(matrix)
        rows = Ragged(matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32), matrix.data.astype(np.float32))
        return rows.keep(matrix.data != 0)

    @staticmethod
    def concatenate(parts: Sequence[Ragged]) -> Ragged:
        """The rows of all parts, one part after the other."""
        counts = np.concatenate([part.counts for part in parts]) if parts else np.zeros(0, np.int64)
        indptr = counts_to_indptr(counts)
        values = np.concatenate([part.values for part in parts]) if parts else np.zeros(0, np.int32)
        if not any(part.weights is not None for part in parts):
            return Ragged(indptr, values)
        ones = [np.ones(len(p.values), np.float32) if p.weights is None else p.weights for p in parts]
        return Ragged(indptr, values, np.concatenate(ones))


def counts_to_indptr(sizes: np.ndarray | Sequence[int]) -> np.ndarray:
    """Where each of several runs of these sizes starts, and where the last one ends."""
    bounds = np.zeros(len(sizes) + 1, dtype=np.int64)
    np.cumsum(sizes, out=bounds[1:])
    return bounds


def row_numbers(rows: np.ndarray | Sequence[int], n_rows: int) -> np.ndarray:
    """Chosen rows as plain numbers: a mask is as good, and negative numbers count from the end."""
    rows = np.asarray(rows)
    if rows.dtype == bool and len(rows) != n_rows:
        raise IndexError(f"a mask of {len(rows)} rows for {n_rows}")
    return np.arange(n_rows, dtype=np.int64)[rows if rows.size else rows.astype(np.int64)]


def gather_positions(indptr: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where the values of the chosen rows stand, and the row pointer of the result."""
    counts = indptr[rows + 1] - indptr[rows]
    new_indptr = counts_to_indptr(counts)
    positions = np.arange(new_indptr[-1], dtype=np.int64)
    positions += np.repeat(indptr[rows] - new_indptr[:-1], counts)
    return positions, new_indptr


LARGEST = 127
ROWS_PER_BLOCK = 8192
# How the names of such arrays end.
ROWS = (".weights", ".words", ".vectors", ".cells")


@dataclass(frozen=True, eq=False)
class QuantizedMatrix:
    """Row i is `values[i] · scales[i]`. Values are float32, with scales of 1, or int8.

    >>> rows = QuantizedMatrix.of_floats(np.array([[0.5, -1.0], [0.0, 0.0]], np.float32)).in_8_bits()
    >>> rows.values.tolist(), rows[np.array([0])].round(2).tolist()
    ([[64, -127], [0, 0]], [[0.5, -1.0]])
    """

    values: np.ndarray
    scales: np.ndarray

    @staticmethod
    def of_floats(values: np.ndarray) -> QuantizedMatrix:
        return QuantizedMatrix(values, np.ones(len(values), np.float32))

    @staticmethod
    def of_arrays(arrays: Mapping[str, np.ndarray], name: str) -> QuantizedMatrix:
        """The rows under a name among the arrays of a model, looked at: compiled loops will follow them blindly."""
        values, scales = arrays.get(name), arrays.get(f"{name}.scales")
        if values is None or values.ndim != 2 or values.dtype not in (np.float32, np.int8):
            raise ModelError(f"there is no array {name!r} of float32 or int8 with 2 axes")
        if not values.shape[1]:
            raise ModelError(f"the rows of {name!r} are empty")
        if values.dtype == np.float32:
            return QuantizedMatrix.of_floats(values)
        if scales is None or scales.dtype != np.float32 or scales.shape != (len(values),):
            raise ModelError(f"there is not one scale for each of the {len(values):,} rows of {name!r}")
        check_finite(f"{name}.scales", scales)
        return QuantizedMatrix(values, scales)

    def to_arrays(self, name: str) -> dict[str, np.ndarray]:
        if self.values.dtype == np.float32:
            return {name: self.values}
        return {name: self.values, f"{name}.scales": self.scales}

    def in_8_bits(self) -> QuantizedMatrix:
        """The same, with each value rounded to one of 255 steps of its row."""
        if self.values.dtype == np.int8:
            return self
        values, scales = np.empty(self.values.shape, np.int8), np.empty(len(self.values), np.float32)
        for begin in range(0, len(values), ROWS_PER_BLOCK):
            block = slice(begin, begin + ROWS_PER_BLOCK)
            rows = self.values[block]
            scales[block] = np.abs(rows).max(axis=1, initial=0) / LARGEST
            values[block] = np.rint(rows / np.where(scales[block] > 0, scales[block], 1)[:, None])
        return QuantizedMatrix(values, scales)

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
        packed |= QuantizedMatrix.of_floats(array).in_8_bits().to_arrays(name) if is_rows else {name: array}
    return packed
