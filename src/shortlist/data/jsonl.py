"""JSON lines: `{"text": …, "labels": […]}`, one object a line.

The compiled scanner takes the plain lines; whatever it does not understand, and every file that uses more
than text and labels, goes through a full parser line by line.
"""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from shortlist.data.builder import DatasetBuilder
from shortlist.data.lines import line_blocks, name_of
from shortlist.data.options import ReadOptions
from shortlist.data.values import VALID_TEXT, BadRow, checked_labels, checked_text, checked_weights, shortened
from shortlist.kernels.json_rows import LABEL_BYTES, LABELS, LINES, ROWS, TEXT_BYTES, new_counters, scan_rows

# Lines of an odd shape come in company: after one, so many go the slow way before the scanner starts again.
ODD_LINES_TOGETHER = 16
MOST_FIELDS_SHOWN = 20
HALF_A_SURROGATE_PAIR = re.compile(rb"\\u[dD][89a-fA-F]")


def read_jsonl(path: str | Path, builder: DatasetBuilder, options: ReadOptions) -> None:
    plain = options.weights is None and options.time is None and options.label_separator is None
    plain = plain and options.labels is not None and options.text is not None
    parse = _PlainLines(options) if plain else None
    for lines, first_number in line_blocks(path, builder.report, options):
        if parse is not None:
            parse.read(lines, first_number, name_of(path), builder)
        else:
            for offset, line in enumerate(lines.split(b"\n")):
                _read_line(line, first_number + offset, name_of(path), builder, options)


class _PlainLines:
    """The fast way, with its output arrays kept from block to block."""

    def __init__(self, options: ReadOptions) -> None:
        self.options = options
        self.text_key = np.frombuffer(str(options.text).encode(), np.uint8)
        self.labels_key = np.frombuffer(str(options.labels).encode(), np.uint8)
        self._make_room(1 << 21)

    def _make_room(self, size: int) -> None:
        self.text, self.label = np.empty(size, np.uint8), np.empty(size, np.uint8)
        # A row takes at least 15 bytes of a line, a label 2: ample, and small enough to stay in cache.
        self.text_sizes, self.label_counts = (
            np.empty(size // 8 + 1, np.int64),
            np.empty(size // 8 + 1, np.int64),
        )
        self.label_sizes = np.empty(size // 2 + 1, np.int64)

    def read(self, lines: bytes, number: int, name: str, builder: DatasetBuilder) -> None:
        data = np.frombuffer(lines, np.uint8)
        if len(data) > len(self.text):
            self._make_room(2 * len(data))
        at = 0
        while at < len(data):
            counters = new_counters()
            at = scan_rows(
                data,
                at,
                self.text_key,
                self.labels_key,
                self.text,
                self.text_sizes,
                self.label,
                self.label_sizes,
                self.label_counts,
                counters,
            )
            rows, labels = counters[ROWS], counters[LABELS]
            if rows:
                builder.add_block(
                    self.text[: counters[TEXT_BYTES]],
                    self.text_sizes[:rows],
                    self.label[: counters[LABEL_BYTES]],
                    self.label_sizes[:labels],
                    self.label_counts[:rows],
                )
            number += int(counters[LINES])
            for _ in range(ODD_LINES_TOGETHER):
                if at == len(data):
                    break
                end = lines.index(b"\n", at)
                _read_line(lines[at:end], number, name, builder, self.options)
                number += 1
                at = end + 1


def _read_line(line: bytes, number: int, name: str, builder: DatasetBuilder, options: ReadOptions) -> None:
    if not line.strip():
        return
    try:
        builder.add_row(*row_of(record_in(line, number), options))
    except BadRow as bad:
        builder.report.add(name, number, bad.what, bad.expected)


def record_in(line: bytes, number: int) -> Any:
    """What line `number` of a file of JSON lines holds."""
    if number == 1 and line.lstrip().startswith(b"["):
        raise BadRow("the start of a JSON array", "JSON lines, one object a line")
    return decoded(line)


def decoded(line: bytes) -> Any:
    """The value of one line of JSON."""
    try:
        return msgspec.json.decode(line.decode())
    except UnicodeDecodeError as error:
        raise BadRow(f"byte {error.start + 1} of the line is not valid text", VALID_TEXT) from None
    except (msgspec.DecodeError, RecursionError) as error:
        if b"\0" in line:
            raise BadRow("the line contains NUL bytes", VALID_TEXT) from None
        if HALF_A_SURROGATE_PAIR.search(line) and _is_json_otherwise(line):
            raise BadRow("an escape such as \\ud83d lacks its other half", VALID_TEXT) from None
        raise BadRow(f"not valid JSON ({error})", "one JSON object a line") from None


def _is_json_otherwise(line: bytes) -> bool:
    """Whether Python's parser, which lets half a surrogate pair pass, has nothing else to complain about."""
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


def check_fields(record: Any, options: ReadOptions) -> None:
    """Every field that is to be read must be there, whatever it holds."""
    if not isinstance(record, dict):
        labels = f', "{options.labels}": […]' if options.labels else ""
        raise BadRow("the line is not an object", f'an object such as {{"{options.text}": …{labels}}}')
    fields = options.fields
    for field in fields:
        if field not in record:
            found = ", ".join(map(shortened, itertools.islice(record, MOST_FIELDS_SHOWN))) or "no fields"
            raise BadRow(
                f"there is no field {field!r}, only {found}",
                f"the fields {', '.join(map(repr, fields))}; other names can be said with {options.fields_said}",
            )


def row_of(record: Any, options: ReadOptions) -> tuple[str, list[str], list[float] | None, Any]:
    """Text, labels, weights and time of one record of any format."""
    check_fields(record, options)
    text = checked_text(record[options.text], options.text) if options.text else ""
    labels, weights = checked_labels(record[options.labels], options) if options.labels else ([], None)
    if options.weights:
        weights = checked_weights(record[options.weights], labels, options.weights)
    time = record[options.time] if options.time else None
    if options.time and not isinstance(time, (str, int, float)):
        raise BadRow(f"{options.time!r} is not a time", "a number or a text that sorts by time, such as 2024-05-31")
    return text, labels, weights, time
