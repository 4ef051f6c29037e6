"""Tables for people: lined up for a terminal, or in Markdown for a report."""

from __future__ import annotations

from collections.abc import Sequence

Rows = Sequence[Sequence[str]]


def plain(header: Sequence[str], rows: Rows) -> str:
    """Columns lined up for a terminal: the first to the left, numbers to the right."""
    widths = [max(len(cell) for cell in column) for column in zip(header, *rows, strict=True)]
    lines = []
    for row in (header, *rows):
        cells = [row[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def markdown(header: Sequence[str], rows: Rows) -> str:
    lines = [header, ["---"] + ["---:"] * (len(header) - 1), *rows]
    return "\n".join("| " + " | ".join(row) + " |" for row in lines)
