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

from shortlist.data.arrow import open_parquet
from shortlist.data.feature_rows import (
    FORMATS,
    MATRICES,
    SPARSE,
    FeatureRow,
    feature_format,
    matrix_rows,
    open_matrix,
    sparse_text_rows,
)
from shortlist.data.jsonl import decode_line
from shortlist.data.lines import decoded_lines, line_blocks
from shortlist.data.options import ReadOptions
from shortlist.data.read import file_records, format_in
from shortlist.data.records import BadRow, NumberedRecord, check_fields, check_id, text_of
from shortlist.errors import DataError, OptionError
from shortlist.progress import Progress
from shortlist.streams import STANDARD_INPUT, file_size, stream_name

LINES = "lines"  # the format of files with one text per line
FINGERPRINT_BYTES = 1 << 20


class Row(NamedTuple):
    """Line (or row, in Parquet) `number` of a source: a text, or features. A bad row has a problem instead."""

    number: int
    text: str
    id: Any = None
    problem: str | None = None
    features: FeatureRow | None = None
    kept: tuple[Any, ...] = ()


@dataclass(frozen=True)
class RowOptions(ReadOptions):
    """How to read rows. `id` is the field to keep beside the predictions, if any."""

    labels: str | None = None
    id: str | None = None

    field_hint: ClassVar[str] = "Choose other fields (--text, --id, --keep)"
    output_fields: ClassVar[frozenset[str]] = frozenset(["id", "text", "labels", "names", "scores", "error"])

    @property
    def fields(self) -> list[str]:
        return list(dict.fromkeys([*super().fields, *([self.id] if self.id else [])]))


class RowSource:
    """The rows of a file, or of standard input ("-"). The name tells the format unless it is given.

    name      for messages
    is_file   whether it can be read a second time
    unit      "line" or "row": what a row is called
    total     the position at the end, in rows of Parquet or bytes of any other format; None if unknown
    """

    def __init__(self, path: str | Path, format: str | None, options: RowOptions) -> None:
        self.path, self.options, self.name = Path(path), options, stream_name(path)
        is_stdin = str(path) == STANDARD_INPUT
        self.is_file = not is_stdin and self.path.is_file()
        self._is_guess = is_stdin and format is None
        known = LINES if self._is_guess else format or format_in(self.path) or feature_format(self.path)
        if known is None:
            raise OptionError(
                f"{path}: cannot tell the format from the name. Set --from to jsonl, csv, tsv, parquet, fasttext, "
                "annif, lines (one text per line), or sparse (features in the Repository's format)."
            )
        self.format: str = known
        self.unit = "row" if self.format in ("parquet", *MATRICES.values()) else "line"
        if not is_stdin and not self.path.exists():
            raise DataError(f"{path}: no such file. Check the path.")
        if self.path.is_dir():
            raise DataError(f"{path}: is a folder; expected a file.")
        self.total = file_size(path) if self.is_file else None
        if self.is_file and self.format == "parquet":
            with open_parquet(self.path, options) as file:
                self.total = file.metadata.num_rows
        elif self.is_file and self.format in MATRICES.values():
            self._matrix = open_matrix(self.path)
            self.total = self._matrix.shape[0]
        self._progress = Progress("reading", self.total, show=False)

    @property
    def position(self) -> int:
        """How far reading has come."""
        return self._progress.done

    @property
    def fingerprint(self) -> str:
        """Changes with the file, as far as its size, time and first megabyte tell."""
        if not self.is_file:
            return self.name
        stat = self.path.stat()
        with self.path.open("rb") as file:
            beginning = hashlib.sha256(file.read(FINGERPRINT_BYTES)).hexdigest()[:16]
        return f"{stat.st_size:,} bytes, of {datetime.fromtimestamp(stat.st_mtime).isoformat(' ')}, {beginning}"

    def rows(self, skip: int = 0) -> Iterator[Row]:
        """All rows after the first `skip`."""
        for number, record in itertools.islice(self._records(), skip, None):
            yield self._parse(number, record)

    @property
    def has_features(self) -> bool:
        """Whether the rows are features instead of texts."""
        return self.format in FORMATS

    def _parse(self, number: int, record: Any) -> Row:
        row_id, kept = None, ()
        try:
            if isinstance(record, FeatureRow):
                return Row(number, "", features=record)
            if self.options.id and isinstance(record, dict):
                row_id = check_id(record.get(self.options.id), self.options.id)
            if self.options.keep and isinstance(record, dict):
                kept = tuple(check_id(record.get(field), field) for field in self.options.keep)
            check_fields(record, self.options)
            return Row(number, text_of(record, self.options), row_id, kept=kept)
        except BadRow as bad:
            return Row(number, "", row_id, f"{bad.what}; expected {bad.expected}", kept=kept)

    def _records(self) -> Iterator[NumberedRecord]:
        if self.format in MATRICES.values():
            return matrix_rows(self._matrix, self._progress)
        if self.format not in (SPARSE, LINES):
            return file_records(self.path, self.format, self.options, progress=self._progress)
        blocks = line_blocks(self.path, None, self.options, self._progress)
        return sparse_text_rows(blocks, self.name) if self.format == SPARSE else self._text_records(blocks)

    def _text_records(self, blocks: Iterator[tuple[bytes, int]]) -> Iterator[NumberedRecord]:
        """Lines that are texts."""
        for number, line in decoded_lines(blocks):
            if self._is_guess and number == 1 and _is_object(line):
                raise OptionError(
                    f"{self.name} starts with a JSON object: set --from jsonl, or --from lines if the lines are the "
                    "texts."
                )
            yield number, {self.options.text_names[0]: line.rstrip("\r")}


def _is_object(line: str) -> bool:
    try:
        return isinstance(decode_line(line.encode(errors="surrogateescape")), dict)
    except BadRow:
        return False
