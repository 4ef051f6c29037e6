"""Dropout that costs little: one random byte per number, where torch draws a float."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn


class Dropout(nn.Module):
    """Sets this fraction of the numbers to zero in training and scales up the rest. It follows torch's seed."""

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
