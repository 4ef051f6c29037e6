"""fastText's training files: one text per line; the words that start with `__label__` are its labels.

>>> parse_line("__label__shoes __label__red Red running shoes")
{'text': 'Red running shoes', 'labels': ['shoes', 'red']}
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from shortlist.data.dataset import Dataset
from shortlist.data.lines import decoded_lines
from shortlist.data.records import NumberedRecord
from shortlist.errors import DataError
from shortlist.files import write_atomically

PREFIX = "__label__"
# As in fastText, a label may stand anywhere in the line, and only ASCII space separates words.
LABEL = re.compile(rf"(?<!\S){PREFIX}(\S+)\s*", re.ASCII)
SPACE = re.compile(r"\s", re.ASCII)


def parse_line(line: str) -> dict[str, Any]:
    return {"text": LABEL.sub("", line).strip(), "labels": LABEL.findall(line)}


def fasttext_records(blocks: Iterator[tuple[bytes, int]], text: str, labels: str) -> Iterator[NumberedRecord]:
    """The number of each line that is not blank, and its text and labels under these names."""
    for number, line in decoded_lines(blocks):
        if line.strip():
            record = parse_line(line)
            yield number, {text: record["text"], labels: record["labels"]}


def write_fasttext(dataset: Dataset, path: Path) -> None:
    """Line breaks in texts become spaces. The format has no weights, no times, and no empty texts without labels."""
    for name in dataset.label_names:
        if SPACE.search(name):
            raise DataError(
                f"{path}: the label {name!r} contains a space, which fastText's format cannot express. "
                "Rename the label, or choose another format (format=, --to)."
            )
    with write_atomically(path) as file:
        for row, text in enumerate(dataset.texts):
            if LABEL.search(text):
                raise DataError(
                    f"{path}: text {row + 1:,} contains a word that starts with {PREFIX}, which would be read as a "
                    "label. Change the text, or choose another format (format=, --to)."
                )
            words = [PREFIX + label for label in dataset.labels_of(row)]
            file.write(" ".join([*words, *text.splitlines()]).encode() + b"\n")
