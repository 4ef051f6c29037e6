"""`read`: one function for every source. It finds the format and calls its reader.

A folder is either a benchmark with a train, validation and test part, or a set of shards of one format.
"""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from shortlist.data import annif, fasttext, repository
from shortlist.data.arrow import frame_records, open_parquet, parquet_records
from shortlist.data.builder import DatasetBuilder
from shortlist.data.csv_files import LABEL_SEPARATOR, SEPARATORS, csv_records
from shortlist.data.dataset import Dataset
from shortlist.data.jsonl import json_records, read_jsonl
from shortlist.data.label_names import FILE_NAMES, find_label_names, read_names
from shortlist.data.lines import first_line, line_blocks
from shortlist.data.options import ReadOptions
from shortlist.data.records import BadRow, NumberedRecord, ReadReport
from shortlist.errors import DataError, OptionError
from shortlist.progress import Progress
from shortlist.streams import COMPRESSED_SUFFIXES, STANDARD_INPUT, stream_name

FORMATS = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
    ".fasttext": "fasttext",
}
# Formats whose files have names of other formats, or any name. `format_in` recognises them by their first line.
FORMATS_BY_CONTENT = ("fasttext", "annif")
PARTS = ("train", "validation", "test")


def read(source: Any, part: str | None = None, *, format: str | None = None, **options: Any) -> Dataset:
    """Read texts and labels from a file, a folder, standard input ("-"), lists, or a data frame.

    A file is JSON lines, CSV, TSV or Parquet, according to its name or to `format`, compressed or not; or a training
    file of fastText, or a short-text corpus of Annif, according to its first line.
    A folder has parts (then `part` is "train", "validation" or "test"), or shards of one format. Lists contain
    (text, labels) pairs or dictionaries. For the options see `ReadOptions`.

    >>> read([("red shoes", ["shoes"]), ("blue hat", ["hats"])])
    Dataset(2 texts, 2 labels, 2 pairs)
    """
    for name in set(options) - set(ReadOptions.__dataclass_fields__):
        known = list(ReadOptions.__dataclass_fields__)
        close = difflib.get_close_matches(name, known, 1)
        hint = f"did you mean {close[0]!r}?" if close else f"the options are {', '.join(known)}."
        raise OptionError(f"there is no read option {name!r}; {hint}")
    read_options = ReadOptions(**options)
    if isinstance(source, (str, Path)):
        return _read_path(source, part, format, read_options)
    for option, value in (("part", part), ("format", format)):
        if value is not None:
            raise OptionError(f"{option}={value!r} applies only to files and folders; leave it out.")
    if isinstance(source, Dataset):
        return source
    builder = DatasetBuilder(ReadReport(read_options.on_error))
    if hasattr(source, "__arrow_c_stream__"):
        name = f"the {type(source).__module__.split('.')[0]} table"
        builder.add_records(frame_records(source, read_options, name), name, read_options, "row")
    elif isinstance(source, Iterable):
        builder.add_records(_list_records(source, read_options), "the list", read_options, "item")
    else:
        raise DataError(
            f"cannot read from {type(source).__name__}; expected a path, a list of (text, labels), or a data frame."
        )
    return _add_names(builder.finish(), None, read_options)


def read_file(path: str | Path, builder: DatasetBuilder, options: ReadOptions, format: str | None = None) -> None:
    """Add the rows of one file to the builder."""
    format = format or format_in(path) or "jsonl"
    known = dict.fromkeys([*FORMATS.values(), *FORMATS_BY_CONTENT])
    if format not in known:
        raise OptionError(f"format {format!r} is unknown; choose one of {', '.join(known)}.")
    if format == "jsonl":
        read_jsonl(path, builder, options)
        return
    if format in SEPARATORS:
        options = replace(options, label_separator=options.label_separator or LABEL_SEPARATOR)
    records = file_records(path, format, options, builder.report)
    builder.add_records(records, stream_name(path), options, "row" if format == "parquet" else "line")


def unread_fields(path: Path, part: str | None, format: str | None, options: ReadOptions) -> list[str]:
    """The fields of the first record that the options do not read; none for formats without names of fields."""
    if _is_folder(path):
        location = _find_part(path, part) if part else path
        path = next(iter(find_shards(location, format) if location and location.is_dir() else [location or path]), path)
    format = format or (format_in(path) if path.is_file() else None)
    if format is None or format in FORMATS_BY_CONTENT or not path.is_file():
        return []
    if format == "parquet":
        with open_parquet(path, options) as file:
            names = list(file.schema_arrow.names)
    else:
        records = file_records(path, format, replace(options, show_progress=False), ReadReport("skip"))
        record = next((record for _, record in records if isinstance(record, dict)), {})
        names = list(record)
    return [name for name in names if name not in options.fields]


def file_records(
    path: str | Path,
    format: str,
    options: ReadOptions,
    report: ReadReport | None = None,
    progress: Progress | None = None,
) -> Iterator[NumberedRecord]:
    """The records of a file. A damaged file is reported; without a report, it is an error."""
    if format == "parquet":
        return parquet_records(path, options, progress)
    blocks = line_blocks(path, report, options, progress)
    if format in SEPARATORS:
        return csv_records(blocks, stream_name(path), options, SEPARATORS[format])
    if format in FORMATS_BY_CONTENT:
        if options.text_fields is not None:
            raise OptionError(f"{stream_name(path)}: {format} has one text per line; give one text field.")
        records = fasttext.fasttext_records if format == "fasttext" else annif.annif_records
        return records(blocks, str(options.text), str(options.labels))
    return itertools.chain.from_iterable(json_records(lines.split(b"\n"), first) for lines, first in blocks)


def format_of(path: Path) -> str | None:
    """The format that a file name stands for, compressed or not; None for an unknown name."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] in COMPRESSED_SUFFIXES:
        suffixes.pop()
    return FORMATS.get(suffixes[-1]) if suffixes else None


def format_in(path: str | Path) -> str | None:
    """The format of a file: that of its first line, if only one has such lines, or that of its name."""
    known = format_of(Path(path))
    if str(path) != STANDARD_INPUT and known in (None, "tsv") and Path(path).is_file():
        line = first_line(Path(path))
        if known is None and fasttext.LABEL.match(line.decode(errors="replace")):
            return "fasttext"
        if annif.is_corpus(line):
            return "annif"
    return known


def parts_of(folder: Path) -> list[str]:
    """Which of train, validation and test a folder has; none for a folder of shards."""
    return [part for part in PARTS if _find_part(folder, part) or repository.has_part(folder, part)]


def _read_path(source: str | Path, part: str | None, format: str | None, options: ReadOptions) -> Dataset:
    path = Path(source)
    if str(source) == STANDARD_INPUT:
        return _add_names(_read_files([path], format, options), None, options)
    if _is_folder(path):
        return _add_names(_read_folder(path, part, format, options), path, options)
    if part is not None:
        raise OptionError(f"{path} is a file; only folders have parts: leave out part={part!r}.")
    if format is None and format_in(path) is None:
        dataset = repository.read_single_file(path, options)
    else:
        dataset = _read_files([path], format, options)
    return _add_names(dataset, path.parent, options)


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError as error:  # the name is too long, or a parent folder is not accessible
        raise DataError(f"{str(path)[:200]}: cannot be opened: {error.strerror}.") from None


def _read_files(paths: list[Path], format: str | None, options: ReadOptions) -> Dataset:
    builder = DatasetBuilder(ReadReport(options.on_error))
    for path in paths:
        read_file(path, builder, options, format)
    return builder.finish()


def _add_names(dataset: Dataset, folder: Path | None, options: ReadOptions) -> Dataset:
    names = options.label_names or (find_label_names(folder) if folder else None)
    if names is not None:
        dataset.display_names, dataset.more_names = read_names(names)
    return dataset


def _read_folder(folder: Path, part: str | None, format: str | None, options: ReadOptions) -> Dataset:
    parts = parts_of(folder)
    if part is not None and part not in PARTS:
        raise OptionError(f"part is {part!r}; choose one of {', '.join(PARTS)}.")
    if part is None and len(parts) > 1:
        raise DataError(f"{folder} has the parts {', '.join(parts)}: choose one with part= (--part).")
    if part is not None and part not in parts:
        raise DataError(f"{folder} has no {part} part; it has {', '.join(parts) or 'no parts'}.")
    part = part or next(iter(parts), None)
    location = _find_part(folder, part) if part else folder
    if location is None:
        return repository.read_part(folder, str(part), options)
    paths = find_shards(location, format) if location.is_dir() else [location]
    if not paths:
        raise DataError(
            f"{folder}: found nothing to read. Expected train and test files (jsonl, csv, tsv, parquet, "
            "compressed or not), shards of one format, or a data set of the Extreme Classification Repository."
        )
    return _read_files(paths, format, options)


def _find_part(folder: Path, part: str) -> Path | None:
    """`train.jsonl`, `train.csv.gz` and so on, or a folder `train` of shards."""
    if (folder / part).is_dir():
        return folder / part
    files = [
        path
        for path in sorted(folder.glob(f"{part}.*"))
        if format_of(path) and path.name.split(".")[0] == part and not repository.is_repository_json(path)
    ]
    if len(files) > 1:
        names = " and ".join(path.name for path in files)
        raise DataError(f"{folder} has the {part} part more than once: {names}. Read one of the files by its name.")
    return files[0] if files else None


def find_shards(folder: Path, format: str | None) -> list[Path]:
    """The files of the given format, or of the only format in the folder."""
    files = [
        path
        for path in sorted(folder.iterdir())
        if path.is_file() and not path.name.startswith((".", "_")) and path.name not in FILE_NAMES
    ]
    if format is not None:
        # Shards often have names such as part-00000: if no name tells a format, all files have the given one.
        return [path for path in files if format_of(path) == format] or [path for path in files if not format_of(path)]
    shards = [path for path in files if format_of(path)]
    formats = sorted({str(format_of(path)) for path in shards})
    if len(formats) > 1:
        raise DataError(
            f"{folder} has files of several formats ({', '.join(formats)}): choose one with format= (--from)."
        )
    return shards


def _list_records(rows: Iterable[Any], options: ReadOptions) -> Iterator[NumberedRecord]:
    for number, row in enumerate(rows, start=1):
        if isinstance(row, Mapping):
            yield number, dict(row)
        elif isinstance(row, (tuple, list)) and len(row) == 2:
            yield number, {**_text_record(row[0], options), str(options.labels): row[1]}
        else:
            what = f"an item of type {type(row).__name__}"
            texts_alone = "; if the list has only texts, give their labels, too: train(texts, labels)"
            expected = "(text, labels) pairs or dictionaries"
            yield number, BadRow(what, expected + texts_alone if isinstance(row, str) else expected)


def _text_record(text: Any, options: ReadOptions) -> dict[str, Any]:
    """The text, or texts, of a (text, labels) pair by field."""
    if options.text_fields is None:
        return {str(options.text): text}
    if isinstance(text, Mapping):
        return dict(text)
    return dict(zip(options.text_names, [text] if isinstance(text, str) else text, strict=False))
