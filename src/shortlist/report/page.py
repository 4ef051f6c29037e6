"""A report: the data that its template shows, as one HTML file or as Markdown."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from shortlist.files import write_atomically
from shortlist.report.render import render

FORBIDDEN_CHARACTERS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\ufffe\uffff]")


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
