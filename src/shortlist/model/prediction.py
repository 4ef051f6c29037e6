"""What `Model.predict` gives."""

from __future__ import annotations

from typing import NamedTuple


class WordEffect(NamedTuple):
    """The effect of a word on a label: `text[start:end]` moved the label's log-odds by `moved`."""

    start: int
    end: int
    moved: float


class Prediction(NamedTuple):
    """A label, the probability that it is right, its display name (or itself), and the effect of each word.

    >>> Prediction("shoes", 0.74219, "shoes"), Prediction("J45.9", 0.5, "Asthma, unspecified")
    (Prediction(label='shoes', score=0.742), Prediction(label='J45.9', score=0.5, name='Asthma, unspecified'))
    """

    label: str
    score: float
    name: str
    words: tuple[WordEffect, ...] = ()

    def __repr__(self) -> str:
        """Short: without a name that says nothing, and with three digits of the score."""
        name = f", name={self.name!r}" if self.name != self.label else ""
        words = f", words={self.words!r}" if self.words else ""
        return f"Prediction(label={self.label!r}, score={self.score:.3g}{name}{words})"
