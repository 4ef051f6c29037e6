"""InceptionXML's encoder for prediction: the same features from plain arrays, without torch.

All that stands before the first convolution multiplies a text's S × d word vectors from the left, so it becomes one
small matrix (channels × S) first and meets the word vectors once. Positions come before channels in memory: a
window of a convolution then is four neighbouring rows of a matrix, and one product with all taps' weights serves
every window.
"""

from __future__ import annotations

from itertools import groupby

import numpy as np

from shortlist.arrays import QuantizedMatrix, Ragged, counts_to_indptr
from shortlist.errors import ModelError
from shortlist.kernels.encoders import join_taps

WIDTHS = (4, 8, 16)
LAST_WIDTH = 16
STRIDE = 4

BRANCH_TAPS, LAST_TAPS = max(WIDTHS) // STRIDE, LAST_WIDTH // STRIDE
# Dimensions that stand before the first one in its window: the windows go round in a circle.
BEFORE = (max(WIDTHS) - STRIDE) // 2

# So many texts at once keep what is between two layers in the cache.
BLOCK = 16


def branch_columns(channels: int) -> list[int]:
    """How many of the branches' channels, the last ones, have weights in each tap: the outer taps miss narrow ones."""
    middle = max(WIDTHS) // 2
    distances = [abs(STRIDE * tap + STRIDE // 2 - middle) for tap in range(BRANCH_TAPS)]
    return [channels * sum(2 * distance < width + STRIDE for width in WIDTHS) for distance in distances]


class InceptionRuntime:
    """Word ids to features (texts × `n_features`), from the arrays that `InceptionEncoder.to_arrays` gave."""

    def __init__(self, arrays: dict[str, np.ndarray], max_words: int) -> None:
        _check(arrays, max_words)
        self.max_words = max_words
        self._words, self._project = QuantizedMatrix.of_arrays(arrays, "words"), arrays["project"]
        self._mixes = (arrays["word_mix"], arrays["dimension_mix"]) if "word_mix" in arrays else None
        self._branches = arrays["branch_weights"], arrays["branch_biases"]
        self._last = arrays["last_weights"], arrays["last_biases"]
        self.n_words, self.dimensions = self._words.shape
        channels = self._project.shape[1]
        self._branch_bounds = counts_to_indptr(branch_columns(channels))
        self._last_bounds = counts_to_indptr([len(arrays["last_biases"])] * LAST_TAPS)
        n_last = (self.dimensions // STRIDE - LAST_WIDTH) // STRIDE + 1
        self._n_convolved = len(arrays["last_biases"]) * n_last
        self._bag = "bag" in arrays
        self.n_features = self._n_convolved + (self.dimensions if self._bag else 0)
        # Only what the last convolution reads is computed: it may stop short of the end.
        self._n_branch = STRIDE * (n_last + LAST_TAPS - 1)
        self._wrapped = np.arange(-BEFORE, STRIDE * (self._n_branch + BRANCH_TAPS - 1) - BEFORE) % self.dimensions

    def encode(self, word_ids: Ragged) -> np.ndarray:
        """The features of each text, in the order given. Words after the first `max_words` do not count."""
        counts = np.minimum(word_ids.counts, self.max_words)
        order = np.argsort(counts, kind="stable")
        features = np.empty((len(order), self.n_features), np.float32)
        for start in range(0, len(order), BLOCK):
            rows = order[start : start + BLOCK]
            pictures, bags = self._pictures(word_ids, rows, counts[rows])
            features[rows, : self._n_convolved] = self._convolved(pictures)
            features[rows, self._n_convolved :] = bags
        return features

    def _pictures(self, word_ids: Ragged, rows: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Of texts sorted by length: what the convolutions see (texts × dimensions × channels), and the bags."""
        bags = np.empty((len(rows), self.dimensions if self._bag else 0), np.float32)
        pictures = np.empty((len(rows), self.dimensions, self._project.shape[1]), np.float32)
        begin = 0
        for n_words, run in groupby(counts.tolist()):
            end = begin + len(list(run))
            ids = word_ids.values[word_ids.indptr[rows[begin:end], None] + np.arange(n_words)]
            vectors = self._words[ids]
            np.matmul(vectors.transpose(0, 2, 1), self._attended(vectors), out=pictures[begin:end])
            if self._bag:
                bags[begin:end] = vectors.sum(axis=1) / np.float32(np.sqrt(max(n_words, 1)))
            begin = end
        return pictures, bags

    def _attended(self, vectors: np.ndarray) -> np.ndarray:
        """The projection (words × channels) with both attentions worked into it, for texts of equal length."""
        n_words = vectors.shape[1]
        project = self._project[:n_words]
        if self._mixes is None:
            return project
        word_mix, dimension_mix = self._mixes
        mixed = (vectors.reshape(-1, self.dimensions) @ dimension_mix).reshape(vectors.shape)
        project = project + (vectors @ mixed.transpose(0, 2, 1)) @ project
        return project + word_mix[:n_words, :n_words] @ ((vectors @ vectors.transpose(0, 2, 1)) @ project)

    def _convolved(self, pictures: np.ndarray) -> np.ndarray:
        """Both convolutions, with GELU after each."""
        x = pictures.take(self._wrapped, axis=1)
        x = _convolution(x, *self._branches, self._branch_bounds)
        x = _convolution(x, *self._last, self._last_bounds)
        return x.transpose(0, 2, 1).reshape(-1, self._n_convolved)


def _convolution(x: np.ndarray, weights: np.ndarray, biases: np.ndarray, bounds: np.ndarray) -> np.ndarray:
    """GELU of a convolution with stride (texts × positions × channels); a whole number of strides goes in."""
    n_texts, n_positions, channels = x.shape
    n_steps = n_positions // STRIDE
    products = x.reshape(n_texts * n_steps, STRIDE * channels) @ weights
    out = np.empty((n_texts, n_steps - len(bounds) + 2, len(biases)), np.float32)
    join_taps(products.reshape(n_texts, n_steps, -1), bounds, biases, out)
    return out


def _check(arrays: dict[str, np.ndarray], max_words: int) -> None:
    """A compiled loop follows these shapes blindly, and they come from a file: they are looked at before."""
    for name in ("words", "project"):
        if name in arrays and arrays[name].ndim != 2:
            raise _damaged(f"{name!r} has {arrays[name].ndim} axes instead of 2")
    n_words, dimensions = arrays["words"].shape if "words" in arrays else (0, 0)
    channels = arrays["project"].shape[1] if "project" in arrays else 0
    n_branches = len(WIDTHS) * channels
    last_channels = arrays["last_biases"].size if "last_biases" in arrays else 0
    shapes = {
        "words": (n_words, dimensions),
        "project": (max_words, channels),
        "branch_weights": (STRIDE * channels, sum(branch_columns(channels))),
        "branch_biases": (n_branches,),
        "last_biases": (last_channels,),
        "last_weights": (STRIDE * n_branches, LAST_TAPS * last_channels),
    }
    if "word_mix" in arrays or "dimension_mix" in arrays:
        shapes |= {"word_mix": (max_words, max_words), "dimension_mix": (dimensions, dimensions)}
    for name, shape in shapes.items():
        if name not in arrays:
            raise _damaged(f"there is no array {name!r}")
        if arrays[name].shape != shape:
            raise _damaged(f"{name!r} is {arrays[name].shape} where {shape} would fit the other arrays")
        if arrays[name].dtype != np.float32 and name != "words":
            raise _damaged(f"{name!r} is {arrays[name].dtype} instead of float32")
    if dimensions < LAST_WIDTH * STRIDE or not channels or not last_channels:
        raise _damaged(f"there are {dimensions} dimensions and {channels} channels, too few for the convolutions")


def _damaged(what: str) -> ModelError:
    return ModelError(f"the arrays of the model's encoder are damaged; train or fetch the model again ({what}).")
