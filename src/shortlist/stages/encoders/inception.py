"""InceptionXML's encoder without torch.

Everything before the first convolution multiplies a text's words × dimensions matrix from the left. It is therefore
folded into one small matrix (channels × words) that meets the word vectors once. Positions come before channels in
memory: a window of a convolution is four neighbouring rows of a matrix, and one product with the weights of all taps
serves every window.
"""

from __future__ import annotations

from itertools import groupby
from typing import Any

import numpy as np

from shortlist.arrays import Arrays, ArraySpec, QuantizedMatrix, Ragged, counts_to_indptr
from shortlist.errors import ModelError
from shortlist.kernels.encoders import gelu_rows, join_taps
from shortlist.stages.encoders.encoder import Encoder
from shortlist.stages.stage import whole_number

WIDTHS = (4, 8, 16)
LAST_WIDTH = 16
STRIDE = 4
BRANCH_TAPS, LAST_TAPS = max(WIDTHS) // STRIDE, LAST_WIDTH // STRIDE
# Circular padding: this many of the last dimensions stand before the first one in its window.
PADDING = (max(WIDTHS) - STRIDE) // 2
TEXTS_PER_BLOCK = 16  # what passes between two layers then stays in the cache


def branch_columns(channels: int) -> list[int]:
    """The number of branch channels (the last ones) with weights in each tap: outer taps miss the narrow branches."""
    middle = max(WIDTHS) // 2
    distances = [abs(STRIDE * tap + STRIDE // 2 - middle) for tap in range(BRANCH_TAPS)]
    return [channels * sum(2 * distance < width + STRIDE for width in WIDTHS) for distance in distances]


def last_length(embedding_dim: int) -> int:
    """The number of positions that the last convolution gives."""
    return (embedding_dim // STRIDE - LAST_WIDTH) // STRIDE + 1


class InceptionEncoder(Encoder):
    """Two gated attentions, a projection of the words to channels, three parallel convolutions, and a last one.

    With `bag` in the config, the sum of the word vectors follows the convolved features. `attention_value` is the value
    of the attention over dimensions: the word vectors, or its "query". With biases, GELU follows the projection. Scales
    and shifts are of the last convolution's channels, after its GELU.
    """

    kind = "inception"
    spec = {
        "words": ArraySpec("rows", ("n_words", "embedding_dim"), finite=False),
        "project": ArraySpec("float32", ("max_words", "channels"), finite=False),
        "project_biases": ArraySpec("float32", ("channels",), optional=True, finite=False),
        "word_mix": ArraySpec("float32", ("max_words", "max_words"), optional=True, finite=False),
        "dimension_mix": ArraySpec("float32", ("embedding_dim", "embedding_dim"), optional=True, finite=False),
        "branch_weights": ArraySpec("float32", ("branch_inputs", "branch_columns"), finite=False),
        "branch_biases": ArraySpec("float32", ("n_branches",), finite=False),
        "last_weights": ArraySpec("float32", ("last_inputs", "last_columns"), finite=False),
        "last_biases": ArraySpec("float32", ("last_channels",), finite=False),
        "scales": ArraySpec("float32", ("last_channels",), optional=True, finite=False),
        "shifts": ArraySpec("float32", ("last_channels",), optional=True, finite=False),
    }

    def __init__(self, arrays: Arrays, config: dict[str, Any]) -> None:
        super().__init__(arrays, config)
        self._words, self._project = QuantizedMatrix.of_arrays(arrays, "words"), arrays["project"]
        self._max_words, self._bag = whole_number(config, "max_words"), bool(config.get("bag"))
        for one, other in (("word_mix", "dimension_mix"), ("scales", "shifts")):
            if (one in arrays) != (other in arrays):
                raise ModelError(f"one of the arrays {one!r} and {other!r} is missing")
        self._value_is_query = config.get("attention_value") == "query"
        self._project_biases = arrays.get("project_biases")
        self._mixes = (arrays["word_mix"], arrays["dimension_mix"]) if "word_mix" in arrays else None
        self._branches = arrays["branch_weights"], arrays["branch_biases"]
        self._last = arrays["last_weights"], arrays["last_biases"]
        self._scales, self._shifts = arrays.get("scales"), arrays.get("shifts")
        self.n_words, self._dim = self._words.shape
        channels, last_channels = self._project.shape[1], len(self._last[1])
        self._require_fit(channels, last_channels)
        self._branch_bounds = counts_to_indptr(branch_columns(channels))
        self._last_bounds = counts_to_indptr([last_channels] * LAST_TAPS)
        n_last = last_length(self._dim)
        self._n_convolved = last_channels * n_last
        self.n_features = self._n_convolved + (self._dim if self._bag else 0)
        # The last convolution may stop short of the end: only what it reads is computed.
        self._n_branch = STRIDE * (n_last + LAST_TAPS - 1)
        self._wrapped = np.arange(-PADDING, STRIDE * (self._n_branch + BRANCH_TAPS - 1) - PADDING) % self._dim

    def _require_fit(self, channels: int, last_channels: int) -> None:
        """A compiled loop relies on these relations between shapes, which the spec cannot express."""
        n_branches = len(WIDTHS) * channels
        expected = {
            "project": (self._max_words, channels),
            "branch_weights": (STRIDE * channels, sum(branch_columns(channels))),
            "branch_biases": (n_branches,),
            "last_weights": (STRIDE * n_branches, LAST_TAPS * last_channels),
        }
        for name, shape in expected.items():
            if self._arrays[name].shape != shape:
                raise ModelError(f"array {name!r} has shape {self._arrays[name].shape}; the others need {shape}")
        if self._dim < LAST_WIDTH * STRIDE or not channels or not last_channels:
            raise ModelError(f"{self._dim} dimensions and {channels} channels are too few for the convolutions")

    def encode(self, inputs: Ragged) -> np.ndarray:
        counts = np.minimum(inputs.counts, self._max_words)
        order = np.argsort(counts, kind="stable")
        features = np.empty((len(order), self.n_features), np.float32)
        for start in range(0, len(order), TEXTS_PER_BLOCK):
            rows = order[start : start + TEXTS_PER_BLOCK]
            projected, bags = self._project_words(inputs, rows, counts[rows])
            features[rows, : self._n_convolved] = self._convolve(projected)
            features[rows, self._n_convolved :] = bags
        return features

    def _project_words(self, word_ids: Ragged, rows: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """For texts sorted by length: the input of the convolutions (texts × dimensions × channels), and the bags."""
        bags = np.empty((len(rows), self._dim if self._bag else 0), np.float32)
        projected = np.empty((len(rows), self._dim, self._project.shape[1]), np.float32)
        begin = 0
        for n_words, run in groupby(counts.tolist()):
            end = begin + len(list(run))
            ids = word_ids.values[word_ids.indptr[rows[begin:end], None] + np.arange(n_words)]
            vectors = self._words[ids]
            np.matmul(vectors.transpose(0, 2, 1), self._attend(vectors), out=projected[begin:end])
            if self._bag:
                bags[begin:end] = vectors.sum(axis=1) / np.float32(np.sqrt(max(n_words, 1)))
            begin = end
        return projected, bags

    def _attend(self, vectors: np.ndarray) -> np.ndarray:
        """The projection (words × channels) with both attentions folded in, for texts of equal length."""
        n_words = vectors.shape[1]
        project = self._project[:n_words]
        if self._mixes is None:
            return project
        word_mix, dimension_mix = self._mixes
        mixed = (vectors.reshape(-1, self._dim) @ dimension_mix).reshape(vectors.shape)
        word_mix, words_by_words = word_mix[:n_words, :n_words], vectors @ vectors.transpose(0, 2, 1)
        value = project + word_mix @ (words_by_words @ project) if self._value_is_query else project
        project = project + (vectors @ mixed.transpose(0, 2, 1)) @ value
        return project + word_mix @ (words_by_words @ project)

    def _convolve(self, projected: np.ndarray) -> np.ndarray:
        if self._project_biases is not None:
            projected += self._project_biases
            gelu_rows(projected.reshape(-1, projected.shape[2]))
        x = projected.take(self._wrapped, axis=1)
        x = _gelu_convolution(x, *self._branches, self._branch_bounds)
        x = _gelu_convolution(x, *self._last, self._last_bounds)
        if self._scales is not None and self._shifts is not None:
            x = x * self._scales + self._shifts
        return x.transpose(0, 2, 1).reshape(-1, self._n_convolved)

    def multiply_adds(self, word_counts: np.ndarray) -> float:
        words = np.minimum(word_counts, self._max_words).astype(float)
        dim, channels = self._dim, self._project.shape[1]
        cost = dim * words * channels
        if self._mixes is not None:
            # Dimensions mixed; two words × words matrices; each of them, and the word mix, times the projection.
            cost += words * dim**2 + 2 * words**2 * dim + 3 * words**2 * channels
        branches = len(self._wrapped) // STRIDE * self._branches[0].size
        last = self._n_branch // STRIDE * self._last[0].size
        return float((cost + branches + last).mean())


def _gelu_convolution(x: np.ndarray, weights: np.ndarray, biases: np.ndarray, bounds: np.ndarray) -> np.ndarray:
    """GELU of a strided convolution, texts × positions × channels. The positions are a multiple of the stride."""
    n_texts, n_positions, channels = x.shape
    n_steps = n_positions // STRIDE
    products = x.reshape(n_texts * n_steps, STRIDE * channels) @ weights
    out = np.empty((n_texts, n_steps - len(bounds) + 2, len(biases)), np.float32)
    join_taps(products.reshape(n_texts, n_steps, -1), bounds, biases, out)
    return out
