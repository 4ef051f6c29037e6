"""The optimiser of the word vectors: as for label rows, only words of the batch move, each by its own measure."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from shortlist.kernels.label_rows import EPSILON, MEMORY


class WordOptimiser:
    """Divides the gradient of a word's vector by the root of its mean square over the steps that had the word."""

    def __init__(self, vectors: nn.Parameter) -> None:
        self.vectors = vectors
        self.mean_squares = torch.zeros(len(vectors), device=vectors.device)
        self.seen = torch.zeros(len(vectors), dtype=torch.int32, device=vectors.device)

    @torch.no_grad()
    def step(self, rate: float) -> None:
        """Move the words that have a gradient, and forget the gradient."""
        if self.vectors.grad is None:
            return
        gradient = self.vectors.grad.coalesce()
        words, slopes = gradient.indices()[0], gradient.values()
        self.seen[words] += 1
        share = (1 / self.seen[words]).clamp(min=1 / MEMORY)
        self.mean_squares[words] += share * (slopes.square().mean(dim=1) - self.mean_squares[words])
        factor = -rate / (self.mean_squares[words].sqrt() + float(EPSILON))
        self.vectors.index_add_(0, words, slopes * factor[:, None])
        self.vectors.grad = None

    def state(self) -> dict[str, Tensor]:
        return {"mean_squares": self.mean_squares, "seen": self.seen}
