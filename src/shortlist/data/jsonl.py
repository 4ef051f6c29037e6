"""JSON lines: one object `{"text": …, "labels": […]}` per line.

Lines in this common form are decoded into a typed struct, which also checks them. All other lines are decoded into a
dictionary and checked field by field, which gives better error messages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from shortlist.data.builder import DatasetBuilder
from shortlist.data.lines import line_blocks
from shortlist.data.options import ReadOptions
from shortlist.data.records import VALID_TEXT, BadRow, NumberedRecord
from shortlist.streams import stream_name

# Few enough for the rows of a batch to stay in the processor's cache.
LINES_PER_BATCH = 256


def read_jsonl(path: str | Path, builder: DatasetBuilder, options: ReadOptions) -> None:
    decode = _typed_decoder(options)
    for block, first in line_blocks(path, builder.report, options):
        lines = block.split(b"\n")
        for start in range(0, len(lines), LINES_PER_BATCH):
            batch = lines[start : start + LINES_PER_BATCH]
            if decode is not None and _add_common_lines(batch, decode, builder):
                continue
            for number, line in enumerate(batch, first + start):
                if decode is None or not _add_common_lines([line], decode, builder):
                    builder.add_records(json_records([line], number), stream_name(path), options)


def _typed_decoder(options: ReadOptions) -> Callable[[bytes], Any] | None:
    """Decodes a line into an object with `text` and `labels`; None if other fields are needed, too."""
    needs_more = (
        options.text_fields
        or options.weights
        or options.time
        or options.group
        or options.keep
        or options.label_separator
    )
    if needs_more or not options.text or not options.labels:
        return None
    fields = [("text", str), ("labels", list[str | int])]
    try:
        row = msgspec.defstruct(
            "Row", fields, rename={"text": options.text_names[0], "labels": options.labels}, gc=False
        )
    except ValueError:  # both fields have the same name, or one a name with a quote in it
        return None
    return msgspec.json.Decoder(row).decode


def _add_common_lines(lines: list[bytes], decode: Callable[[bytes], Any], builder: DatasetBuilder) -> bool:
    """Add the rows of all lines; or none, and return False, if any line is not in the common form."""
    try:
        b"\n".join(lines).decode()  # raises an error for invalid UTF-8 also in fields that are not read
        rows = [decode(line) for line in lines if line]
        texts = [row.text for row in rows]
        labels = [str(label).strip() for row in rows for label in row.labels]
    except (msgspec.DecodeError, ValueError, RecursionError):
        return False
    if not all(labels) or "\0" in "".join(texts) or "\0" in "".join(labels):
        return False
    builder.add_rows(texts, labels, [len(row.labels) for row in rows])
    return True


def json_records(lines: list[bytes], first: int) -> Iterator[NumberedRecord]:
    """The number of each line that is not blank, and its value or why it has none; `first` is the first number."""
    for number, line in enumerate(lines, first):
        if line.strip():
            try:
                yield number, decode_line(line, number)
            except BadRow as bad:
                yield number, bad


def decode_line(line: bytes, number: int | None = None) -> Any:
    """The value of a line of JSON; `number` is its line number."""
    if number == 1 and line.lstrip().startswith(b"["):
        raise BadRow("the start of a JSON array", "JSON lines, one object per line")
    try:
        return msgspec.json.decode(line.decode())
    except UnicodeDecodeError as error:
        raise BadRow(f"byte {error.start + 1} of the line is not valid text", VALID_TEXT) from None
    except (msgspec.DecodeError, RecursionError) as error:
        if b"\0" in line:
            raise BadRow("the line contains NUL bytes", VALID_TEXT) from None
        raise BadRow(f"not valid JSON ({error})", "one JSON object per line") from None
