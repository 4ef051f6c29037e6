"""Parquet files and data frames (pandas, polars, Arrow), read through Arrow."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from shortlist.data.builder import DatasetBuilder
from shortlist.data.options import ReadOptions
from shortlist.data.records import BadRow, parse_record
from shortlist.errors import DataError, MissingExtraError
from shortlist.progress import Progress
from shortlist.streams import STANDARD_INPUT, read_blocks, stream_name

ROWS_PER_BATCH = 16_384


def import_pyarrow(purpose: str) -> Any:
    try:
        import pyarrow
    except ImportError:
        raise MissingExtraError(purpose, "parquet") from None
    return pyarrow


def read_parquet(path: str | Path, builder: DatasetBuilder, options: ReadOptions) -> None:
    with open_parquet(path, options) as (file, batches):
        _read_batches(batches, file.metadata.num_rows, stream_name(path), builder, options)


@contextmanager
def open_parquet(path: str | Path, options: ReadOptions) -> Iterator[tuple[Any, Iterator[Any]]]:
    """A Parquet file, and record batches of the columns to read."""
    pyarrow = import_pyarrow("reading Parquet")
    parquet = importlib.import_module("pyarrow.parquet")
    name = stream_name(path)
    try:
        with parquet.ParquetFile(_seekable(path, pyarrow)) as file:
            _check_columns(file.schema_arrow.names, options, name)
            yield file, file.iter_batches(ROWS_PER_BATCH, columns=options.fields)
    except (pyarrow.ArrowException, OSError) as error:
        raise DataError(f"{name}: not a readable Parquet file ({error}).") from None


def _seekable(path: str | Path, pyarrow: Any) -> Any:
    """The path itself; or, if the file is compressed or a pipe, its content: Parquet is read from the end."""
    if str(path) != STANDARD_INPUT and Path(path).is_file():
        with Path(path).open("rb") as file:
            if file.read(4) == b"PAR1":
                return str(path)
    return pyarrow.BufferReader(b"".join(read_blocks(path)))


def read_frame(frame: Any, builder: DatasetBuilder, options: ReadOptions) -> None:
    """Read a pandas, polars or Arrow table, or anything else with Arrow's C stream interface."""
    pyarrow = import_pyarrow("reading a data frame")
    name = f"the {type(frame).__module__.split('.')[0]} table"
    columns = [str(column) for column in _column_names(frame)]
    _check_columns(columns, options, name)
    try:
        # Convert only the columns to read: others may contain what Arrow does not support.
        selected = _select(frame, [columns.index(field) for field in options.fields])
        table = pyarrow.table(selected).select(options.fields)
    except (pyarrow.ArrowException, TypeError) as error:
        raise DataError(f"{name}: cannot be read as texts and labels ({error}).") from None
    _read_batches(table.to_batches(ROWS_PER_BATCH), table.num_rows, name, builder, options)


def _column_names(frame: Any) -> list[Any]:
    for attribute in ("column_names", "columns"):
        if hasattr(frame, attribute):
            return list(getattr(frame, attribute))
    if hasattr(frame, "schema"):
        return list(frame.schema.names)
    raise DataError(f"cannot read from a {type(frame).__name__}; expected a table with texts and labels.")


def _select(frame: Any, positions: list[int]) -> Any:
    """The columns at these positions of a pandas or polars frame; any other table unchanged."""
    if hasattr(frame, "iloc"):
        return frame.iloc[:, positions]
    return frame.select([frame.columns[i] for i in positions]) if hasattr(frame, "with_columns") else frame


def _check_columns(columns: list[str], options: ReadOptions, name: str) -> None:
    for field in options.fields:
        if field not in columns:
            found = ", ".join(map(repr, columns))
            raise DataError(f"{name}: there is no column {field!r}; the columns are {found}. {options.field_hint}.")


def _read_batches(
    batches: Iterable[Any], n_rows: int, name: str, builder: DatasetBuilder, options: ReadOptions
) -> None:
    number = 0
    with Progress(f"reading {Path(name).name}", n_rows, "rows", options.show_progress) as progress:
        for batch in batches:
            for record in batch.to_pylist():
                number += 1
                if options.time and hasattr(record[options.time], "isoformat"):
                    record[options.time] = record[options.time].isoformat()
                try:
                    builder.add_row(*parse_record(record, options))
                except BadRow as bad:
                    builder.report.add(name, number, bad.what, bad.expected, unit="row")
            progress.advance(batch.num_rows)
