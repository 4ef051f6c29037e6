"""Several text fields, such as title and author, as one text.

An encoder reads one text, so fields are joined. Their words are shared, or words of further fields are their own: the
author "Smith" is then the word `smith_author`, another word than a smith in a title, in the same vocabulary. The field
comes last so that the re-ranker, which also looks at the beginnings of words, still finds out that the two are alike.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from shortlist.errors import OptionError

FieldWords = Literal["shared", "own"]
WORD = re.compile(r"\w+")


@dataclass(frozen=True)
class TextFields:
    """The names of the fields, and whether the words of all but the first are "shared" or their "own".

    >>> TextFields(("title", "author"), "own").join({"title": "The smith", "author": "Jo Smith"})
    'The smith Jo_author Smith_author'
    >>> TextFields(("title", "author")).join(("The smith", None))
    'The smith'
    """

    names: tuple[str, ...]
    words: FieldWords = "shared"

    def __post_init__(self) -> None:
        if len(self.names) < 2 or not all(isinstance(name, str) and name for name in self.names):
            raise OptionError(f"text is {list(self.names)!r:.80}; expected the names of several fields")
        if len(set(self.names)) < len(self.names):
            raise OptionError(f"text names a field twice: {', '.join(self.names)}")
        if self.words not in get_args(FieldWords):
            raise OptionError(f"field_words is {self.words!r:.60}; it can be {' or '.join(get_args(FieldWords))}")

    def join(self, values: Mapping[str, str | None] | Sequence[str | None]) -> str:
        """One text of the values of all fields, by name or in order. Those that are missing, or None, are left out."""
        if not isinstance(values, Mapping):
            if len(values) != len(self.names):
                raise OptionError(f"there are {len(values)} fields; expected {len(self.names)}: {self}")
            values = dict(zip(self.names, values, strict=True))
        for name, value in values.items():
            if name not in self.names:
                raise OptionError(f"there is no text field {name!r:.60}; the fields are {self}")
            if not isinstance(value, str | None):
                raise OptionError(f"the text field {name!r} is of type {type(value).__name__}; expected a text")
        parts = [(name, values.get(name)) for name in self.names]
        return " ".join(self._own(name, value) for name, value in parts if value)

    def _own(self, name: str, value: str) -> str:
        if self.words == "shared" or name == self.names[0]:
            return value
        ending = "_" + re.sub(r"\W", "_", name)
        return WORD.sub(lambda word: word[0] + ending, value)

    def __str__(self) -> str:
        return ", ".join(self.names)


def joined(values: Any, fields: TextFields | None) -> str:
    """The text of what was given to predict: a text itself, or the fields of one."""
    if isinstance(values, str):
        return values
    if fields is None:
        raise OptionError("this model was trained on one text field: give it texts, not fields")
    return fields.join(values)
