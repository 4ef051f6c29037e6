"""XML-CNN's encoder without torch.

Every word is multiplied by the weights of all taps of all filters at once; a window is then a sum of neighbours. Texts
of equal length are encoded together, so that their chunks are the same. Chunks are those of the text, or, with
`fixed_chunks` in the config, those of a text that is padded to the full number of words.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from shortlist.arrays import Arrays, ArraySpec, QuantizedMatrix, Ragged
from shortlist.errors import ModelError
from shortlist.stages.encoders.encoder import Encoder
from shortlist.stages.stage import whole_number

WIDTHS = (2, 4, 8)
TEXTS_PER_BLOCK = 64


def chunk_bounds(n_words: int, n_chunks: int) -> list[tuple[int, int]]:
    """The begin and end of each chunk of a text. Chunks of a short text overlap, so that none is empty.

    >>> chunk_bounds(5, 2), chunk_bounds(1, 2)
    ([(0, 3), (2, 5)], [(0, 1), (0, 1)])
    """
    return [(i * n_words // n_chunks, -(-(i + 1) * n_words // n_chunks)) for i in range(n_chunks)]


class CNNEncoder(Encoder):
    """Filters of three widths over the words, max pooling in chunks, and a hidden layer with ReLU."""

    kind = "cnn"
    spec = {
        "words": ArraySpec("rows", ("n_words", "embedding_dim"), finite=False),
        "taps": ArraySpec("float32", ("embedding_dim", "n_taps"), finite=False),
        "biases": ArraySpec("float32", ("n_filters",), finite=False),
        "hidden": ArraySpec("float32", ("n_pooled", "n_features"), finite=False),
        "hidden_biases": ArraySpec("float32", ("n_features",), finite=False),
    }

    def __init__(self, arrays: Arrays, config: dict[str, Any]) -> None:
        super().__init__(arrays, config)
        self._words, self._taps, self._biases = (
            QuantizedMatrix.of_arrays(arrays, "words"),
            arrays["taps"],
            arrays["biases"],
        )
        self._hidden, self._hidden_biases = arrays["hidden"], arrays["hidden_biases"]
        self._max_words, self._fixed_chunks = whole_number(config, "max_words"), bool(config.get("fixed_chunks"))
        self.n_words, self.n_features = len(self._words), len(self._hidden_biases)
        n_filters = len(self._biases)
        self._channels, self._n_chunks = n_filters // len(WIDTHS), len(self._hidden) // max(n_filters, 1)
        sizes = [len(WIDTHS) * self._channels, sum(WIDTHS) * self._channels, self._n_chunks * n_filters]
        if sizes != [n_filters, self._taps.shape[1], len(self._hidden)] or not self._n_chunks:
            raise ModelError(
                f"taps {self._taps.shape} and hidden layer {self._hidden.shape} do not fit {n_filters} filters"
            )

    def encode(self, inputs: Ragged) -> np.ndarray:
        counts = np.minimum(inputs.counts, self._max_words)
        features = np.empty((len(inputs), self.n_features), np.float32)
        for n_words in np.unique(counts):
            of_length = np.flatnonzero(counts == n_words)
            for begin in range(0, len(of_length), TEXTS_PER_BLOCK):
                rows = of_length[begin : begin + TEXTS_PER_BLOCK]
                ids = inputs.values[inputs.indptr[rows, None] + np.arange(n_words)]
                features[rows] = self._pool(self._filter(ids)) @ self._hidden + self._hidden_biases
        return np.maximum(features, 0, out=features)

    def _filter(self, ids: np.ndarray) -> np.ndarray:
        """The output of every filter at every word (texts × words × filters). An empty text is one word of zeros.

        With fixed chunks, padding follows as far as it can see words.
        """
        n_texts, n_words = ids.shape
        n_places = min(n_words + max(WIDTHS), self._max_words) if self._fixed_chunks else max(n_words, 1)
        out = np.tile(self._biases, (n_texts, n_places, 1))
        products = (self._words[ids.ravel()] @ self._taps).reshape(n_texts, n_words, sum(WIDTHS), self._channels)
        tap = 0
        for filters, width in zip(np.split(out, len(WIDTHS), axis=2), WIDTHS, strict=True):
            for shift in range(-((width - 1) // 2), width // 2 + 1):
                first, last = max(-shift, 0), min(n_words - shift, n_places)
                if first < last:
                    filters[:, first:last] += products[:, first + shift : last + shift, tap]
                tap += 1
        return out

    def _pool(self, filtered: np.ndarray) -> np.ndarray:
        """The maximum of each filter in each chunk, and 0."""
        n_places = filtered.shape[1]
        pooled = np.zeros((len(filtered), self._n_chunks, len(self._biases)), np.float32)
        for chunk, (begin, end) in enumerate(
            chunk_bounds(self._max_words if self._fixed_chunks else n_places, self._n_chunks)
        ):
            if end > n_places:  # padding that sees no word
                np.maximum(pooled[:, chunk], self._biases, out=pooled[:, chunk])
            if begin < n_places:
                np.maximum(pooled[:, chunk], filtered[:, begin:end].max(axis=1), out=pooled[:, chunk])
        return pooled.reshape(len(filtered), -1)

    def multiply_adds(self, word_counts: np.ndarray) -> float:
        words = np.minimum(word_counts, self._max_words).astype(float)
        return float(words.mean() * self._taps.size + self._hidden.size)
