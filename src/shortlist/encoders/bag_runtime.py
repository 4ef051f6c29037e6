"""Astec's encoder for prediction: the same features from plain arrays, without torch."""

from __future__ import annotations

import numpy as np

from shortlist.arrays import QuantizedMatrix, Ragged, check_finite
from shortlist.errors import ModelError
from shortlist.kernels.encoders import sum_words


class BagRuntime:
    """Word ids to features (texts × `n_features`), from the arrays that `BagEncoder.to_arrays` gave."""

    def __init__(self, arrays: dict[str, np.ndarray], max_words: int) -> None:
        self._words, self._idf, self.max_words = (
            QuantizedMatrix.of_arrays(arrays, "words"),
            arrays.get("idf"),
            max_words,
        )
        if self._idf is None or self._idf.dtype != np.float32 or self._idf.shape != (len(self._words),):
            raise ModelError(f"there is not one weight (idf, float32) for each of {len(self._words):,} word vectors")
        check_finite("idf", self._idf)
        self._own_row = np.arange(len(self._words), dtype=np.int32)
        self._relu = "relu" in arrays
        self.n_words, self.n_features = self._words.shape

    def encode(self, word_ids: Ragged) -> np.ndarray:
        """The features of each text. Words after the first `max_words` do not count."""
        features = np.empty((len(word_ids), self.n_features), np.float32)
        sum_words(
            word_ids.indptr,
            word_ids.values,
            self._own_row,
            self._words.values,
            self._words.scales,
            self._idf,
            self.max_words,
            features,
        )
        return np.maximum(features, 0) if self._relu else features
