"""Arrays that models are made of: ragged rows, quantised matrices, and one checker for arrays that come from files.

`Ragged` keeps the order within a row, which a scipy matrix does not promise: words have an order, and so do ranked
predictions. `ArraySpec` describes what a stage expects of an array, because compiled loops follow arrays blindly.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from shortlist.errors import ModelError, OptionError
from shortlist.lazy import sparse

INT8_MAX = 127
MAX_SEED = 2**32 - 1  # that every library accepts
ROWS_PER_BLOCK = 8192

Arrays = dict[str, np.ndarray]


def random_generator(seed: int) -> np.random.Generator:
    """A random generator; an error unless the seed is a whole number from 0 to 2³² - 1."""
    if not isinstance(seed, int | np.integer) or not 0 <= seed <= MAX_SEED:
        raise OptionError(f"seed is {seed!r:.60}; expected a whole number from 0 to {MAX_SEED}")
    return np.random.default_rng(seed)


@dataclass(frozen=True, eq=False)
class Ragged:
    """Rows of different lengths: row i is `values[indptr[i]:indptr[i + 1]]`. `weights`, if any, parallel `values`."""

    indptr: np.ndarray
    values: np.ndarray
    weights: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.indptr) - 1

    def row(self, index: int) -> np.ndarray:
        return self.values[self.indptr[index] : self.indptr[index + 1]]

    @property
    def counts(self) -> np.ndarray:
        """The number of values in each row."""
        return self.indptr[1:] - self.indptr[:-1]

    @property
    def row_ids(self) -> np.ndarray:
        """The row of each value."""
        return np.repeat(np.arange(len(self), dtype=np.int64), self.counts)

    def take(self, rows: np.ndarray | Sequence[int]) -> Ragged:
        """The given rows, in the given order."""
        rows = row_numbers(rows, len(self))
        positions, indptr = gather_positions(self.indptr, rows)
        return self._select(indptr, positions)

    def __getitem__(self, rows: slice) -> Ragged:
        """Consecutive rows."""
        begin, end, _ = rows.indices(len(self))
        indptr = self.indptr[begin : max(begin, end) + 1]
        return self._select(indptr - indptr[0], slice(indptr[0], indptr[-1]))

    def keep(self, mask: np.ndarray) -> Ragged:
        """Only the values whose mask is true. Rows stay, and may become empty."""
        return self._select(counts_to_indptr(mask)[self.indptr], mask)

    def _select(self, indptr: np.ndarray, which: Any) -> Ragged:
        return Ragged(indptr, self.values[which], None if self.weights is None else self.weights[which])

    def distinct(self, n_values: int) -> Ragged:
        """Each row sorted and without duplicates. Values are below `n_values`; weights are dropped."""
        pairs = np.unique(self.row_ids * n_values + self.values)
        counts = np.bincount(pairs // n_values, minlength=len(self))
        return Ragged(counts_to_indptr(counts), (pairs % n_values).astype(np.int32))

    def padded(self, fill: float, width: int | None = None) -> np.ndarray:
        """The first `width` values of each row as a matrix, `fill` behind shorter rows; of at least one column.

        >>> Ragged.from_lists([[4], [1, 2, 3], []]).padded(-1, width=2).tolist()
        [[4, -1], [1, 2], [-1, -1]]
        """
        counts = self.counts if width is None else np.minimum(self.counts, width)
        columns = np.arange(max(int(counts.max(initial=0)), 1))
        there = columns < counts[:, None]
        matrix = np.full(there.shape, fill, self.values.dtype)
        matrix[there] = self.values[(self.indptr[:-1, None] + columns)[there]]
        return matrix

    def to_csr(self, n_columns: int) -> sparse.csr_array:
        """As a float32 matrix. Values that occur twice in a row are summed."""
        data = np.ones(len(self.values), np.float32) if self.weights is None else self.weights
        matrix = sparse.csr_array(
            (data.astype(np.float32), self.values.copy(), self.indptr.copy()), shape=(len(self), n_columns)
        )
        matrix.sum_duplicates()
        return matrix

    @staticmethod
    def empty(n_rows: int) -> Ragged:
        """This many rows without a value."""
        return Ragged(np.zeros(n_rows + 1, np.int64), np.zeros(0, np.int32))

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
        weights = [np.ones(len(p.values), np.float32) if p.weights is None else p.weights for p in parts]
        return Ragged(indptr, values, np.concatenate(weights))


def counts_to_indptr(counts: np.ndarray | Sequence[int]) -> np.ndarray:
    """Where each of several runs of these sizes starts, and where the last one ends.

    >>> counts_to_indptr([2, 0, 3]).tolist()
    [0, 2, 2, 5]
    """
    indptr = np.zeros(len(counts) + 1, dtype=np.int64)
    np.cumsum(counts, out=indptr[1:])
    return indptr


def outside(ids: np.ndarray, end: int, first: int = 0) -> int | None:
    """One of the ids that are not in [first, end), or None if all are.

    >>> outside(np.array([0, 7, 3]), 5), outside(np.array([0, 3]), 5)
    (7, None)
    """
    if not ids.size or first <= ids.min() <= ids.max() < end:
        return None
    return int(ids.min() if ids.min() < first else ids.max())


def row_numbers(rows: np.ndarray | Sequence[int], n_rows: int) -> np.ndarray:
    """Selected rows as plain indices, from indices (negative ones count from the end) or a boolean mask."""
    rows = np.asarray(rows)
    if rows.dtype == bool and len(rows) != n_rows:
        raise IndexError(f"a mask of {len(rows)} rows for {n_rows}")
    return np.arange(n_rows, dtype=np.int64)[rows if rows.size else rows.astype(np.int64)]


def gather_positions(indptr: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The positions of the values of the selected rows, and the indptr of the result."""
    counts = indptr[rows + 1] - indptr[rows]
    new_indptr = counts_to_indptr(counts)
    positions = np.arange(new_indptr[-1], dtype=np.int64)
    positions += np.repeat(indptr[rows] - new_indptr[:-1], counts)
    return positions, new_indptr


@dataclass(frozen=True, eq=False)
class QuantizedMatrix:
    """A matrix whose row i is `values[i] * scales[i]`: float32 values with scales of 1, or int8 values.

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
        """The matrix stored under `name`, after `check_arrays`."""
        values = arrays[name]
        return (
            QuantizedMatrix.of_floats(values)
            if values.dtype == np.float32
            else QuantizedMatrix(values, arrays[f"{name}.scales"])
        )

    def to_arrays(self, name: str) -> Arrays:
        if self.values.dtype == np.float32:
            return {name: self.values}
        return {name: self.values, f"{name}.scales": self.scales}

    def in_8_bits(self) -> QuantizedMatrix:
        """The same matrix with each value rounded to one of 255 steps of its row."""
        if self.values.dtype == np.int8:
            return self
        values, scales = np.empty(self.values.shape, np.int8), np.empty(len(self.values), np.float32)
        for begin in range(0, len(values), ROWS_PER_BLOCK):
            block = slice(begin, begin + ROWS_PER_BLOCK)
            rows = self.values[block]
            scales[block] = np.abs(rows).max(axis=1, initial=0) / INT8_MAX
            values[block] = np.rint(rows / np.where(scales[block] > 0, scales[block], 1)[:, None])
        return QuantizedMatrix(values, scales)

    def __len__(self) -> int:
        return len(self.values)

    @property
    def shape(self) -> tuple[int, int]:
        return self.values.shape

    def take(self, rows: np.ndarray) -> QuantizedMatrix:
        """A matrix of these rows."""
        return QuantizedMatrix(self.values[rows], self.scales[rows])

    def __getitem__(self, which: Any) -> np.ndarray:
        """Some rows (a slice, or an array of indices of any shape) as float32."""
        values = self.values[which]
        return values if values.dtype == np.float32 else values * self.scales[which][..., None]


@dataclass(frozen=True)
class ArraySpec:
    """What a stage expects of an array.

    dtype     a numpy dtype, or several ("float32|int8"), or "rows": a float32 matrix, or int8 with one scale per row
    shape     sizes, or names of sizes; a name has the same size in all arrays of a stage, and "x+1" is one more
    optional  the array may be absent
    finite    refuse NaN and infinity; off for large arrays, because checking reads all of them
    below     values lie in [0, below); a number or the name of a size
    indptr    values start at 0, never decrease, and end at this size
    unique    no value occurs twice
    """

    dtype: str
    shape: tuple[int | str, ...]
    optional: bool = False
    finite: bool = True
    below: int | str | None = None
    indptr: str | None = None
    unique: bool = False


def check_arrays(arrays: Mapping[str, np.ndarray], spec: Mapping[str, ArraySpec], **sizes: int) -> dict[str, int]:
    """Raise a ModelError unless the arrays are as `spec` says. Returns all sizes, the given ones included.

    >>> spec = {"starts": ArraySpec("int64", ("n+1",), indptr="m"), "ids": ArraySpec("int32", ("m",), below="n")}
    >>> check_arrays({"starts": np.array([0, 2]), "ids": np.array([1, 0], np.int32)}, spec, n=1)
    Traceback (most recent call last):
    ...
    shortlist.errors.ModelError: array 'ids' has a value of 1; expected values from 0 to below 1
    """
    present = {name: array for name, array in spec.items() if name in arrays or not array.optional}
    for name, expected in present.items():
        if name not in arrays:
            raise ModelError(f"array {name!r} is missing")
        _check_dtype_and_shape(name, expected, arrays, sizes)
    for name, expected in present.items():
        _check_values(name, expected, arrays, sizes)
    scales = {f"{name}.scales" for name in present if present[name].dtype == "rows" and arrays[name].dtype == np.int8}
    unknown = set(arrays) - set(present) - scales
    if unknown:
        raise ModelError(f"array {min(unknown)!r} is not part of this stage")
    return sizes


def _check_dtype_and_shape(
    name: str, expected: ArraySpec, arrays: Mapping[str, np.ndarray], sizes: dict[str, int]
) -> None:
    array = arrays[name]
    dtypes = ("float32", "int8") if expected.dtype == "rows" else expected.dtype.split("|")
    if array.dtype.name not in dtypes:
        raise ModelError(f"array {name!r} is {array.dtype.name}; expected {' or '.join(dtypes)}")
    if array.ndim != len(expected.shape):
        raise ModelError(f"array {name!r} has {array.ndim} axes; expected {len(expected.shape)}")
    for axis, size in zip(expected.shape, array.shape, strict=True):
        offset = 0
        if isinstance(axis, str):
            axis, plus, _ = axis.partition("+")
            offset = 1 if plus else 0
            axis = sizes.setdefault(axis, size - offset)
        if size != axis + offset:
            raise ModelError(
                f"array {name!r} has shape {array.shape}; expected {axis + offset:,} where it has {size:,}"
            )
    if array.dtype == np.int8 and expected.dtype == "rows":
        scales = arrays.get(f"{name}.scales")
        if scales is None or scales.dtype != np.float32 or scales.shape != (len(array),):
            raise ModelError(f"array {name!r} is int8 and needs one float32 scale for each of its {len(array):,} rows")
        _require_finite(f"{name}.scales", scales)
    if expected.dtype == "rows" and not array.shape[1]:
        raise ModelError(f"the rows of {name!r} are empty")


def _check_values(name: str, expected: ArraySpec, arrays: Mapping[str, np.ndarray], sizes: dict[str, int]) -> None:
    array = arrays[name]
    if expected.finite and array.dtype.kind == "f":
        _require_finite(name, array)
    if expected.below is not None:
        below = _size(name, expected.below, sizes) if isinstance(expected.below, str) else expected.below
        if (wrong := outside(array, below)) is not None:
            raise ModelError(f"array {name!r} has a value of {wrong}; expected values from 0 to below {below:,}")
    if expected.indptr is not None:
        end = _size(name, expected.indptr, sizes)
        if not len(array) or array[0] != 0 or array[-1] != end or (array[1:] < array[:-1]).any():
            raise ModelError(f"array {name!r} must start at 0, never decrease, and end at {end:,}")
    if expected.unique and array.size and np.bincount(array).max() > 1:
        raise ModelError(f"array {name!r} has a value twice")


def _size(name: str, size: str, sizes: dict[str, int]) -> int:
    """The size that the values of an array refer to; it may be that of an optional array, which is missing."""
    if size not in sizes:
        raise ModelError(f"array {name!r} is there, but no array of size {size!r}")
    return sizes[size]


def _require_finite(name: str, array: np.ndarray) -> None:
    if not np.isfinite(array).all():
        raise ModelError(f"array {name!r} contains NaN or infinity")
