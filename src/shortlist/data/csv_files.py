"""CSV and TSV files, read with the standard library."""

from __future__ import annotations

import csv
from collections import deque
from collections.abc import Iterator
from typing import Literal

from shortlist.data.lines import LONGEST_LINE, decoded_lines
from shortlist.data.options import ReadOptions
from shortlist.data.records import VALID_TEXT, BadRow, NumberedRecord, check_unique, list_columns
from shortlist.errors import DataError
from shortlist.text.texts import is_valid_text

LABEL_SEPARATOR = ";"
SEPARATORS = {"csv": ",", "tsv": "\t"}
# A longer record is taken for one with an unclosed quote.
MAX_LINES_PER_RECORD = 10_000
MAX_RECORD_SIZE = 1 << 20
# Lines after an unclosed quote are read again. So that a file full of them takes no more than a constant time per
# character, records may be this long in all before they turn out bad, and this many times the size of the file.
REREAD_SIZE, REREAD_FACTOR = 8 * MAX_RECORD_SIZE, 8


def csv_records(
    blocks: Iterator[tuple[bytes, int]], name: str, options: ReadOptions, separator: str
) -> Iterator[NumberedRecord]:
    """The number of the first line of each record, and the record or why it is not valid."""
    separator = options.separator or separator
    csv.field_size_limit(LONGEST_LINE)
    lines = _RecordLines(line + "\n" for _, line in decoded_lines(blocks))
    # Strict: otherwise an unclosed quote silently turns the rest of the file into one label.
    quoting: Literal[0, 3] = csv.QUOTE_MINIMAL if options.quotes else csv.QUOTE_NONE
    rows = csv.reader(lines, delimiter=separator, quoting=quoting, strict=True)
    columns: list[str] | None = None
    for number, row in _numbered_rows(rows, lines):
        if isinstance(row, BadRow):
            yield number, row
            continue
        if columns is None:
            columns = row if options.header else _default_columns(row, options, name)
            _check_columns(columns, options, name, separator)
            if options.header:
                continue
        if len(row) == len(columns):
            yield number, dict(zip(columns, row, strict=True))
        else:
            expected = f"{len(columns)} as in the first line (is a {separator!r} missing its quotes?)"
            yield number, BadRow(f"{len(row)} columns", expected)


class _RecordLines:
    """Feeds lines to the csv module and remembers those of the current record, to read them again after an error.

    It ends the lines of an overlong record early, which the csv module then reports as an unclosed quote.
    """

    def __init__(self, lines: Iterator[str]) -> None:
        self._lines = lines
        self._reread: deque[str] = deque()
        self._current: list[str] = []
        self._size = 0
        self._may_reread = REREAD_SIZE
        self._number = 1

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        is_long = len(self._current) >= MAX_LINES_PER_RECORD or self._size > min(MAX_RECORD_SIZE, self._may_reread)
        if self._current and is_long:
            raise StopIteration
        line = self._reread.popleft() if self._reread else next(self._lines)
        self._current.append(line)
        self._size += len(line)
        return line

    def begin_record(self) -> int:
        """Start the next record; returns the number of its first line."""
        self._number += len(self._current)
        self._may_reread += REREAD_FACTOR * self._size
        self._current.clear()
        self._size = 0
        return self._number

    def drop_first_line(self) -> None:
        """Give up the first line of the record; read those after it again as records of their own."""
        self._may_reread -= self._size
        self._reread.extendleft(reversed(self._current[1:]))
        del self._current[1:]
        self._size = len(self._current[0])


def _numbered_rows(rows: Iterator[list[str]], lines: _RecordLines) -> Iterator[tuple[int, list[str] | BadRow]]:
    """The rows that are not blank, each with the number of its first line."""
    while True:
        number = lines.begin_record()
        try:
            row = next(rows, None)
        except csv.Error as error:
            what = str(error).partition(" - ")[0]  # the rest is advice for Python programmers
            if what == "unexpected end of data":
                what = "unclosed quote"
            expected = "quotes around a field, doubled inside it (set --no-quotes if quotes have no meaning)"
            if what == "line contains NUL":  # with Python 3.10; later, the text is refused
                what, expected = "a NUL character", VALID_TEXT
            yield number, BadRow(f"not valid CSV ({what})", expected)
            lines.drop_first_line()
            continue
        if row is None:
            return
        if row:
            yield number, row


def _check_columns(columns: list[str], options: ReadOptions, name: str, separator: str) -> None:
    check_unique(columns, options, f"{name}, line 1")
    missing = [column for column in options.fields if column not in columns]
    if not missing:
        return
    line = separator.join(columns)
    if "\0" in line or not is_valid_text(line):
        raise DataError(f"{name}, line 1: the column names are not valid text; expected {VALID_TEXT}.")
    advice = f"{options.field_hint}, or set --no-header if the file has no header."
    for other in (",", ";", "\t", "|"):
        fits = set(options.fields) <= {part.strip() for part in line.split(other)}
        if other != separator and (fits or (len(columns) == 1 and other in line)):
            advice = f"The separator seems to be {other!r}: set separator={other!r} (--separator)."
            break
    raise DataError(
        f"{name}, line 1: there is no column {missing[0]!r}; the columns are {list_columns(columns)}. {advice}"
    )


def _default_columns(first: list[str], options: ReadOptions, name: str) -> list[str]:
    """Column names of a file without a header."""
    columns = [column for column in (*options.text_names, options.labels) if column]
    if len(first) < len(columns):
        raise DataError(
            f"{name}, line 1: {len(first)} column; expected {len(columns)}, for {' and '.join(columns)}. "
            "If the columns have another separator, set separator= (--separator)."
        )
    return columns + [f"column {i + 1}" for i in range(len(columns), len(first))]
