"""Checks of single values: what may be a text, a label, a weight. Every reader uses these."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any

from shortlist.data.options import ReadOptions

VALID_TEXT = "UTF-8 text (for another encoding say encoding='cp1252' or the like: --encoding)"
LARGEST_WEIGHT = 3.4e38  # of float32, in which they are kept


class BadRow(ValueError):
    """Why a row cannot be used; the reader knows the file and the line."""

    def __init__(self, what: str, expected: str) -> None:
        super().__init__(what)
        self.what, self.expected = what, expected


def checked_text(value: Any, field: str) -> str:
    if not isinstance(value, str):
        raise BadRow(f"{field!r} is {_kind(value)}", "a text")
    return _checked_string(value, f"{field!r}")


def checked_id(value: Any, field: str) -> Any:
    """An id is kept as it is: a text, a number, true, false or null."""
    if isinstance(value, str):
        return _checked_string(value, f"{field!r}")
    if value is not None and not isinstance(value, (int, float)):
        raise BadRow(f"{field!r} is {_kind(value)}", "a text or a number as id")
    return value


def checked_labels(value: Any, options: ReadOptions) -> tuple[list[str], list[float] | None]:
    """Labels and, where they are given as {label: weight}, their weights."""
    if isinstance(value, str) and options.label_separator:
        return [_checked_string(part, "a label") for part in split_labels(value, options.label_separator)], None
    if isinstance(value, Mapping):
        return [checked_label(key) for key in value], [checked_weight(weight) for weight in value.values()]
    if isinstance(value, str):
        raise BadRow(
            f"{options.labels!r} is a text, {shortened(value)}",
            'a list such as ["a", "b"] (or say how labels are separated: label_separator)',
        )
    if not _is_list(value):
        raise BadRow(f"{options.labels!r} is {_kind(value)}", 'a list of labels such as ["a", "b"]')
    return [checked_label(item) for item in value], None


def checked_label(value: Any) -> str:
    """A label is a text; whole numbers become one."""
    if isinstance(value, str):
        return _checked_string(value, "a label")
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise BadRow(f"a label is {_kind(value)}", "labels that are texts or whole numbers")
    return str(int(value))


def checked_weights(value: Any, labels: Sequence[Any], field: str) -> list[float]:
    if not _is_list(value):
        raise BadRow(f"{field!r} is {_kind(value)}", "a list of numbers, one for each label")
    if len(value) != len(labels):
        raise BadRow(f"there are {len(labels)} labels but {len(value)} in {field!r}", "one weight for each label")
    return [checked_weight(item) for item in value]


def checked_weight(value: Any) -> float:
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    if not is_number or not -LARGEST_WEIGHT <= value <= LARGEST_WEIGHT:
        raise BadRow(f"a weight is {shortened(value)}", "finite numbers as weights")
    return float(value)


def split_labels(value: str, separator: str) -> list[str]:
    """ "a; b;;c" is three labels: space around them and empty ones do not count."""
    return [part for part in (part.strip() for part in value.split(separator)) if part]


def _is_list(value: Any) -> bool:
    """A list, a tuple or an array of one dimension; bytes and texts are not meant."""
    if isinstance(value, Sequence):
        return not isinstance(value, (str, bytes, bytearray))
    return getattr(value, "ndim", 0) == 1


def _checked_string(value: str, what: str) -> str:
    if "\0" in value:
        raise BadRow(f"{what} contains a NUL character", VALID_TEXT)
    if what == "a label" and not value.strip(" \t\r\n"):
        raise BadRow("a label is empty", "labels with at least one visible character")
    if not is_valid_text(value):
        raise BadRow(f"{what} has bytes or characters that are not valid text", VALID_TEXT)
    return value


def is_valid_text(value: str) -> bool:
    """Whether a string can be written as UTF-8: bytes that could not be read are lone surrogates in it."""
    if value.isascii():
        return True
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, (int, float)):
        return f"a number ({value})"
    names = {"str": "a text", "list": "a list", "dict": "an object"}
    return names.get(type(value).__name__, f"of type {type(value).__name__}")


def shortened(value: Any) -> str:
    """The value as Python writes it, cut to what fits into a message."""
    shown = repr(value)
    return shown if len(shown) <= 60 else shown[:57] + "…"
