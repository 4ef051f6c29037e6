"""`DeviceRows`: `LabelRows` in plain torch on any device; the path for CUDA, and the oracle of the kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from shortlist.arrays import Arrays, Ragged
from shortlist.kernels.label_rows import MEMORY, MOMENTUM
from shortlist.training.label_rows import (
    Candidates,
    Clusters,
    LabelRows,
    checked_loss,
    loss_scale,
    step_rates,
    targets_of,
    widest,
)

PAIRS_PER_BLOCK = 1 << 18
ROWS_PER_BLOCK = 1 << 15


class DeviceRows:
    """Rows of weights on a device, with the interface of `LabelRows` in tensors."""

    def __init__(self, rows: LabelRows, device: torch.device | str) -> None:
        self.device, self.options = torch.device(device), rows.options
        self.weights, self.biases, self.mean_squares, self.bias_squares, self.seen, *means = (
            torch.as_tensor(array, device=self.device) for array in rows.arrays().values()
        )
        if means:
            self.means, self.bias_means = means

    @property
    def n_labels(self) -> int:
        return len(self.weights)

    def arrays(self) -> Arrays:
        return {name: value.cpu().numpy() for name, value in vars(self).items() if isinstance(value, Tensor)}

    def step(
        self, features: Any, candidates: Candidates, positives: Ragged, learning_rate: float, logits_out: Any = None
    ) -> tuple[float, Tensor]:
        """See `LabelRows.step`."""
        x = torch.as_tensor(features, device=self.device)
        if candidates is None:
            return self._step_on_all(x, positives, learning_rate, logits_out)
        # To a device, a row is a cluster of one.
        ids, bounds = candidates if isinstance(candidates, Clusters) else (candidates, np.arange(self.n_labels + 1))
        clusters, starts = torch.as_tensor(ids, device=self.device).long(), torch.as_tensor(bounds).to(self.device)
        sample_of_cluster, slot = (clusters >= 0).nonzero(as_tuple=True)
        chosen = clusters[sample_of_cluster, slot]
        sizes = starts[chosen + 1] - starts[chosen]
        ends = sizes.cumsum(0)
        samples = sample_of_cluster.repeat_interleave(sizes)
        rows = torch.arange(len(samples), device=self.device) + (starts[chosen] + sizes - ends).repeat_interleave(sizes)
        wanted, place = rows.unique(return_inverse=True)
        yes = self._targets(samples, rows, positives)
        scale = loss_scale(self.options, len(x), widest(ids, bounds))
        gradient, row_gradient = torch.zeros_like(x), torch.zeros((len(wanted), x.shape[1]), device=self.device)
        bias_gradient = torch.zeros(len(wanted), device=self.device)
        loss = 0.0
        for begin in range(0, len(rows), PAIRS_PER_BLOCK):
            block = slice(begin, begin + PAIRS_PER_BLOCK)
            weights, inputs, truth = self.weights[rows[block]], x[samples[block]], yes[block]
            logits = (weights * inputs).sum(dim=1) + self.biases[rows[block]]
            loss += float(torch.nn.functional.binary_cross_entropy_with_logits(logits, truth, reduction="sum"))
            slopes = (torch.sigmoid(logits) - truth) * scale
            gradient.index_add_(0, samples[block], slopes[:, None] * weights)
            row_gradient.index_add_(0, place[block], slopes[:, None] * inputs)
            bias_gradient.index_add_(0, place[block], slopes)
        self._move(wanted, row_gradient, bias_gradient, step_rates(self.options, self.seen, learning_rate, dense=False))
        return checked_loss(loss * scale), gradient

    def _step_on_all(self, x: Tensor, positives: Ragged, learning_rate: float, logits_out: Any) -> tuple[float, Tensor]:
        scale = loss_scale(self.options, len(x), self.n_labels)
        rates = step_rates(self.options, self.seen, learning_rate, dense=True)
        samples = torch.as_tensor(positives.row_ids, device=self.device).long()
        labels = torch.as_tensor(positives.values, device=self.device).long()
        targets = torch.as_tensor(targets_of(positives), device=self.device)
        gradient = torch.zeros_like(x)
        loss = 0.0
        for begin in range(0, self.n_labels, ROWS_PER_BLOCK):
            rows = torch.arange(begin, min(begin + ROWS_PER_BLOCK, self.n_labels), device=self.device)
            logits = torch.addmm(self.biases[rows], x, self.weights[rows].T)
            if logits_out is not None:
                logits_out[:, begin : begin + len(rows)] = logits.cpu().numpy()
            here = (labels >= begin) & (labels < begin + len(rows))
            truth = torch.zeros_like(logits)
            truth[samples[here], labels[here] - begin] = targets[here]
            loss += float(torch.nn.functional.binary_cross_entropy_with_logits(logits, truth, reduction="sum"))
            slopes = (torch.sigmoid(logits) - truth) * scale
            gradient += slopes @ self.weights[rows]
            self._move(rows, slopes.T @ x, slopes.sum(dim=0), rates)
        return checked_loss(loss * scale), gradient

    def _targets(self, samples: Tensor, rows: Tensor, positives: Ragged) -> Tensor:
        """The probability that each of these pairs should have: 0, but for positives."""
        pairs = torch.as_tensor(positives.row_ids * self.n_labels + positives.values, device=self.device)
        pairs, order = torch.cat([pairs, pairs.new_full((1,), -1)]).sort()
        targets = torch.as_tensor(np.append(targets_of(positives), np.float32(0)), device=self.device)[order]
        wanted = samples * self.n_labels + rows
        at = torch.searchsorted(pairs, wanted).clamp(max=len(pairs) - 1)
        return torch.where(pairs[at] == wanted, targets[at], 0.0)

    def _move(self, rows: Tensor, gradient: Tensor, bias_gradient: Tensor, rates: tuple[Any, Any, Any]) -> None:
        """See `move_row`."""
        rate, bias_rate, epsilon = map(float, rates)
        if self.options.optimizer == "adam":
            means = self.means[rows].lerp(gradient, 1 / MOMENTUM)
            squares = self.mean_squares[rows].lerp(gradient.square(), 1 / MEMORY)
            bias_means = self.bias_means[rows].lerp(bias_gradient, 1 / MOMENTUM)
            bias_squares = self.bias_squares[rows].lerp(bias_gradient.square(), 1 / MEMORY)
            self.means[rows], self.bias_means[rows], roots = means, bias_means, squares.sqrt()
        else:
            self.seen[rows] += 1
            share = (1 / self.seen[rows]).clamp(min=1 / MEMORY)
            means, bias_means = gradient, bias_gradient
            squares = self.mean_squares[rows].lerp(gradient.square().mean(dim=1), share)
            bias_squares = self.bias_squares[rows].lerp(bias_gradient.square(), share)
            roots = squares.sqrt()[:, None]
        self.mean_squares[rows], self.bias_squares[rows] = squares, bias_squares
        self.weights[rows] -= rate * means / (roots + epsilon)
        self.biases[rows] -= bias_rate * bias_means / (bias_squares.sqrt() + epsilon)
