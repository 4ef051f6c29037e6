"""Reads predictions of any tool: ranked label names in JSON lines or tables, or a matrix of scores."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from shortlist.data.builder import DatasetBuilder
from shortlist.data.lines import first_line
from shortlist.data.options import ReadOptions
from shortlist.data.read import format_of, read_file
from shortlist.data.records import ReadReport
from shortlist.data.repository import read_matrix
from shortlist.errors import DataError, OptionError
from shortlist.streams import STANDARD_INPUT

LABEL_FIELDS = ("labels", "predictions", "predicted")
SCORE_FIELDS = ("scores", "weights")


def read_predictions(path: str | Path) -> Any:
    """A data set whose labels are the predictions, best first; or a sparse matrix of scores by label number.

    JSON lines have ranked names in `labels` and, optionally, scores in `scores`. CSV, TSV and Parquet have a column
    `labels`. A `.npz` file, or the Repository's sparse text, is a matrix.
    """
    path = Path(path)
    if str(path) == STANDARD_INPUT:
        raise OptionError("cannot read predictions from standard input; write them to a file")
    format = format_of(path)
    if path.suffix == ".npz" or format is None:
        return read_matrix(path, ReadReport(), ReadOptions(show_progress=False))[0]
    options = ReadOptions(text=None)
    if format == "jsonl":
        fields = _fields_of_first_line(path)
        options = ReadOptions(
            text="text" if "text" in fields else None,
            labels=next((name for name in LABEL_FIELDS if name in fields), "labels"),
            weights=next((name for name in SCORE_FIELDS if name in fields), None),
        )
    builder = DatasetBuilder(ReadReport(), keep_repeats=True)
    read_file(path, builder, options)
    return builder.finish()


def _fields_of_first_line(path: Path) -> list[str]:
    try:
        record = msgspec.json.decode(first_line(path) or b"{}")
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        expected = '{"labels": […], "scores": […]}'
        raise DataError(f"{path}, line 1: not valid JSON ({error}); expected {expected}") from None
    return list(record) if isinstance(record, dict) else []
