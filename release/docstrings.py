"""Docstrings as the API reference shows them: arguments as a list, examples as code. `mkdocs.yml` uses it."""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension, Object

ARGUMENT = re.compile(r"(\w+(?:, \w+)*)  +(\S.*)")


class Docstrings(Extension):
    def on_object(self, *, obj: Object, **kwargs: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)


def as_markdown(docstring: str) -> str:
    """The docstring, whose arguments are two columns and whose examples begin with `>>>`.

    >>> print(as_markdown("Add.\\n\\nn  a number\\n\\n>>> 1 + 1\\n2"))
    Add.
    <BLANKLINE>
    - **`n`**: a number
    <BLANKLINE>
    ```pycon
    >>> 1 + 1
    2
    ```
    """
    return "\n\n".join(_as_markdown(paragraph) for paragraph in docstring.split("\n\n"))


def _as_markdown(paragraph: str) -> str:
    if paragraph.startswith(">>>"):
        return f"```pycon\n{paragraph}\n```"
    lines = paragraph.split("\n")
    if not ARGUMENT.fullmatch(lines[0]):
        return paragraph
    return "\n".join(ARGUMENT.sub(r"- **`\1`**: \2", line) if line[0] != " " else f"  {line.strip()}" for line in lines)
