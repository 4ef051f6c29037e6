"""The Repository's sparse text matrices, read and written: a header line, then `column:value` pairs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from shortlist.arrays import Ragged, counts_to_indptr
from shortlist.data.lines import line_blocks
from shortlist.data.options import ReadOptions
from shortlist.data.report import Report
from shortlist.errors import DataError
from shortlist.files import write_atomically
from shortlist.kernels import sparse_text as kernel
from shortlist.lazy import sparse

MOST_DIGITS = 18

_WRONG = {
    kernel.NOT_A_PAIR: (
        "something that is not column:value",
        "pairs such as 17:0.25 with spaces between them",
    ),
    kernel.COLUMN_TOO_LARGE: (
        "a column number too large for the header",
        "columns from 0 to the header's number − 1",
    ),
    kernel.LABEL_TOO_LARGE: (
        "a label number too large for the header",
        "labels from 0 to the header's number − 1",
    ),
    kernel.NOT_A_LABEL: (
        "something that is not a list of label numbers",
        "labels such as 3,17 and then a space",
    ),
}


@dataclass
class SparseFile:
    matrix: sparse.csr_array
    labels: Ragged | None
    n_labels: int
    bad_rows: np.ndarray


def read_sparse_text(path: Path, report: Report, options: ReadOptions, with_labels: bool = False) -> SparseFile:
    """Read `N D` (or `N D L` when labels stand first in each line) and N rows.

    Rows that cannot be read are empty and listed, so that files which belong together stay aligned. A column
    that stands twice in a row stands twice in the matrix: whether that is a sum or a slip, the caller knows.
    """
    blocks = line_blocks(path, report, options)
    first, _ = next(blocks, (b"", 0))
    header, _, rest = first.partition(b"\n")
    sizes = _header(header, path, 3 if with_labels else 2)
    n_labels = sizes[2] if with_labels else 0
    parts = [_read_block(rest, 2, path, report, with_labels, n_labels, sizes[1])] if rest else []
    parts += [_read_block(block, number, path, report, with_labels, n_labels, sizes[1]) for block, number in blocks]
    columns, values, pair_counts, labels, label_counts, wrong = (
        (np.concatenate(arrays) for arrays in zip(*parts, strict=True)) if parts else (np.zeros(0, np.int64),) * 6
    )
    n_rows = len(pair_counts)
    if n_rows != sizes[0]:
        report.add(str(path), 1, f"the header says {sizes[0]:,} rows, the file has {n_rows:,}", "a complete file")
    matrix = sparse.csr_array(
        (values.astype(np.float32), columns.astype(np.int32), counts_to_indptr(pair_counts)),
        shape=(n_rows, sizes[1]),
    )
    rows = Ragged(counts_to_indptr(label_counts), labels.astype(np.int32)) if with_labels else None
    return SparseFile(matrix, rows, n_labels, np.flatnonzero(wrong))


def has_header(path: Path, numbers: int) -> bool:
    """Whether the file's first line is exactly so many whole numbers."""
    first, _ = next(line_blocks(path, Report("skip"), ReadOptions(encoding="utf-8-sig", show_progress=False)), (b"", 0))
    fields = first.partition(b"\n")[0].split()
    return len(fields) == numbers and all(field.isdigit() for field in fields)


def _header(line: bytes, path: Path, numbers: int) -> list[int]:
    fields = line.split()
    if len(fields) != numbers or not all(field.isdigit() for field in fields):
        names = "texts, features and labels" if numbers == 3 else "rows and columns"
        shown = line[:60].decode(errors="replace")
        raise DataError(f"{path}, line 1: the header is {shown!r}; expected {numbers} numbers: how many {names}.")
    sizes = [int(field[:MOST_DIGITS]) for field in fields]
    if max(sizes) > np.iinfo(np.int32).max:
        raise DataError(f"{path}, line 1: the header says {max(sizes):,}; expected numbers below two billion.")
    return sizes


def _read_block(
    lines: bytes, number: int, path: Path, report: Report, with_labels: bool, n_labels: int, n_columns: int
) -> tuple[np.ndarray, ...]:
    data = np.frombuffer(lines, np.uint8)
    n_lines = lines.count(b"\n")
    # Each label or pair takes at least two bytes with the separator after it.
    most = len(data) // 2 + 1
    labels, columns = np.empty(most if with_labels else 1, np.int64), np.empty(most, np.int64)
    values = np.empty(most, np.float64)
    label_counts, pair_counts, wrong = (np.zeros(n_lines, np.int64) for _ in range(3))
    counters = np.zeros(3, np.int64)
    kernel.read_sparse_rows(
        data,
        with_labels,
        n_labels,
        n_columns,
        labels,
        label_counts,
        columns,
        values,
        pair_counts,
        wrong,
        counters,
    )
    for row in np.flatnonzero(wrong):
        what, expected = _WRONG[int(wrong[row])]
        report.add(str(path), number + int(row), what, expected)
    pairs = int(counters[kernel.PAIRS])
    return (
        columns[:pairs].astype(np.int32),
        values[:pairs].astype(np.float32),
        pair_counts,
        labels[: int(counters[kernel.LABELS])].copy(),
        label_counts,
        wrong,
    )


def write_sparse_text(path: Path, matrix: Any, labels: Ragged | None = None, n_labels: int = 0) -> None:
    """The same format again; numbers are written with as many digits as float32 holds."""
    matrix = sparse.csr_array(matrix)
    with write_atomically(path) as file:
        header = [*matrix.shape, n_labels] if labels is not None else [*matrix.shape]
        file.write((" ".join(map(str, header)) + "\n").encode())
        for row in range(matrix.shape[0]):
            span = slice(matrix.indptr[row], matrix.indptr[row + 1])
            pairs = zip(matrix.indices[span].tolist(), matrix.data[span].tolist(), strict=True)
            line = " ".join(f"{column}:{value:.7g}" for column, value in pairs)
            if labels is not None:
                line = ",".join(map(str, labels.row(row).tolist())) + " " + line
            file.write(line.encode() + b"\n")
