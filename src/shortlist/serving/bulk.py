"""Predictions for any number of rows, in constant memory: read some, predict, write, and again.

Every row read gives one row written, a bad one too, so that the output corresponds to the input row by row.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NamedTuple, Protocol

import msgspec
import numpy as np

from shortlist.background import in_background
from shortlist.data.rows import Row
from shortlist.data.texts import Texts
from shortlist.model.base import Model
from shortlist.progress import Progress

ROWS_AT_ONCE = 8192
MOST_PROBLEMS_SHOWN = 10


@dataclass(frozen=True)
class PredictOptions:
    """What to predict: see `Model.predict`."""

    k: int = 5
    min_score: float = 0.0
    search_effort: float = 1.0
    threads: int | None = None


class Predicted(NamedTuple):
    """A row and its labels, best first; a bad row has none."""

    row: Row
    labels: list[str]
    scores: list[float]


class Source(Protocol):
    """Where rows come from; see `RowSource`."""

    name: str
    format: str
    is_file: bool
    unit: str
    position: int
    total: int | None

    @property
    def fingerprint(self) -> str: ...
    def rows(self, skip: int = 0) -> Iterator[Row]: ...


class GivenTexts:
    """A source of texts that are in memory already."""

    name = fingerprint = "the texts"
    format = "texts"
    is_file = False
    unit = "text"
    position = 0
    total: int | None = None

    def __init__(self, texts: Sequence[str]) -> None:
        self.texts = texts

    def rows(self, skip: int = 0) -> Iterator[Row]:
        return (Row(number, text) for number, text in enumerate(self.texts[skip:], skip + 1))


@dataclass
class Done:
    """How many rows have been written, and how many of them were bad."""

    rows: int = 0
    bad: int = 0


class Output(Protocol):
    """Where predictions go. What `done` counts is safe, and comes first when a job goes on."""

    done: Done

    def write(self, predicted: list[Predicted]) -> None: ...


class StreamOutput:
    """Predictions into an open stream: a pipe, a terminal."""

    def __init__(self, file: IO[bytes], encode: Callable[[list[Predicted]], bytes]) -> None:
        self.done = Done()
        self._file, self._encode = file, encode

    def write(self, predicted: list[Predicted]) -> None:
        self._file.write(self._encode(predicted))
        self._file.flush()
        count(self.done, predicted)


def predict_rows(model: Model, source: Source, output: Output, options: PredictOptions) -> None:
    """Predict for the rows that have not been done yet, and report the bad ones."""
    unit = "rows" if source.unit == "row" else "B"
    with Progress(f"predicting {Path(source.name).name}", source.total, unit, show=source.is_file) as progress:
        chunks = _chunks(source, output.done.rows)
        if source.is_file:  # a thread that waits for standard input cannot be stopped by Ctrl-C
            chunks = in_background(chunks, ahead=2)
        with closing(chunks):
            for rows, position in chunks:
                _report(rows, output.done.bad, source, progress)
                output.write(predict_chunk(model, rows, options))
                progress.advance(position - progress.done)
                progress.note(f"{output.done.rows:,} rows, {output.done.bad:,} bad")


def predict_chunk(model: Model, rows: list[Row], options: PredictOptions) -> list[Predicted]:
    """The labels and scores of each row."""
    texts = Texts.from_strings([row.text for row in rows])
    ids, scores = model.rank(texts, options.k, options.threads, options.min_score, options.search_effort)
    bad = np.array([row.problem is not None for row in rows])
    ids = np.where(bad[:, None], -1, ids)
    names, rounded = model.label_names, np.round(scores.astype(np.float64), 6)
    return [
        Predicted(
            row,
            [names[label] for label in row_ids if label >= 0],
            [score for label, score in zip(row_ids, row_scores, strict=True) if label >= 0],
        )
        for row, row_ids, row_scores in zip(rows, ids.tolist(), rounded.tolist(), strict=True)
    ]


class JsonLines:
    """Writes predictions as JSON lines, which `shortlist evaluate` reads. Only bad rows have an error."""

    def __init__(self, unit: str, with_id: bool, with_text: bool) -> None:
        self.columns = [*["id"] * with_id, *["text"] * with_text, "labels", "scores", "error"]
        self._unit, self._with_id, self._with_text = unit, with_id, with_text
        self._encoder = msgspec.json.Encoder()

    def __call__(self, predicted: list[Predicted]) -> bytes:
        return self._encoder.encode_lines([self._record(*one) for one in predicted])

    def _record(self, row: Row, labels: list[str], scores: list[float]) -> dict[str, Any]:
        record: dict[str, Any] = {"id": row.id} if self._with_id else {}
        if self._with_text:
            record["text"] = row.text
        record["labels"], record["scores"] = labels, scores
        if row.problem is not None:
            record["error"] = f"{self._unit} {row.number:,}: {row.problem}"
        return record


def count(done: Done, predicted: list[Predicted]) -> None:
    done.rows += len(predicted)
    done.bad += sum(one.row.problem is not None for one in predicted)


def _chunks(source: Source, skip: int) -> Generator[tuple[list[Row], int]]:
    """Some rows at a time, and how far reading had come by then."""
    rows = source.rows(skip)
    while chunk := list(itertools.islice(rows, ROWS_AT_ONCE)):
        yield chunk, source.position


def _report(rows: list[Row], n_before: int, source: Source, progress: Progress) -> None:
    """Say what is wrong with the first bad rows; later ones are only counted."""
    bad = [row for row in rows if row.problem is not None]
    shown = max(MOST_PROBLEMS_SHOWN - n_before, 0)
    for row in bad[:shown]:
        progress.say(f"{source.name}, {source.unit} {row.number:,}: {row.problem}")
    if shown and len(bad) > shown:
        progress.say("Further bad rows are counted, not shown; each has its 'error' in the output.")
