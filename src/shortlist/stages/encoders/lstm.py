"""Bidirectional LSTMs without torch: a row of features for each word, for classifiers that attend to words.

Several LSTMs may read a text side by side, as the levels of AttentionXML's label tree do, each with word vectors of its
own. Texts are walked together, longest first, so that no step is spent on padding.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from shortlist.arrays import Arrays, ArraySpec, QuantizedMatrix, Ragged, counts_to_indptr
from shortlist.errors import ModelError
from shortlist.odds import expit
from shortlist.stages.encoders.encoder import Encoder, first_words
from shortlist.stages.stage import whole_number


class LSTMEncoder(Encoder):
    """Word ids to one row of hidden states per word: a `Ragged` whose values are rows of `n_features` columns.

    words    the vectors of all LSTMs side by side
    inputs   for each direction (forward, backward; then those of the next LSTM) word vector → gates; torch's order
    states   hidden state → gates
    initial  hidden state and cell before the first word

    A text without words is read as one word whose vector is zero.
    """

    kind = "lstm"
    spec = {
        "words": ArraySpec("rows", ("n_words", "n_columns"), finite=False),
        "inputs": ArraySpec("float32", ("n_directions", "embedding_dim", "n_gates")),
        "states": ArraySpec("float32", ("n_directions", "hidden_size", "n_gates")),
        "biases": ArraySpec("float32", ("n_directions", "n_gates")),
        "initial": ArraySpec("float32", ("n_directions", 2, "hidden_size")),
    }

    def __init__(self, arrays: Arrays, config: dict[str, Any]) -> None:
        super().__init__(arrays, config)
        self._words, self._max_words = QuantizedMatrix.of_arrays(arrays, "words"), whole_number(config, "max_words")
        self._inputs, self._states = arrays["inputs"], arrays["states"]
        n_directions, self._hidden_size, n_gates = self._states.shape
        n_columns = n_directions // 2 * self._inputs.shape[1]
        if not n_directions or n_directions % 2 or n_gates != 4 * self._hidden_size or n_columns != len(self._words[0]):
            raise ModelError(
                f"inputs {self._inputs.shape} and states {self._states.shape} do not fit bidirectional LSTMs over "
                f"word vectors of {self._words.shape[1]} columns"
            )
        self.n_words, self.n_features = len(self._words), n_directions * self._hidden_size

    def encode(self, inputs: Ragged) -> Ragged:
        words = first_words(inputs, self._max_words)
        vectors = self._words[words.values]
        if (words.counts == 0).any():
            vectors = np.insert(vectors, words.indptr[:-1][words.counts == 0], 0, axis=0)
            words = Ragged(counts_to_indptr(np.maximum(words.counts, 1)), words.values)
        features = np.empty((len(vectors), self.n_features), np.float32)
        dim, size = self._inputs.shape[1], self._hidden_size
        for direction in range(len(self._inputs)):
            own = vectors[:, direction // 2 * dim : (direction // 2 + 1) * dim]
            self._walk(own, words, direction, features[:, direction * size : (direction + 1) * size])
        return Ragged(words.indptr, features)

    def _walk(self, vectors: np.ndarray, words: Ragged, direction: int, out: np.ndarray) -> None:
        """One direction of one LSTM: the hidden state at every word."""
        gates = vectors @ self._inputs[direction] + self._arrays["biases"][direction]
        longest_first = np.argsort(-words.counts, kind="stable")
        lengths = words.counts[longest_first]
        place, step = words.indptr[:-1][longest_first], 1
        if direction % 2:
            place, step = place + lengths - 1, -1
        hidden, cell = np.repeat(self._arrays["initial"][direction][:, None], len(words), axis=1)
        for position in range(int(lengths.max(initial=0))):
            n_left = int(np.searchsorted(-lengths, -position))  # texts longer than this
            at = place[:n_left] + step * position
            now = gates[at] + hidden[:n_left] @ self._states[direction]
            into, keep, new, show = np.split(now, 4, axis=1)
            cell = expit(keep) * cell[:n_left] + expit(into) * np.tanh(new)
            hidden = expit(show) * np.tanh(cell)
            out[at] = hidden

    def multiply_adds(self, word_counts: np.ndarray) -> float:
        words = np.clip(word_counts, 1, self._max_words).astype(float)
        return float(words.mean() * (self._inputs.size + self._states.size))
