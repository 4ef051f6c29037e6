"""Tables: CSV and TSV with the standard library, Parquet and data frames through Arrow."""

from __future__ import annotations

import csv
import importlib
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from shortlist.data.builder import DatasetBuilder
from shortlist.data.jsonl import row_of
from shortlist.data.lines import LONGEST_LINE, line_blocks, name_of
from shortlist.data.options import ReadOptions
from shortlist.data.values import VALID_TEXT, BadRow, is_valid_text, split_labels
from shortlist.errors import DataError, MissingExtraError
from shortlist.files import STANDARD_INPUT, blocks_of
from shortlist.progress import Progress

LABEL_SEPARATOR = ";"
ROWS_PER_BATCH = 16_384
# A record of more lines or characters is taken for a quote that somebody forgot to close.
MOST_LINES_OF_A_RECORD = 10_000
LONGEST_RECORD = 1 << 20


def read_csv(path: str | Path, builder: DatasetBuilder, options: ReadOptions, separator: str) -> None:
    name = name_of(path)
    options = replace(options, label_separator=options.label_separator or LABEL_SEPARATOR)
    for number, record in csv_records(line_blocks(path, builder.report, options), name, options, separator):
        try:
            if isinstance(record, BadRow):
                raise record
            if options.weights:
                record[options.weights] = _weights(record[options.weights], str(options.label_separator))
            builder.add_row(*row_of(record, options))
        except BadRow as bad:
            builder.report.add(name, number, bad.what, bad.expected)


def csv_records(
    blocks: Iterator[tuple[bytes, int]], name: str, options: ReadOptions, separator: str
) -> Iterator[tuple[int, dict[str, Any] | BadRow]]:
    """Each record of a CSV, or why it is none, with the number of the line it starts on."""
    separator = options.separator or separator
    csv.field_size_limit(LONGEST_LINE)
    quoting: Literal[0, 3] = csv.QUOTE_MINIMAL if options.quotes else csv.QUOTE_NONE
    lines = _RecordLines(_decoded_lines(blocks))
    # Strict: else a quote that is never closed makes one label of the rest of the file without a word.
    rows = csv.reader(lines, delimiter=separator, quoting=quoting, strict=True)
    columns: list[str] | None = None
    for number, row in _numbered(rows, lines):
        if isinstance(row, BadRow):
            yield number, row
            continue
        if columns is None:
            columns = row if options.header else _columns_without_header(row, options, name)
            _check_columns(columns, options, name, separator)
            if options.header:
                continue
        if len(row) == len(columns):
            yield number, dict(zip(columns, row, strict=True))
        else:
            expected = f"{len(columns)} as in the first line (does a {separator!r} need quotes?)"
            yield number, BadRow(f"{len(row)} columns", expected)


def _decoded_lines(blocks: Iterator[tuple[bytes, int]]) -> Iterator[str]:
    for lines, _ in blocks:
        # Invalid bytes live on as lone surrogates, so that the row they are in can be named.
        for line in lines.decode(errors="surrogateescape").split("\n")[:-1]:
            yield line + "\n"


class _RecordLines:
    """Lines for the csv module, which remembers those of the record at hand: after an error they come again.

    The lines of a record that goes on for too long end there, which to the csv module is an unclosed quote.
    """

    def __init__(self, lines: Iterator[str]) -> None:
        self._lines = lines
        self._again: deque[str] = deque()
        self._taken: list[str] = []
        self._size = 0
        self._number = 1

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        if len(self._taken) >= MOST_LINES_OF_A_RECORD or self._size > LONGEST_RECORD:
            raise StopIteration
        line = self._again.popleft() if self._again else next(self._lines)
        self._taken.append(line)
        self._size += len(line)
        return line

    def begin_record(self) -> int:
        """Number of the line on which the next record starts."""
        self._number += len(self._taken)
        self._taken.clear()
        self._size = 0
        return self._number

    def give_up_first(self) -> None:
        """Only the first line of this record was bad: those that it swallowed are records of their own."""
        self._again.extendleft(reversed(self._taken[1:]))
        del self._taken[1:]


def _numbered(rows: Iterator[list[str]], lines: _RecordLines) -> Iterator[tuple[int, list[str] | BadRow]]:
    """The rows that are not blank, each with the number of the line it starts on."""
    while True:
        number = lines.begin_record()
        try:
            row = next(rows, None)
        except csv.Error as error:
            what = str(error).partition(" - ")[0]  # the rest is advice on how to open a file in Python
            if what == "unexpected end of data":
                what = "a quote is opened and not closed"
            expected = "quotes around fields and doubled in them (no quotes at all: --no-quotes)"
            yield number, BadRow(f"not valid CSV ({what})", expected)
            lines.give_up_first()
            continue
        if row is None:
            return
        if row:
            yield number, row


def _check_columns(columns: list[str], options: ReadOptions, name: str, separator: str) -> None:
    wanted = options.fields
    missing = [column for column in wanted if column not in columns]
    if not missing:
        return
    line = separator.join(columns)
    if "\0" in line or not is_valid_text(line):
        raise DataError(f"{name}, line 1: the column names are not valid text; expected {VALID_TEXT}.")
    for other in (",", ";", "\t", "|"):
        fits = set(wanted) <= {part.strip() for part in line.split(other)}
        if other != separator and (fits or (len(columns) == 1 and other in line)):
            advice = f"The columns seem to be separated by {other!r}: say separator={other!r} (--separator)."
            break
    else:
        advice = f"Say which columns hold {options.columns}, or that there is no header (--no-header)."
    raise DataError(
        f"{name}, line 1: there is no column {missing[0]!r}; the columns are {', '.join(map(repr, columns))}. {advice}"
    )


def _columns_without_header(first: list[str], options: ReadOptions, name: str) -> list[str]:
    columns = [column for column in (options.text, options.labels) if column]
    if len(first) < len(columns):
        raise DataError(
            f"{name}, line 1: {len(first)} column; expected {len(columns)}, for {' and '.join(columns)}. "
            "Where another character separates the columns, say so with separator=… (--separator)."
        )
    return columns + [f"column {i + 1}" for i in range(len(columns), len(first))]


def _weights(value: str, separator: str) -> list[float]:
    try:
        return [float(part) for part in split_labels(value, separator)]
    except ValueError:
        raise BadRow(f"the weights are {value[:60]!r}", f"numbers with {separator!r} between them") from None


def read_parquet(path: str | Path, builder: DatasetBuilder, options: ReadOptions) -> None:
    name = name_of(path)
    with open_parquet(path, options) as (file, batches):
        rows = file.metadata.num_rows
        with Progress(f"reading {Path(name).name}", rows, "rows", options.show_progress) as progress:
            _read_batches(batches, name, builder, options, progress)


@contextmanager
def open_parquet(path: str | Path, options: ReadOptions) -> Iterator[tuple[Any, Iterator[Any]]]:
    """A Parquet file, and record batches of the columns that are wanted of it."""
    pyarrow = import_pyarrow("reading Parquet")
    parquet = importlib.import_module("pyarrow.parquet")
    name = name_of(path)
    try:
        with parquet.ParquetFile(_parquet_source(path, pyarrow)) as file:
            columns = _wanted_columns(file.schema_arrow.names, options, name)
            yield file, file.iter_batches(ROWS_PER_BATCH, columns=columns)
    except (pyarrow.ArrowException, OSError) as error:
        raise DataError(f"{name}: not a readable Parquet file ({error}).") from None


def _parquet_source(path: str | Path, pyarrow: Any) -> Any:
    """Parquet is read from its end, so one that is compressed or comes through a pipe is unpacked first."""
    if str(path) != STANDARD_INPUT and Path(path).is_file():
        with Path(path).open("rb") as file:
            if file.read(4) == b"PAR1":
                return str(path)
    return pyarrow.BufferReader(b"".join(blocks_of(path)))


def read_table(table: Any, builder: DatasetBuilder, options: ReadOptions) -> None:
    """A pandas, polars or Arrow table: anything that speaks Arrow's C stream."""
    pyarrow = import_pyarrow("reading a data frame")
    name = f"the {type(table).__module__.split('.')[0]} table"
    names = [str(column) for column in _column_names(table)]
    wanted = _wanted_columns(names, options, name)
    try:
        # Only what is wanted is turned into Arrow: other columns may hold what Arrow does not know.
        arrow = pyarrow.table(_selected(table, [names.index(column) for column in wanted])).select(wanted)
    except (pyarrow.ArrowException, TypeError) as error:
        raise DataError(f"{name}: cannot be read as texts and labels ({error}).") from None
    with Progress("reading the table", arrow.num_rows, "rows", options.show_progress) as progress:
        _read_batches(arrow.to_batches(ROWS_PER_BATCH), name, builder, options, progress)


def _column_names(table: Any) -> list[Any]:
    for names in ("column_names", "columns"):
        if hasattr(table, names):
            return list(getattr(table, names))
    if hasattr(table, "schema"):
        return list(table.schema.names)
    raise DataError(f"cannot read from one {type(table).__name__}: expected a table with texts and labels.")


def _selected(table: Any, positions: list[int]) -> Any:
    """These columns of a pandas or polars frame, or of an Arrow table; anything else as it is."""
    if hasattr(table, "iloc"):
        return table.iloc[:, positions]
    return table.select([table.columns[i] for i in positions]) if hasattr(table, "with_columns") else table


def _wanted_columns(names: list[str], options: ReadOptions, name: str) -> list[str]:
    for column in options.fields:
        if column not in names:
            raise DataError(
                f"{name}: there is no column {column!r}; the columns are {', '.join(map(repr, names))}. "
                f"Say which columns hold {options.columns}."
            )
    return options.fields


def _read_batches(batches: Any, name: str, builder: DatasetBuilder, options: ReadOptions, progress: Progress) -> None:
    number = 0
    for batch in batches:
        for record in batch.to_pylist():
            number += 1
            if options.time and record[options.time] is not None and hasattr(record[options.time], "isoformat"):
                record[options.time] = record[options.time].isoformat()
            try:
                builder.add_row(*row_of(record, options))
            except BadRow as bad:
                builder.report.add(name, number, bad.what, bad.expected, unit="row")
        progress.advance(batch.num_rows)


def import_pyarrow(purpose: str) -> Any:
    try:
        import pyarrow
    except ImportError:
        raise MissingExtraError(purpose, "parquet") from None
    return pyarrow
