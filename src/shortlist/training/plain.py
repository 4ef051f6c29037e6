"""Learning bags of word vectors without torch: an encoder, a block and label rows, with their gradients written out.

`PlainLearner` takes steps as `Learner` does, on plain arrays. Word vectors, the matrix of the block and hidden biases
are rows as those of labels are, so `LabelRows` moves all of them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from shortlist.arrays import Arrays, Ragged
from shortlist.kernels.encoders import sum_words
from shortlist.stages.output_layer import block_name
from shortlist.stages.stage import with_prefix, without_prefix
from shortlist.training.batches import Batch
from shortlist.training.group import ALONE, Group, summed
from shortlist.training.heads import BlockOptions, HeadOptions, StepResult
from shortlist.training.label_rows import LabelRows, RowOptions
from shortlist.training.memory import keep_freed_memory

DENSE = RowOptions("adam", bias_init="zero")
TINY = 1e-12  # as torch's spectral norm
N_FIRST_ITERATIONS = 15


class Mask:
    """Dropout: sets this fraction of the numbers to zero in training and scales up the rest."""

    def __init__(self, p: float) -> None:
        self.below = min(round(p * 256), 255)
        self.factors: np.ndarray | None = None

    def forward(self, x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        if not self.below:
            return x
        drawn = np.frombuffer(rng.bytes(x.size), np.uint8).reshape(x.shape)
        self.factors = (drawn >= self.below) * np.float32(1 / (1 - self.below / 256))
        return x * self.factors

    def backward(self, gradient: np.ndarray) -> np.ndarray:
        return gradient if self.factors is None else gradient * self.factors


class PlainFeatures:
    """Features in and out; in training, some of them are dropped."""

    def __init__(self, n_features: int, dropout: float = 0.5) -> None:
        self.n_features, self._dropout = n_features, Mask(dropout)

    def forward(self, batch: Batch, rng: np.random.Generator) -> np.ndarray:
        return self._dropout.forward(np.ascontiguousarray(batch.inputs, np.float32), rng)

    def backward(self, gradient: np.ndarray, learning_rate: float) -> None:
        pass

    def arrays(self) -> Arrays:
        return {}

    def learning(self) -> dict[str, LabelRows]:
        """What learns."""
        return {}


class PlainBag:
    """Word ids (texts × words, padding = number of words) to the tf-idf weighted sum of their vectors.

    The tf-idf weights of a text have length 1; words that occur twice count twice.

    relu     apply a ReLU to the sum, as published; it costs 3 to 6 points of P@1 here (docs/lab-book.md)
    buckets  MACH's encoder (Medini et al. 2019): `relu(Σ x_t · vectors[buckets[t]] + biases)`, words hashed into
             buckets
    """

    def __init__(
        self,
        idf: np.ndarray,
        vectors: np.ndarray,
        dropout: float = 0.5,
        relu: bool = False,
        buckets: np.ndarray | None = None,
        optimizer: str = "row-adam",
    ) -> None:
        self.n_features, self._relu, self._dropout = vectors.shape[1], relu, Mask(dropout)
        self._idf = np.append(idf, 0).astype(np.float32)
        self._buckets = None if buckets is None else buckets.astype(np.int32)
        self._row_of_word = np.append(np.arange(len(idf)) if buckets is None else buckets, 0).astype(np.int32)
        vectors = np.array(vectors, np.float32)  # a copy: they learn
        self._words = LabelRows.of(vectors, RowOptions(optimizer, bias_init="none"))
        self._biases = None if buckets is None else LabelRows.of(np.zeros((1, self.n_features), np.float32), DENSE)
        self._ones = np.ones(len(vectors), np.float32)

    def forward(self, batch: Batch, rng: np.random.Generator) -> np.ndarray:
        n_texts, width = batch.inputs.shape
        self._ids = batch.inputs.ravel().astype(np.int32)
        weights = np.empty(0, np.float32) if batch.weights is None else batch.weights.ravel()
        self._unit = unit_weights(self._idf, batch.inputs, batch.weights)
        sums = np.empty((n_texts, self.n_features), np.float32)
        indptr, words = np.arange(0, n_texts * width + 1, width), self._words.weights
        sum_words(indptr, self._ids, weights, self._row_of_word, words, self._ones, self._idf, width, sums)
        if self._biases is not None:
            sums += self._biases.weights[0]
        if self._relu or self._biases is not None:
            sums = np.maximum(sums, 0, out=sums)
            self._active = sums > 0
        return self._dropout.forward(sums, rng)

    def backward(self, gradient: np.ndarray, learning_rate: float) -> None:
        gradient = self._dropout.backward(gradient)
        if self._relu or self._biases is not None:
            gradient = gradient * self._active
        if self._biases is not None:
            self._biases.move_all(gradient.sum(axis=0)[None], np.zeros(1, np.float32), learning_rate)
        there = np.flatnonzero(self._ids < len(self._idf) - 1)
        rows = self._row_of_word[self._ids[there]]
        order = np.argsort(rows, kind="stable")
        rows, places = rows[order], there[order]
        begins = np.flatnonzero(np.diff(rows, prepend=-1))
        texts = (places // self._unit.shape[1]).astype(np.int32)
        terms = Ragged(np.append(begins, len(rows)), texts, self._unit.ravel()[places])
        self._words.move(rows[begins], terms, np.ascontiguousarray(gradient), learning_rate)

    def arrays(self) -> Arrays:
        arrays = {"words": self._words.weights, "idf": self._idf[:-1]}
        if self._biases is not None and self._buckets is not None:
            arrays |= {"biases": self._biases.weights[0], "buckets": self._buckets}
        return arrays

    def load(self, arrays: Arrays) -> None:
        """Continue from these arrays."""
        self._words.weights[...] = arrays["words"]
        if self._biases is not None:
            self._biases.weights[0] = arrays["biases"]

    def learning(self) -> dict[str, LabelRows]:
        return {"words": self._words} | ({} if self._biases is None else {"biases": self._biases})

    def config(self) -> dict[str, Any]:
        return {"relu": self._relu or self._biases is not None}


class PlainBlock:
    """`ResidualBlock` on arrays: `relu(R·h) + h`, by default with a spectral norm of R of 1; no batch norm."""

    def __init__(self, n_features: int, options: BlockOptions, seed: int) -> None:
        rng = np.random.default_rng([seed, n_features])
        self._options = options
        self._dropout, self._output_dropout = Mask(options.dropout), Mask(options.output_dropout)
        most = np.sqrt((3 if options.init == "xavier" else 1) / n_features)
        start = rng.uniform(-most, most, (n_features, n_features))
        start = np.eye(n_features) if options.init == "identity" else start
        self.rows = LabelRows.of(
            start.astype(np.float32), RowOptions("adam", bias_init="zero" if options.bias else "none")
        )
        self.vectors = rng.standard_normal((2, n_features)).astype(np.float32)  # left and right, for the spectral norm
        if options.norm == "spectral":
            for _ in range(N_FIRST_ITERATIONS):
                self._iterate()

    def _iterate(self) -> None:
        """One power iteration for the largest singular value."""
        left, right = self.vectors
        left[:] = unit(self.rows.weights @ right)
        right[:] = unit(self.rows.weights.T @ left)

    @property
    def _scale(self) -> np.float32:
        """The factor that brings the spectral norm of R to its bound."""
        if self._options.norm != "spectral":
            return np.float32(1)
        left, right = self.vectors
        return np.float32(self._options.spectral_bound / (left @ (self.rows.weights @ right)))

    def forward(self, features: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        if self._options.norm == "spectral":
            self._iterate()
        self._matrix = self._scale * self.rows.weights
        self._inputs = self._dropout.forward(features, rng)
        self._hidden = self._inputs @ self._matrix.T
        if self._options.bias:
            self._hidden += self.rows.biases
        activated = gelu(self._hidden) if self._options.activation == "gelu" else np.maximum(self._hidden, 0)
        outputs = self._output_dropout.forward(activated, rng)
        return outputs + features if self._options.residual else outputs

    def backward(self, gradient: np.ndarray, learning_rate: float) -> np.ndarray:
        """Move the matrix; the gradient to the features."""
        slope = gelu_slope(self._hidden) if self._options.activation == "gelu" else self._hidden > 0
        of_hidden = self._output_dropout.backward(gradient) * slope
        of_features = self._dropout.backward(of_hidden @ self._matrix)
        if self._options.residual:
            of_features = of_features + gradient
        moves = of_hidden.T @ self._inputs
        if self._options.norm == "spectral":  # the norm of R depends on R, too
            left, right = self.vectors
            along = np.float32(np.vdot(moves, self._matrix) / self._options.spectral_bound)
            moves = self._scale * (moves - along * np.outer(left, right))
        self.rows.move_all(moves, of_hidden.sum(axis=0), learning_rate)
        return of_features

    def arrays(self) -> Arrays:
        """What prediction needs (see `OutputLayer`)."""
        name = block_name(self._options.activation == "gelu", self._options.residual)
        biases = {"block_biases": self.rows.biases.copy()} if self._options.bias else {}
        return {name: self._scale * self.rows.weights, **biases}


class PlainLearner:
    """An encoder and its label rows in training, without torch. `Learner` says what the methods do.

    group  workers that have other rows. Encoder and block are the same on all of them, and stay so
    """

    def __init__(self, network: Any, rows: LabelRows, seed: int, head: HeadOptions, group: Group = ALONE) -> None:
        keep_freed_memory()
        self.network, self.rows, self._group = network, rows, group
        self.block = None if head.block is None else PlainBlock(network.n_features, head.block, seed)
        self._dropout = Mask(head.dropout)
        self.seed(seed)

    def seed(self, seed: int) -> None:
        """Set the random numbers of the next step."""
        self._rng = np.random.Generator(np.random.SFC64(seed))

    def step(self, batch: Batch, learning_rate: float, detach: bool = False) -> StepResult:
        features = self.network.forward(batch, self._rng)
        hidden = features if self.block is None else self.block.forward(features, self._rng)
        hidden = self._dropout.forward(hidden, self._rng)
        of_own_rows = self.rows.step(hidden, batch.candidates, batch.positives, learning_rate)
        loss, gradient = summed(self._group, *of_own_rows)
        gradient = self._dropout.backward(gradient)
        if self.block is not None:
            gradient = self.block.backward(gradient, learning_rate)
        self.network.backward(gradient, learning_rate)
        return StepResult(loss)

    def for_prediction(self) -> Arrays:
        rows = {"weights": self.rows.weights, "biases": self.rows.biases}
        if self.block is not None:
            rows |= self.block.arrays()
        return {**with_prefix("encoder", self.network.arrays()), **with_prefix("rows", rows)}

    def _learning(self) -> dict[str, LabelRows]:
        learning = {"rows": self.rows, **self.network.learning()}
        return learning if self.block is None else {**learning, "block": self.block.rows}

    def state(self) -> Arrays:
        arrays: Arrays = {} if self.block is None else {"spectral": self.block.vectors}
        for name, rows in self._learning().items():
            arrays |= with_prefix(name, rows.arrays())
        return arrays

    def restore(self, arrays: Arrays) -> None:
        if self.block is not None:
            self.block.vectors[...] = arrays["spectral"]
        for name, rows in self._learning().items():
            saved = without_prefix(name, arrays)
            for what, values in rows.arrays().items():
                values[...] = saved[what]


def unit_weights(idf: np.ndarray, word_ids: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
    """The weights of each text's words, idf times those that they come with, scaled to length 1."""
    weights = idf[word_ids] if weights is None else idf[word_ids] * weights
    return weights / np.maximum(np.sqrt(np.square(weights).sum(axis=1, keepdims=True)), np.float32(1e-6))


def unit(vector: np.ndarray) -> np.ndarray:
    return vector / max(float(np.linalg.norm(vector)), TINY)


def gelu(x: np.ndarray) -> np.ndarray:
    from scipy.special import ndtr

    return x * ndtr(x)


def gelu_slope(x: np.ndarray) -> np.ndarray:
    from scipy.special import ndtr

    return ndtr(x) + x * np.exp(-np.square(x) / 2) / np.float32(np.sqrt(2 * np.pi))
