"""The learning-rate schedule, and the optimiser of word vectors."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from shortlist.kernels.label_rows import EPSILON, MEMORY

WARM_UP = 0.3
START, END = 1 / 25, 1e-5


def one_cycle(progress: float, peak: float) -> float:
    """The learning rate after this fraction of training: up to the peak and down to almost 0, along half cosines.

    >>> [round(one_cycle(progress, peak=1.0), 3) for progress in (0, 0.15, 0.3, 0.65, 1)]
    [0.04, 0.52, 1.0, 0.5, 0.0]
    """
    if progress < WARM_UP:
        return _cosine(START, 1, progress / WARM_UP) * peak
    return _cosine(1, END, (progress - WARM_UP) / (1 - WARM_UP)) * peak


def _cosine(start: float, end: float, progress: float) -> float:
    return end + (start - end) * (1 + math.cos(math.pi * min(progress, 1.0))) / 2


class WordOptimizer:
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
