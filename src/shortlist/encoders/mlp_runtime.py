"""MACH's encoder for prediction: the same features from plain arrays, without torch."""

from __future__ import annotations

import numpy as np

from shortlist.arrays import QuantizedMatrix, Ragged, check_finite
from shortlist.errors import ModelError
from shortlist.kernels.encoders import sum_words


class MLPRuntime:
    """Word ids to features (texts × `n_features`), from the arrays that `MLPEncoder.to_arrays` gave."""

    def __init__(self, arrays: dict[str, np.ndarray], max_words: int) -> None:
        kinds = (("biases", 1, np.float32), ("idf", 1, np.float32), ("buckets", 1, np.int32))
        for name, axes, kind in kinds:
            if name not in arrays or arrays[name].ndim != axes or arrays[name].dtype != kind:
                raise ModelError(f"the encoder has no array {name!r} of {kind.__name__} with {axes} axes")
        check_finite("biases", arrays["biases"])
        check_finite("idf", arrays["idf"])
        self._rows, self._biases = QuantizedMatrix.of_arrays(arrays, "words"), arrays["biases"]
        self._idf, self._buckets, self.max_words = arrays["idf"], arrays["buckets"], max_words
        self.n_words, self.n_features = len(self._buckets), len(self._biases)
        if self._rows.shape[1] != self.n_features or len(self._idf) != self.n_words:
            raise ModelError("rows, biases, weights and buckets of the encoder are not of one length")
        # A compiled product follows these numbers blindly.
        if self.n_words and not 0 <= self._buckets.min() <= self._buckets.max() < len(self._rows):
            raise ModelError(f"the encoder names buckets beyond the {len(self._rows):,} there are")

    def encode(self, word_ids: Ragged) -> np.ndarray:
        """The features of each text. Words after the first `max_words` do not count."""
        sums = np.empty((len(word_ids), self.n_features), np.float32)
        sum_words(
            word_ids.indptr,
            word_ids.values,
            self._buckets,
            self._rows.values,
            self._rows.scales,
            self._idf,
            self.max_words,
            sums,
        )
        return np.maximum(sums + self._biases, 0)
