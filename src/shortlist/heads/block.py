"""The residual block before the label rows: `relu(R·h) + h`, with the spectral norm of R held to one."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import spectral_norm


class ResidualBlock(nn.Module):
    """Features stay near to what they were, so two heads over one encoder stay near to each other."""

    def __init__(self, n_features: int) -> None:
        super().__init__()
        self.linear = spectral_norm(nn.Linear(n_features, n_features, bias=False))

    def forward(self, features: Tensor) -> Tensor:
        return torch.relu(self.linear(features)) + features
