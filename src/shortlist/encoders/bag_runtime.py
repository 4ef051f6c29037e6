"""Astec's encoder for prediction: the same features from plain arrays, without torch."""

from __future__ import annotations

import numpy as np

from shortlist.errors import ModelError
from shortlist.kernels.bags import sum_words
from shortlist.ragged import Ragged


class BagRuntime:
    """Word ids to features (texts × `n_features`), from the arrays that `BagEncoder.to_arrays` gave."""

    def __init__(self, arrays: dict[str, np.ndarray], max_words: int) -> None:
        for name, axes in (("words", 2), ("idf", 1)):
            if name not in arrays or arrays[name].ndim != axes or arrays[name].dtype != np.float32:
                raise ModelError(f"the encoder has no array {name!r} of float32 with {axes} axes")
        if len(arrays["words"]) != len(arrays["idf"]):
            raise ModelError(f"there are {len(arrays['words']):,} word vectors and {len(arrays['idf']):,} weights")
        self._words, self._idf, self.max_words = arrays["words"], arrays["idf"], max_words
        self._relu = "relu" in arrays
        self.n_words, self.n_features = self._words.shape

    def encode(self, word_ids: Ragged) -> np.ndarray:
        """The features of each text. Words after the first `max_words` do not count."""
        features = np.empty((len(word_ids), self.n_features), np.float32)
        sum_words(word_ids.indptr, word_ids.values, self._words, self._idf, self.max_words, features)
        return np.maximum(features, 0) if self._relu else features
