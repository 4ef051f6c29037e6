"""A transformer as the encoder: word pieces in, the pooled outputs of its last layers out.

The weights, tokenizer.json and config.json are those of a Hugging Face folder, as plain data: no code comes with them.
Unlike other encoders it needs torch, but only when it encodes: a model card can be read without.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from shortlist.arrays import Arrays, Ragged
from shortlist.errors import DataError, MissingExtraError, ModelError, OptionError
from shortlist.kernels.threads import n_threads
from shortlist.stages.encoders.encoder import Encoder
from shortlist.stages.stage import finite_number, whole_number
from shortlist.text.word_pieces import TOKENIZER_FILE, WordPieces

if TYPE_CHECKING:
    from typing_extensions import Self

# The config.json of the transformer: a model folder has a file of that name already.
CONFIG_FILE = "transformer.json"
POOLINGS = ("mean", "cls", "last")
TEXTS_PER_BATCH = 32
NOT_FOLLOWED = {"auto_map", "quantization_config", "attn_implementation", "_attn_implementation", "custom_pipelines"}


class TransformerEncoder(Encoder):
    """A transformer's outputs, pooled over the pieces of a text; those of several layers side by side.

    config: max_words  pieces of a text that are read, special ones included
            pooling    "mean" over the pieces, "cls": the first piece, "last": the last one
            n_layers   last layers that are pooled
            scale      factor of the features
            files      the contents of tokenizer.json and of the transformer's config.json
    """

    kind = "transformer"
    file_names = (TOKENIZER_FILE, CONFIG_FILE)

    def __init__(self, arrays: Arrays, config: dict[str, Any]) -> None:
        super().__init__(arrays, {name: value for name, value in config.items() if name != "files"})
        self._files: dict[str, bytes] = config["files"]
        self.n_words, self.n_features = whole_number(config, "n_words", 0), whole_number(config, "n_features")
        self._max_words, self._n_layers = whole_number(config, "max_words"), whole_number(config, "n_layers")
        self._pooling = config.get("pooling")
        if self._pooling not in POOLINGS:
            raise ModelError(f"pooling is {self._pooling!r:.60}; expected one of {', '.join(POOLINGS)}")
        self._scale = finite_number(config, "scale")
        self._lock = threading.Lock()

    @classmethod
    def from_arrays(cls, arrays: Arrays, config: dict[str, Any], **sizes: int) -> Self:
        if any(array.dtype not in (np.float32, np.int64) for array in arrays.values()):
            raise ModelError("the weights of a transformer must be float32")
        return cls(arrays, config)

    def files(self) -> dict[str, bytes]:
        return self._files

    def quantized(self) -> Self:
        return self

    def read(self, texts: Sequence[str], words: Any) -> Ragged:
        """The word pieces of texts."""
        return self.pieces.encode(texts)

    @cached_property
    def pieces(self) -> WordPieces:
        return WordPieces(self._files[TOKENIZER_FILE], TOKENIZER_FILE, self._max_words)

    def encode(self, inputs: Ragged) -> np.ndarray:
        module, features = self._ready(), np.empty((len(inputs), self.n_features), np.float32)
        import torch

        by_length = np.argsort(inputs.counts, kind="stable")  # so that short texts carry little padding
        with torch_threads(n_threads()), torch.inference_mode():
            for begin in range(0, len(by_length), TEXTS_PER_BATCH):
                rows = by_length[begin : begin + TEXTS_PER_BATCH]
                features[rows] = module(torch.from_numpy(inputs.take(rows).padded(-1).astype(np.int64))).numpy()
        return features

    def _ready(self) -> Any:
        """The torch module, which is made when first needed."""
        with self._lock:
            return self._module

    @cached_property
    def _module(self) -> Any:
        try:
            from shortlist.stages.encoders.pooling import PooledTransformer, transformer_of_arrays
        except ImportError:
            raise MissingExtraError("encoding texts with a transformer", "transformers") from None
        try:
            facts = msgspec.json.decode(self._files[CONFIG_FILE], type=dict[str, Any])
            transformer = transformer_of_arrays(facts, self._arrays)
        except (DataError, ValueError, KeyError, RecursionError) as error:
            raise ModelError(f"the transformer of the model is damaged: {error}") from None
        return PooledTransformer(transformer, str(self._pooling), self._n_layers, self._scale).eval()

    def multiply_adds(self, word_counts: np.ndarray) -> float:
        """Of a text with the mean number of pieces."""
        module = self._ready()
        import torch
        from torch.utils.flop_counter import FlopCounterMode

        length = max(round(float(word_counts.mean())), 1) if len(word_counts) else 1
        with FlopCounterMode(display=False) as counter, torch.inference_mode():
            module(torch.zeros((1, length), dtype=torch.int64))
        return counter.get_total_flops() / 2


def read_transformer(folder: str) -> dict[str, bytes]:
    """Those files of a Hugging Face folder that a model keeps; an error if the folder is not complete."""
    if not folder:
        raise OptionError(
            "this recipe needs a transformer: set transformer=FOLDER to the folder of a Hugging Face model"
        )
    path = Path(folder)
    if not path.is_dir():
        raise OptionError(f"transformer is {folder!r}: there is no such folder. Models are not downloaded.")
    for name in (TOKENIZER_FILE, "config.json", "*.safetensors"):
        if not any(path.glob(name)):
            raise DataError(
                f"{path}: there is no {name}. A transformer needs config.json, {TOKENIZER_FILE} and model.safetensors; "
                "save_pretrained of its tokenizer and its model writes them."
            )
    try:
        facts = msgspec.json.decode((path / "config.json").read_bytes(), type=dict[str, Any])
        return {TOKENIZER_FILE: (path / TOKENIZER_FILE).read_bytes(), CONFIG_FILE: msgspec.json.encode(followed(facts))}
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{path}: config.json or {TOKENIZER_FILE} cannot be read ({error}).") from None


def read_pieces(folder: str, max_words: int) -> WordPieces:
    """The tokenizer of a Hugging Face folder, which must fit the model there."""
    files = read_transformer(folder)
    pieces = WordPieces(files[TOKENIZER_FILE], Path(folder) / TOKENIZER_FILE, max_words)
    n_vectors = msgspec.json.decode(files[CONFIG_FILE]).get("vocab_size")
    if isinstance(n_vectors, int) and pieces.n_ids > n_vectors:
        raise DataError(
            f"{folder}: {TOKENIZER_FILE} has {pieces.n_ids:,} word pieces, the model has vectors for {n_vectors:,}: "
            "they do not belong together."
        )
    return pieces


def followed(facts: dict[str, Any]) -> dict[str, Any]:
    """A config.json without the settings that would import or fetch code when a model is made."""
    kept = {name: value for name, value in facts.items() if name not in NOT_FOLLOWED}
    return {name: followed(value) if isinstance(value, dict) else value for name, value in kept.items()}


@contextmanager
def torch_threads(n_threads: int) -> Iterator[None]:
    """Run torch with this many threads in the block."""
    import torch

    before = torch.get_num_threads()
    if before == n_threads:
        yield
        return
    torch.set_num_threads(n_threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)
