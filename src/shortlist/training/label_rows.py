"""`LabelRows`: one row of weights and a bias per label, with the optimiser's state, trained in place.

`step` makes one pass over the rows that are candidates for any text of the batch: dot products, loss, gradient to the
features, gradient to the row, and update. A `LabelRows` holds a contiguous range of labels and does not know whether
there are others.

The optimiser is Adam without momentum and with one mean square per row. It learns as well as Adam (docs/lab-book.md)
and needs 12 bytes per row where Adam needs 8 bytes per weight, which is most of the memory and of the time of a step.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import NamedTuple

import numpy as np

from shortlist.arrays import Arrays, Ragged
from shortlist.errors import DataError, OptionError
from shortlist.kernels.label_rows import cluster_step, entropy, even_shares, move_rows, samples_by_cluster
from shortlist.kernels.threads import n_threads

ROWS_PER_BLOCK = 4096


class Clusters(NamedTuple):
    """Clusters as candidates: texts × K ids, none twice, -1 for none. Cluster c has rows starts[c] to starts[c + 1]."""

    ids: np.ndarray
    starts: np.ndarray


Candidates = Clusters | np.ndarray | None


@dataclass
class LabelRows:
    """Weights (labels × features) and biases; mean squared gradients; and the number of steps that saw each row."""

    weights: np.ndarray
    biases: np.ndarray
    mean_squares: np.ndarray = field(default_factory=lambda: np.zeros(0, np.float32))
    bias_squares: np.ndarray = field(default_factory=lambda: np.zeros(0, np.float32))
    seen: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int32))

    def __post_init__(self) -> None:
        if len(self.seen) != self.n_labels:
            self.mean_squares, self.bias_squares = np.zeros((2, self.n_labels), np.float32)
            self.seen = np.zeros(self.n_labels, np.int32)

    @staticmethod
    def start(n_labels: int, n_features: int, prior: float, seed: int = 0) -> LabelRows:
        """Small random weights; biases at the log-odds of `prior`, the mean probability of a label."""
        rng = np.random.default_rng(seed)
        weights = rng.standard_normal((n_labels, n_features), dtype=np.float32)
        weights *= np.float32(0.3 / np.sqrt(n_features))
        prior = min(max(prior, 1e-6), 0.5)
        return LabelRows(weights, np.full(n_labels, np.log(prior / (1 - prior)), np.float32))

    @property
    def n_labels(self) -> int:
        return len(self.weights)

    def arrays(self) -> Arrays:
        """Everything, as resuming needs it."""
        return dict(vars(self))

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
        positives   the rows that are right for each text
        logits_out  takes the logits of all rows, where all rows are candidates

        The loss is binary cross-entropy, summed over rows and averaged over texts.
        """
        features = np.ascontiguousarray(features, np.float32)
        if candidates is None:
            return self._step_on_all(features, positives, learning_rate, logits_out)
        if isinstance(candidates, Clusters):
            starts, ids = candidates.starts, candidates.ids
            home = np.searchsorted(starts, positives.values, side="right") - 1
        else:
            starts, ids, home = None, candidates, positives.values
        if not np.all(np.any(ids[positives.row_ids] == home[:, None], axis=1)):
            raise OptionError("the positives of a text must be among its candidates")
        n_texts, n_parts = len(features), n_threads()
        bounds_of_rows = np.arange(self.n_labels + 1) if starts is None else starts
        wanted, bounds, texts = samples_by_cluster(ids, len(bounds_of_rows) - 1)
        cuts = even_shares(wanted, bounds, bounds_of_rows, n_parts)
        by_row = np.argsort(positives.values, kind="stable")
        gradients = np.zeros((n_parts, n_texts, features.shape[1]), np.float32)
        losses = np.zeros(n_parts, np.float64)
        rows = (self.weights, self.biases, self.mean_squares, self.bias_squares, self.seen, features)
        batch = (
            wanted,
            bounds,
            texts,
            positives.values[by_row].astype(np.int64),
            positives.row_ids[by_row].astype(np.int32),
            cuts,
            np.float32(learning_rate),
            np.float32(1 / max(n_texts, 1)),
            gradients,
            losses,
        )
        cluster_step(*rows, bounds_of_rows, *batch)
        return checked_loss(float(losses.sum()) / max(n_texts, 1)), gradients.sum(axis=0)

    def _step_on_all(
        self, features: np.ndarray, positives: Ragged, learning_rate: float, logits_out: np.ndarray | None
    ) -> tuple[float, np.ndarray]:
        """All rows, in blocks, by matrix products; in bfloat16 where the processor is several times as fast at that."""
        import torch

        short = torch.bfloat16 if has_fast_bfloat16() else torch.float32
        x = torch.from_numpy(features).to(short)
        scale = 1 / max(len(x), 1)
        gradient = torch.zeros(x.shape)
        loss, losses = 0.0, np.zeros(len(x))
        by_row = np.argsort(positives.values, kind="stable")
        rows, samples = positives.values[by_row], positives.row_ids[by_row]
        # Allocated once for all blocks: clearing new memory costs as much time as the products.
        most = min(self.n_labels, ROWS_PER_BLOCK)
        short_weights, short_moves = torch.empty((2, most, x.shape[1]), dtype=short)
        moves = torch.empty((most, x.shape[1]))
        for begin in range(0, self.n_labels, ROWS_PER_BLOCK):
            block = slice(begin, min(begin + ROWS_PER_BLOCK, self.n_labels))
            n_rows = block.stop - begin
            here = slice(*np.searchsorted(rows, [block.start, block.stop]))
            yes = (samples[here], rows[here] - begin)
            weights = short_weights[:n_rows].copy_(torch.from_numpy(self.weights[block]))
            logits = (x @ weights.T).float()
            slopes = torch.empty_like(logits)
            entropy(logits.numpy(), self.biases[block], np.float32(scale), slopes.numpy(), losses)
            if logits_out is not None:
                logits_out[:, block] = logits.numpy()
            slopes[yes] -= scale
            loss -= float(logits[yes].sum())
            slopes_short = slopes.to(short)
            gradient += slopes_short @ weights
            move_rows(
                self.weights[block],
                self.biases[block],
                self.mean_squares[block],
                self.bias_squares[block],
                self.seen[block],
                moves[:n_rows].copy_(torch.mm(slopes_short.T, x, out=short_moves[:n_rows])).numpy(),
                slopes.sum(dim=0).numpy(),
                np.float32(learning_rate),
            )
        return checked_loss(float(loss + losses.sum()) * scale), gradient.numpy()


def checked_loss(loss: float) -> float:
    """The loss, or an error if it is not finite."""
    if not np.isfinite(loss):
        raise DataError(f"training diverged: the loss is {loss}. Lower the learning rate.")
    return loss


@cache
def has_fast_bfloat16() -> bool:
    """Whether the processor multiplies bfloat16 matrices faster than float32 matrices."""
    import torch

    # Not public in every release of torch; without them the products are float32, only slower.
    tests = (getattr(torch.cpu, name, None) for name in ("_is_avx512_bf16_supported", "_is_amx_tile_supported"))
    return any(test is not None and test() for test in tests)
