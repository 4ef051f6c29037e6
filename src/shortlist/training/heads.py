"""What the heads of a network consist of, and what a step of training tells: for learners with and without torch."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from shortlist.arrays import Arrays
from shortlist.errors import DataError
from shortlist.recipes.options import Options
from shortlist.training.label_rows import OUR_ROW_OPTIONS, RowOptions

if TYPE_CHECKING:
    from typing_extensions import Self


@dataclass(frozen=True)
class BlockOptions:
    """What the block consists of.

    activation       "relu" or "gelu"
    norm             "spectral": R has the spectral norm `spectral_bound`; "batch": a batch norm behind the activation;
                     "none"
    bias             whether R has a bias
    dropout          share of the block's input that is dropped, but not of what is added to its output
    init             how R starts: "torch" (torch's default), "xavier" (uniform) or "identity"
    residual         whether the input is added to the output; without it, the block is a fully connected layer
    output_dropout   share of f(R·h) that is dropped before the input is added
    """

    activation: str = "relu"
    norm: str = "spectral"
    bias: bool = False
    dropout: float = 0.0
    init: str = "torch"
    residual: bool = True
    output_dropout: float = 0.0
    spectral_bound: float = 1.0

    @classmethod
    def of(cls, options: Options) -> Self | None:
        """The options of a recipe; None if it has no block."""
        if options.block == "none":
            return None
        return cls(
            options.block_activation,
            options.block_norm if options.spectral_bound or options.block_norm != "spectral" else "none",
            options.block_bias,
            options.block_dropout,
            options.weight_init,
            options.block == "residual",
            options.residual_dropout,
            options.spectral_bound,
        )


OUR_BLOCK = BlockOptions()


@dataclass(frozen=True)
class HeadOptions:
    """The layers of a head: the block (None: there is none), dropout behind it, and the rows.

    bottleneck  numbers that the features are projected to before everything else; 0: there is no projection
    """

    rows: RowOptions = OUR_ROW_OPTIONS
    block: BlockOptions | None = OUR_BLOCK
    dropout: float = 0.0
    bottleneck: int = 0

    @classmethod
    def of(cls, options: Options) -> Self:
        """The options of a recipe, for its label rows."""
        bottleneck = options.get("bottleneck", 0)
        return cls(RowOptions.of(options), BlockOptions.of(options), options.head_dropout, bottleneck)


@dataclass(frozen=True)
class EncoderOptions:
    """How the network learns: a factor of the learning rate of the label rows, and AdamW's weight decay."""

    rate: float = 1.0
    weight_decay: float = 0.0

    @classmethod
    def of(cls, options: Options, learning_rate: float) -> Self:
        """Beside label rows with this learning rate: one that is pretrained needs much less."""
        rate = options.get("encoder_learning_rate", learning_rate) / learning_rate
        return cls(rate, options.get("weight_decay", 0.0))


@dataclass(frozen=True)
class StepResult:
    """Losses of a step; and of the clusters with a positive label, how many there were and were found."""

    loss: float
    meta_loss: float = 0.0
    n_positive_clusters: int = 0
    n_found_clusters: int = 0


OUR_HEAD, OUR_ENCODER = HeadOptions(), EncoderOptions()


def require_finite(arrays: Arrays) -> None:
    for name, array in arrays.items():
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise DataError(f"training diverged: {name} contains NaN or infinity. Lower the learning rate.")


def identity_head(options: Options) -> HeadOptions:
    """The head of a recipe, with a block that starts as the identity."""
    head = HeadOptions.of(options)
    return head if head.block is None else replace(head, block=replace(head.block, init="identity"))
