"""Texts of others on terminals, in logs and in reports: characters that act on what surrounds them become escapes.

A label or a text may contain terminal commands (ESC, U+009B), or marks that reverse the writing direction (U+202E).
The escapes are those of JSON, so that escaped JSON still means the same.
"""

from __future__ import annotations

import logging
import re

# Control characters, marks of direction, line separators, and lone surrogates.
_UNPRINTABLE = r"\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
_IN_TEXT, _IN_LINE = re.compile(f"[{_UNPRINTABLE}]"), re.compile(f"[{_UNPRINTABLE}\t\n]")


def printable(text: str) -> str:
    r"""The text with escapes; line breaks and tabs stay.

    >>> printable("red\x1b[2J")
    'red\\u001b[2J'
    """
    return _IN_TEXT.sub(_escape, text)


def printable_line(text: str) -> str:
    r"""The text with escapes, as one line.

    >>> printable_line("red\nblue")
    'red\\u000ablue'
    """
    return _IN_LINE.sub(_escape, text)


class PrintableFormatter(logging.Formatter):
    """Log messages with escapes."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record))


def _escape(match: re.Match[str]) -> str:
    return f"\\u{ord(match[0]):04x}"
