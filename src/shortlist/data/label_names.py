"""Display names for labels that are codes, from `label_names.json` or a file of two columns."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from pathlib import Path

import msgspec

from shortlist.data import annif
from shortlist.errors import DataError
from shortlist.streams import COMPRESSED_SUFFIXES, read_whole

FILE_NAMES = [
    f"label_names{suffix}{compressed}"
    for suffix in (".json", ".tsv", ".csv")
    for compressed in ("", *COMPRESSED_SUFFIXES)
]
MAX_BYTES = 1 << 29  # ten million names of 50 letters


def find_label_names(folder: Path) -> Path | None:
    """The file of label names in a folder, if there is one."""
    return next((folder / name for name in FILE_NAMES if (folder / name).is_file()), None)


def read_label_names(path: str | Path | Mapping[str, str]) -> dict[str, str]:
    """{label: display name}: as given, a JSON object, two columns (tab or comma), or a vocabulary of Annif."""
    if isinstance(path, Mapping):
        for label, name in path.items():
            if not isinstance(label, str) or not isinstance(name, str):
                raise DataError(f"label_names has {label!r:.60}: {name!r:.60}; labels and names must be strings.")
        return dict(path)
    content = read_whole(path, MAX_BYTES)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: byte {error.start + 1} is not valid UTF-8; label names must be UTF-8.") from None
    if text.lstrip().startswith(("{", "[")) or ".json" in Path(path).suffixes:
        try:
            decoded = msgspec.json.decode(text, type=dict[str, str])
            return {label.strip(): name for label, name in decoded.items()}
        except msgspec.DecodeError as error:
            raise DataError(f'{path}: {error}; expected one JSON object {{"label": "display name", …}}.') from None
    if annif.is_vocabulary(text):
        return annif.read_vocabulary(text, path)
    separator = "\t" if "\t" in text.partition("\n")[0] else ","
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    names: dict[str, str] = {}
    try:
        for row in filter(None, rows):
            if len(row) != 2:
                raise DataError(f"{path}, line {rows.line_num}: {len(row)} columns; expected a label and its name.")
            names[row[0].strip()] = row[1]
    except csv.Error as error:
        raise DataError(f"{path}, line {rows.line_num}: not valid CSV ({error}).") from None
    return names
