"""Folders: benchmarks with a train and a test part, and shards of one large file."""

from __future__ import annotations

from pathlib import Path

from shortlist.data import repository
from shortlist.data.builder import DatasetBuilder
from shortlist.data.dataset import Dataset
from shortlist.data.names import FOUND_BESIDE, find_label_names, read_label_names
from shortlist.data.options import ReadOptions
from shortlist.data.read import format_of, read_file
from shortlist.data.report import Report
from shortlist.errors import DataError, OptionError

PARTS = ("train", "validation", "test")


def parts_of(folder: Path) -> list[str]:
    """Which of train, validation and test a folder holds; none for a folder of shards."""
    return [part for part in PARTS if _own_part(folder, part) or repository.find_part(folder, part)]


def read_folder(folder: Path, part: str | None, format: str | None, options: ReadOptions) -> Dataset:
    parts = parts_of(folder)
    if part is not None and part not in PARTS:
        raise OptionError(f"part is {part!r}; it can be {', '.join(PARTS)}.")
    if part is None and len(parts) > 1:
        raise DataError(f"{folder} holds {' and '.join(parts)}: say which with part=… (--part).")
    if part is not None and part not in parts:
        raise DataError(f"{folder} has no {part} part; it has {' and '.join(parts) or 'none that is known'}.")
    part = part or next(iter(parts), None)
    own = _own_part(folder, part) if part else folder
    if own is None:
        assert part is not None
        dataset = repository.read_part(folder, part, options)
    else:
        dataset = _read_shards(_shards(own, format) if own.is_dir() else [own], folder, format, options)
    names = options.label_names or find_label_names(folder)
    if names is not None:
        dataset.display_names = read_label_names(names)
    return dataset


def _own_part(folder: Path, part: str) -> Path | None:
    """`train.jsonl`, `train.csv.gz`, …, or a folder `train` of shards."""
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


def _shards(folder: Path, format: str | None) -> list[Path]:
    """The folder's files of the wanted format, or of the one format that they have."""
    files = [
        path
        for path in sorted(folder.iterdir())
        if path.is_file() and not path.name.startswith((".", "_")) and path.name not in FOUND_BESIDE
    ]
    if format is not None:
        # Shards are often called part-00000: where no name speaks of a format, all are of the wanted one.
        return [path for path in files if format_of(path) == format] or [path for path in files if not format_of(path)]
    shards = [path for path in files if format_of(path)]
    formats = sorted({str(format_of(path)) for path in shards})
    if len(formats) > 1:
        raise DataError(
            f"{folder} mixes files of several formats ({', '.join(formats)}): say which with format=… (--from)."
        )
    return shards


def _read_shards(shards: list[Path], folder: Path, format: str | None, options: ReadOptions) -> Dataset:
    if not shards:
        raise DataError(
            f"{folder}: nothing here that can be read. Expected train/test files (jsonl, csv, tsv, parquet, "
            "compressed or not), shards of one format, or an Extreme Classification Repository data set."
        )
    builder = DatasetBuilder(Report(options.on_error))
    for shard in shards:
        read_file(shard, builder, options, format)
    return builder.finish()
