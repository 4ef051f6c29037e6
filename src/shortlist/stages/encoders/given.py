"""Encoders that learn nothing: features that the user gives, tf-idf rows of the words, or no features at all."""

from __future__ import annotations

from typing import Any

import numpy as np

from shortlist.arrays import Arrays, ArraySpec, Ragged
from shortlist.lazy import sparse
from shortlist.stages.encoders.encoder import Encoder
from shortlist.stages.stage import whole_number
from shortlist.text.features import TfIdf, normalize_sparse_rows


class GivenEncoder(Encoder):
    """Dense features as they are given, each column multiplied by its `scale`."""

    kind = "given"
    dense = True
    spec = {"scale": ArraySpec("float32", ("n_features",))}

    def __init__(self, arrays: Arrays, config: dict[str, Any] | None = None) -> None:
        super().__init__(arrays, config)
        self.n_words = self.n_features = len(arrays["scale"])

    @staticmethod
    def fit(features: np.ndarray, length: float) -> GivenEncoder:
        """One scale for all columns that gives rows this mean length, whatever the unit of the features."""
        mean = float(np.linalg.norm(features, axis=1).mean())
        return GivenEncoder({"scale": np.full(features.shape[1], length / max(mean, 1e-9), np.float32)})

    def encode(self, inputs: np.ndarray) -> np.ndarray:
        return inputs * self._arrays["scale"]

    def multiply_adds(self, word_counts: np.ndarray) -> float:
        return float(self.n_features)


class TfIdfEncoder(Encoder):
    """Word ids to sparse tf-idf rows of length 1, one column per word. Of words with weights, these are the rows."""

    kind = "tfidf"
    spec = {"idf": ArraySpec("float32", ("n_words",))}

    def __init__(self, arrays: Arrays, config: dict[str, Any] | None = None) -> None:
        super().__init__(arrays, config)
        self._tfidf = TfIdf(arrays["idf"])
        self.n_words = self.n_features = len(arrays["idf"])

    def encode(self, inputs: Ragged) -> sparse.csr_array:
        return self._tfidf.transform(inputs)

    def multiply_adds(self, word_counts: np.ndarray) -> float:
        return 0.0


class UnitRowsEncoder(Encoder):
    """Dense features as sparse rows of length 1."""

    kind = "unit-rows"
    dense = True

    def __init__(self, arrays: Arrays, config: dict[str, Any]) -> None:
        super().__init__(arrays, config)
        self.n_words = self.n_features = whole_number(config, "n_features")

    def encode(self, inputs: np.ndarray) -> sparse.csr_array:
        return normalize_sparse_rows(sparse.csr_array(inputs))

    def multiply_adds(self, word_counts: np.ndarray) -> float:
        return 0.0


class NoEncoder(Encoder):
    """No features: for classifiers that do not look at the text. Takes texts and features alike."""

    kind = "none"

    def encode(self, inputs: Any) -> np.ndarray:
        return np.empty((inputs.shape[0] if hasattr(inputs, "shape") else len(inputs), 0), np.float32)

    def multiply_adds(self, word_counts: np.ndarray) -> float:
        return 0.0
