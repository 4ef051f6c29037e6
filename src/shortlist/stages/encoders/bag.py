"""Bags of word vectors: Astec's encoder, and MACH's, whose words share hashed rows and pass a ReLU with a bias."""

from __future__ import annotations

from typing import Any

import numpy as np

from shortlist.arrays import Arrays, ArraySpec, QuantizedMatrix, Ragged, check_arrays
from shortlist.kernels.encoders import sum_words
from shortlist.stages.encoders.encoder import Encoder
from shortlist.stages.stage import whole_number


class BagEncoder(Encoder):
    """The tf-idf weighted sum of the word vectors of a text's first `max_words` words; then a bias and a ReLU, if set.

    Words that come with weights, as columns of sparse features do, are weighted by those times idf.

    words    word vectors; with `buckets`, one per bucket of words
    buckets  the bucket of each word
    """

    kind = "bag"
    spec = {
        "words": ArraySpec("rows", ("n_rows", "n_features"), finite=False),
        "idf": ArraySpec("float32", ("n_words",)),
        "buckets": ArraySpec("int32", ("n_words",), optional=True, below="n_rows"),
        "biases": ArraySpec("float32", ("n_features",), optional=True),
    }

    def __init__(self, arrays: Arrays, config: dict[str, Any]) -> None:
        super().__init__(arrays, config)
        self._words, self._idf = QuantizedMatrix.of_arrays(arrays, "words"), arrays["idf"]
        self.n_words, self.n_features = len(self._idf), self._words.shape[1]
        self._row_of_word = arrays.get("buckets", np.arange(self.n_words, dtype=np.int32))
        self._biases, self._relu = arrays.get("biases"), bool(config.get("relu"))
        self._max_words = whole_number(config, "max_words")

    @classmethod
    def from_arrays(cls, arrays: Arrays, config: dict[str, Any], **sizes: int) -> BagEncoder:
        one_row_per_word = {"words": ArraySpec("rows", ("n_words", "n_features"), finite=False)}
        check_arrays(arrays, cls.spec if "buckets" in arrays else {**cls.spec, **one_row_per_word}, **sizes)
        return cls(arrays, config)

    def encode(self, inputs: Ragged) -> np.ndarray:
        features = np.empty((len(inputs), self.n_features), np.float32)
        weights = np.zeros(0, np.float32) if inputs.weights is None else inputs.weights
        rows = self._words
        sum_words(
            inputs.indptr,
            inputs.values,
            weights,
            self._row_of_word,
            rows.values,
            rows.scales,
            self._idf,
            self._max_words,
            features,
        )
        if self._biases is not None:
            features += self._biases
        return np.maximum(features, 0) if self._relu else features

    def multiply_adds(self, word_counts: np.ndarray) -> float:
        return float(np.minimum(word_counts, self._max_words).astype(float).mean() * self.n_features)
