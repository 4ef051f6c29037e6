"""XML-CNN's encoder for prediction: the same features from plain arrays, without torch.

Every word meets the weights of all taps of all windows in one product; a window then is a sum of neighbours. Texts of
equal length are taken together, so that chunks are the same for all of them.
"""

from __future__ import annotations

import numpy as np

from shortlist.arrays import QuantizedMatrix, Ragged
from shortlist.errors import ModelError

WIDTHS = (2, 4, 8)
BLOCK = 64


def chunk_bounds(n_words: int, n_chunks: int) -> list[tuple[int, int]]:
    """Where each chunk of a text begins and ends; of a short text they overlap, so that none is empty.

    >>> chunk_bounds(5, 2), chunk_bounds(1, 2)
    ([(0, 3), (2, 5)], [(0, 1), (0, 1)])
    """
    return [(i * n_words // n_chunks, -(-(i + 1) * n_words // n_chunks)) for i in range(n_chunks)]


class CNNRuntime:
    """Word ids to features (texts × `n_features`), from the arrays that `CNNEncoder.to_arrays` gave."""

    def __init__(self, arrays: dict[str, np.ndarray], max_words: int) -> None:
        for name, axes in (("taps", 2), ("biases", 1), ("hidden", 2), ("hidden_biases", 1)):
            if name not in arrays or arrays[name].ndim != axes or arrays[name].dtype != np.float32:
                raise ModelError(f"the encoder has no array {name!r} of float32 with {axes} axes")
        self._words, self._taps, self._biases = (
            QuantizedMatrix.of_arrays(arrays, "words"),
            arrays["taps"],
            arrays["biases"],
        )
        self._hidden, self._hidden_biases = arrays["hidden"], arrays["hidden_biases"]
        self.max_words = max_words
        self.n_words, dimensions = self._words.shape
        n_filters, self.n_features = len(self._biases), len(self._hidden_biases)
        channels, self._n_chunks = n_filters // len(WIDTHS), len(self._hidden) // max(n_filters, 1)
        shapes = [(dimensions, sum(WIDTHS) * channels), (self._n_chunks * n_filters, self.n_features)]
        if (
            [self._taps.shape, self._hidden.shape] != shapes
            or n_filters != len(WIDTHS) * channels
            or not self._n_chunks
        ):
            raise ModelError(
                f"the encoder's taps {self._taps.shape} and hidden {self._hidden.shape} do not fit {n_filters} filters "
                f"and words of {dimensions} dimensions"
            )
        self._channels = channels

    def encode(self, word_ids: Ragged) -> np.ndarray:
        """The features of each text, in the order given. Words after the first `max_words` do not count."""
        counts = np.minimum(word_ids.counts, self.max_words)
        features = np.empty((len(word_ids), self.n_features), np.float32)
        for n_words in np.unique(counts):
            of_length = np.flatnonzero(counts == n_words)
            for begin in range(0, len(of_length), BLOCK):
                rows = of_length[begin : begin + BLOCK]
                ids = word_ids.values[word_ids.indptr[rows, None] + np.arange(n_words)]
                features[rows] = self._pooled(self._filtered(ids)) @ self._hidden + self._hidden_biases
        return np.maximum(features, 0, out=features)

    def _filtered(self, ids: np.ndarray) -> np.ndarray:
        """What the filters see about each word (texts × words × filters); an empty text has one word of zeros."""
        n_texts, n_words = ids.shape
        out = np.tile(self._biases, (n_texts, max(n_words, 1), 1))
        products = (self._words[ids.ravel()] @ self._taps).reshape(n_texts, n_words, sum(WIDTHS), self._channels)
        tap = 0
        for filters, width in zip(np.split(out, len(WIDTHS), axis=2), WIDTHS, strict=True):
            for shift in range(-((width - 1) // 2), width // 2 + 1):
                first, last = max(-shift, 0), n_words - max(shift, 0)
                if first < last:
                    filters[:, first:last] += products[:, first + shift : last + shift, tap]
                tap += 1
        return out

    def _pooled(self, filtered: np.ndarray) -> np.ndarray:
        """The most that each filter sees in each chunk."""
        bounds = chunk_bounds(filtered.shape[1], self._n_chunks)
        return np.maximum(np.concatenate([filtered[:, a:b].max(axis=1) for a, b in bounds], axis=1), 0)
