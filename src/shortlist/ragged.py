"""Rows of different length in two flat arrays: the labels of each text, the word ids of each text.

Order within a row is kept, which is what a scipy matrix does not promise: words have an order, and so
have ranked predictions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

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
    def row_of_value(self) -> np.ndarray:
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
        return Ragged(bounds_of(mask)[self.indptr], self.values[mask], weights)

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
        indptr = bounds_of([len(row) for row in rows])
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
        indptr = bounds_of(counts)
        values = np.concatenate([part.values for part in parts]) if parts else np.zeros(0, np.int32)
        if not any(part.weights is not None for part in parts):
            return Ragged(indptr, values)
        ones = [np.ones(len(p.values), np.float32) if p.weights is None else p.weights for p in parts]
        return Ragged(indptr, values, np.concatenate(ones))


def bounds_of(sizes: np.ndarray | Sequence[int]) -> np.ndarray:
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
    new_indptr = bounds_of(counts)
    positions = np.arange(new_indptr[-1], dtype=np.int64)
    positions += np.repeat(indptr[rows] - new_indptr[:-1], counts)
    return positions, new_indptr
