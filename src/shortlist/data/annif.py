"""Annif's files for short texts: corpora (`text TAB <uri> <uri> …`) and vocabularies (`<uri> TAB name`).

Neither has a header or quotes. Labels are the URIs without their angle brackets.

>>> parse_line("Red running shoes\\t<http://example.org/shoes> <http://example.org/red>")
{'text': 'Red running shoes', 'labels': ['http://example.org/shoes', 'http://example.org/red']}
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from shortlist.data.dataset import Dataset
from shortlist.data.lines import decoded_lines
from shortlist.data.records import BadRow, NumberedRecord, shorten
from shortlist.errors import DataError
from shortlist.files import write_atomically

CORPUS_LINE = re.compile(rb"[^\t]*\t\s*<[^<>\s]+>(\s+<[^<>\s]+>)*\s*")
VOCABULARY_LINE = re.compile(r"<[^<>\s]+>\t.*")


def is_corpus(first_line: bytes) -> bool:
    """Whether this is the first line of a corpus, and not the header of a table."""
    return CORPUS_LINE.fullmatch(first_line) is not None


def parse_line(line: str) -> dict[str, Any]:
    text, tab, uris = line.partition("\t")
    if not tab:
        raise BadRow(f"no tab in {shorten(line)}", "a text, a tab, and URIs in angle brackets")
    return {"text": text, "labels": [uri.removeprefix("<").removesuffix(">") for uri in uris.split()]}


def annif_records(blocks: Iterator[tuple[bytes, int]], text: str, labels: str) -> Iterator[NumberedRecord]:
    """The number of each line that is not blank, and its text and labels under these names, or why it has none."""
    for number, line in decoded_lines(blocks):
        if line.strip("\r"):  # a tab alone is an empty text without labels
            try:
                record = parse_line(line)
                yield number, {text: record["text"], labels: record["labels"]}
            except BadRow as bad:
                yield number, bad


def is_vocabulary(content: str) -> bool:
    """Whether this is the content of a vocabulary, and not another file of two columns."""
    return VOCABULARY_LINE.match(content) is not None


def read_vocabulary(content: str, path: str | Path) -> dict[str, str]:
    """{URI: name}. A third column, the notation, is ignored."""
    names: dict[str, str] = {}
    for number, line in enumerate(content.split("\n"), 1):
        line = line.rstrip("\r")
        if not line:
            continue
        if not VOCABULARY_LINE.fullmatch(line):
            raise DataError(
                f"{path}, line {number:,}: found {shorten(line)}; expected a URI in angle brackets, a tab, and a name."
            )
        uri, name = line.split("\t")[:2]
        names[uri[1:-1]] = name.strip()
    return names


def write_corpus(dataset: Dataset, path: Path) -> None:
    """Tabs and line breaks in texts become spaces. The format has no weights and no times."""
    _check_labels(dataset, path)
    with write_atomically(path) as file:
        for row, text in enumerate(dataset.texts):
            uris = " ".join(f"<{label}>" for label in dataset.labels_of(row))
            file.write(f"{_one_line(text)}\t{uris}\n".encode())


def write_vocabulary(dataset: Dataset, path: Path) -> None:
    """All labels of the data set with their display names."""
    _check_labels(dataset, path)
    with write_atomically(path) as file:
        for label in dataset.label_names:
            file.write(f"<{label}>\t{_one_line(dataset.display_name(label))}\n".encode())


def _check_labels(dataset: Dataset, path: Path) -> None:
    for label in dataset.label_names:
        if not VOCABULARY_LINE.fullmatch(f"<{label}>\t"):
            raise DataError(
                f"{path}: the label {label!r} cannot be a URI in Annif's format: it contains a space, < or >. "
                "Rename the label, or choose another format (format=, --to)."
            )


def _one_line(text: str) -> str:
    return " ".join(text.replace("\t", " ").splitlines())
