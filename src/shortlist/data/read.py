"""`read`: one function for every source. It finds out what it was given and hands over to the format."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from shortlist.data.builder import DatasetBuilder
from shortlist.data.dataset import Dataset
from shortlist.data.jsonl import read_jsonl, row_of
from shortlist.data.names import find_label_names, read_label_names
from shortlist.data.options import ReadOptions
from shortlist.data.report import Report
from shortlist.data.tables import read_csv, read_parquet, read_table
from shortlist.data.values import BadRow
from shortlist.errors import DataError, OptionError
from shortlist.files import PACKED, STANDARD_INPUT

FORMATS = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
}


def read(source: Any, part: str | None = None, *, format: str | None = None, **options: Any) -> Dataset:
    """Read texts and labels from a file, a folder, standard input ("-"), lists, or a data frame.

    A file is JSON lines, CSV, TSV or Parquet by its name (or `format`), compressed or not. A folder is a
    benchmark with parts (then `part` is "train", "validation" or "test"), or shards of one format. Lists
    hold (text, labels) pairs or dictionaries. For the options see `ReadOptions`.

    >>> read([("red shoes", ["shoes"]), ("blue hat", ["hats"])])
    Dataset(2 texts, 2 labels, 2 pairs)
    """
    chosen = _options(options)
    if isinstance(source, (str, Path)):
        return read_path(source, part, format, chosen)
    for option, value in (("part", part), ("format", format)):
        if value is not None:
            raise OptionError(f"{option} is for files and folders: leave out {option}={value!r}.")
    if isinstance(source, Dataset):
        return source
    builder = DatasetBuilder(Report(chosen.on_error))
    if hasattr(source, "__arrow_c_stream__"):
        read_table(source, builder, chosen)
    elif isinstance(source, Iterable):
        _read_rows(source, builder, chosen)
    else:
        raise DataError(
            f"cannot read from {type(source).__name__}: expected a path, a list of (text, labels), or a data frame."
        )
    dataset = builder.finish()
    if chosen.label_names:
        dataset.display_names = read_label_names(chosen.label_names)
    return dataset


def read_path(source: str | Path, part: str | None, format: str | None, options: ReadOptions) -> Dataset:
    from shortlist.data.folders import read_folder

    path = Path(source)
    if str(source) != STANDARD_INPUT and _is_folder(path):
        return read_folder(path, part, format, options)
    if part is not None:
        raise OptionError(f"{path} is a file; parts are for folders: leave out part={part!r}.")
    if format is None and format_of(path) is None and str(source) != STANDARD_INPUT:
        from shortlist.data.repository import read_single_file

        return _with_names(read_single_file(path, options), path.parent, options)
    builder = DatasetBuilder(Report(options.on_error))
    read_file(source, builder, options, format)
    return _with_names(builder.finish(), None if str(source) == STANDARD_INPUT else path.parent, options)


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError as error:  # a name that is too long, a folder above that may not be entered
        raise DataError(f"{str(path)[:200]}: cannot be opened: {error.strerror}.") from None


def read_file(path: str | Path, builder: DatasetBuilder, options: ReadOptions, format: str | None = None) -> None:
    """Add the rows of one file to the builder."""
    kind = format or format_of(Path(path)) or "jsonl"
    if kind == "jsonl":
        read_jsonl(path, builder, options)
    elif kind in ("csv", "tsv"):
        read_csv(path, builder, options, "," if kind == "csv" else "\t")
    elif kind == "parquet":
        read_parquet(path, builder, options)
    else:
        raise OptionError(f"format {kind!r} is not known; choose jsonl, csv, tsv or parquet.")


def format_of(path: Path) -> str | None:
    """The format that a file's name speaks of, compression aside; None for any other name."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] in PACKED:
        suffixes.pop()
    return FORMATS.get(suffixes[-1]) if suffixes else None


def _options(options: dict[str, Any]) -> ReadOptions:
    unknown = set(options) - set(ReadOptions.__dataclass_fields__)
    if unknown:
        known = ", ".join(ReadOptions.__dataclass_fields__)
        raise OptionError(f"there is no option {sorted(unknown)[0]!r} for reading; the options are {known}.")
    return ReadOptions(**options)


def _with_names(dataset: Dataset, folder: Path | None, options: ReadOptions) -> Dataset:
    names = options.label_names or (find_label_names(folder) if folder else None)
    return dataset if names is None else replace(dataset, display_names=read_label_names(names))


def _read_rows(rows: Iterable[Any], builder: DatasetBuilder, options: ReadOptions) -> None:
    for number, row in enumerate(rows, start=1):
        try:
            if isinstance(row, Mapping):
                record = dict(row)
            elif isinstance(row, (tuple, list)) and len(row) == 2:
                record = {str(options.text): row[0], str(options.labels): row[1]}
            else:
                raise BadRow(f"an item of type {type(row).__name__}", "(text, labels) pairs or dictionaries")
            builder.add_row(*row_of(record, options))
        except BadRow as bad:
            builder.report.add("the list", number, bad.what, bad.expected, unit="item")
