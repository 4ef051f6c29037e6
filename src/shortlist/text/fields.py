"""Several text fields, such as title and author, as one text.

An encoder reads one text, so fields are joined. Their words are shared, or words of further fields are their own: the
author "Smith" is then the word `smith_author`, another word than a smith in a title, in the same vocabulary. The field
comes last so that the re-ranker, which also looks at the beginnings of words, still finds out that the two are alike.

A field with a weight is repeated: every recipe then sees its words more often, and no stage has to know about fields.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from shortlist.errors import OptionError

FieldWords = Literal["shared", "own"]
MAX_FIELD_WEIGHT = 10  # texts become longer by it
WORD = re.compile(r"\w+")


@dataclass(frozen=True)
class TextFields:
    """The names of the fields, whether the words of all but the first are "shared" or their "own", and weights.

    A field of weight 3 counts as if it stood in the text three times. Without weights, all fields count once.

    >>> TextFields(("title", "author"), "own").join({"title": "The smith", "author": "Jo Smith"})
    'The smith Jo_author Smith_author'
    >>> TextFields(("title", "author")).join(("The smith", None))
    'The smith'
    >>> TextFields(("title", "author"), weights=(2, 1)).join(("The smith", "Jo"))
    'The smith The smith Jo'
    """

    names: tuple[str, ...]
    words: FieldWords = "shared"
    weights: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if len(self.names) < 2 or not all(isinstance(name, str) and name for name in self.names):
            raise OptionError(f"text is {list(self.names)!r:.80}; expected the names of several fields")
        if len(set(self.names)) < len(self.names):
            raise OptionError(f"text names a field twice: {', '.join(self.names)}")
        if self.words not in get_args(FieldWords):
            raise OptionError(f"field_words is {self.words!r:.60}; it can be {' or '.join(get_args(FieldWords))}")
        if not self.weights:
            object.__setattr__(self, "weights", (1,) * len(self.names))
        if len(self.weights) != len(self.names):
            raise OptionError(f"there are {len(self.weights)} weights for the text fields {', '.join(self.names)}")
        for name, weight in zip(self.names, self.weights, strict=True):
            if isinstance(weight, bool) or not isinstance(weight, int) or not 1 <= weight <= MAX_FIELD_WEIGHT:
                raise OptionError(
                    f"the weight of the text field {name!r} is {weight!r:.60}; "
                    f"expected a whole number from 1 to {MAX_FIELD_WEIGHT}"
                )

    @staticmethod
    def of(names: Sequence[str] | Mapping[str, int], words: FieldWords = "shared") -> TextFields:
        """The fields as `shortlist.read` takes them: a list of names, or {name: weight}."""
        return TextFields(tuple(names), words, tuple(names.values()) if isinstance(names, Mapping) else ())

    @property
    def reading(self) -> dict[str, Any]:
        """The options with which `shortlist.read` reads these fields."""
        return {"text": dict(zip(self.names, self.weights, strict=True)), "field_words": self.words}

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
        parts = [(name, values.get(name), weight) for name, weight in zip(self.names, self.weights, strict=True)]
        return " ".join(" ".join([self._own(name, value)] * weight) for name, value, weight in parts if value)

    def _own(self, name: str, value: str) -> str:
        if self.words == "shared" or name == self.names[0]:
            return value
        ending = "_" + re.sub(r"\W", "_", name)
        return WORD.sub(lambda word: word[0] + ending, value)

    def __str__(self) -> str:
        pairs = zip(self.names, self.weights, strict=True)
        return ", ".join(f"{name} (weight {weight})" if weight > 1 else name for name, weight in pairs)


def joined(values: Any, fields: TextFields | None) -> str:
    """The text of what was given to predict: a text itself, or the fields of one."""
    if isinstance(values, str):
        return values
    if fields is None:
        raise OptionError("this model was trained on one text field: give it texts, not fields")
    return fields.join(values)
