"""Readable names for labels that are codes: `label_names.json`, or a file of two columns."""

from __future__ import annotations

import csv
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
    if text.lstrip().startswith("{"):
        try:
            return msgspec.json.decode(text, type=dict[str, str])
        except msgspec.DecodeError as error:
            raise DataError(f'{path}: {error}; expected one JSON object {{"label": "readable name", …}}.') from None
    lines = text.splitlines()
    separator = "\t" if lines and "\t" in lines[0] else ","
    names: dict[str, str] = {}
    for number, row in enumerate(csv.reader(lines, delimiter=separator), start=1):
        if not row:
            continue
        if len(row) != 2:
            raise DataError(f"{path}, line {number}: {len(row)} columns; expected two, the label and its name.")
        names[row[0]] = row[1]
    return names
