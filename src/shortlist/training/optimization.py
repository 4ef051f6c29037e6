"""The optimisers of word vectors in torch, and the state of its Adam."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from shortlist.kernels.label_rows import EPSILON, MEMORY, MOMENTUM
from shortlist.stages.stage import without_prefix
from shortlist.training.label_rows import RowOptions, step_rates


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


def adam_state(adam: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The moments of torch's Adam, by number of parameter and name: "adam.0.exp_avg"."""
    return {
        f"adam.{number}.{name}": moment
        for number, moments in adam.state_dict()["state"].items()
        for name, moment in moments.items()
    }


def restore_adam(adam: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    """Give torch's Adam the moments of `adam_state` among these tensors."""
    moments: dict[int, dict[str, Tensor]] = {}
    for name, tensor in without_prefix("adam", tensors).items():
        number, _, of_parameter = name.partition(".")
        moments.setdefault(int(number), {})[of_parameter] = tensor.clone()  # Adam would take it as its own
    adam.load_state_dict({**adam.state_dict(), "state": moments})


WORD_OPTIMIZERS: dict[str, type[WordRowAdam] | type[WordAdam]] = {"row-adam": WordRowAdam, "adam": WordAdam}
