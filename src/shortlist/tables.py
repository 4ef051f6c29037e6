"""Tables for people: lined up for a terminal, or in Markdown for a report."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Sequence

Rows = Sequence[Sequence[str]]
Table = Callable[[Sequence[str], Rows], str]


class Tabular(ABC):
    """A result that shows itself as tables: `print(result)`, or Markdown for a report."""

    @abstractmethod
    def _render(self, table: Table) -> str:
        """All of it as text, with `table` for every table in it."""

    def __str__(self) -> str:
        return self.table()

    def table(self) -> str:
        """Plain text for a terminal."""
        return self._render(plain)

    def to_markdown(self) -> str:
        return self._render(markdown)


def plain(header: Sequence[str], rows: Rows) -> str:
    """Columns lined up for a terminal: the first to the left, numbers to the right."""
    widths = [max(len(cell) for cell in column) for column in zip(header, *rows, strict=True)]
    lines = []
    for row in (header, *rows):
        cells = [row[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def markdown(header: Sequence[str], rows: Rows, words: Container[int] = (0,)) -> str:
    """The columns `words` to the left, the others, numbers, to the right."""
    lines = [header, ["---" if column in words else "---:" for column in range(len(header))], *rows]
    return "\n".join("| " + " | ".join(row) + " |" for row in lines)
