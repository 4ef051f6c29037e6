"""An output layer: an optional residual block, then one row of weights and a bias for each label or cluster."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from shortlist.arrays import Arrays, ArraySpec, QuantizedMatrix
from shortlist.kernels.classifier import best_of_clusters, score_all_rows, score_rows
from shortlist.kernels.top_k import best_of_row

ROWS_PER_BLOCK = 8192
FEW_TEXTS = 4


def output_layer_spec(n_rows: str, prefix: str = "") -> dict[str, ArraySpec]:
    """The arrays of an output layer with `n_rows` (the name of a size) rows."""
    return {
        f"{prefix}weights": ArraySpec("rows", (n_rows, "n_features"), finite=False),
        f"{prefix}biases": ArraySpec("float32", (n_rows,)),
        f"{prefix}block": ArraySpec("float32", ("n_features", "n_features"), optional=True),
    }


class OutputLayer:
    """`rows · h + biases` with h = relu(block · x) + x, or h = x without a block."""

    def __init__(self, arrays: Arrays) -> None:
        self.rows = QuantizedMatrix.of_arrays(arrays, "weights")
        self.block, self.biases = arrays.get("block"), arrays["biases"]

    def __len__(self) -> int:
        return len(self.rows)

    def hidden(self, features: np.ndarray) -> np.ndarray:
        """The features behind the residual block."""
        if self.block is None:
            return features
        return np.maximum(features @ self.block.T, 0) + features

    def logits(self, features: np.ndarray) -> np.ndarray:
        """The logits of all rows, texts × rows."""
        logits = np.empty((len(features), len(self.rows)), np.float32)
        for block, values in self._blocks(self.hidden(features)):
            logits[:, block] = values
        return logits

    def _blocks(self, hidden: np.ndarray) -> Iterator[tuple[slice, np.ndarray]]:
        """The logits, one block of rows at a time."""
        if len(hidden) <= FEW_TEXTS:  # converting all rows to floats would be most of the work
            logits = np.empty((len(hidden), len(self.rows)), np.float32)
            score_all_rows(self.rows.values, self.rows.scales, self.biases, hidden, logits)
            yield slice(0, len(self.rows)), logits
            return
        for begin in range(0, len(self.rows), ROWS_PER_BLOCK):
            block = slice(begin, begin + ROWS_PER_BLOCK)
            yield block, hidden @ self.rows[block].T + self.biases[block]

    def best(self, features: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        """The k best of all rows for each text, and their logits."""
        k = min(k, len(self.rows))
        ids, scores = np.full((len(features), k), -1, np.int32), np.full((len(features), k), -np.inf, np.float32)
        for block, logits in self._blocks(self.hidden(features)):
            best_of_row(logits, block.start, min(block.start, k), ids, scores)
        return ids, scores

    def logits_of(self, features: np.ndarray, candidates: np.ndarray) -> np.ndarray:
        """The logits of each text's candidates (texts × K rows); −∞ where a candidate is -1."""
        logits = np.empty(candidates.shape, np.float32)
        score_rows(self.rows.values, self.rows.scales, self.biases, self.hidden(features), candidates, logits)
        return logits

    def best_of_clusters(
        self, features: np.ndarray, clusters: np.ndarray, starts: np.ndarray, k: int, cluster_logits: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray]:
        """The k best rows of each text's clusters and their logits. Cluster c has the rows starts[c] to starts[c + 1].

        With `cluster_logits`, rows are ranked by the product of both probabilities; scores are its logarithm.
        """
        hidden = self.hidden(features)
        k = min(k, len(self.rows))
        ids, scores = np.empty((len(hidden), k), np.int32), np.empty((len(hidden), k), np.float32)
        factors = np.zeros((0, 0), np.float32) if cluster_logits is None else cluster_logits
        rows, multiplied = self.rows, cluster_logits is not None
        best_of_clusters(
            rows.values, rows.scales, self.biases, starts, hidden, clusters, factors, multiplied, ids, scores
        )
        return ids, scores

    def multiply_adds(self, n_rows: float) -> float:
        """The cost of scoring this many rows for one text."""
        return (0 if self.block is None else self.block.size) + n_rows * self.rows.shape[1]
