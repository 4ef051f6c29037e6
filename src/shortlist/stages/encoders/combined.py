"""Several encoders side by side, as in MACH: their features are concatenated."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from shortlist.arrays import Arrays, Ragged
from shortlist.errors import ModelError
from shortlist.stages.encoders.bag import BagEncoder
from shortlist.stages.encoders.encoder import Encoder
from shortlist.stages.stage import with_prefix, without_prefix

if TYPE_CHECKING:
    from typing_extensions import Self


class ParallelEncoders(Encoder):
    """Bag encoders over one vocabulary; their features side by side, texts × Σ n_features."""

    kind = "parallel"

    def __init__(self, encoders: list[BagEncoder]) -> None:
        super().__init__({}, {"encoders": [encoder.config() for encoder in encoders]})
        if not encoders or len({encoder.n_words for encoder in encoders}) != 1:
            raise ModelError(f"parallel encoders need one vocabulary; {len(encoders)} encoders do not share one")
        self.encoders = encoders
        self.n_words, self.n_features = encoders[0].n_words, sum(encoder.n_features for encoder in encoders)

    def arrays(self) -> Arrays:
        return {k: v for i, e in enumerate(self.encoders) for k, v in with_prefix(str(i), e.arrays()).items()}

    @classmethod
    def from_arrays(cls, arrays: Arrays, config: dict[str, Any], **sizes: int) -> Self:
        members = [
            BagEncoder.from_arrays(without_prefix(str(i), arrays), member, **sizes)
            for i, member in enumerate(config["encoders"])
        ]
        encoder = cls(members)
        unknown = arrays.keys() - encoder.arrays().keys()
        if unknown:
            raise ModelError(f"array {min(unknown)!r} is not part of this stage")
        return encoder

    def quantized(self) -> Self:
        return type(self)([encoder.quantized() for encoder in self.encoders])

    def encode(self, inputs: Ragged) -> np.ndarray:
        return np.concatenate([encoder.encode(inputs) for encoder in self.encoders], axis=1)

    def multiply_adds(self, word_counts: np.ndarray) -> float:
        return sum(encoder.multiply_adds(word_counts) for encoder in self.encoders)
