"""`Columns`: what a model of features has in place of a vocabulary.

A sparse row is read as a text is: as a bag, in which columns stand for words and come with their weights. A dense row
is a vector of numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from shortlist.arrays import Ragged
from shortlist.errors import DataError, OptionError
from shortlist.lazy import sparse
from shortlist.stages.stage import whole_number


@dataclass(frozen=True)
class Columns:
    """The columns of the features that a model was trained on.

    >>> Columns(3).encode(sparse.csr_array([[0.0, 0.5, 2.0]])).values.tolist()
    [2, 1]
    >>> Columns(3, dense=True).encode([[0, 1, 2]]).tolist()
    [[0.0, 1.0, 2.0]]
    """

    n_columns: int
    dense: bool = False

    def __len__(self) -> int:
        return self.n_columns

    @property
    def n_learnt(self) -> int:
        """As of a `Vocabulary`; no column is ever added."""
        return self.n_columns

    def to_config(self) -> dict[str, Any]:
        return {"n_columns": self.n_columns, "dense": self.dense}

    @staticmethod
    def from_config(config: dict[str, Any]) -> Columns:
        return Columns(whole_number(config, "n_columns"), bool(config.get("dense")))

    def encode(self, matrix: Any) -> Any:
        """What an encoder takes: a float32 array if dense, else bags of columns, the largest weights first.

        The weights of a bag have length 1, whatever the unit of the features.
        """
        matrix = checked_matrix(matrix)
        if matrix.shape[1] != self.n_columns:
            raise OptionError(
                f"this model takes {self.n_columns:,} features; the matrix has {matrix.shape[1]:,} columns. Give it "
                "the columns that it was trained on, in the same order."
            )
        if self.dense:
            return np.ascontiguousarray(matrix.toarray() if sparse.issparse(matrix) else matrix)
        bags = Ragged.from_csr(matrix)
        weights, rows = np.asarray(bags.weights, np.float64), bags.row_ids
        weights /= np.sqrt(np.bincount(rows, weights**2, len(bags)))[rows]
        order = np.lexsort((-np.abs(weights), rows))
        return Ragged(bags.indptr, bags.values[order], weights[order].astype(np.float32))


def checked_matrix(features: Any) -> Any:
    """A matrix of float32, sparse (then CSR, each column once per row) or not; an error unless it is finite numbers."""
    if not sparse.issparse(features):
        features = np.asarray(features)
    if features.ndim != 2 or features.dtype.kind not in "biuf":
        raise DataError(f"features have {features.ndim} axes of {features.dtype}; expected a matrix of numbers")
    with np.errstate(over="ignore"):
        matrix = features.astype(np.float32)
    if sparse.issparse(matrix):
        matrix = sparse.csr_array(matrix)
        matrix.sum_duplicates()
        finite = np.isfinite(matrix.data)
        bad_rows = np.unique(np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))[~finite])
    else:
        bad_rows = np.flatnonzero(~np.isfinite(matrix).all(axis=1))
    if len(bad_rows):
        others = f"; rows like this: {len(bad_rows):,}" if len(bad_rows) > 1 else ""
        raise DataError(
            f"row {bad_rows[0]:,} of the features contains NaN or infinity{others}. Replace these values, or "
            "remove the rows."
        )
    return matrix
