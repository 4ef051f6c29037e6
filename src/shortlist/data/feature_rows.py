"""Rows of features for batch prediction: of the Repository's text files, and of saved matrices (.npy, .npz)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from shortlist.arrays import counts_to_indptr, outside
from shortlist.data.records import BadRow
from shortlist.data.sparse_text import MESSAGES, has_header, parse_blocks
from shortlist.errors import DataError, OptionError
from shortlist.lazy import sparse
from shortlist.progress import Progress

SPARSE = "sparse"  # the format of the Repository's text files
MATRICES = {".npy": "npy", ".npz": "npz"}
FORMATS = (SPARSE, *MATRICES.values())


class FeatureRow(NamedTuple):
    """Some columns of one row and their values. All other columns, of `n_columns`, are 0."""

    columns: Sequence[int] | np.ndarray
    values: Sequence[float] | np.ndarray
    n_columns: int


def stack_rows(rows: Sequence[FeatureRow]) -> sparse.csr_array:
    """At least one row as a matrix.

    >>> stack_rows([FeatureRow([2], [0.5], 3), FeatureRow([], [], 3)]).toarray().tolist()
    [[0.0, 0.0, 0.5], [0.0, 0.0, 0.0]]
    """
    indptr = counts_to_indptr([len(row.columns) for row in rows])
    columns = np.concatenate([np.asarray(row.columns, np.int64) for row in rows])
    values = np.concatenate([np.asarray(row.values, np.float64) for row in rows])
    n_columns = rows[0].n_columns
    if (wrong := outside(columns, n_columns)) is not None:
        raise OptionError(f"column {wrong} is out of range; expected columns from 0 to below {n_columns:,}")
    return sparse.csr_array((values, columns, indptr), shape=(len(rows), n_columns))


def feature_format(path: Path) -> str | None:
    """The format of a file of features; None if it is something else."""
    if path.suffix in MATRICES:
        return MATRICES[path.suffix]
    return SPARSE if path.is_file() and (has_header(path, 2) or has_header(path, 3)) else None


def sparse_text_rows(blocks: Iterator[tuple[bytes, int]], name: str) -> Iterator[tuple[int, FeatureRow | BadRow]]:
    """The rows of a file of the Repository and their line numbers; labels at the start of rows are skipped."""
    (n_rows, n_columns, *_), parsed = parse_blocks(blocks, name)
    n_read = 0
    for (columns, values, counts, _, _, errors), number in parsed:
        n_read += len(errors)
        starts = counts_to_indptr(counts).tolist()
        for row, error in enumerate(errors.tolist()):
            part = slice(starts[row], starts[row + 1])
            bad_or_good = BadRow(*MESSAGES[error]) if error else FeatureRow(columns[part], values[part], n_columns)
            yield number + row, bad_or_good
    if n_read != n_rows:
        raise DataError(
            f"{name}: the header says {n_rows:,} rows, but there are {n_read:,}; expected a complete file. Download or "
            "create the file again."
        )


def open_matrix(path: Path) -> Any:
    """A matrix that numpy or scipy saved; the rows of .npy stay on disk until they are used."""
    try:
        matrix = np.load(path, mmap_mode="r", allow_pickle=False) if path.suffix == ".npy" else _load_sparse(path)
    except Exception as error:  # noqa: BLE001 - scipy, numpy and zipfile each raise their own kinds
        raise DataError(f"{path}: not a matrix saved by numpy (.npy) or scipy (.npz): {error}.") from None
    if matrix.ndim != 2 or matrix.dtype.kind not in "biuf":
        raise DataError(f"{path}: has {matrix.ndim} axes of {matrix.dtype}; expected a matrix of numbers.")
    return matrix


def _load_sparse(path: Path) -> sparse.csr_array:
    """The matrix in an .npz file. scipy checks only some of it, and crashes over the rest."""
    matrix = sparse.load_npz(path)
    if matrix.format not in ("csr", "csc", "coo"):
        raise ValueError(f"the format {matrix.format} is not supported; save it as csr")
    if matrix.format != "coo":  # checked by its constructor
        matrix.check_format(full_check=True)
    return sparse.csr_array(matrix)


def matrix_rows(matrix: Any, progress: Progress) -> Iterator[tuple[int, FeatureRow | BadRow]]:
    """The rows of a matrix, numbered from 1."""
    n_rows, n_columns = matrix.shape
    every_column = np.arange(n_columns)
    for row in range(n_rows):
        progress.advance()
        if sparse.issparse(matrix):
            part = slice(matrix.indptr[row], matrix.indptr[row + 1])
            columns, values = matrix.indices[part], matrix.data[part]
        else:
            columns, values = every_column, np.asarray(matrix[row])
        good = np.isfinite(values).all()
        bad = BadRow("NaN or infinity among the features", "numbers")
        yield row + 1, FeatureRow(columns, values, n_columns) if good else bad
