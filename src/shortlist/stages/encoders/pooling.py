"""The torch side of transformers: models from plain files, without any code of theirs, and the pooling of outputs."""

from __future__ import annotations

import warnings
from typing import Any

import torch
import transformers
from torch import Tensor, nn
from transformers.models.auto.modeling_auto import MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES

from shortlist.arrays import Arrays
from shortlist.errors import DataError
from shortlist.stages.encoders.transformer import followed

# Heads of the pretraining task, which other tasks do without.
NOT_NEEDED = "pooler"


class PooledTransformer(nn.Module):
    """Piece ids (batch × pieces, -1 for none) to features: `scale` times the last `n_layers` layers, each pooled."""

    def __init__(self, transformer: Any, pooling: str, n_layers: int, scale: float = 1.0) -> None:
        super().__init__()
        self.transformer, self.pooling, self.n_layers, self.scale = transformer, pooling, n_layers, scale
        self.n_features = n_layers * int(transformer.config.hidden_size)
        self._padding = transformer.config.pad_token_id or 0

    def forward(self, piece_ids: Tensor) -> Tensor:
        there = piece_ids >= 0
        ids = torch.where(there, piece_ids, self._padding)
        there[:, 0] = True  # a text without pieces is one of padding: attention to nothing is not a number
        out = self.transformer(input_ids=ids, attention_mask=there.long(), output_hidden_states=self.n_layers > 1)
        layers = [out.last_hidden_state] if self.n_layers == 1 else out.hidden_states[: -self.n_layers - 1 : -1]
        return self.scale * torch.cat([self._pool(layer, there) for layer in layers], dim=1)

    def _pool(self, layer: Tensor, there: Tensor) -> Tensor:
        if self.pooling == "cls":
            return layer[:, 0]
        counts = there.sum(dim=1)
        if self.pooling == "last":
            return layer[torch.arange(len(layer), device=layer.device), counts - 1]
        return (layer * there[:, :, None]).sum(dim=1) / counts[:, None]


def transformer_of_arrays(facts: dict[str, Any], arrays: Arrays) -> Any:
    """The transformer with this config and these weights, which are not copied."""
    if facts.get("num_hidden_layers", 0) > len(arrays):  # before that many are made
        raise DataError("config.json has more layers than there are weights")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given NumPy array is not writable")  # nor does prediction write
        weights = {name: torch.from_numpy(array) for name, array in arrays.items()}
    model, unexpected = _load(None, safe_config(facts), state_dict=weights)
    if unexpected:
        raise DataError(f"the array {min(unexpected)!r} is not part of a transformer with this config.json")
    return model


def transformer_of_folder(folder: str, facts: dict[str, Any]) -> Any:
    """The transformer of a Hugging Face folder, in float32. Parts for another task than ours are left out."""
    try:
        return _load(folder, safe_config(facts), local_files_only=True, use_safetensors=True)[0]
    except DataError as error:
        raise DataError(f"{folder}: {error}.") from None


def safe_config(facts: dict[str, Any]) -> Any:
    """The config object of a config.json, without anything that would import code."""
    kind, settings = str(facts.get("model_type")), {k: v for k, v in followed(facts).items() if k != "model_type"}
    if kind not in MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES:
        raise DataError(f"config.json has model_type {kind!r:.60}, which is no text model of the library transformers")
    try:
        return transformers.AutoConfig.for_model(kind, **settings)
    except Exception as error:  # noqa: BLE001 - whatever a config class raises
        raise DataError(f"config.json cannot be used ({error})") from None


def _load(folder: str | None, config: Any, **options: Any) -> tuple[Any, set[str]]:
    """The model, complete: missing weights would be drawn at random, with a warning only. And arrays without a use."""
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    try:
        # The class by name, not AutoModel: that would look for code in the folder first.
        kinds: Any = transformers.MODEL_MAPPING[type(config)]
        kind = kinds[0] if isinstance(kinds, tuple) else kinds
        settings = {"config": config, "dtype": torch.float32, "output_loading_info": True, **options}
        model, found = kind.from_pretrained(folder, **settings)
    except Exception as error:  # noqa: BLE001 - whatever a model class raises
        reason = str(error).splitlines()[0] if str(error) else repr(error)
        if "ignore_mismatched_sizes" in reason:
            reason = "weights have other shapes than in config.json"
        raise DataError(f"the transformer cannot be loaded ({reason:.200})") from None
    missing = sorted(name for name in found["missing_keys"] if NOT_NEEDED not in name)
    if missing:
        raise DataError(f"the weights do not fit config.json: {missing[0]:.100} is missing")
    return model, found["unexpected_keys"]
