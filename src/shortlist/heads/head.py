"""A head: the residual block and the label rows behind it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from shortlist.heads.block import ResidualBlock
from shortlist.heads.device_rows import DeviceRows
from shortlist.heads.label_rows import LabelRows


class Head:
    """`rows(relu(R·h) + h)`, or `rows(h)` without the residual; learns one batch at a time."""

    def __init__(self, rows: LabelRows, device: torch.device, residual: bool = True, identity: bool = False) -> None:
        n_features = rows.weights.shape[1]
        self.block = ResidualBlock(n_features, identity).to(device) if residual else nn.Identity()
        self.rows = rows if device.type == "cpu" else DeviceRows(rows, device)

    def learn(self, features: Tensor, step: Callable[[Any], tuple[float, Any]]) -> float:
        """Pass features through the block, let `step` train the rows on them, and pass its gradient back.

        The loss; the gradient for the features is added to `features.grad`.
        """
        inner = self.block(features)
        loss, gradient = step(inner.detach())
        inner.backward(torch.as_tensor(gradient))
        return loss

    def to_arrays(self) -> dict[str, np.ndarray]:
        """What prediction needs: the block's effective matrix (absent without the residual), weights and biases."""
        arrays = {name: array for name, array in self.rows.to_arrays().items() if name in ("weights", "biases")}
        if isinstance(self.block, ResidualBlock):
            was_training = self.block.training
            self.block.eval()  # a step of the power iteration is for training
            weight: Tensor = self.block.linear.weight  # type: ignore[assignment]
            arrays["block"] = weight.detach().cpu().numpy().copy()
            self.block.train(was_training)
        return arrays
