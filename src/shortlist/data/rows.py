"""Rows for batch prediction, one after the other: a text and its id, or what is wrong with the row.

Rows are not collected, so a source may have any size. A bad row stays a row, so that predictions and input correspond.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from shortlist.data.arrow import import_pyarrow, open_parquet
from shortlist.data.csv_files import SEPARATORS, csv_records
from shortlist.data.jsonl import decode_line
from shortlist.data.lines import COMPLETE_FILE, line_blocks
from shortlist.data.options import ReadOptions
from shortlist.data.read import format_of
from shortlist.data.read_report import ReadReport
from shortlist.data.records import VALID_TEXT, BadRow, check_fields, check_id, check_text
from shortlist.errors import DataError, OptionError
from shortlist.streams import BLOCK, STANDARD_INPUT, is_compressed, stream_name

LINES = "lines"  # the format of files with one text per line
RawRow = tuple[int, Any]  # the number of a row; its line or record, or a BadRow


class Row(NamedTuple):
    """Line (or row, in Parquet) `number` of a source. A bad row has a problem and no text."""

    number: int
    text: str
    id: Any = None
    problem: str | None = None


@dataclass(frozen=True)
class RowOptions(ReadOptions):
    """How to read rows. `id` is the field to keep beside the predictions, if any."""

    labels: str | None = None
    id: str | None = None
    show_progress: bool = False

    field_hint: ClassVar[str] = "Choose other fields (--text, --id)"

    @property
    def fields(self) -> list[str]:
        return list(dict.fromkeys([*super().fields, *([self.id] if self.id else [])]))


class RowSource:
    """The rows of a file, or of standard input ("-"). The name tells the format unless it is given.

    name      for messages
    is_file   whether it can be read a second time
    unit      "line" or "row": what a row is called
    position  how far reading has come, in rows of Parquet or bytes of any other format
    total     the position at the end; None if unknown
    """

    def __init__(self, path: str | Path, format: str | None, options: RowOptions) -> None:
        self.path, self.options, self.name = Path(path), options, stream_name(path)
        is_stdin = str(path) == STANDARD_INPUT
        self.is_file = not is_stdin and self.path.is_file()
        self._is_guess = is_stdin and format is None
        known = LINES if self._is_guess else format or format_of(self.path)
        if known is None:
            raise OptionError(
                f"{path}: cannot tell the format from the name. Set --from to jsonl, csv, tsv, parquet, or lines "
                "(one text per line)."
            )
        self.format: str = known
        self.unit = "row" if self.format == "parquet" else "line"
        self.position = 0
        self.total: int | None = None
        if not is_stdin and not self.path.exists():
            raise DataError(f"{path}: no such file. Check the path.")
        if self.path.is_dir():
            raise DataError(f"{path}: is a folder; expected a file.")
        if self.is_file and self.format == "parquet":
            with open_parquet(self.path, options) as (file, _):
                self.total = file.metadata.num_rows
        elif self.is_file and not is_compressed(path):
            self.total = self.path.stat().st_size

    @property
    def fingerprint(self) -> str:
        """Changes with the file, as far as its size, time and first megabyte tell."""
        if not self.is_file:
            return self.name
        stat = self.path.stat()
        with self.path.open("rb") as file:
            beginning = hashlib.sha256(file.read(BLOCK)).hexdigest()[:16]
        return f"{stat.st_size:,} bytes, of {datetime.fromtimestamp(stat.st_mtime).isoformat(' ')}, {beginning}"

    def rows(self, skip: int = 0) -> Iterator[Row]:
        """All rows after the first `skip`, which are not parsed."""
        for number, raw in itertools.islice(self._raw_rows(), skip, None):
            yield self._parse(number, raw)

    def _parse(self, number: int, raw: Any) -> Row:
        row_id = None
        try:
            record = self._to_record(number, raw)
            if self.options.id and isinstance(record, dict):
                row_id = check_id(record.get(self.options.id), self.options.id)
            check_fields(record, self.options)
            return Row(number, check_text(record[self.options.text], str(self.options.text)), row_id)
        except BadRow as bad:
            return Row(number, "", row_id, f"{bad.what}; expected {bad.expected}")

    def _to_record(self, number: int, raw: Any) -> Any:
        if isinstance(raw, BadRow):
            raise raw
        if self.format == "jsonl":
            return decode_line(raw, number)
        if self.format != LINES:
            return raw
        if self._is_guess and number == 1 and _is_object(raw):
            raise OptionError(
                f"{self.name} starts with a JSON object: set --from jsonl, or --from lines if the lines are the texts."
            )
        try:
            return {self.options.text: raw.decode().rstrip("\r")}
        except UnicodeDecodeError as error:
            raise BadRow(f"byte {error.start + 1} of the line is not valid text", VALID_TEXT) from None

    def _raw_rows(self) -> Iterator[RawRow]:
        if self.format == "parquet":
            yield from self._parquet_rows()
            return
        report = ReadReport("skip")
        blocks = self._track_position(line_blocks(self.path, report, self.options))
        if self.format in SEPARATORS:
            rows: Iterator[RawRow] = csv_records(blocks, self.name, self.options, SEPARATORS[self.format])
        else:
            rows = _split_lines(blocks, keep_blank=self.format == LINES)
        yield from _insert_problems(rows, report)

    def _track_position(self, blocks: Iterator[tuple[bytes, int]]) -> Iterator[tuple[bytes, int]]:
        for lines, number in blocks:
            self.position += len(lines)
            yield lines, number

    def _parquet_rows(self) -> Iterator[RawRow]:
        with open_parquet(self.path, self.options) as (_, batches):
            number = itertools.count(1)
            for batch in batches:
                self.position += batch.num_rows
                columns = [self._to_list(batch.column(i), field) for i, field in enumerate(batch.schema.names)]
                for values in zip(*columns, strict=True):
                    yield next(number), dict(zip(batch.schema.names, values, strict=True))

    def _to_list(self, column: Any, field: str) -> list[Any]:
        """The values of a column. Ids of types that JSON lacks, such as dates, become strings."""
        pyarrow = import_pyarrow("reading Parquet")
        if field == self.options.id and field != self.options.text and not _is_json_type(column.type, pyarrow.types):
            try:
                column = column.cast(pyarrow.string())
            except pyarrow.ArrowException:
                raise DataError(
                    f"{self.name}: the column {field!r} has the type {column.type}; expected numbers or strings as ids."
                ) from None
        try:
            return column.to_pylist()
        except UnicodeDecodeError:  # a bad text must not make the whole batch fail
            values = column.cast(pyarrow.large_binary()).to_pylist()
            return [value if value is None else value.decode(errors="surrogateescape") for value in values]


def _split_lines(blocks: Iterator[tuple[bytes, int]], keep_blank: bool) -> Iterator[RawRow]:
    for lines, first in blocks:
        for number, line in enumerate(lines.split(b"\n")[:-1], first):
            if keep_blank or line.strip():
                yield number, line


def _insert_problems(rows: Iterator[RawRow], report: ReadReport) -> Iterator[RawRow]:
    """The rows, and in their places the lines that `line_blocks` could not read and has reported."""
    for number, row in rows:
        while report.problems and report.problems[0].line < number:
            yield _pop_problem(report)
        yield _pop_problem(report) if report.problems and report.problems[0].line == number else (number, row)
    while report.problems:
        yield _pop_problem(report)


def _pop_problem(report: ReadReport) -> RawRow:
    problem = report.problems.pop(0)
    if problem.expected == COMPLETE_FILE:
        raise DataError(f"{problem}. Download or create the file again.")
    return problem.line, BadRow(problem.what, problem.expected)


def _is_object(line: bytes) -> bool:
    try:
        return isinstance(decode_line(line), dict)
    except BadRow:
        return False


def _is_json_type(kind: Any, types: Any) -> bool:
    checks = (types.is_integer, types.is_floating, types.is_boolean, types.is_string, types.is_large_string)
    return any(check(kind) for check in (*checks, types.is_null))
