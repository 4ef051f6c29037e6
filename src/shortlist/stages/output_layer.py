"""An output layer: an optional residual block, then one row of weights and a bias for each label or cluster."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from shortlist.arrays import Arrays, ArraySpec, QuantizedMatrix
from shortlist.kernels.classifier import best_of_clusters, score_all_rows, score_rows
from shortlist.kernels.encoders import gelu_rows
from shortlist.kernels.top_k import best_of_row

ROWS_PER_BLOCK = 8192
FEW_TEXTS = 4


def block_name(gelu: bool, residual: bool) -> str:
    """The name of the array of a block with this activation, which adds its input or does not."""
    return f"{'gelu_' if gelu else ''}{'' if residual else 'plain_'}block"


BLOCKS = {block_name(gelu, residual): (gelu, residual) for gelu in (False, True) for residual in (True, False)}


def output_layer_spec(n_rows: str, prefix: str = "", width: str = "n_features") -> dict[str, ArraySpec]:
    """The arrays of an output layer with `n_rows` rows of this width (both are names of sizes)."""
    return {
        f"{prefix}weights": ArraySpec("rows", (n_rows, width), finite=False),
        f"{prefix}biases": ArraySpec("float32", (n_rows,)),
        **{f"{prefix}{name}": ArraySpec("float32", (width, width), optional=True) for name in BLOCKS},
        **{
            f"{prefix}block_{name}": ArraySpec("float32", (width,), optional=True)
            for name in ("biases", "scales", "shifts")
        },
    }


def projected_layer_spec(n_rows: str) -> dict[str, ArraySpec]:
    """The same after a projection."""
    return {
        **output_layer_spec(n_rows, width="n_projected"),
        "projection": ArraySpec("float32", ("n_projected", "n_features")),
        "projection_biases": ArraySpec("float32", ("n_projected",)),
    }


class OutputLayer:
    """`rows · h + biases` with h = relu(block · x) + x, or h = x without a block.

    With a `gelu_block`, GELU takes the place of ReLU; a `plain_block` does not add x. Optional arrays of the block are
    its biases, and the scales and shifts of its output, which come from a batch norm. With a `projection`, LightXML's
    bottleneck, x is first projected to fewer numbers.
    """

    def __init__(self, arrays: Arrays) -> None:
        self.rows = QuantizedMatrix.of_arrays(arrays, "weights")
        self.biases = arrays["biases"]
        name = next((name for name in BLOCKS if name in arrays), None)
        self.block = None if name is None else arrays[name]
        self._gelu, self._residual = (False, True) if name is None else BLOCKS[name]
        self.projection, self._projection_biases = arrays.get("projection"), arrays.get("projection_biases")
        self._of_block = [arrays.get(f"block_{name}") for name in ("biases", "scales", "shifts")]
        self.n_features = (self.rows if self.projection is None else self.projection).shape[1]

    def __len__(self) -> int:
        return len(self.rows)

    def hidden(self, features: np.ndarray) -> np.ndarray:
        """The features after the projection and the residual block."""
        if self.projection is not None:
            features = features @ self.projection.T + self._projection_biases
        if self.block is None:
            return features
        biases, scales, shifts = self._of_block
        hidden = features @ self.block.T
        if biases is not None:
            hidden += biases
        if self._gelu:
            gelu_rows(hidden)
        else:
            np.maximum(hidden, 0, out=hidden)
        if scales is not None and shifts is not None:
            hidden = hidden * scales + shifts
        return hidden + features if self._residual else hidden

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
        logits, candidates = np.empty(candidates.shape, np.float32), np.asarray(candidates, np.int32)
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
        layers = sum(matrix.size for matrix in (self.projection, self.block) if matrix is not None)
        return layers + n_rows * self.rows.shape[1]
