"""What `Model.predict` gives."""

from __future__ import annotations

from typing import NamedTuple


class WordEffect(NamedTuple):
    """The effect of a word on a label: `text[start:end]` moved the label's log-odds by `moved`."""

    start: int
    end: int
    moved: float


class Prediction(NamedTuple):
    """A label, the probability that it is right, its display name (or itself), and the effect of each word."""

    label: str
    score: float
    name: str
    words: tuple[WordEffect, ...] = ()
