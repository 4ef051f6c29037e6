"""A report as plain data: sections of text, tables, figures and examples. Two templates render it as HTML and Markdown.

Both templates escape everything that comes from data, so that a text or a label name never acts as markup.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from shortlist.files import write_atomically
from shortlist.report.render import render

if TYPE_CHECKING:
    from markupsafe import Markup

LONG_CELL = 40  # characters; columns with longer cells get a minimum width
FORBIDDEN_CHARACTERS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\ufffe\uffff]")


class Cell(NamedTuple):
    """A cell of a table; `detail` is shown below it, in small letters."""

    text: str
    bold: bool = False
    detail: str = ""


@dataclass
class Text:
    text: str
    small: bool = False
    kind = "text"


@dataclass
class Table:
    """The first column names the row. `text_columns` hold text; all others hold numbers and are right-aligned.

    `folded` is the title under which the page hides the table until it is opened.
    """

    header: Sequence[str]
    rows: Sequence[Sequence[str | Cell]]
    text_columns: Collection[int] = (0,)
    style: Literal["grid", "tiles"] = "grid"
    folded: str = ""
    kind = "table"

    @property
    def cells(self) -> list[list[Cell]]:
        return [[cell if isinstance(cell, Cell) else Cell(cell) for cell in row] for row in self.rows]

    @property
    def column_classes(self) -> list[str]:
        longest = [max((len(row[column].text) for row in self.cells), default=0) for column in range(len(self.header))]
        return [
            "number" if column not in self.text_columns else "long" if longest[column] > LONG_CELL else ""
            for column in range(len(self.header))
        ]


@dataclass
class Figure:
    """Plots side by side, and the table of their numbers. Markdown shows the table only."""

    plots: Sequence[Markup]
    table: Table
    caption: str = ""
    layout: Literal["panels", "scatters"] = "panels"
    kind = "figure"


class Word(NamedTuple):
    """A piece of an example's text. `effect` is "for" or "against" the first label, or ""; `strength` is 0 to 1."""

    text: str
    effect: str = ""
    strength: float = 0.0


class Answer(NamedTuple):
    name: str
    score: float | None
    correct: bool


@dataclass
class Example:
    """A text, its true labels, and the labels that each system predicts. `why` explains the first label."""

    words: Sequence[Word]
    labels: Sequence[str]
    answers: Mapping[str, Sequence[Answer]]
    why: tuple[str, str] | None = None  # the label, and what each word added

    @property
    def text(self) -> str:
        return "".join(word.text for word in self.words)


@dataclass
class Examples:
    examples: Sequence[Example]
    title: str = ""
    kind = "examples"


Block = Text | Table | Figure | Examples


class Section:
    """A question and its answer. `nav` is the name in the table of contents; `lead` says how to read the section."""

    def __init__(self, nav: str, title: str, lead: str, *blocks: Block | None) -> None:
        self.nav, self.title, self.lead = nav, title, lead
        self.blocks = [block for block in blocks if block is not None]


class Page:
    """A whole report."""

    def __init__(self, title: str, summary: str, sections: Sequence[Section | None]) -> None:
        self.title, self.summary = title, summary
        self.sections = [section for section in sections if section is not None]

    def to_html(self) -> str:
        return FORBIDDEN_CHARACTERS.sub("\ufffd", render("report.html", page=self))

    def to_markdown(self) -> str:
        return re.sub(r"\n{3,}", "\n\n", render("report.md", page=self)).strip() + "\n"

    def write(self, html: str | Path, markdown: str | Path | None = None) -> None:
        """Write the page to one HTML file, and optionally as Markdown to another. Each write is atomic."""
        with write_atomically(html) as file:
            file.write(self.to_html().encode())
        if markdown is not None:
            with write_atomically(markdown) as file:
                file.write(self.to_markdown().encode())
