"""The contract of encoders, and an encoder that is one function over arrays: how other packages bring their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from shortlist.arrays import Arrays, Ragged
from shortlist.stages.stage import Stage, whole_number

if TYPE_CHECKING:
    from typing_extensions import Self

Encode = Callable[[Arrays, Any], np.ndarray]


class Encoder(Stage):
    """What a vocabulary or `Columns` gives (word ids, weighted ones, or vectors) to features, texts × `n_features`.

    n_words  the number of words, or of columns, that the inputs are made of
    dense    whether it takes dense features
    """

    dense: bool = False
    n_words: int = 0
    n_features: int = 0

    def read(self, texts: Any, words: Any) -> Any:
        """What `encode` takes, of these texts and their word ids."""
        return words

    def encode(self, inputs: Any) -> Any:
        raise NotImplementedError

    def multiply_adds(self, word_counts: np.ndarray) -> float | None:
        """The mean cost of a text, for texts of these lengths in words. None: unknown."""
        return None


class FunctionEncoder(Encoder):
    """An encoder from another package: `function(arrays, inputs)` gives the features. Its arrays stay as they are."""

    def __init__(self, arrays: Arrays, config: dict[str, Any], kind: str, function: Encode) -> None:
        super().__init__(arrays, config)
        self.kind = kind  # type: ignore[misc]
        self._function, self.n_words = function, whole_number(config, "n_words", 0)
        self._max_words = whole_number(config, "max_words")
        inputs = str(config.get("inputs"))
        self.dense = inputs == "dense"
        self.n_features = int(function(arrays, _one_row(inputs, self.n_words)).shape[1])

    def encode(self, inputs: Any) -> np.ndarray:
        if isinstance(inputs, Ragged):
            inputs = first_words(inputs, self._max_words)
        return np.ascontiguousarray(self._function(self._arrays, inputs), np.float32)

    def quantized(self) -> Self:
        return self


def _one_row(kind: str, n_words: int) -> Ragged | np.ndarray:
    """An input of this kind, to see how many features there are."""
    if kind == "dense":
        return np.zeros((1, n_words), np.float32)
    weights = np.ones(1, np.float32) if kind == "sparse" else None
    return Ragged(np.array([0, 1]), np.zeros(1, np.int32), weights)


def first_words(word_ids: Ragged, max_words: int) -> Ragged:
    """The first `max_words` words of each text."""
    if not len(word_ids.values) or word_ids.counts.max() <= max_words:
        return word_ids
    position = np.arange(len(word_ids.values)) - np.repeat(word_ids.indptr[:-1], word_ids.counts)
    return word_ids.keep(position < max_words)
