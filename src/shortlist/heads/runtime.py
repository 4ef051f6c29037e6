"""Heads without torch: the same block and rows as plain arrays, for prediction."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from shortlist.arrays import QuantizedMatrix, check_finite
from shortlist.errors import ModelError
from shortlist.kernels.classifier import best_of_clusters, score_all_rows, score_rows
from shortlist.kernels.threads import use_threads
from shortlist.kernels.top_k import best_of_row

ROWS_PER_BLOCK = 8192
FEW = 4  # samples


class HeadRuntime:
    """Scores labels, or clusters, for features."""

    def __init__(self, arrays: Mapping[str, np.ndarray], n_rows: int, n_features: int) -> None:
        self.rows = QuantizedMatrix.of_arrays(arrays, "weights")
        self.block, self.biases = arrays.get("block"), arrays["biases"]
        shapes = {"weights": (n_rows, n_features), "biases": (n_rows,), "block": (n_features, n_features)}
        for name, array in arrays.items():
            if name == "weights.scales":
                continue
            if array.shape != shapes.get(name) or (name != "weights" and array.dtype != np.float32):
                raise ModelError(f"{name} is {array.dtype} {array.shape}; expected float32 {shapes.get(name)}")
            if name != "weights":
                check_finite(name, array)

    def inner(self, features: np.ndarray) -> np.ndarray:
        """Features behind the residual block."""
        if self.block is None:
            return features
        return np.maximum(features @ self.block.T, 0) + features

    def logits(self, features: np.ndarray, threads: int | None = None) -> np.ndarray:
        """The logits of all rows."""
        logits = np.empty((len(features), len(self.rows)), np.float32)
        for block, some in self._blocks(self.inner(features), threads):
            logits[:, block] = some
        return logits

    def _blocks(self, inner: np.ndarray, threads: int | None) -> Iterator[tuple[slice, np.ndarray]]:
        """The logits of some rows after the other."""
        if len(inner) <= FEW:  # to make floats of all rows would be most of the work
            logits = np.empty((len(inner), len(self.rows)), np.float32)
            with use_threads(threads):
                score_all_rows(self.rows.values, self.rows.scales, self.biases, inner, logits)
            yield slice(0, len(self.rows)), logits
            return
        for begin in range(0, len(self.rows), ROWS_PER_BLOCK):
            block = slice(begin, begin + ROWS_PER_BLOCK)
            yield block, inner @ self.rows[block].T + self.biases[block]

    def best(self, features: np.ndarray, k: int, threads: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """The k best rows of each sample and their logits."""
        k = min(k, len(self.rows))
        ids, scores = np.full((len(features), k), -1, np.int32), np.full((len(features), k), -np.inf, np.float32)
        for block, logits in self._blocks(self.inner(features), threads):
            with use_threads(threads):
                best_of_row(logits, block.start, min(block.start, k), ids, scores)
        return ids, scores

    def logits_of(self, features: np.ndarray, candidates: np.ndarray, threads: int | None = None) -> np.ndarray:
        """The logits of each sample's candidates (samples × K rows, -1 for none)."""
        logits = np.empty(candidates.shape, np.float32)
        with use_threads(threads):
            score_rows(self.rows.values, self.rows.scales, self.biases, self.inner(features), candidates, logits)
        return logits

    def best_of(
        self,
        features: np.ndarray,
        clusters: np.ndarray,
        starts: np.ndarray,
        k: int,
        multiplied_by: np.ndarray | None = None,
        threads: int | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """The k best rows of each sample's clusters and their logits.

        With the logits of all clusters in `multiplied_by`: by the product of both probabilities, as a logarithm.
        """
        inner = self.inner(features)
        k = min(k, len(self.rows))
        ids, scores = np.empty((len(inner), k), np.int32), np.empty((len(inner), k), np.float32)
        none = np.zeros((0, 0), np.float32)
        with use_threads(threads):
            best_of_clusters(
                self.rows.values,
                self.rows.scales,
                self.biases,
                starts,
                inner,
                clusters,
                none if multiplied_by is None else multiplied_by,
                multiplied_by is not None,
                ids,
                scores,
            )
        return ids, scores
