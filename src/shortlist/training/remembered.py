"""Features that are computed once: for an encoder that does not learn, or not any more, and that takes long."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from shortlist.arrays import Arrays, Ragged
from shortlist.kernels.threads import run_shares
from shortlist.progress import Progress
from shortlist.stages.encoders import Encoder, TransformerEncoder
from shortlist.stages.pipeline import Pipeline

if TYPE_CHECKING:
    from typing_extensions import Self

TEXTS_PER_BLOCK = 128


class Remembered(Encoder):
    """An encoder that encodes each text once, and remembers its features for the rest of the training."""

    def __init__(self, encoder: Encoder) -> None:
        super().__init__({}, encoder.config())
        self.encoder, self.kind = encoder, encoder.kind  # type: ignore[misc]
        self.n_words, self.n_features = encoder.n_words, encoder.n_features
        self._features: dict[bytes, np.ndarray] = {}

    def arrays(self) -> Arrays:
        return self.encoder.arrays()

    def quantized(self) -> Self:
        return self

    def read(self, texts: Sequence[str], words: Any) -> Any:
        return self.encoder.read(texts, words)

    def encode(self, inputs: Ragged) -> np.ndarray:
        keys = [inputs.row(i).tobytes() for i in range(len(inputs))]
        new = {key: i for i, key in enumerate(keys) if key not in self._features}
        if new:
            self._remember([*new], inputs.take(np.fromiter(new.values(), np.int64, len(new))))
        features = np.empty((len(keys), self.n_features), np.float32)
        for row, key in zip(features, keys, strict=True):
            row[:] = self._features[key]
        return features

    def _remember(self, keys: list[bytes], inputs: Ragged) -> None:
        starts = range(0, len(keys), TEXTS_PER_BLOCK)
        with Progress("encoding texts", len(keys), "texts") as progress:

            def encode_block(i: int) -> None:
                block = slice(starts[i], starts[i] + TEXTS_PER_BLOCK)
                self._features.update(zip(keys[block], self.encoder.encode(inputs[block]), strict=True))
                progress.advance(len(keys[block]))

            run_shares(encode_block, len(starts))


@contextmanager
def remembering(pipeline: Pipeline) -> Iterator[None]:
    """In the block, a transformer encodes each text once; behind it, the pipeline remembers nothing."""
    if isinstance(pipeline.encoder, TransformerEncoder):
        pipeline.encoder = Remembered(pipeline.encoder)
    try:
        yield
    finally:
        if isinstance(pipeline.encoder, Remembered):
            pipeline.encoder = pipeline.encoder.encoder
