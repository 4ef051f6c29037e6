"""`LabelRows`: one row of weights and a bias for each label, with what the optimiser remembers beside them.

The rows are trained where they lie: `step_on_clusters`, `step_on_labels` and `step_on_all` make one pass over the
rows that anybody in the batch wants and give back the loss and the gradient for the features. A `LabelRows` holds a
contiguous range of labels and does not know whether there are others.

The optimiser is Adam cut down to what the heavy layer needs: the gradient of a row is measured by the root of its
mean square, one number for the whole row, and there is no momentum. It learns as well as full Adam (docs/lab-book.md)
and needs 12 bytes a row where Adam needs 8 bytes a weight, which is most of the memory and of the time of a step.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache

import numpy as np

from shortlist.arrays import Ragged
from shortlist.errors import DataError, OptionError
from shortlist.kernels.label_rows import cluster_step, entropy, even_shares, move_rows, samples_by_cluster
from shortlist.kernels.threads import use_threads

ROWS_PER_BLOCK = 4096


@dataclass
class LabelRows:
    """Weights (labels × features) and biases; mean squared gradients and the number of steps that saw each row."""

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
        """Small random weights; biases at the log-odds of `prior`, the share of texts that have a label."""
        rng = np.random.default_rng(seed)
        weights = rng.standard_normal((n_labels, n_features), dtype=np.float32)
        weights *= np.float32(0.3 / np.sqrt(n_features))
        prior = min(max(prior, 1e-6), 0.5)
        return LabelRows(weights, np.full(n_labels, np.log(prior / (1 - prior)), np.float32))

    @property
    def n_labels(self) -> int:
        return len(self.weights)

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Everything, as training needs it to go on."""
        return dict(vars(self))

    def step_on_clusters(
        self,
        features: np.ndarray,
        clusters: np.ndarray,
        starts: np.ndarray,
        positives: Ragged,
        rate: float,
        threads: int | None = None,
    ) -> tuple[float, np.ndarray]:
        """Learn from a batch in which each sample sees the labels of its clusters.

        features   samples × features, float32
        clusters   samples × K: the clusters each sample sees, none twice, -1 for none; those of its positives
                   must be among them
        starts     cluster c holds the rows `starts[c]` to `starts[c + 1]`
        positives  the rows that are right for each sample

        Gives the loss (binary cross-entropy, summed over labels, averaged over samples) and the gradient for
        the features, taken before the rows move.
        """
        home = np.searchsorted(starts, positives.values, side="right") - 1
        return self._step_on_wanted(features, clusters, starts, home, positives, rate, threads)

    def step_on_labels(
        self, features: np.ndarray, candidates: np.ndarray, positives: Ragged, rate: float, threads: int | None = None
    ) -> tuple[float, np.ndarray]:
        """Learn from a batch in which each sample sees its own candidates (samples × K), whatever these are.

        No row may stand twice among the candidates of a sample, -1 is for none, and its positives must be among
        them. Gives what `step_on_clusters` gives.
        """
        return self._step_on_wanted(features, candidates, None, positives.values, positives, rate, threads)

    def _step_on_wanted(
        self,
        features: np.ndarray,
        clusters: np.ndarray,
        starts: np.ndarray | None,
        home: np.ndarray,
        positives: Ragged,
        rate: float,
        threads: int | None,
    ) -> tuple[float, np.ndarray]:
        """A step on clusters of rows, or on rows (`starts` is None); `home`: the cluster of each positive."""
        features = np.ascontiguousarray(features, np.float32)
        n_samples = len(features)
        if not np.all(np.any(clusters[positives.row_ids] == home[:, None], axis=1)):
            raise OptionError("a sample does not see one of its positives; add those clusters, or labels")
        bounds_of_rows = np.arange(self.n_labels + 1) if starts is None else starts
        with use_threads(threads) as n_shares:
            wanted, bounds, samples = samples_by_cluster(clusters, len(bounds_of_rows) - 1)
            cuts = even_shares(wanted, bounds, bounds_of_rows, n_shares)
            by_row = np.argsort(positives.values, kind="stable")
            gradients = np.zeros((n_shares, n_samples, features.shape[1]), np.float32)
            losses = np.zeros(n_shares, np.float64)
            rows = (self.weights, self.biases, self.mean_squares, self.bias_squares, self.seen, features)
            batch = (
                wanted,
                bounds,
                samples,
                positives.values[by_row].astype(np.int64),
                positives.row_ids[by_row].astype(np.int32),
                cuts,
                np.float32(rate),
                np.float32(1 / max(n_samples, 1)),
                gradients,
                losses,
            )
            cluster_step(*rows, bounds_of_rows, *batch)
        return checked_loss(float(losses.sum()) / max(n_samples, 1)), gradients.sum(axis=0)

    def step_on_all(
        self,
        features: np.ndarray,
        positives: Ragged,
        rate: float,
        threads: int | None = None,
        logits_out: np.ndarray | None = None,
    ) -> tuple[float, np.ndarray]:
        """Learn from a batch in which each sample sees all labels; the loss and the gradient for the features.

        In blocks of rows with matrix products, of 16-bit numbers where the processor has those: they are several
        times as fast. The logits (samples × labels) are left in `logits_out` where it is given.
        """
        import torch

        short = torch.bfloat16 if has_short_products() else torch.float32
        x = torch.from_numpy(np.ascontiguousarray(features, np.float32)).to(short)
        scale = 1 / max(len(x), 1)
        gradient = torch.zeros(x.shape)
        loss, losses = 0.0, np.zeros(len(x))
        by_row = np.argsort(positives.values, kind="stable")
        rows, samples = positives.values[by_row], positives.row_ids[by_row]
        # Made once for all blocks: memory that is new has to be cleared by the system first, which costs as much time
        # as the products do.
        most = min(self.n_labels, ROWS_PER_BLOCK)
        short_weights, short_moves = torch.empty((2, most, x.shape[1]), dtype=short)
        moves = torch.empty((most, x.shape[1]))
        with use_threads(threads):
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
                    np.float32(rate),
                )
        return checked_loss(float(loss + losses.sum()) * scale), gradient.numpy()


def checked_loss(loss: float) -> float:
    """The loss, if it is a number."""
    if not np.isfinite(loss):
        raise DataError(
            f"the loss became {loss}: the features or weights are no longer finite. Lower the learning rate."
        )
    return loss


@cache
def has_short_products() -> bool:
    """Whether the processor multiplies matrices of 16-bit numbers faster than of 32-bit numbers."""
    import torch

    # Not public in every release of torch that we allow; without them the products are float32, only slower.
    tests = (getattr(torch.cpu, name, None) for name in ("_is_avx512_bf16_supported", "_is_amx_tile_supported"))
    return any(test is not None and test() for test in tests)
