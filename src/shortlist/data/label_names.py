"""Display names for labels that are codes, from `label_names.json` or a file of two columns."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from shortlist.data import annif
from shortlist.errors import DataError, OptionError
from shortlist.streams import COMPRESSED_SUFFIXES, column_rows, decode_utf8, read_whole

FILE_NAMES = [
    f"label_names{suffix}{compressed}"
    for suffix in (".json", ".tsv", ".csv")
    for compressed in ("", *COMPRESSED_SUFFIXES)
]
MAX_BYTES = 1 << 29  # ten million names of 50 letters


def find_label_names(folder: Path) -> Path | None:
    """The file of label names in a folder, if there is one."""
    return next((folder / name for name in FILE_NAMES if (folder / name).is_file()), None)


class Names(msgspec.Struct, forbid_unknown_fields=True):
    """Several names of a label: the one that is shown, and further ones that texts may use."""

    name: str
    alt_names: list[str] = []
    description: str = ""


AnyNames = Mapping[str, str | Mapping[str, Any]]


def read_label_names(path: str | Path | AnyNames) -> dict[str, str]:
    """{label: display name}: as given, a JSON object, two columns (tab or comma), or a vocabulary of Annif."""
    return read_names(path)[0]


def read_names(path: str | Path | AnyNames, source: str = "label_names") -> tuple[dict[str, str], dict[str, list[str]]]:
    """The display names of labels, and further names of some: in JSON and dictionaries, alt_names and a description.

    >>> read_names({"J45": {"name": "Asthma", "alt_names": ["wheezing"]}, "J20": "Bronchitis"})
    ({'J45': 'Asthma', 'J20': 'Bronchitis'}, {'J45': ['wheezing']})
    """
    if isinstance(path, Mapping):
        return _split_names(path, source)
    if not isinstance(path, str | Path):
        raise OptionError(f"label_names is of type {type(path).__name__}; give a dict {{label: name}}, or a file")
    text = decode_utf8(read_whole(path, MAX_BYTES), path, "label names")
    if text.lstrip().startswith(("{", "[")) or ".json" in Path(path).suffixes:
        try:
            decoded = msgspec.json.decode(text, type=dict[str, Any])
        except (msgspec.DecodeError, RecursionError) as error:
            raise DataError(f'{path}: {error}; expected one JSON object {{"label": "display name", …}}.') from None
        return _split_names(decoded, path)
    if annif.is_vocabulary(text):
        return annif.read_vocabulary(text, path), {}
    names: dict[str, str] = {}
    for number, row in column_rows(text, path):
        if len(row) != 2:
            raise DataError(f"{path}, line {number}: {len(row)} columns; expected a label and its name.")
        names[row[0].strip()] = row[1]
    return names, {}


def _split_names(given: Mapping[Any, Any], source: str | Path) -> tuple[dict[str, str], dict[str, list[str]]]:
    """Display names, and further names."""
    names: dict[str, str] = {}
    others: dict[str, list[str]] = {}
    for label, value in given.items():
        what = f"{source} has {label!r:.60}: {value!r:.60}"
        if not isinstance(label, str):
            raise DataError(f"{what}; labels and names must be strings.")
        try:
            own = Names(value) if isinstance(value, str) else msgspec.convert(value, Names)
        except msgspec.ValidationError as error:
            several = '{"name": …, "alt_names": […], "description": …}'
            raise DataError(
                f'{what} ({error}); expected one JSON object {{"label": "display name", …}}; a label with several '
                f"names has {several}."
            ) from None
        label = label.strip()  # as the labels are
        names[label] = own.name
        if more := [name for name in (*own.alt_names, own.description) if name.strip()]:
            others[label] = more
    return names, others
