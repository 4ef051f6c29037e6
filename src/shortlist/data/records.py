"""Checks of one record, whatever its format, and the report of those that fail.

Which fields a record must have, and what may be a text, a label or a weight. All formats report problems in the same
words, and obey the same `on_error`.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Real
from typing import Any, get_args

import numpy as np

from shortlist.data.options import OnError, ReadOptions
from shortlist.errors import DataError, OptionError
from shortlist.text.texts import is_valid_text

# The number of a line or row, and its record, or a `BadRow` that says why there is none.
NumberedRecord = tuple[int, Any]

VALID_TEXT = "UTF-8 text (for another encoding, set for example encoding='cp1252' or --encoding cp1252)"
MAX_WEIGHT = 3.4e38  # of float32
MAX_FIELDS_SHOWN = 20
NO_SEPARATOR = "none"
MAX_PROBLEMS_KEPT = 1000


@dataclass(frozen=True)
class Problem:
    """A line (or row, if a format has no lines) that could not be read, and why."""

    file: str
    line: int
    what: str
    expected: str
    unit: str = "line"

    def __str__(self) -> str:
        return f"{self.file}, {self.unit} {self.line:,}: {self.what}; expected {self.expected}"


@dataclass
class ReadReport:
    """Filled while a data set is read; afterwards `dataset.report`."""

    on_error: OnError = "raise"
    problems: list[Problem] = field(default_factory=list)
    n_problems: int = 0
    empty_texts: int = 0
    texts_without_labels: int = 0
    repeated_labels: int = 0

    def __post_init__(self) -> None:
        if self.on_error not in get_args(OnError):
            raise OptionError(f'on_error is {self.on_error!r}; choose "raise" or "skip"')

    def add(
        self, file: str, line: int, what: str, expected: str, unit: str = "line", advice: str | None = None
    ) -> None:
        """Record a bad line; with on_error="raise", raise an error that also says what to do."""
        problem = Problem(file, line, what, expected, unit)
        if self.on_error == "raise":
            advice = advice or f"Fix the {unit}, or skip bad {unit}s with on_error='skip' (--on-error skip)."
            raise DataError(f"{problem}. {advice}")
        self.n_problems += 1
        if len(self.problems) < MAX_PROBLEMS_KEPT:
            self.problems.append(problem)

    def lines(self, limit: int = 10) -> list[str]:
        """A summary to print: what was skipped, and what looks odd."""
        lines = []
        if self.n_problems:
            lines.append("skipped 1 bad line:" if self.n_problems == 1 else f"skipped {self.n_problems:,} bad lines:")
            lines += [f"  {problem}" for problem in self.problems[:limit]]
            if self.n_problems > limit:
                lines.append(f"  … and {self.n_problems - limit:,} more")
        for count, one, many in (
            (self.empty_texts, "empty text", "empty texts"),
            (self.texts_without_labels, "text without labels", "texts without labels"),
            (self.repeated_labels, "label", "labels"),
        ):
            if count:
                lines.append(f"{count:,} {one if count == 1 else many}")
        if self.repeated_labels:
            lines[-1] += " repeated within a text, kept once"
        return lines


class BadRow(ValueError):
    """Why a row cannot be used. The reader adds the file and the line."""

    def __init__(self, what: str, expected: str) -> None:
        super().__init__(what, expected)
        self.what, self.expected = what, expected

    def __str__(self) -> str:
        return self.what


def parse_record(
    record: Any, options: ReadOptions
) -> tuple[str, list[str], list[float] | None, Any, dict[str, Any] | None, dict[str, Any]]:
    """Text, labels, weights, time, and group and kept values by the names of their fields."""
    check_fields(record, options)
    text = text_of(record, options)
    labels, weights = _check_labels(record[options.labels], options) if options.labels else ([], None)
    if options.weights:
        weights = check_weights(record[options.weights], labels, options.weights, options.label_separator)
    time: Any = record[options.time] if options.time else None
    if hasattr(time, "isoformat"):
        time = time.isoformat()
    if options.time and not isinstance(time, (str, int, float)):
        raise BadRow(f"{options.time!r} is not a time", "a number or an ISO date such as 2024-05-31")
    groups = {options.group: check_id(record[options.group], options.group)} if options.group else None
    kept = {field: check_id(record[field], field) for field in options.keep}
    return text, labels, weights, time, groups, kept


def check_fields(record: Any, options: ReadOptions) -> None:
    """Every field that will be read must exist."""
    if isinstance(record, BadRow):
        raise record
    if not isinstance(record, dict):
        labels = f', "{options.labels}": […]' if options.labels else ""
        raise BadRow(
            "the line is not an object", f'an object such as {{"{next(iter(options.text_names), "")}": …{labels}}}'
        )
    texts = options.text_names
    optional = texts if len(texts) > 1 and any(name in record for name in texts) else ()
    for name in options.fields:
        if name not in record and name not in optional:
            found = list_columns(record) or "no fields"
            expected = f"the fields {', '.join(map(repr, options.fields))}. {options.field_hint}"
            raise BadRow(f"there is no field {name!r}, only {found}", expected)


def text_of(record: dict[str, Any], options: ReadOptions) -> str:
    """The text of a record, joined if it has several text fields; these may be missing or null."""
    fields, names = options.text_fields, options.text_names
    if fields is None:
        return check_text(record[names[0]], names[0]) if names else ""
    return fields.join({name: check_text(record[name], name) for name in names if record.get(name) is not None})


def check_unique(columns: Sequence[str], options: ReadOptions, where: str) -> None:
    """No column that will be read may occur twice: nobody knows which one is meant."""
    for name in options.fields:
        if columns.count(name) > 1:
            raise DataError(f"{where}: there are {columns.count(name)} columns {name!r}. Rename or remove all but one.")


def list_columns(columns: Collection[str]) -> str:
    """The names of columns or fields for a message: the first ones, and how many more there are."""
    shown = ", ".join(map(shorten, itertools.islice(columns, MAX_FIELDS_SHOWN)))
    more = len(columns) - MAX_FIELDS_SHOWN
    return f"{shown} and {more:,} more" if more > 0 else shown


def check_text(value: Any, field: str) -> str:
    if not isinstance(value, str):
        raise BadRow(f"{field!r} is {_describe_type(value)}", "a string")
    return _check_string(value, f"{field!r}")


def check_id(value: Any, field: str) -> Any:
    """An id is kept as it is: a string, a number, true, false or null. What JSON lacks, such as dates, is a string."""
    if isinstance(value, (list, dict, bytes)):
        raise BadRow(f"{field!r} is {_describe_type(value)}", "a string or a number as id")
    if value is None or isinstance(value, (int, float)):
        return value
    return _check_string(str(value), f"{field!r}")


def check_label(value: Any) -> str:
    """Labels are strings without surrounding space; integers become strings."""
    if isinstance(value, str):
        value = value.strip()
        if not value:
            raise BadRow("a label is empty", "labels with at least one visible character")
        return _check_string(value, "a label")
    if isinstance(value, (bool, np.bool_)) or not hasattr(value, "__index__"):
        raise BadRow(f"a label is {_describe_type(value)}", "labels that are strings or integers")
    return str(int(value))


def check_weights(value: Any, labels: Sequence[Any], field: str, separator: str | None = None) -> list[float]:
    if isinstance(value, str) and separator:
        try:
            value = [float(weight) for weight in split_labels(value, separator)]
        except ValueError:
            raise BadRow(f"the weights are {value[:60]!r}", f"numbers separated by {separator!r}") from None
    if not _is_list(value):
        raise BadRow(f"{field!r} is {_describe_type(value)}", "a list of numbers, one per label")
    if len(value) != len(labels):
        raise BadRow(f"there are {len(labels)} labels but {len(value)} values in {field!r}", "one weight per label")
    return [_check_weight(item) for item in value]


def split_labels(value: str, separator: str) -> list[str]:
    """The labels in one string: "a; b;;c" has three. Surrounding space and empty labels are dropped.

    With the separator "none", the string is one label.
    """
    parts = [value] if separator == NO_SEPARATOR else value.split(separator)
    return [label for label in map(str.strip, parts) if label]


def shorten(value: Any) -> str:
    """The repr of a value, cut to fit into a message."""
    shown = repr(value)
    return shown if len(shown) <= 60 else shown[:57] + "…"


def _check_labels(value: Any, options: ReadOptions) -> tuple[list[str], list[float] | None]:
    """Labels and, if they are given as {label: weight}, their weights."""
    if isinstance(value, str) and options.label_separator:
        return [_check_string(label, "a label") for label in split_labels(value, options.label_separator)], None
    if isinstance(value, Mapping):
        return [check_label(label) for label in value], [_check_weight(weight) for weight in value.values()]
    if isinstance(value, str):
        expected = 'a list such as ["a", "b"] (or set label_separator= to split the string)'
        raise BadRow(f"{options.labels!r} is a string, {shorten(value)}", expected)
    if not _is_list(value):
        raise BadRow(f"{options.labels!r} is {_describe_type(value)}", 'a list of labels such as ["a", "b"]')
    return [check_label(label) for label in value], None


def _check_weight(value: Any) -> float:
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    if not is_number or not -MAX_WEIGHT <= value <= MAX_WEIGHT:
        raise BadRow(f"a weight is {shorten(value)}", "finite numbers as weights")
    return float(value)


def _check_string(value: str, what: str) -> str:
    if "\0" in value:
        raise BadRow(f"{what} contains a NUL character", VALID_TEXT)
    if not is_valid_text(value):
        raise BadRow(f"{what} contains bytes or characters that are not valid text", VALID_TEXT)
    return value


def _is_list(value: Any) -> bool:
    """Whether a value is a list, a tuple or a one-dimensional array."""
    if isinstance(value, Sequence):
        return not isinstance(value, (str, bytes, bytearray))
    return getattr(value, "ndim", 0) == 1


def _describe_type(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, (int, float)):
        return f"a number ({value})"
    names = {"str": "a string", "list": "a list", "dict": "an object"}
    return names.get(type(value).__name__, f"of type {type(value).__name__}")
