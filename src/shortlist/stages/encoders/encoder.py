"""The contract of encoders, and an encoder that is one function over arrays: how other packages bring their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Self

import numpy as np

from shortlist.arrays import Arrays, Ragged, counts_to_indptr
from shortlist.stages.stage import Stage, whole_number

Encode = Callable[[Arrays, Ragged], np.ndarray]


class Encoder(Stage):
    """Word ids (or rows of features, if `takes_features`) to features, texts × `n_features`.

    n_words  the size of the vocabulary that the word ids belong to
    """

    takes_features: ClassVar[bool] = False
    n_words: int = 0
    n_features: int = 0

    def encode(self, inputs: Any) -> Any:
        raise NotImplementedError

    def multiply_adds(self, word_counts: np.ndarray) -> float | None:
        """The mean cost of a text, for texts of these lengths in words. None: unknown."""
        return None


class FunctionEncoder(Encoder):
    """An encoder from another package: `function(arrays, word_ids)` gives the features. Its arrays stay as they are."""

    def __init__(self, arrays: Arrays, config: dict[str, Any], kind: str, function: Encode) -> None:
        super().__init__(arrays, config)
        self.kind = kind  # type: ignore[misc]
        self._function, self._max_words = function, whole_number(config, "max_words")
        self.n_features = int(function(arrays, Ragged.from_lists([[0]])).shape[1])
        self.n_words = whole_number(config, "n_words", 0)

    def encode(self, inputs: Ragged) -> np.ndarray:
        return np.ascontiguousarray(self._function(self._arrays, first_words(inputs, self._max_words)), np.float32)

    def quantized(self) -> Self:
        return self


def first_words(word_ids: Ragged, max_words: int) -> Ragged:
    """The first `max_words` words of each text."""
    if not len(word_ids.values) or word_ids.counts.max() <= max_words:
        return word_ids
    counts = np.minimum(word_ids.counts, max_words)
    position = np.arange(len(word_ids.values)) - np.repeat(word_ids.indptr[:-1], word_ids.counts)
    return Ragged(counts_to_indptr(counts), word_ids.values[position < max_words])
