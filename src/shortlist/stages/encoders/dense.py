"""The encoder of dense features: they are kept, and what a hidden layer learns is added to them."""

from __future__ import annotations

from typing import Any

import numpy as np

from shortlist.arrays import Arrays, ArraySpec
from shortlist.stages.encoders.encoder import Encoder


class DenseEncoder(Encoder):
    """`v + B · relu(A · v + a) + b` with v = scale · x: dense features in, as many learnt features out."""

    kind = "dense"
    dense = True
    spec = {
        "scale": ArraySpec("float32", ("n_words",)),
        "hidden": ArraySpec("float32", ("n_words", "hidden_size")),
        "hidden_biases": ArraySpec("float32", ("hidden_size",)),
        "output": ArraySpec("float32", ("hidden_size", "n_words")),
        "output_biases": ArraySpec("float32", ("n_words",)),
    }

    def __init__(self, arrays: Arrays, config: dict[str, Any] | None = None) -> None:
        super().__init__(arrays, config)
        self.n_words = self.n_features = len(arrays["scale"])

    def encode(self, inputs: np.ndarray) -> np.ndarray:
        arrays, features = self._arrays, inputs * self._arrays["scale"]
        hidden = np.maximum(features @ arrays["hidden"] + arrays["hidden_biases"], 0)
        return features + hidden @ arrays["output"] + arrays["output_biases"]

    def multiply_adds(self, word_counts: np.ndarray) -> float:
        return float(self.n_words + 2 * self._arrays["hidden"].size)
