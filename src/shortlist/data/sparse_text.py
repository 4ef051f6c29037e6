"""Sparse matrices as text, the Extreme Classification Repository's format: a header, then `column:value` pairs.

A kernel parses the rows, 16 times as fast as plain Python (docs/lab-book.md): the largest files have 100 million pairs.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from shortlist.arrays import Ragged, counts_to_indptr
from shortlist.data.lines import first_line, line_blocks
from shortlist.data.options import ReadOptions
from shortlist.data.records import ReadReport
from shortlist.errors import DataError
from shortlist.files import write_atomically
from shortlist.kernels import sparse_text as kernel
from shortlist.lazy import sparse

MAX_DIGITS = 18
MESSAGES = {
    kernel.NOT_A_PAIR: ("something other than column:value", "pairs such as 17:0.25, separated by spaces"),
    kernel.COLUMN_TOO_LARGE: ("a column number is out of range", "columns below the number in the header"),
    kernel.LABEL_TOO_LARGE: ("a label number is out of range", "labels below the number in the header"),
    kernel.NOT_A_LABEL: ("something other than label numbers", "labels such as 3,17 and then a space"),
}


def read_sparse_text(
    path: Path, report: ReadReport, options: ReadOptions, with_labels: bool = False
) -> tuple[sparse.csr_array, Ragged, int, np.ndarray]:
    """Read the header `rows columns` (or `rows columns labels` if each line starts with its labels) and the rows.

    Returns the matrix, the labels of each row, the number of labels, and the rows that could not be read. These stay
    as empty rows, so that files that belong together remain aligned. A column that occurs twice in a row occurs twice
    in the matrix: the caller knows whether to add the values or to report a repeat.
    """
    sizes, blocks = parse_blocks(line_blocks(path, report, options), path, 3 if with_labels else 2)
    n_rows, n_columns, n_labels = (*sizes, 0)[:3]
    parsed = []
    for rows, number in blocks:
        parsed.append(rows)
        for row in np.flatnonzero(rows[-1]):
            report.add(str(path), number + int(row), *MESSAGES[int(rows[-1][row])])
    columns, values, pair_counts, labels, label_counts, errors = map(np.concatenate, zip(*parsed, strict=True))
    if len(errors) != n_rows:
        what = f"the header says {n_rows:,} rows, but the file has {len(errors):,}"
        report.add(str(path), 1, what, "a complete file")
    matrix = sparse.csr_array((values, columns, counts_to_indptr(pair_counts)), shape=(len(errors), n_columns))
    return matrix, Ragged(counts_to_indptr(label_counts), labels), n_labels, np.flatnonzero(errors)


def has_header(path: Path, n_numbers: int) -> bool:
    """Whether the first line of a file is exactly this many integers."""
    fields = first_line(path).split()
    return len(fields) == n_numbers and all(field.isdigit() for field in fields)


def parse_blocks(
    blocks: Iterator[tuple[bytes, int]], path: str | Path, n_numbers: int | None = None
) -> tuple[list[int], Iterator[tuple[tuple[np.ndarray, ...], int]]]:
    """The numbers in the header; and for each block what the kernel parses, with the number of its first line.

    A header has `n_numbers` numbers: 2, or 3 if the lines start with labels. None: either.
    """
    header, _, rest = next(blocks, (b"", 1))[0].partition(b"\n")
    sizes = _parse_header(header, path, n_numbers)
    n_labels = sizes[2] if len(sizes) == 3 else -1

    def parse(lines: bytes) -> tuple[np.ndarray, ...]:
        return kernel.parse_rows(np.frombuffer(lines, np.uint8), lines.count(b"\n"), n_labels, sizes[1])

    return sizes, ((parse(lines), number) for lines, number in itertools.chain([(rest, 2)], blocks))


def _parse_header(line: bytes, path: str | Path, n_numbers: int | None) -> list[int]:
    fields = line.split()
    if len(fields) not in ((n_numbers,) if n_numbers else (2, 3)) or not all(field.isdigit() for field in fields):
        names = "texts, features and labels" if n_numbers == 3 else "rows and columns"
        shown = line[:60].decode(errors="replace")
        raise DataError(f"{path}, line 1: the header is {shown!r}; expected the numbers of {names}.")
    sizes = [int(field[:MAX_DIGITS]) for field in fields]
    if max(sizes) > np.iinfo(np.int32).max:
        raise DataError(f"{path}, line 1: the header says {max(sizes):,}; expected numbers below two billion.")
    return sizes


def write_sparse_text(path: Path, matrix: Any, labels: Ragged | None = None, n_labels: int = 0) -> None:
    """Write a matrix, with labels first in each line if given. Values have the 7 digits that float32 keeps."""
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
