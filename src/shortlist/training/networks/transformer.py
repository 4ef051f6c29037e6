"""A transformer that learns: the pooled outputs of a Hugging Face model, and dropout."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec
import numpy as np
import torch
from torch import Tensor, nn

from shortlist.arrays import Arrays
from shortlist.errors import MissingExtraError, OptionError
from shortlist.recipes.options import Options
from shortlist.stages.encoders.transformer import CONFIG_FILE, read_transformer
from shortlist.training.batches import padded
from shortlist.training.data import TrainingData
from shortlist.training.networks.layers import Dropout

try:
    from shortlist.stages.encoders.pooling import PooledTransformer, safe_config, transformer_of_folder
except ImportError:
    raise MissingExtraError("training a transformer", "transformers") from None

# Numbers that a layer keeps for the way back, per piece and number of its output: attention, two layers, two norms.
KEPT_PER_OUTPUT = 20
TEXTS_TO_SCALE_BY = 64


class TransformerNetwork(nn.Module):
    """Piece ids (batch × pieces, -1 for none) to features."""

    def __init__(self, pooled: PooledTransformer, dropout: float, files: dict[str, bytes]) -> None:
        super().__init__()
        self.pooled, self.dropout, self._files = pooled, Dropout(dropout), files
        self.n_features = pooled.n_features

    def forward(self, piece_ids: Tensor) -> Tensor:
        return self.dropout(self.pooled(piece_ids))

    def arrays(self) -> Arrays:
        weights = self.pooled.transformer.state_dict()
        return {name: tensor.detach().cpu().contiguous().numpy() for name, tensor in weights.items()}

    def config(self) -> dict[str, Any]:
        pooled = self.pooled
        sizes = {"n_features": self.n_features, "n_layers": pooled.n_layers, "scale": pooled.scale}
        return {**sizes, "pooling": pooled.pooling, "files": self._files}


def new_transformer(data: TrainingData, options: Options, length: float) -> TransformerNetwork:
    """The network with the weights of the folder; an error if it cannot read texts of `max_words` pieces.

    length  if features are scaled, their mean length at the start
    """
    files = read_transformer(options.transformer)
    n_layers = folder_config(options.transformer).num_hidden_layers
    if options.pooled_layers > n_layers:
        raise OptionError(f"pooled_layers is {options.pooled_layers}; {options.transformer} has {n_layers} layers")
    transformer = transformer_of_folder(options.transformer, msgspec.json.decode(files[CONFIG_FILE]))
    pooled = PooledTransformer(transformer, options.pooling, options.pooled_layers)
    some = padded(data.inputs, np.arange(min(TEXTS_TO_SCALE_BY, len(data.inputs))), options.max_words, data.padding)
    try:
        with torch.inference_mode():
            pooled(torch.zeros((1, options.max_words), dtype=torch.int64))
            mean_length = float(pooled(torch.from_numpy(some)).norm(dim=1).mean())
    except Exception as error:  # noqa: BLE001 - whatever a model raises
        raise OptionError(
            f"{options.transformer} cannot read texts of max_words={options.max_words} word pieces "
            f"({str(error).splitlines()[0]:.100}). Lower max_words, or choose a model that encodes texts."
        ) from None
    if options.scale_features:
        pooled.scale = length / max(mean_length, 1e-9)
    return TransformerNetwork(pooled, options.dropout, files)


@lru_cache(maxsize=4)
def folder_config(folder: str) -> Any:
    """The config of a folder, as the library transformers understands it."""
    return safe_config(msgspec.json.decode(read_transformer(folder)[CONFIG_FILE]))


def n_features(options: Options) -> int:
    return int(options.pooled_layers * folder_config(options.transformer).hidden_size)


def n_floats(data: TrainingData, options: Options) -> int:
    """The weights of a usual transformer of this size; if it learns, gradients, Adam's moments and the best epoch.

    If it is frozen, the features of all texts, as they are remembered and as batches are taken from them.
    """
    config = folder_config(options.transformer)
    n_weights = config.hidden_size * (config.vocab_size + 12 * config.num_hidden_layers * config.hidden_size)
    if options.freeze_encoder:
        return int(n_weights + 2 * len(data.texts) * n_features(options))
    return int(5 * n_weights)


def floats_per_text(options: Options) -> int:
    if options.freeze_encoder:
        return 0
    config = folder_config(options.transformer)
    heads = getattr(config, "num_attention_heads", 1)
    per_piece = KEPT_PER_OUTPUT * config.hidden_size + heads * options.max_words
    return int(options.max_words * config.num_hidden_layers * per_piece)
