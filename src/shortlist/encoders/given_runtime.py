"""Features that are given, for prediction: looked at, and in the unit of measure that training had."""

from __future__ import annotations

from typing import Any

import numpy as np

from shortlist.errors import DataError, ModelError, OptionError
from shortlist.lazy import sparse


class GivenRuntime:
    """A matrix of features in, the same as float32 out, every column times its `scale`."""

    n_words = 0

    def __init__(self, arrays: dict[str, np.ndarray], max_words: int = 0) -> None:
        scale = arrays.get("scale", np.zeros(0))
        if scale.ndim != 1 or scale.dtype != np.float32 or not np.isfinite(scale).all():
            raise ModelError("the encoder has no array 'scale' of float32 with 1 axis")
        self.scale, self.n_features = scale, len(scale)

    @staticmethod
    def fit(features: np.ndarray, length: float) -> GivenRuntime:
        """One scale for all columns, with which rows have this length on average: no unit of measure is special."""
        mean = float(np.linalg.norm(features, axis=1).mean())
        return GivenRuntime({"scale": np.full(features.shape[1], length / max(mean, 1e-9), np.float32)})

    def to_arrays(self) -> dict[str, np.ndarray]:
        return {"scale": self.scale}

    def encode(self, features: Any) -> np.ndarray:
        if features.ndim == 2 and features.shape[1] != self.n_features:
            raise OptionError(f"this model knows {self.n_features:,} features; the matrix has {features.shape[1]:,}")
        matrix = dense(features)
        matrix *= self.scale
        return matrix


def dense(features: Any) -> np.ndarray:
    """A matrix, sparse or not, as float32; refused if it holds anything but numbers.

    >>> dense(sparse.csr_array([[0, 2], [1, 0]])).tolist()
    [[0.0, 2.0], [1.0, 0.0]]
    """
    if not sparse.issparse(features):
        features = np.asarray(features)
    if features.ndim != 2 or features.dtype.kind not in "biuf":
        raise DataError(f"the features are {features.ndim} axes of {features.dtype}; expected a matrix of numbers")
    with np.errstate(over="ignore"):
        matrix = features.astype(np.float32)
    matrix = np.ascontiguousarray(matrix.toarray() if sparse.issparse(matrix) else matrix)
    strange = np.flatnonzero(~np.isfinite(matrix).all(axis=1))
    if len(strange):
        raise DataError(
            f"row {strange[0]:,} of the features holds a value that is not finite, and so do {len(strange) - 1:,} more "
            "rows. Replace such values, or leave these rows out."
        )
    return matrix
