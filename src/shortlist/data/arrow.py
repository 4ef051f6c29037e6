"""Parquet files and data frames (pandas, polars, Arrow), read through Arrow."""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from shortlist.data.options import ReadOptions
from shortlist.data.records import NumberedRecord, check_unique, list_columns
from shortlist.errors import DataError, import_extra
from shortlist.progress import Progress
from shortlist.streams import STANDARD_INPUT, read_whole, stream_name

ROWS_PER_BATCH = 16_384
MAX_BYTES_IN_MEMORY = 1 << 32


def import_pyarrow(purpose: str) -> Any:
    pyarrow = import_extra("pyarrow", purpose, "parquet")
    importlib.import_module("pyarrow.parquet")
    return pyarrow


def parquet_records(
    path: str | Path, options: ReadOptions, progress: Progress | None = None
) -> Iterator[NumberedRecord]:
    with open_parquet(path, options) as file:
        batches = file.iter_batches(ROWS_PER_BATCH, columns=options.fields)
        name = Path(stream_name(path)).name
        progress = progress or Progress(f"reading {name}", file.metadata.num_rows, "rows", options.show_progress)
        yield from _batch_records(batches, progress)


@contextmanager
def open_parquet(path: str | Path, options: ReadOptions, opened: Any = None) -> Iterator[Any]:
    """A Parquet file that has the columns to read. `opened`: the file, if it is no local one."""
    pyarrow = import_pyarrow("reading Parquet")
    name = stream_name(path)
    try:
        with pyarrow.parquet.ParquetFile(opened or _seekable(path, pyarrow)) as file:
            _check_columns(file.schema_arrow.names, options, name)
            yield file
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:  # the last one: a damaged name of a column
        raise DataError(f"{name}: not a readable Parquet file ({error}).") from None


def _seekable(path: str | Path, pyarrow: Any) -> Any:
    """The path itself; or, if the file is compressed or a pipe, its content: Parquet is read from the end."""
    if str(path) != STANDARD_INPUT and Path(path).is_file():
        with Path(path).open("rb") as file:
            if file.read(4) == b"PAR1":
                return str(path)
    return pyarrow.BufferReader(read_whole(path, MAX_BYTES_IN_MEMORY))


def frame_records(frame: Any, options: ReadOptions, name: str) -> Iterator[NumberedRecord]:
    """The rows of a pandas, polars or Arrow table, or of anything else with Arrow's C stream interface."""
    pyarrow = import_pyarrow("reading a data frame")
    columns = [str(column) for column in _column_names(frame)]
    _check_columns(columns, options, name)
    try:
        # Convert only the columns to read: others may contain what Arrow does not support.
        selected = _select(frame, [columns.index(field) for field in options.fields])
        table = pyarrow.table(selected).select(options.fields)
    except (pyarrow.ArrowException, TypeError) as error:
        raise DataError(f"{name}: cannot be read as texts and labels ({error}).") from None
    progress = Progress(f"reading {name}", table.num_rows, "rows", options.show_progress)
    yield from _batch_records(table.to_batches(ROWS_PER_BATCH), progress)


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
    check_unique(columns, options, name)
    for field in options.fields:
        if field not in columns:
            found = list_columns(columns)
            raise DataError(f"{name}: there is no column {field!r}; the columns are {found}. {options.field_hint}.")


def _batch_records(batches: Iterable[Any], progress: Progress) -> Iterator[NumberedRecord]:
    numbers = itertools.count(1)
    with progress:
        for batch in batches:
            progress.advance(batch.num_rows)
            for values in zip(*map(_to_list, batch.columns), strict=True):
                yield next(numbers), dict(zip(batch.schema.names, values, strict=True))


def _to_list(column: Any) -> list[Any]:
    try:
        return column.to_pylist()
    except UnicodeDecodeError:  # a bad text must not make the whole batch fail
        import pyarrow

        binary = pyarrow.large_binary()
        is_list = pyarrow.types.is_nested(column.type)
        return _decoded(column.cast(pyarrow.list_(binary) if is_list else binary).to_pylist())
    # There is no Python type for nanoseconds nor for the year 10,000, and a time zone may be unknown.
    except (KeyError, ValueError, OverflowError):
        return column.cast("string").to_pylist()


def _decoded(value: Any) -> Any:
    """Bytes as strings, also in lists. Invalid bytes become lone surrogates, which are no valid text."""
    if isinstance(value, list):
        return [_decoded(item) for item in value]
    return value.decode(errors="surrogateescape") if isinstance(value, bytes) else value
