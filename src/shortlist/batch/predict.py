"""Predict any number of rows in constant memory: read a chunk, predict it, write it, repeat.

Every input row gives one output row, bad rows included, so that row n of the output belongs to row n of the input.
"""

from __future__ import annotations

import csv
import io
import itertools
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np

from shortlist.background import in_background
from shortlist.data.feature_rows import stack_rows
from shortlist.data.rows import Row, RowSource
from shortlist.model import Model
from shortlist.printable import printable
from shortlist.progress import Progress
from shortlist.text.texts import Texts

if TYPE_CHECKING:
    from shortlist.batch.output import ResumableOutput

CHUNK_ROWS = 8192
MAX_PROBLEMS_SHOWN = 10


class PredictedRow(NamedTuple):
    """A row and its labels, best first. A bad row has no labels, and neither has one that the model is not sure of."""

    row: Row
    labels: list[str]
    scores: list[float]


class TextSource:
    """Texts in memory, with the interface of `RowSource`."""

    name = fingerprint = "the texts"
    format = "texts"
    is_file = has_features = False
    unit = "text"
    position = 0
    total: int | None = None

    def __init__(self, texts: Sequence[str]) -> None:
        self.texts = texts

    def rows(self, skip: int = 0) -> Iterator[Row]:
        return (Row(number, text) for number, text in enumerate(self.texts[skip:], skip + 1))


Source = RowSource | TextSource


@dataclass
class RowCounts:
    """How many rows have been written, and how many of them were bad."""

    rows: int = 0
    bad: int = 0

    def add(self, predicted: list[PredictedRow]) -> None:
        self.rows += len(predicted)
        self.bad += sum(one.row.problem is not None for one in predicted)


class StreamOutput:
    """Writes predictions to an open stream: a pipe or a terminal."""

    def __init__(self, file: IO[bytes], encode: Callable[[list[PredictedRow]], bytes]) -> None:
        self.written = RowCounts()
        self._file, self._encode = file, encode

    def write(self, predicted: list[PredictedRow]) -> None:
        content = self._encode(predicted)
        if self._file.isatty():
            content = printable(content.decode()).encode()
        self._file.write(content)
        self._file.flush()
        self.written.add(predicted)


def predict_rows(model: Model, source: Source, output: StreamOutput | ResumableOutput, **options: Any) -> None:
    """Predict the rows that `output` does not have yet, and report bad ones on standard error.

    The options are those of `Model.rank`.
    """
    unit = "rows" if source.unit == "row" else "B"
    with Progress(f"predicting {Path(source.name).name}", source.total, unit, show=source.is_file) as progress:
        chunks = _read_chunks(source, output.written.rows)
        if source.is_file:  # Ctrl-C cannot stop a thread that waits for standard input
            chunks = in_background(chunks, ahead=2)
        with closing(chunks):
            for rows, position in chunks:
                _report_problems(rows, output.written.bad, source, progress)
                output.write(predict_chunk(model, rows, **options))
                progress.advance(position - progress.done)
                progress.note(f"{output.written.rows:,} rows, {output.written.bad:,} bad")


def predict_chunk(model: Model, rows: list[Row], **options: Any) -> list[PredictedRow]:
    """Rank the labels of each row. Bad rows have none."""
    good = [row for row in rows if row.problem is None]
    ranked = iter(_rank(model, good, **options) if good else [])
    return [PredictedRow(row, *(next(ranked) if row.problem is None else ([], []))) for row in rows]


def _rank(model: Model, rows: list[Row], **options: Any) -> list[tuple[list[str], list[float]]]:
    """The labels of each row and their scores."""
    features = [row.features for row in rows if row.features is not None]
    inputs = stack_rows(features) if features else Texts.from_strings([row.text for row in rows])
    ids, scores = model.rank(inputs, **options)
    names, rounded = model.all_labels, np.round(scores.astype(np.float64), 6)
    return [
        (
            [names[label] for label in row_ids if label >= 0],
            [score for label, score in zip(row_ids, row_scores, strict=True) if label >= 0],
        )
        for row_ids, row_scores in zip(ids.tolist(), rounded.tolist(), strict=True)
    ]


class JsonLines:
    """Encodes predictions as JSON lines, which `shortlist evaluate` reads. Only bad rows have an `error`.

    keep          names of the fields that each row kept
    label_names   {label: display name}, to write names beside labels
    """

    header = b""

    def __init__(
        self,
        unit: str,
        with_id: bool,
        with_text: bool,
        keep: Sequence[str] = (),
        label_names: Mapping[str, str] | None = None,
    ) -> None:
        names = ["names"] * bool(label_names)
        self.columns = [*["id"] * with_id, *keep, *["text"] * with_text, "labels", *names, "scores", "error"]
        self.keep, self.label_names = keep, label_names
        self._unit, self._with_id, self._with_text = unit, with_id, with_text
        self._encoder = msgspec.json.Encoder()

    def __call__(self, predicted: list[PredictedRow]) -> bytes:
        return self._encoder.encode_lines([self.record(*one) for one in predicted])

    def record(self, row: Row, labels: list[str], scores: list[float]) -> dict[str, Any]:
        """One row of the output."""
        record: dict[str, Any] = {"id": row.id} if self._with_id else {}
        record |= zip(self.keep, row.kept or [None] * len(self.keep), strict=True)
        if self._with_text:
            record["text"] = row.text
        record["labels"] = labels
        if self.label_names:
            record["names"] = [self.label_names.get(label, label) for label in labels]
        record["scores"] = scores
        if row.problem is not None:
            record["error"] = f"{self._unit} {row.number:,}: {row.problem}"
        return record


class CsvLines(JsonLines):
    """Encodes the same as CSV. Labels, names and scores are joined by a separator."""

    def __init__(self, *arguments: Any, separator: str = ";") -> None:
        super().__init__(*arguments)
        self._separator = separator
        self.header = self._rows([self.columns])

    def __call__(self, predicted: list[PredictedRow]) -> bytes:
        records = [self.record(*one) for one in predicted]
        return self._rows([self._cell(record.get(column)) for column in self.columns] for record in records)

    def _cell(self, value: Any) -> Any:
        return self._separator.join(map(str, value)) if isinstance(value, list) else value

    def _rows(self, rows: Iterable[list[Any]]) -> bytes:
        lines = io.StringIO(newline="")
        csv.writer(lines, lineterminator="\r\n").writerows(rows)  # this way, cells with "\r" are quoted, too
        return lines.getvalue().encode()


def _read_chunks(source: Source, skip: int) -> Generator[tuple[list[Row], int]]:
    """Yield chunks of rows, each with the reading position after it."""
    rows = source.rows(skip)
    while chunk := list(itertools.islice(rows, CHUNK_ROWS)):
        yield chunk, source.position


def _report_problems(rows: list[Row], n_reported: int, source: Source, progress: Progress) -> None:
    """Print the first bad rows. The others are only counted."""
    bad = [row for row in rows if row.problem is not None]
    n_shown = max(MAX_PROBLEMS_SHOWN - n_reported, 0)
    for row in bad[:n_shown]:
        progress.say(f"{source.name}, {source.unit} {row.number:,}: {row.problem}")
    if n_shown and len(bad) > n_shown:
        progress.say("More bad rows follow; they are counted but not shown. Each has an 'error' in the output.")
