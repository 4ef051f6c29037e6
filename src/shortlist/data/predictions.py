"""Reading anybody's predictions: ranked label names in JSON lines or tables, or a matrix of scores."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from shortlist.data.builder import DatasetBuilder
from shortlist.data.lines import line_blocks
from shortlist.data.options import ReadOptions
from shortlist.data.read import format_of, read_file
from shortlist.data.report import Report
from shortlist.data.repository import read_matrix
from shortlist.errors import DataError, OptionError
from shortlist.files import STANDARD_INPUT

LABEL_FIELDS = ("labels", "predictions", "predicted")
SCORE_FIELDS = ("scores", "weights")


def read_predictions(path: str | Path) -> Any:
    """A data set whose labels are the predictions, best first; or a sparse matrix of scores by label number.

    JSON lines hold the ranked names in `labels` and, where there are any, their scores in `scores`. CSV, TSV
    and Parquet have a column `labels`. A `.npz` file, or the Repository's sparse text, is a matrix.
    """
    path = Path(path)
    if str(path) == STANDARD_INPUT:
        raise OptionError("predictions cannot come from standard input: write them to a file")
    kind = format_of(path)
    if path.suffix == ".npz" or kind is None:
        return read_matrix(path, Report(), ReadOptions(show_progress=False))[0]
    options = ReadOptions(text=None)
    if kind == "jsonl":
        fields = _fields_of_first_line(path)
        options = ReadOptions(
            text="text" if "text" in fields else None,
            labels=next((name for name in LABEL_FIELDS if name in fields), "labels"),
            weights=next((name for name in SCORE_FIELDS if name in fields), None),
        )
    builder = DatasetBuilder(Report(), keep_repeats=True)
    read_file(path, builder, options)
    return builder.finish()


def _fields_of_first_line(path: Path) -> list[str]:
    lines, _ = next(line_blocks(path, Report("skip"), ReadOptions(show_progress=False)), (b"{}", 1))
    try:
        first = msgspec.json.decode(lines.partition(b"\n")[0])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DataError(
            f'{path}, line 1: not valid JSON ({error}); expected {{"labels": […], "scores": […]}}'
        ) from None
    return list(first) if isinstance(first, dict) else []
