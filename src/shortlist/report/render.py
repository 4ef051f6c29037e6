"""`Page`: a report from its template, as one HTML file or as Markdown. Jinja2 is imported when the first is rendered.

Whatever comes from data is escaped, in every format, so that a text or a label name never acts as markup.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from markupsafe import Markup

from shortlist.files import write_atomically
from shortlist.printable import printable_line

if TYPE_CHECKING:
    from jinja2 import Environment

FORBIDDEN_CHARACTERS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\ufffe\uffff]")
LONG_CELL = 40  # characters; columns of text with longer cells get a minimum width


class Page:
    """The template has all sections and what they say; a section without data is left out."""

    def __init__(self, template: str, **data: Any) -> None:
        self.template, self.data = template, data

    def to_html(self) -> str:
        html = render(self.template, "html", **self.data, contents=[])
        return FORBIDDEN_CHARACTERS.sub("\ufffd", html)

    def to_markdown(self) -> str:
        markdown = render(self.template, "md", **self.data)
        return re.sub(r"\n{3,}", "\n\n", markdown).strip() + "\n"

    def write(self, html: str | Path, markdown: str | Path | None = None) -> None:
        """Write the page to one HTML file, and optionally as Markdown to another. Each write is atomic."""
        with write_atomically(html) as file:
            file.write(self.to_html().encode())
        if markdown is not None:
            with write_atomically(markdown) as file:
                file.write(self.to_markdown().encode())


class Cell(NamedTuple):
    """A cell of a table; `detail` is shown below it, in small letters."""

    value: Any
    bold: bool = False
    detail: str = ""


def render(template: str, format: str, **data: Any) -> str:
    """Fill a template; the format is "html", "svg" or "md"."""
    return _environment(is_markdown=format == "md").get_template(template).render(format=format, **data)


@cache
def _environment(is_markdown: bool) -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("shortlist.report"),
        autoescape=True,
        finalize=_finalize_markdown if is_markdown else _finalize_html,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"number": number, "cells": cells, "column_classes": column_classes}
    return environment


def _finalize_html(value: Any) -> Any:
    """Round positions in plots."""
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else value


def _finalize_markdown(value: Any) -> Markup:
    """Escape for Markdown, which keeps Jinja2 from escaping for HTML."""
    return value if isinstance(value, Markup) else Markup(escape_markdown(value))


def escape_markdown(value: Any) -> str:
    """Any value as one line of Markdown that shows it literally.

    >>> print(escape_markdown("a|b *c* <d>"))
    a\\|b \\*c\\* &lt;d>
    """
    line = printable_line(re.sub(r"\s+", " ", str(value)))
    # Underscores inside words mean nothing in Markdown.
    return re.sub(r"([\\`*\[\]|#~]|(?<![^\W_])_|_(?![^\W_]))", r"\\\1", line.replace("&", "&amp;").replace("<", "&lt;"))


def number(value: Any, digits: int = 2) -> str:
    """Numbers with thousands separators, floats with this many digits, "–" for None, and text as it is."""
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:,.{digits}f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def cells(row: Sequence[Any]) -> list[Cell]:
    """The cells of a row of values, as text."""
    return [
        cell._replace(value=number(cell.value))
        for cell in (value if isinstance(value, Cell) else Cell(value) for value in row)
    ]


def column_classes(rows: Sequence[Sequence[Any]], n_columns: int, text_columns: Collection[int]) -> list[str]:
    """The CSS class of each column: "number", or for columns of text "long" or ""."""
    longest = [max((len(cells(row)[column].value) for row in rows), default=0) for column in range(n_columns)]
    return [
        "number" if column not in text_columns else "long" if longest[column] > LONG_CELL else ""
        for column in range(n_columns)
    ]
