"""`LabelRows`: one row of weights and a bias for each label, with Adam's state beside them.

The rows are trained where they lie: `step_on_clusters` and `step_on_all` make one pass over the rows that anybody in
the batch wants and give back the loss and the gradient for the features. A `LabelRows` holds a contiguous range of
labels and does not know whether there are others.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache

import numpy as np

from shortlist.errors import DataError, OptionError
from shortlist.kernels.label_rows import adam_block, cluster_step, even_shares, samples_by_cluster
from shortlist.kernels.threads import use_threads
from shortlist.ragged import Ragged

BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8
ROWS_PER_BLOCK = 4096


@dataclass
class LabelRows:
    """Weights (labels × features), biases, and the two moments of each. `steps` counts the steps taken."""

    weights: np.ndarray
    biases: np.ndarray
    steps: int = 0
    first: np.ndarray = field(default_factory=lambda: np.zeros(0))
    second: np.ndarray = field(default_factory=lambda: np.zeros(0))
    bias_first: np.ndarray = field(default_factory=lambda: np.zeros(0))
    bias_second: np.ndarray = field(default_factory=lambda: np.zeros(0))

    def __post_init__(self) -> None:
        if not self.first.size:
            self.first, self.second = np.zeros_like(self.weights), np.zeros_like(self.weights)
            self.bias_first, self.bias_second = np.zeros_like(self.biases), np.zeros_like(self.biases)

    @staticmethod
    def start(n_labels: int, n_features: int, prior: float, seed: int = 0) -> LabelRows:
        """Small random weights; biases at the log-odds of `prior`, the share of texts that have a label."""
        rng = np.random.default_rng(seed)
        weights = rng.standard_normal((n_labels, n_features), dtype=np.float32)
        weights *= np.float32(1 / np.sqrt(n_features))
        prior = min(max(prior, 1e-6), 0.5)
        return LabelRows(weights, np.full(n_labels, np.log(prior / (1 - prior)), np.float32))

    @property
    def n_labels(self) -> int:
        return len(self.weights)

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
        features = np.ascontiguousarray(features, np.float32)
        n_samples = len(features)
        home = np.searchsorted(starts, positives.values, side="right") - 1
        if not np.all(np.any(clusters[positives.row_of_value] == home[:, None], axis=1)):
            raise OptionError("a sample does not see the cluster of one of its positives; add those clusters")
        rate32, epsilon32 = self._next_step(rate)
        with use_threads(threads) as n_shares:
            wanted, bounds, samples = samples_by_cluster(clusters, len(starts) - 1)
            cuts = even_shares(wanted, bounds, starts, n_shares)
            by_row = np.argsort(positives.values, kind="stable")
            gradients = np.zeros((n_shares, n_samples, features.shape[1]), np.float32)
            losses = np.zeros(n_shares, np.float64)
            cluster_step(
                self.weights,
                self.biases,
                self.first,
                self.second,
                self.bias_first,
                self.bias_second,
                features,
                starts,
                wanted,
                bounds,
                samples,
                positives.values[by_row].astype(np.int64),
                positives.row_of_value[by_row].astype(np.int32),
                cuts,
                rate32,
                np.float32(BETA1),
                np.float32(BETA2),
                epsilon32,
                np.float32(1 / max(n_samples, 1)),
                gradients,
                losses,
            )
        return self._checked(float(losses.sum()) / max(n_samples, 1)), gradients.sum(axis=0)

    def step_on_all(
        self, features: np.ndarray, positives: Ragged, rate: float, threads: int | None = None
    ) -> tuple[float, np.ndarray]:
        """Learn from a batch in which each sample sees all labels; the loss and the gradient for the features.

        In blocks of rows with matrix products. Where the processor has products of 16-bit numbers, which are
        several times as fast, the gradients use them.
        """
        import torch

        x = torch.from_numpy(np.ascontiguousarray(features, np.float32))
        scale = 1 / max(len(x), 1)
        rate32, epsilon32 = self._next_step(rate)
        short = torch.bfloat16 if _has_short_products() else torch.float32
        x_short = x.to(short)
        gradient = torch.zeros_like(x)
        loss = 0.0
        with use_threads(threads):
            for begin in range(0, self.n_labels, ROWS_PER_BLOCK):
                block = slice(begin, min(begin + ROWS_PER_BLOCK, self.n_labels))
                weights = torch.from_numpy(self.weights[block])
                logits = torch.addmm(torch.from_numpy(self.biases[block]), x, weights.T)
                slopes = torch.sigmoid(logits).mul_(scale)
                here = np.flatnonzero((positives.values >= block.start) & (positives.values < block.stop))
                yes = (positives.row_of_value[here], positives.values[here] - begin)
                slopes[yes] -= scale
                loss += float(torch.nn.functional.softplus(logits).sum() - logits[yes].sum())
                slopes_short = slopes.to(short)
                gradient += slopes_short @ weights.to(short)
                adam_block(
                    self.weights[block],
                    self.biases[block],
                    self.first[block],
                    self.second[block],
                    self.bias_first[block],
                    self.bias_second[block],
                    (slopes_short.T @ x_short).float().numpy(),
                    slopes.sum(dim=0).numpy(),
                    rate32,
                    np.float32(BETA1),
                    np.float32(BETA2),
                    epsilon32,
                )
        return self._checked(loss * scale), gradient.numpy()

    def _next_step(self, rate: float) -> tuple[np.float32, np.float32]:
        """Count the step; the rate and epsilon that hold Adam's correction for the start."""
        self.steps += 1
        correction1, correction2 = 1 - BETA1**self.steps, (1 - BETA2**self.steps) ** 0.5
        return np.float32(rate * correction2 / correction1), np.float32(EPSILON * correction2)

    def _checked(self, loss: float) -> float:
        if not np.isfinite(loss):
            raise DataError(
                f"the loss became {loss} at step {self.steps}: the features or weights are no longer finite. "
                "Lower the learning rate."
            )
        return loss


@cache
def _has_short_products() -> bool:
    import torch

    # Not public in every release of torch that we allow; without them the products are float32, only slower.
    tests = (getattr(torch.cpu, name, None) for name in ("_is_avx512_bf16_supported", "_is_amx_tile_supported"))
    return any(test is not None and test() for test in tests)
