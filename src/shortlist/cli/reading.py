"""Options of reading that several commands share, and what they print about it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from shortlist.errors import DataError

if TYPE_CHECKING:
    from shortlist.data import Dataset

_OPTIONS = {
    "text": click.option("--text", default="text", show_default=True, help="Field or column that holds the text."),
    "labels": click.option(
        "--labels", default="labels", show_default=True, help="Field or column that holds the labels."
    ),
    "weights": click.option("--weights", help="Field or column that holds a weight for each label."),
    "label_separator": click.option(
        "--label-separator", help='Between labels in one string.  [default: ";" in CSV and TSV]'
    ),
    "separator": click.option("--separator", help="Between CSV columns."),
    "header": click.option("--header/--no-header", default=True, help="Whether a CSV begins with column names."),
    "quotes": click.option(
        "--quotes/--no-quotes", default=True, help="Whether quotes around a CSV field are not part of it."
    ),
    "encoding": click.option("--encoding", default="utf-8", show_default=True, help="Encoding of text files."),
    "on_error": click.option(
        "--on-error",
        type=click.Choice(["raise", "skip"]),
        default="raise",
        show_default=True,
        help="Stop at the first bad line, or skip bad lines and list them.",
    ),
    "label_names": click.option("--label-names", type=click.Path(), help="File of readable names for labels."),
    "format": click.option(
        "--from",
        "format",
        type=click.Choice(["jsonl", "csv", "tsv", "parquet"]),
        help="Format of the source, if its name does not say.",
    ),
}


def reading_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options of `shortlist.read`; the command gets them as one dictionary called `reading`."""
    return _with_options(command, list(_OPTIONS))


def row_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Those of them that say how to read rows without labels."""
    return _with_options(command, ["text", "separator", "header", "quotes", "encoding"])


def _with_options(command: Callable[..., Any], names: list[str]) -> Callable[..., Any]:
    def with_reading(**arguments: Any) -> Any:
        reading = {name: arguments.pop(name) for name in names}
        return command(reading=reading, **arguments)

    with_reading.__name__, with_reading.__doc__ = command.__name__, command.__doc__
    with_reading.__click_params__ = getattr(command, "__click_params__", [])  # type: ignore[attr-defined]
    for name in reversed(names):
        with_reading = _OPTIONS[name](with_reading)
    return with_reading


def read_and_tell(source: str, part: str | None, reading: dict[str, Any]) -> Dataset:
    """Read a data set, and say on standard error what was skipped or odd."""
    from shortlist.data import read

    dataset = read(source, part, **reading)
    for line in dataset.report.lines():
        click.echo(line, err=True)
    if len(dataset) == 0:
        raise DataError(f"{source}: there is not a single text in it.")
    return dataset


def parts_in(source: str) -> list[str]:
    """The parts of a folder, in order; none for a file or shards."""
    from pathlib import Path

    from shortlist.data.folders import parts_of

    return parts_of(Path(source)) if Path(source).is_dir() else []


def part_to_read(source: str, wanted: str) -> str | None:
    """The wanted part of a folder that has parts; None for a file or a folder of shards."""
    parts = parts_in(source)
    if parts and wanted not in parts:
        raise DataError(f"{source} has no {wanted} part, only {' and '.join(parts)}.")
    return wanted if parts else None


unseen_option = click.option(
    "--unseen",
    type=click.Choice(["count", "ignore"]),
    default="count",
    show_default=True,
    help="Whether labels that do not occur in training count.",
)
