"""Tables as text: aligned for a terminal, or in Markdown for a report."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from textwrap import fill

from shortlist.printable import printable_line

Rows = Sequence[Sequence[str]]
Table = Callable[[Sequence[str], Rows], str]


class Tabular(ABC):
    """A result that prints as tables. `print(result)` aligns them; `to_markdown()` is for reports."""

    @abstractmethod
    def _render(self, table: Table) -> str:
        """The whole text, with each table formatted by `table`."""

    def __str__(self) -> str:
        return self.table()

    def table(self) -> str:
        """Text for a terminal."""
        return self._render(plain)

    def to_markdown(self) -> str:
        return self._render(markdown)


def wrapped(text: str) -> str:
    """A paragraph for a terminal of 80 columns; paths and options are not broken."""
    return fill(text, 80, break_long_words=False, break_on_hyphens=False)


def plain(header: Sequence[str], rows: Rows) -> str:
    """A table for a terminal: the first column aligned left, the others right."""
    rows = [[printable_line(cell) for cell in row] for row in rows]
    widths = [max(len(cell) for cell in column) for column in zip(header, *rows, strict=True)]
    lines = []
    for row in (header, *rows):
        cells = [row[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def markdown(header: Sequence[str], rows: Rows) -> str:
    """A Markdown table: the first column aligned left, the others right."""
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
    return "\n".join("| " + " | ".join(map(printable_line, row)) + " |" for row in lines)
