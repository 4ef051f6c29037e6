"""Rows to predict for, one after the other: a text and its id, or what is wrong with the row.

Nothing is collected, so a source may be of any size. A bad row is a row, too: what is predicted keeps
corresponding to what was read.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from shortlist.data.jsonl import check_fields, decoded, record_in
from shortlist.data.lines import COMPLETE_FILE, line_blocks, name_of
from shortlist.data.options import ReadOptions
from shortlist.data.read import format_of
from shortlist.data.report import Report
from shortlist.data.tables import csv_records, import_pyarrow, open_parquet
from shortlist.data.values import VALID_TEXT, BadRow, checked_id, checked_text
from shortlist.errors import DataError, OptionError
from shortlist.files import BLOCK, STANDARD_INPUT, is_packed

LINES = "lines"
Raw = tuple[int, Any]


class Row(NamedTuple):
    """Line (or row, in Parquet) `number` of a source; a bad one has a problem and no text."""

    number: int
    text: str
    id: Any = None
    problem: str | None = None


@dataclass(frozen=True)
class RowOptions(ReadOptions):
    """How to read rows. `id` names the field that is kept beside the predictions, if any."""

    labels: str | None = None
    id: str | None = None
    show_progress: bool = False

    columns: ClassVar[str] = "the text and the id (--text, --id)"
    fields_said: ClassVar[str] = "--text and --id"

    @property
    def fields(self) -> list[str]:
        return list(dict.fromkeys([*super().fields, *([self.id] if self.id else [])]))


class RowSource:
    """Rows from a file, or from standard input ("-"), in the format that its name speaks of, or the one given.

    name      for messages
    is_file   whether it can be read a second time
    unit      what a row is called, and `position` and `total` (None: not known) are counted in
    position  how far reading has come
    """

    def __init__(self, path: str | Path, format: str | None, options: RowOptions) -> None:
        self.path, self.options, self.name = Path(path), options, name_of(path)
        self.is_file = str(path) != STANDARD_INPUT and self.path.is_file()
        self._guessed = str(path) == STANDARD_INPUT and format is None
        self.format = LINES if self._guessed else _known_format(self.path, format)
        self.unit = "row" if self.format == "parquet" else "line"
        self.position = 0
        self.total: int | None = None
        if str(path) != STANDARD_INPUT and not self.path.exists():
            raise DataError(f"{path}: there is no such file. Check the path.")
        if self.path.is_dir():
            raise DataError(f"{path}: is a folder; a file was expected.")
        if self.is_file and self.format == "parquet":
            with open_parquet(self.path, options) as (file, _):
                self.total = file.metadata.num_rows
        elif self.is_file and not is_packed(path):
            self.total = self.path.stat().st_size

    @property
    def fingerprint(self) -> str:
        """Another one when the file is another or was changed, as far as can be told without reading all of it."""
        if not self.is_file:
            return self.name
        facts = self.path.stat()
        with self.path.open("rb") as file:
            beginning = hashlib.sha256(file.read(BLOCK)).hexdigest()[:16]
        time = datetime.fromtimestamp(facts.st_mtime).isoformat(" ")
        return f"{facts.st_size:,} bytes, of {time}, beginning {beginning}"

    def rows(self, skip: int = 0) -> Iterator[Row]:
        """All rows but the first `skip`, which are passed over without being looked into."""
        for number, raw in itertools.islice(self._raw(), skip, None):
            yield self._row(number, raw)

    def _row(self, number: int, raw: Any) -> Row:
        row_id = None
        try:
            record = self._record(number, raw)
            if self.options.id and isinstance(record, dict):
                row_id = checked_id(record.get(self.options.id), self.options.id)
            check_fields(record, self.options)
            return Row(number, checked_text(record[self.options.text], str(self.options.text)), row_id)
        except BadRow as bad:
            return Row(number, "", row_id, f"{bad.what}; expected {bad.expected}")

    def _record(self, number: int, raw: Any) -> Any:
        if isinstance(raw, BadRow):
            raise raw
        if self.format == "jsonl":
            return record_in(raw, number)
        return {self.options.text: self._text_line(number, raw)} if self.format == LINES else raw

    def _text_line(self, number: int, line: bytes) -> str:
        if self._guessed and number == 1 and _is_object(line):
            raise OptionError(
                f"{self.name} begins with a JSON object: say --from jsonl, or --from lines if these are the texts."
            )
        try:
            return line.decode().rstrip("\r")
        except UnicodeDecodeError as error:
            raise BadRow(f"byte {error.start + 1} of the line is not valid text", VALID_TEXT) from None

    def _raw(self) -> Iterator[Raw]:
        """Rows that nobody has looked into yet: lines, records, or why there is none."""
        if self.format == "parquet":
            yield from self._parquet_records()
            return
        report = Report("skip")
        blocks = self._counted(line_blocks(self.path, report, self.options))
        if self.format in ("csv", "tsv"):
            separator = "," if self.format == "csv" else "\t"
            rows: Iterator[Raw] = csv_records(blocks, self.name, self.options, separator)
        else:
            rows = _lines(blocks, keep_blank=self.format == LINES)
        yield from _with_problems(rows, report)

    def _counted(self, blocks: Iterator[tuple[bytes, int]]) -> Iterator[tuple[bytes, int]]:
        for lines, number in blocks:
            self.position += len(lines)
            yield lines, number

    def _parquet_records(self) -> Iterator[Raw]:
        with open_parquet(self.path, self.options) as (_, batches):
            number = itertools.count(1)
            for batch in batches:
                self.position += batch.num_rows
                columns = [self._values(batch.column(i), field) for i, field in enumerate(batch.schema.names)]
                for values in zip(*columns, strict=True):
                    yield next(number), dict(zip(batch.schema.names, values, strict=True))

    def _values(self, column: Any, field: str) -> list[Any]:
        """The values of a column. An id of a kind that JSON lacks, such as a date, becomes a text."""
        pyarrow = import_pyarrow("reading Parquet")
        if field == self.options.id and field != self.options.text and not _is_plain(column.type, pyarrow):
            try:
                column = column.cast(pyarrow.string())
            except pyarrow.ArrowException:
                raise DataError(
                    f"{self.name}: the column {field!r} is of type {column.type}; expected numbers or texts as ids."
                ) from None
        try:
            return column.to_pylist()
        except UnicodeDecodeError:  # one bad text is not to spoil the whole batch
            texts = column.cast(pyarrow.large_binary()).to_pylist()
            return [text if text is None else text.decode(errors="surrogateescape") for text in texts]


def _known_format(path: Path, format: str | None) -> str:
    known = format or format_of(path)
    if known is None:
        raise OptionError(
            f"{path}: the name does not say what is in it. Say so with --from: jsonl, csv, tsv, parquet, or lines "
            "(each a text)."
        )
    return known


def _lines(blocks: Iterator[tuple[bytes, int]], keep_blank: bool) -> Iterator[Raw]:
    for lines, first in blocks:
        for number, line in enumerate(lines.split(b"\n")[:-1], first):
            if keep_blank or line.strip():
                yield number, line


def _with_problems(rows: Iterator[Raw], report: Report) -> Iterator[Raw]:
    """The rows, and in their places those that the reader of lines gave up and has only reported."""
    problems = report.problems
    for number, row in rows:
        while problems and problems[0].line < number:
            yield _given_up(report)
        yield _given_up(report) if problems and problems[0].line == number else (number, row)
    while problems:
        yield _given_up(report)


def _given_up(report: Report) -> Raw:
    problem = report.problems.pop(0)
    if problem.expected == COMPLETE_FILE:
        raise DataError(f"{problem}. Fetch or write it again.")
    return problem.line, BadRow(problem.what, problem.expected)


def _is_object(line: bytes) -> bool:
    try:
        return isinstance(decoded(line), dict)
    except BadRow:
        return False


def _is_plain(kind: Any, pyarrow: Any) -> bool:
    types = pyarrow.types
    tests = (types.is_integer, types.is_floating, types.is_boolean, types.is_string, types.is_large_string)
    return any(test(kind) for test in (*tests, types.is_null))
