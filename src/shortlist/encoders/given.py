"""Features that are given, and stay as they are."""

from __future__ import annotations

import numpy as np
from torch import Tensor, nn

from shortlist.encoders.dropout import Dropout


class GivenFeatures(nn.Module):
    """Features (batch × `n_features`) in and out; in training a share of them is left out at random."""

    def __init__(self, n_features: int, dropout: float = 0.5) -> None:
        super().__init__()
        self.dropout, self.n_features = Dropout(dropout), n_features

    def forward(self, features: Tensor) -> Tensor:
        return self.dropout(features)

    def to_arrays(self) -> dict[str, np.ndarray]:
        return {}
