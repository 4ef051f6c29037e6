"""Encoders that learn nothing: features that the user gives, tf-idf rows of the words, or no features at all."""

from __future__ import annotations

from typing import Any

import numpy as np

from shortlist.arrays import Arrays, ArraySpec, Ragged
from shortlist.errors import DataError, OptionError
from shortlist.lazy import sparse
from shortlist.stages.encoders.encoder import Encoder
from shortlist.stages.stage import whole_number
from shortlist.text.features import TfIdf, normalize_sparse_rows


class GivenEncoder(Encoder):
    """A matrix of features as dense float32, each column multiplied by its `scale`."""

    kind = "given"
    takes_features = True
    spec = {"scale": ArraySpec("float32", ("n_features",))}

    def __init__(self, arrays: Arrays, config: dict[str, Any] | None = None) -> None:
        super().__init__(arrays, config)
        self.n_features = len(arrays["scale"])

    @staticmethod
    def fit(features: np.ndarray, length: float) -> GivenEncoder:
        """One scale for all columns that gives rows this mean length, whatever the unit of the features."""
        mean = float(np.linalg.norm(features, axis=1).mean())
        return GivenEncoder({"scale": np.full(features.shape[1], length / max(mean, 1e-9), np.float32)})

    def encode(self, inputs: Any) -> np.ndarray:
        require_columns(inputs, self.n_features)
        features = dense(inputs)
        features *= self._arrays["scale"]
        return features

    def multiply_adds(self, word_counts: np.ndarray) -> float:
        return float(self.n_features)


class TfIdfEncoder(Encoder):
    """Word ids to sparse tf-idf rows of length 1, one column per word."""

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
    """A matrix of features as sparse rows of length 1."""

    kind = "unit-rows"
    takes_features = True

    def __init__(self, arrays: Arrays, config: dict[str, Any]) -> None:
        super().__init__(arrays, config)
        self.n_features = whole_number(config, "n_features")

    def encode(self, inputs: Any) -> sparse.csr_array:
        require_columns(inputs, self.n_features)
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


def require_columns(features: Any, n_features: int) -> None:
    if features.ndim == 2 and features.shape[1] != n_features:
        raise OptionError(f"this model takes {n_features:,} features; the matrix has {features.shape[1]:,}")


def dense(features: Any) -> np.ndarray:
    """A matrix, sparse or not, as a float32 array; an error unless it is a finite matrix of numbers.

    >>> dense(sparse.csr_array([[0, 2], [1, 0]])).tolist()
    [[0.0, 2.0], [1.0, 0.0]]
    """
    if not sparse.issparse(features):
        features = np.asarray(features)
    if features.ndim != 2 or features.dtype.kind not in "biuf":
        raise DataError(f"features have {features.ndim} axes of {features.dtype}; expected a matrix of numbers")
    with np.errstate(over="ignore"):
        matrix = features.astype(np.float32)
    matrix = np.ascontiguousarray(matrix.toarray() if sparse.issparse(matrix) else matrix)
    bad_rows = np.flatnonzero(~np.isfinite(matrix).all(axis=1))
    if len(bad_rows):
        raise DataError(
            f"row {bad_rows[0]:,} of the features contains NaN or infinity, and so do {len(bad_rows) - 1:,} more rows. "
            "Replace these values, or remove the rows."
        )
    return matrix
