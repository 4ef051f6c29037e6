"""`LabelRows`: one row of weights and a bias per label, with the optimiser's state, trained in place.

`step` makes one pass over the rows that are candidates for any text of the batch: dot products, loss, gradient to the
features, gradient to the row, and update. A `LabelRows` holds a contiguous range of labels and does not know whether
there are others.

By default, the optimiser is Adam without momentum and with one mean square per row. It learns as well as Adam
(docs/lab-book.md) and needs 12 bytes per row where Adam needs 8 bytes per weight, which is most of the memory and of
the time of a step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from shortlist.arrays import Arrays, Ragged
from shortlist.errors import DataError, OptionError
from shortlist.kernels.label_rows import (
    EPSILON,
    MEMORY,
    MOMENTUM,
    cluster_step,
    entropy,
    even_shares,
    move_rows,
    move_some_rows,
    samples_by_cluster,
)
from shortlist.kernels.threads import n_threads, run_shares
from shortlist.recipes.options import Options

if TYPE_CHECKING:
    from typing_extensions import Self

ROWS_PER_BLOCK = 512
ROWS_PER_DRAW = 65_536
# Row-adam learns nothing from a label whose probability is nearer to its target than this. That is most of the
# candidates of a text, and half of the time of a step (docs/lab-book.md).
LEAST_ERROR = 0.001


class Clusters(NamedTuple):
    """Clusters as candidates: texts × K ids, none twice, -1 for none. Cluster c has rows starts[c] to starts[c + 1]."""

    ids: np.ndarray
    starts: np.ndarray


Candidates = Clusters | np.ndarray | None


@dataclass(frozen=True)
class RowOptions:
    """How rows start and learn: the options of the same names (`OPTIMIZATION_OPTIONS` in recipes/common.py)."""

    optimizer: str = "row-adam"
    loss_reduction: str = "sum"
    row_init: str = "normal"
    bias_init: str = "prior"

    @classmethod
    def of(cls, options: Options) -> Self:
        return cls(**{field.name: getattr(options, field.name) for field in fields(cls)})


OUR_ROW_OPTIONS = RowOptions()


@dataclass
class LabelRows:
    """Weights (labels × features) and biases, and the optimiser's state.

    With "row-adam", `mean_squares` has one number per row, and `seen` the number of steps that saw each row. With
    "adam", there are means and mean squares of every weight, and `seen` is the number of steps.
    """

    weights: np.ndarray
    biases: np.ndarray
    mean_squares: np.ndarray
    bias_squares: np.ndarray
    seen: np.ndarray
    means: np.ndarray | None = None
    bias_means: np.ndarray | None = None
    options: RowOptions = OUR_ROW_OPTIONS
    product: Callable[..., np.ndarray] = np.matmul  # of two matrices; takes an array for the result

    @staticmethod
    def start(
        n_labels: int,
        n_features: int,
        prior: float,
        seed: int = 0,
        options: RowOptions = OUR_ROW_OPTIONS,
        own: np.ndarray | None = None,
    ) -> LabelRows:
        """Random weights; biases at 0, or at the log-odds of `prior`, the mean probability of a label.

        own  the rows to have, ascending (None: all). Each is as it would be among all of them
        """
        rng = np.random.default_rng(seed)
        draw = rng.random if options.row_init == "xavier" else rng.standard_normal
        own = np.arange(n_labels) if own is None else own
        weights = np.empty((len(own), n_features), np.float32)
        for begin in range(0, n_labels, ROWS_PER_DRAW):
            size = min(ROWS_PER_DRAW, n_labels - begin), n_features
            drawn = draw(size, dtype=np.float32)
            here = slice(*np.searchsorted(own, [begin, begin + ROWS_PER_DRAW]))
            weights[here] = drawn[own[here] - begin]
        if options.row_init == "xavier":
            weights = (2 * weights - 1) * np.float32(np.sqrt(6 / (n_labels + n_features)))
        else:
            weights *= np.float32(0.3 / np.sqrt(n_features))
        prior = min(max(prior, 1e-6), 0.5)
        bias = np.log(prior / (1 - prior)) if options.bias_init == "prior" else 0
        return LabelRows.of(weights, options, bias)

    @staticmethod
    def of(weights: np.ndarray, options: RowOptions = OUR_ROW_OPTIONS, bias: float = 0.0) -> LabelRows:
        """Rows that start from these weights, and from this bias each."""
        n_labels = len(weights)
        biases, bias_squares = np.full(n_labels, bias, np.float32), np.zeros(n_labels, np.float32)
        if options.optimizer == "adam":
            squares, means = np.zeros_like(weights), np.zeros_like(weights)
            seen, bias_means = np.zeros(1, np.int32), np.zeros_like(biases)
            return LabelRows(weights, biases, squares, bias_squares, seen, means, bias_means, options)
        seen = np.zeros(n_labels, np.int32)
        return LabelRows(weights, biases, np.zeros_like(biases), bias_squares, seen, options=options)

    @property
    def n_labels(self) -> int:
        return len(self.weights)

    def arrays(self) -> Arrays:
        """Everything, as resuming needs it."""
        return {name: value for name, value in vars(self).items() if isinstance(value, np.ndarray)}

    def _state(self, rows: slice = slice(None)) -> tuple[np.ndarray, ...]:
        """The optimiser's state of these rows, as the kernels take it."""
        if self.means is None or self.bias_means is None:
            return self.mean_squares[rows], self.bias_squares[rows], self.seen[rows]
        return self.means[rows], self.mean_squares[rows], self.bias_means[rows], self.bias_squares[rows]

    def step(
        self,
        features: np.ndarray,
        candidates: Candidates,
        positives: Ragged,
        learning_rate: float,
        logits_out: np.ndarray | None = None,
    ) -> tuple[float, np.ndarray]:
        """Learn from a batch: the loss, and the gradient to the features, taken before the rows move.

        features    texts × features, float32
        candidates  the rows that each text sees: `Clusters`, row ids (texts × K, none twice, -1 for none), or None for
                    all rows. The positives must be among them
        positives   the rows that are right for each text; weights, if any, are the probabilities that they should have
        logits_out  takes the logits of all rows, where all rows are candidates

        The loss is binary cross-entropy, averaged over texts, and summed over rows or averaged over them, too. Where
        texts have different numbers of candidates, the widest counts for all: the others are padded, as published.
        """
        features = np.ascontiguousarray(features, np.float32)
        if candidates is None:
            return self._step_on_all(features, positives, learning_rate, logits_out)
        if isinstance(candidates, Clusters):
            starts, ids = np.asarray(candidates.starts, np.int64), np.asarray(candidates.ids, np.int32)
            home = np.searchsorted(starts, positives.values, side="right") - 1
        else:
            starts, ids, home = None, np.asarray(candidates, np.int32), positives.values
        if not np.all(np.any(ids[positives.row_ids] == home[:, None], axis=1)):
            raise OptionError("the positives of a text must be among its candidates")
        n_texts, n_parts = len(features), n_threads()
        bounds_of_rows = np.arange(self.n_labels + 1) if starts is None else starts
        wanted, bounds, texts = samples_by_cluster(ids, len(bounds_of_rows) - 1)
        cuts = even_shares(wanted, bounds, bounds_of_rows, n_parts)
        by_row = np.argsort(positives.values, kind="stable")
        gradients = np.zeros((n_parts, n_texts, features.shape[1]), np.float32)
        losses = np.zeros(n_parts, np.float64)
        scale = loss_scale(self.options, n_texts, widest(ids, bounds_of_rows))
        batch = (
            wanted,
            bounds,
            texts,
            positives.values[by_row].astype(np.int64),
            positives.row_ids[by_row].astype(np.int32),
            targets_of(positives)[by_row],
            cuts,
            step_rates(self.options, self.seen, learning_rate, dense=False),
            np.float32(scale),
            np.float32(0 if self.options.optimizer == "adam" else LEAST_ERROR * scale),
            gradients,
            losses,
        )
        cluster_step(self.weights, self.biases, self._state(), features, bounds_of_rows, *batch)
        return checked_loss(float(losses.sum()) * scale), gradients.sum(axis=0)

    def _step_on_all(
        self, features: np.ndarray, positives: Ragged, learning_rate: float, logits_out: np.ndarray | None
    ) -> tuple[float, np.ndarray]:
        """All rows, in blocks that stay in a core's cache, by matrix products. Threads share the blocks out."""
        scale = np.float32(loss_scale(self.options, len(features), self.n_labels))
        rates = step_rates(self.options, self.seen, learning_rate, dense=True)
        by_row = np.argsort(positives.values, kind="stable")
        rows, texts, targets = positives.values[by_row], positives.row_ids[by_row], targets_of(positives)[by_row]
        n_blocks = -(-self.n_labels // ROWS_PER_BLOCK)
        n_shares = min(n_threads(), n_blocks)
        gradients, losses = np.zeros((n_shares, *features.shape), np.float32), np.zeros(n_shares)

        def learn(share: int) -> None:
            # Allocated once for all blocks: clearing new memory costs as much time as the products.
            moves = np.empty((min(self.n_labels, ROWS_PER_BLOCK), features.shape[1]), np.float32)
            slopes, logits = np.empty((2, len(features) * len(moves)), np.float32)
            of_texts = np.zeros(len(features))
            for begin in range(share * ROWS_PER_BLOCK, self.n_labels, n_shares * ROWS_PER_BLOCK):
                block = slice(begin, min(begin + ROWS_PER_BLOCK, self.n_labels))
                n_rows = block.stop - begin
                shape = len(features), n_rows
                z, slope = (array[: shape[0] * n_rows].reshape(shape) for array in (logits, slopes))
                self.product(features, self.weights[block].T, z)
                entropy(z, self.biases[block], scale, slope, of_texts)
                if logits_out is not None:
                    logits_out[:, block] = z
                here = slice(*np.searchsorted(rows, [block.start, block.stop]))
                yes = texts[here], rows[here] - begin
                slope[yes] -= targets[here] * scale
                losses[share] -= (targets[here] * z[yes]).sum()
                gradients[share] += self.product(slope, self.weights[block])
                self.product(slope.T, features, moves[:n_rows])
                of_rows = (self.weights[block], self.biases[block], self._state(block), moves[:n_rows])
                move_rows(*of_rows, slope.sum(axis=0), rates)
            losses[share] += of_texts.sum()

        run_shares(learn, n_shares)
        return checked_loss(float(losses.sum() * scale)), gradients.sum(axis=0)

    def move(self, rows: np.ndarray, terms: Ragged, gradients: np.ndarray, learning_rate: float) -> None:
        """Move each of `rows` along its gradient: the sum of `terms.weights` times the gradients `terms.values`."""
        assert terms.weights is not None
        rates = step_rates(self.options, self.seen, learning_rate, dense=False)
        move_some_rows(
            self.weights, self.biases, self._state(), rows, terms.indptr, terms.values, terms.weights, gradients, rates
        )

    def move_all(self, gradients: np.ndarray, bias_gradients: np.ndarray, learning_rate: float) -> None:
        """Move all rows along these gradients."""
        rates = step_rates(self.options, self.seen, learning_rate, dense=True)
        move_rows(self.weights, self.biases, self._state(), gradients, bias_gradients, rates)


def targets_of(positives: Ragged) -> np.ndarray:
    """The probability that each positive should have: its weight, or 1."""
    weights = positives.weights
    return np.ones(len(positives.values), np.float32) if weights is None else weights.astype(np.float32)


def rows_memory(n_rows: int, n_features: int, options: Options) -> int:
    """Bytes of rows in training. Weights count twice: if the best epoch is not the last, it is read back beside it."""
    per_weight = 8 + (8 if options.optimizer == "adam" else 0)
    return n_rows * (per_weight * n_features + 16)


def loss_scale(options: RowOptions, n_texts: int, n_rows: int) -> float:
    """The weight of one cross-entropy in the loss of a batch, if the text with the most candidates has `n_rows`."""
    return 1 / max(n_texts * (n_rows if options.loss_reduction == "mean" else 1), 1)


def widest(ids: np.ndarray, starts: np.ndarray) -> int:
    """The number of rows of the text with the most of them; `starts` are the bounds of clusters (see `Clusters`)."""
    sizes = np.append(np.diff(starts), 0)  # -1 is no cluster
    return int(sizes[ids].sum(axis=1).max(initial=0))


def step_rates(options: RowOptions, seen: Any, learning_rate: float, dense: bool) -> tuple[Any, Any, Any]:
    """The learning rate of weights and of biases, and epsilon, of this step. For Adam, `seen` counts it.

    Adam's moments start at 0 and are too small at first. torch's Adam (`dense`: all rows) corrects them before epsilon
    is added, its SparseAdam (the rows that were seen) behind.
    """
    epsilon = float(EPSILON)
    if options.optimizer == "adam":
        seen += 1
        n_steps = int(seen[0])
        correction = (1 - (1 - 1 / MEMORY) ** n_steps) ** 0.5
        learning_rate *= correction / (1 - (1 - 1 / MOMENTUM) ** n_steps)
        epsilon *= correction if dense else 1
    bias_rate = 0.0 if options.bias_init == "none" else learning_rate
    return np.float32(learning_rate), np.float32(bias_rate), np.float32(epsilon)


def checked_loss(loss: float) -> float:
    """The loss, or an error if it is not finite."""
    if not np.isfinite(loss):
        raise DataError(f"training diverged: the loss is {loss}. Lower the learning rate.")
    return loss
