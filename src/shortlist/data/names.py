"""Readable names for labels that are codes: `label_names.json`, or a file of two columns."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import msgspec

from shortlist.errors import DataError
from shortlist.files import blocks_of

FOUND_BESIDE = [f"label_names{kind}{packed}" for kind in (".json", ".tsv", ".csv") for packed in ("", ".gz", ".zst")]


def find_label_names(folder: Path) -> Path | None:
    """A file of label names in this folder, if there is one."""
    return next((folder / name for name in FOUND_BESIDE if (folder / name).is_file()), None)


def read_label_names(path: str | Path) -> dict[str, str]:
    """{label: readable name} from a JSON object or from two columns (tab or comma)."""
    content = b"".join(blocks_of(path))
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: byte {error.start + 1} is not valid UTF-8; label names must be UTF-8.") from None
    if text.lstrip().startswith(("{", "[")) or ".json" in Path(path).suffixes:
        try:
            return msgspec.json.decode(text, type=dict[str, str])
        except msgspec.DecodeError as error:
            raise DataError(f'{path}: {error}; expected one JSON object {{"label": "readable name", …}}.') from None
    separator = "\t" if "\t" in text.partition("\n")[0] else ","
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    names: dict[str, str] = {}
    try:
        for row in rows:
            if not row:
                continue
            if len(row) != 2:
                raise DataError(
                    f"{path}, line {rows.line_num}: {len(row)} columns; expected two, the label and its name."
                )
            names[row[0]] = row[1]
    except csv.Error as error:
        raise DataError(f"{path}, line {rows.line_num}: not valid CSV ({error}).") from None
    return names
