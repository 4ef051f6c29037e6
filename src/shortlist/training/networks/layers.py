"""Layers that networks share: dropout, and the block before the label rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import spectral_norm

from shortlist.arrays import Arrays
from shortlist.stages.output_layer import block_name
from shortlist.training.heads import OUR_BLOCK, BlockOptions

ACTIVATIONS = {"relu": torch.relu, "gelu": nn.functional.gelu}


class Dropout(nn.Module):
    """Sets this fraction of the numbers to zero in training and scales up the rest. It follows torch's seed.

    One random byte per number costs less than the float that torch draws.
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        self.below = min(round(p * 256), 255)

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or not self.below:
            return x
        kept = 1 - self.below / 256
        if x.device.type != "cpu":
            return nn.functional.dropout(x, 1 - kept)
        seed = int(torch.randint(1 << 62, (1,)))
        drawn = np.frombuffer(np.random.Generator(np.random.SFC64(seed)).bytes(x.numel()), np.uint8)
        mask = torch.from_numpy(drawn >= self.below).reshape(x.shape)
        return x * mask.to(x.dtype).div_(kept)


class ResidualBlock(nn.Module):
    """`relu(R·h) + h`, by default with a spectral norm of R of 1.

    It keeps features near to what they were, so two heads over one encoder stay near to each other.
    """

    def __init__(self, n_features: int, options: BlockOptions = OUR_BLOCK) -> None:
        super().__init__()
        self.activation, self.dropout = options.activation, Dropout(options.dropout)
        self.residual, self.output_dropout = options.residual, Dropout(options.output_dropout)
        self.bound = options.spectral_bound if options.norm == "spectral" else 1.0
        linear = nn.Linear(n_features, n_features, bias=options.bias)
        if options.init != "torch":
            start_with_xavier(linear)
        if options.init == "identity":
            nn.init.eye_(linear.weight)
        self.linear = spectral_norm(linear) if options.norm == "spectral" else linear
        self.norm = nn.BatchNorm1d(n_features) if options.norm == "batch" else nn.Identity()

    def forward(self, features: Tensor) -> Tensor:
        bias: Any = self.linear.bias
        hidden = nn.functional.linear(self.dropout(features), self.matrix, bias)
        hidden = self.output_dropout(self.norm(ACTIVATIONS[self.activation](hidden)))
        return hidden + features if self.residual else hidden

    @property
    def matrix(self) -> Tensor:
        """R, scaled to its spectral norm. In training mode, reading a spectral norm changes it."""
        weight: Any = self.linear.weight
        return weight if self.bound == 1 else self.bound * weight

    @torch.no_grad()
    def arrays(self) -> Arrays:
        """What prediction needs (see `OutputLayer`)."""
        was_training = self.training
        self.eval()
        tensors: dict[str, Any] = {block_name(self.activation == "gelu", self.residual): self.matrix}
        if self.linear.bias is not None:
            tensors["block_biases"] = self.linear.bias
        if isinstance(self.norm, nn.BatchNorm1d):
            tensors["block_scales"], tensors["block_shifts"] = scales_and_shifts(self.norm)
        arrays = {name: tensor.detach().float().cpu().numpy().copy() for name, tensor in tensors.items()}
        self.train(was_training)
        return arrays


def start_with_xavier(layer: nn.Module) -> None:
    """Weights from Xavier's uniform distribution, and biases at 0."""
    nn.init.xavier_uniform_(layer.weight)  # type: ignore[arg-type]
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)  # type: ignore[arg-type]


def scales_and_shifts(norm: nn.BatchNorm1d) -> tuple[Tensor, Tensor]:
    """What a batch norm does in evaluation, `x · scales + shifts`, in float64."""
    tensors = (norm.weight, norm.bias, norm.running_mean, norm.running_var)
    # On the CPU: not every device has float64.
    weight, bias, mean, variance = (tensor.detach().cpu().double() for tensor in tensors)  # type: ignore[union-attr]
    scales = weight / (variance + norm.eps).sqrt()
    return scales, bias - mean * scales
