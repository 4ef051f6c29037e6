"""What a report is made of: blocks that know themselves in HTML and in Markdown, in sections, on one page.

Whatever comes from data goes through `escape` (HTML) or `plain` (Markdown): a text is never taken for markup.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from shortlist import tables

LONG = 40  # characters of a cell that may not be squeezed into a narrow column
FOLDER = Path(__file__).parent
# The report may not load anything from anywhere, and a browser sees to it.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


class Html(str):
    """Text that is HTML already."""


def escape(text: str) -> Html:
    """Any text as HTML that shows it; characters that no document may hold become a sign for that."""
    return Html(html.escape(re.sub(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\ufffe\uffff]", "\ufffd", text)))


def plain(text: str) -> str:
    """Any text for Markdown, on one line and without a meaning there."""
    text = re.sub(r"[\x00-\x1f\x7f\ud800-\udfff]+", " ", text)
    return re.sub(r"([\\`*_\[\]|#~])", r"\\\1", text.replace("&", "&amp;").replace("<", "&lt;"))


def given(text: str) -> Html:
    """A text or label of the user's, in whatever direction it is written."""
    return Html(f"<bdi>{escape(text)}</bdi>")


@dataclass(frozen=True)
class Block:
    html: str
    markdown: str = ""


class Cell(NamedTuple):
    """A cell of a table; `small` stands below it."""

    text: str
    strong: bool = False
    small: str = ""


def paragraph(text: str, klass: str = "") -> Block:
    return Block(f'<p class="{klass}">{escape(text)}</p>' if klass else f"<p>{escape(text)}</p>", plain(text))


def grid(header: Sequence[str], rows: Iterable[Sequence[str | Cell]], words: Iterable[int] = (0,)) -> Block:
    """A table; the columns `words` hold words, the others numbers. The first column names the row."""
    words = set(words)
    cells = [[cell if isinstance(cell, Cell) else Cell(cell) for cell in row] for row in rows]

    def klass(column: int) -> str:
        if column not in words:
            return ' class="number"'
        longest = max((len(row[column].text) for row in cells), default=0)
        return ' class="long"' if longest > LONG else ""

    head = "".join(f'<th scope="col"{klass(i)}>{escape(name)}</th>' for i, name in enumerate(header))
    body = []
    for row in cells:
        first = f'<th scope="row"{klass(0)}>{_shown(row[0])}</th>'
        body.append(
            first
            + "".join(
                f'<td{klass(i)} data-name="{escape(header[i])}">{_shown(cell)}</td>'
                for i, cell in enumerate(row[1:], 1)
            )
        )
    lines = "".join(f"<tr>{row}</tr>\n" for row in body)
    # On a phone, rows of long words stand one cell below the other.
    stacked = ' class="stacked"' if sum("long" in klass(column) for column in words) > 1 else ""
    table = f"<table{stacked}><thead><tr>{head}</tr></thead>\n<tbody>\n{lines}</tbody></table>"
    # It can be scrolled by keyboard, too.
    shown = f'<div class="wide" role="region" aria-label="{escape(header[0] or "table")}" tabindex="0">{table}</div>'
    marked = [[_marked(cell) for cell in row] for row in cells]
    return Block(shown, tables.markdown([plain(name) for name in header], marked, words))


def _shown(cell: Cell) -> str:
    text = given(cell.text)
    text = Html(f"<strong>{text}</strong>") if cell.strong else text
    return f"{text} <small>{escape(cell.small)}</small>" if cell.small else text


def _marked(cell: Cell) -> str:
    text = f"**{plain(cell.text)}**" if cell.strong else plain(cell.text)
    return f"{text} {plain(cell.small)}" if cell.small else text


def figure(pictures: Sequence[str], numbers: Block, caption: str = "", klass: str = "panels") -> Block:
    """Plots side by side as there is room, and the numbers behind them. In Markdown: the numbers."""
    told = f"<figcaption>{escape(caption)}</figcaption>" if caption else ""
    alone = ' class="alone"' if len(pictures) == 1 else ""
    shown = f'<figure{alone}><div class="{klass}">{"".join(pictures)}</div>{told}</figure>'
    folded = f"<details><summary>The numbers</summary>{numbers.html}</details>"
    return Block(shown + folded, "\n\n".join(part for part in (numbers.markdown, plain(caption)) if part))


@dataclass
class Section:
    """A question and what there is to answer it. `lead` says in a sentence how to read it."""

    short: str  # for the table of contents
    title: str
    lead: str
    blocks: list[Block] = field(default_factory=list)


@dataclass
class Page:
    """A report: what it is about, and its sections."""

    title: str
    about: str
    sections: list[Section]

    def to_html(self) -> str:
        contents, sections = "", ""
        for number, one in enumerate(self.sections, 1):
            anchor = re.sub(r"[^a-z0-9]+", "-", f"{number} {one.short}".lower()).strip("-")
            contents += f'<li><a href="#{anchor}">{escape(one.short)}</a></li>'
            sections += (
                f'<section id="{anchor}" aria-labelledby="{anchor}-title">\n<h2 id="{anchor}-title">{escape(one.title)}'
                f'</h2>\n<p class="lead">{escape(one.lead)}</p>\n{"".join(block.html for block in one.blocks)}\n'
                "</section>\n"
            )
        return (
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
            f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            '<meta name="color-scheme" content="light dark">\n'
            f"<title>{escape(self.title)}</title>\n"
            f"<style>\n{(FOLDER / 'style.css').read_text(encoding='utf-8')}</style>\n</head>\n<body>\n"
            f"<header>{LOGO}<h1>{given(self.title)}</h1><p>{escape(self.about)}</p></header>\n"
            f'<nav aria-label="Contents"><ol>{contents}</ol></nav>\n<main>\n{sections}</main>\n'
            "<footer><p>Written by Shortlist. This file is all there is.</p></footer>\n</body>\n</html>\n"
        )

    def to_markdown(self) -> str:
        parts = [f"# {plain(self.title)}", plain(self.about)]
        for one in self.sections:
            parts += [f"## {plain(one.title)}", plain(one.lead), *(block.markdown for block in one.blocks)]
        return "\n\n".join(part for part in parts if part) + "\n"

    def write(self, page: str | Path, markdown: str | Path | None = None) -> None:
        """The page to one file, and in Markdown to another; each whole or not at all."""
        from shortlist.files import write_atomically

        with write_atomically(page) as file:
            file.write(self.to_html().encode())
        if markdown is not None:
            with write_atomically(markdown) as file:
                file.write(self.to_markdown().encode())


LOGO = (
    '<svg class="logo" viewBox="0 0 32 32" width="32" height="32" aria-hidden="true">'
    '<rect width="32" height="32" rx="8"/><path d="M9 10h14M9 16h8M9 22h3"/></svg>'
)
