"""Learning-rate schedules, and the optimisers of word vectors."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from shortlist.kernels.label_rows import EPSILON, MEMORY, MOMENTUM
from shortlist.training.label_rows import RowOptions, step_rates

# Share of training until the peak; the rate at the start and at the end, as a fraction of the peak.
ONE_CYCLES = {"one-cycle": (0.3, 1 / 25, 1e-5), "one-cycle-published": (0.33, 1 / 10, 1e-5)}
DECAY = 0.5


def learning_rate_at(progress: float, peak: float, schedule: str = "one-cycle", decay_at: float = 0.5) -> float:
    """The learning rate after this fraction of training.

    schedule  "one-cycle" and "one-cycle-published": up to the peak and down to almost 0, along half cosines. "step":
              constant, and halved once
    decay_at  the fraction of training after which "step" halves it

    >>> [round(learning_rate_at(progress, peak=1.0), 3) for progress in (0, 0.15, 0.3, 0.65, 1)]
    [0.04, 0.52, 1.0, 0.5, 0.0]
    >>> [learning_rate_at(progress, peak=1.0, schedule="step") for progress in (0, 0.4, 0.5, 1)]
    [1.0, 1.0, 0.5, 0.5]
    """
    if schedule == "step":
        return peak if progress < decay_at else DECAY * peak
    warm_up, start, end = ONE_CYCLES[schedule]
    if progress < warm_up:
        return _cosine(start, 1, progress / warm_up) * peak
    return _cosine(1, end, (progress - warm_up) / (1 - warm_up)) * peak


def _cosine(start: float, end: float, progress: float) -> float:
    return end + (start - end) * (1 + math.cos(math.pi * min(progress, 1.0))) / 2


class WordRowAdam:
    """Divides the gradient of a word's vector by the root of its mean square over the steps that saw the word."""

    def __init__(self, vectors: nn.Parameter) -> None:
        self.vectors = vectors
        self.mean_squares = torch.zeros(len(vectors), device=vectors.device)
        self.seen = torch.zeros(len(vectors), dtype=torch.int32, device=vectors.device)

    @torch.no_grad()
    def step(self, learning_rate: float) -> None:
        """Update the words that have a gradient, and clear it."""
        if self.vectors.grad is None:
            return
        gradient = self.vectors.grad.coalesce()
        words, slopes = gradient.indices()[0], gradient.values()
        self.seen[words] += 1
        decay = (1 / self.seen[words]).clamp(min=1 / MEMORY)
        self.mean_squares[words] += decay * (slopes.square().mean(dim=1) - self.mean_squares[words])
        factor = -learning_rate / (self.mean_squares[words].sqrt() + float(EPSILON))
        self.vectors.index_add_(0, words, slopes * factor[:, None])
        self.vectors.grad = None

    def state(self) -> dict[str, Tensor]:
        return {"mean_squares": self.mean_squares, "seen": self.seen}


class WordAdam:
    """Adam with both moments for every number; only the words of a batch move, as in torch's SparseAdam."""

    def __init__(self, vectors: nn.Parameter) -> None:
        self.vectors = vectors
        self.means, self.mean_squares = torch.zeros_like(vectors.detach()), torch.zeros_like(vectors.detach())
        self.n_steps = torch.zeros(1, dtype=torch.int32)

    @torch.no_grad()
    def step(self, learning_rate: float) -> None:
        """Update the words that have a gradient, and clear it."""
        if self.vectors.grad is None:
            return
        gradient = self.vectors.grad.coalesce()
        words, slopes = gradient.indices()[0], gradient.values()
        rate, _, epsilon = map(float, step_rates(RowOptions("adam"), self.n_steps, learning_rate, dense=False))
        self.means[words] = means = self.means[words].lerp(slopes, 1 / MOMENTUM)
        self.mean_squares[words] = squares = self.mean_squares[words].lerp(slopes.square(), 1 / MEMORY)
        self.vectors[words] -= rate * means / (squares.sqrt() + epsilon)
        self.vectors.grad = None

    def state(self) -> dict[str, Tensor]:
        return {"means": self.means, "mean_squares": self.mean_squares, "n_steps": self.n_steps}


WORD_OPTIMIZERS: dict[str, type[WordRowAdam] | type[WordAdam]] = {"row-adam": WordRowAdam, "adam": WordAdam}
