"""The network of dense features: the features themselves, plus what a hidden layer adds."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from shortlist.arrays import Arrays
from shortlist.training.networks.layers import Dropout


class DenseNetwork(nn.Module):
    """`v + B · relu(A · v + a) + b` with v = scale · x (see `DenseEncoder`).

    B starts at 0, so that training starts from the features as they are given.
    """

    scale: Tensor

    def __init__(self, scale: np.ndarray, hidden_size: int, dropout: float) -> None:
        super().__init__()
        self.n_features = len(scale)
        self.register_buffer("scale", torch.from_numpy(scale.copy()))
        self.hidden = nn.Linear(self.n_features, hidden_size)
        self.output = nn.Linear(hidden_size, self.n_features)
        nn.init.zeros_(self.output.weight)
        nn.init.zeros_(self.output.bias)
        self.dropout = Dropout(dropout)

    def forward(self, features: Tensor) -> Tensor:
        scaled = features * self.scale
        return self.dropout(scaled + self.output(torch.relu(self.hidden(scaled))))

    @torch.no_grad()
    def arrays(self) -> Arrays:
        tensors = {
            "scale": self.scale,
            "hidden": self.hidden.weight.T,
            "hidden_biases": self.hidden.bias,
            "output": self.output.weight.T,
            "output_biases": self.output.bias,
        }
        return {name: tensor.detach().cpu().contiguous().numpy().copy() for name, tensor in tensors.items()}
