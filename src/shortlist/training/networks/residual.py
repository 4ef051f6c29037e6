"""The residual block before the label rows: `relu(R·h) + h`, with the spectral norm of R bounded by 1."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import spectral_norm


class ResidualBlock(nn.Module):
    """Keeps features near to what they were, so two heads over one encoder stay near to each other."""

    def __init__(self, n_features: int, identity: bool = False) -> None:
        """`identity`: R starts as the identity, not at random."""
        super().__init__()
        linear = nn.Linear(n_features, n_features, bias=False)
        if identity:
            nn.init.eye_(linear.weight)
        self.linear = spectral_norm(linear)

    def forward(self, features: Tensor) -> Tensor:
        return torch.relu(self.linear(features)) + features
