"""AttentionXML's output layer: each label attends to the words of a text in its own way (You et al. 2019, §3.3).

The first fully connected layer comes right after the weighted sum of the words' hidden states. Both are linear, so the
layer is applied to the words before the sum: the result is the same, for a twentieth of the work.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from shortlist.arrays import Arrays, ArraySpec, QuantizedMatrix, Ragged
from shortlist.errors import ModelError
from shortlist.kernels.top_k import best_of_candidates
from shortlist.stages.stage import whole_number

ROWS_PER_BLOCK = 8192


def attention_layer_spec(n_rows: str, prefix: str = "") -> dict[str, ArraySpec]:
    """The arrays of an attention layer with `n_rows` (the name of a size) rows."""
    spec = {
        "queries": ArraySpec("rows", (n_rows, "n_states"), finite=False),
        "hidden": ArraySpec("float32", ("n_states", "n_hidden")),
        "hidden_biases": ArraySpec("float32", ("n_hidden",)),
        "second": ArraySpec("float32", ("n_hidden", "n_second"), optional=True),
        "second_biases": ArraySpec("float32", ("n_second",), optional=True),
        "output": ArraySpec("float32", ("n_last",)),
        "output_bias": ArraySpec("float32", (1,)),
    }
    return {f"{prefix}{name}": array for name, array in spec.items()}


class AttentionLayer:
    """One query per label or cluster; fully connected layers and the output are shared by all of them.

    features  a `Ragged` of hidden states, one row per word. With a label tree, the states of its levels are side by
              side, and the layer reads those of its own `level`
    """

    def __init__(self, arrays: Arrays, config: dict[str, Any]) -> None:
        self.rows, self._hidden = QuantizedMatrix.of_arrays(arrays, "queries"), arrays["hidden"]
        self._hidden_biases, self._second = arrays["hidden_biases"], arrays.get("second")
        self._second_biases = arrays.get("second_biases")
        self._output, self._output_bias = arrays["output"], arrays["output_bias"][0]
        n_levels = whole_number(config, "n_levels")
        level, n_states = whole_number(config, "level", 0, n_levels - 1), self.rows.shape[1]
        self._columns, self.n_features = slice(level * n_states, (level + 1) * n_states), n_levels * n_states
        n_last = self._hidden.shape[1] if self._second is None else self._second.shape[1]
        if len(self._output) != n_last or (self._second is None) != (self._second_biases is None):
            raise ModelError(f"the output layer takes {len(self._output)} values; the layer before it gives {n_last}")

    def __len__(self) -> int:
        return len(self.rows)

    def logits(self, features: Ragged) -> np.ndarray:
        """The logits of all rows, texts × rows."""
        logits = np.empty((len(features), len(self)), np.float32)
        for begin in range(0, len(self), ROWS_PER_BLOCK):
            queries = self.rows[begin : begin + ROWS_PER_BLOCK]
            for text, (states, hidden) in enumerate(self._texts(features)):
                logits[text, begin : begin + len(queries)] = self._attend(queries, states, hidden)
        return logits

    def logits_of(self, features: Ragged, candidates: np.ndarray) -> np.ndarray:
        """The logits of each text's candidates (texts × K rows); −∞ where a candidate is -1."""
        logits = np.full(candidates.shape, -np.inf, np.float32)
        for text, (states, hidden) in enumerate(self._texts(features)):
            there = candidates[text] >= 0
            logits[text, there] = self._attend(self.rows[candidates[text, there]], states, hidden)
        return logits

    def _texts(self, features: Ragged) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """The hidden states of each text's words, and the first layer of each word."""
        states = np.ascontiguousarray(features.values[:, self._columns])
        hidden = states @ self._hidden
        for begin, end in zip(features.indptr[:-1], features.indptr[1:], strict=True):
            yield states[begin:end], hidden[begin:end]

    def _attend(self, queries: np.ndarray, states: np.ndarray, hidden: np.ndarray) -> np.ndarray:
        """The logits of these queries for one text."""
        attention = queries @ states.T
        attention -= attention.max(axis=1, keepdims=True)
        np.exp(attention, out=attention)
        attention /= attention.sum(axis=1, keepdims=True)
        seen = np.maximum(attention @ hidden + self._hidden_biases, 0)
        if self._second is not None:
            seen = np.maximum(seen @ self._second + self._second_biases, 0)
        return seen @ self._output + self._output_bias

    def best(self, features: Ragged, k: int) -> tuple[np.ndarray, np.ndarray]:
        """The k best of all rows for each text, and their logits."""
        rows = np.arange(len(self), dtype=np.int32)
        return best_of_candidates(np.tile(rows, (len(features), 1)), self.logits(features), k)

    def best_of_clusters(
        self, features: Ragged, clusters: np.ndarray, starts: np.ndarray, cluster_logits: np.ndarray, k: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """The k best rows of each text's clusters, and the logarithm of their probability times their cluster's.

        Cluster c has the rows starts[c] to starts[c + 1].
        """
        rows = rows_of_clusters(clusters, starts)
        of_clusters = np.take_along_axis(cluster_logits, clusters, axis=1)
        of_rows = np.repeat(of_clusters, rows.shape[1] // max(clusters.shape[1], 1), axis=1)
        return best_of_candidates(rows, _log_expit(self.logits_of(features, rows)) + _log_expit(of_rows), k)

    def multiply_adds(self, n_rows: float, n_words: float) -> float:
        """The cost of scoring this many rows for one text of this many words."""
        n_states, n_hidden = self._hidden.shape
        per_row = n_words * (n_states + n_hidden) + len(self._output)
        return n_words * self._hidden.size + n_rows * (per_row + (0 if self._second is None else self._second.size))


def rows_of_clusters(clusters: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """The rows of each text's clusters side by side, -1 where a cluster has fewer rows than others, or is -1 itself.

    >>> rows_of_clusters(np.array([[1, 0], [0, -1]]), np.array([0, 2, 5])).tolist()
    [[2, 3, 4, 0, 1, -1], [0, 1, -1, -1, -1, -1]]
    """
    rows = starts[clusters][..., None] + np.arange(np.diff(starts).max(initial=0))
    there = (rows < starts[clusters + 1][..., None]) & (clusters >= 0)[..., None]
    return np.where(there, rows, -1).astype(np.int32).reshape(len(clusters), -1)


def _log_expit(logits: np.ndarray) -> np.ndarray:
    return -np.logaddexp(np.float32(0), -logits)
