"""The re-ranker of the DeepXML paper: a second network with its own encoder, block and label rows.

It has learnt to tell the labels of a text from those that the first stages rank high by mistake. The score of a label
is β times its probability here plus 1 − β times that of the first stages.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from shortlist.arrays import Arrays, Ragged, check_arrays
from shortlist.errors import ModelError
from shortlist.odds import expit
from shortlist.stages.classifier import best_of_scores
from shortlist.stages.encoders import Encoder
from shortlist.stages.output_layer import OutputLayer, output_layer_spec
from shortlist.stages.stage import Stage, finite_number, quantize_rows, whole_number, with_prefix, without_prefix


class NetworkEvidence(NamedTuple):
    """Candidates (texts × K ids, -1 for none) and their logits."""

    ids: np.ndarray
    logits: np.ndarray


class NetworkReranker(Stage):
    """Rescores the `n_candidates` labels that the classifier ranks best.

    encoder  takes what the model's encoder takes
    rows     the arrays of an `OutputLayer` with one row per label
    """

    kind = "network"

    def __init__(self, encoder: Encoder, rows: Arrays, config: dict[str, Any]) -> None:
        super().__init__(with_prefix("rows", rows), config)
        self.encoder, self.layer = encoder, OutputLayer(rows)
        if self.layer.rows.shape[1] != encoder.n_features:
            raise ModelError(
                f"the re-ranker's encoder gives {encoder.n_features:,} features, its rows take "
                f"{self.layer.rows.shape[1]:,}"
            )
        self.n_candidates, self.beta = whole_number(config, "n_candidates"), finite_number(config, "beta", 0, 1)

    @classmethod
    def from_arrays(  # type: ignore[override]
        cls, arrays: Arrays, config: dict[str, Any], encoder: Encoder, n_labels: int
    ) -> NetworkReranker:
        """The re-ranker again, from arrays that may come from a file, and its encoder."""
        rows = without_prefix("rows", arrays)
        check_arrays(rows, output_layer_spec("n_labels"), n_labels=n_labels)
        unknown = [name for name in arrays if not name.startswith(("rows.", "encoder."))]
        if unknown:
            raise ModelError(f"array {min(unknown)!r} is not part of this stage")
        return cls(encoder, rows, config)

    def arrays(self) -> Arrays:
        return {**with_prefix("encoder", self.encoder.arrays()), **self._arrays}

    def config(self) -> dict[str, Any]:
        encoder = {"kind": self.encoder.kind, "config": self.encoder.config()}
        return {"n_candidates": self.n_candidates, "beta": self.beta, "encoder": encoder}

    def quantized(self) -> NetworkReranker:
        rows = quantize_rows(without_prefix("rows", self._arrays), output_layer_spec("n_labels"))
        return NetworkReranker(self.encoder.quantized(), rows, self.config())

    def gather(self, texts: Any, inputs: Any, ids: np.ndarray, n_more: int = 0) -> NetworkEvidence:
        """What the network says about the candidates (texts × K ids, -1 for none); it finds no further ones."""
        return NetworkEvidence(ids, self.logits(self.encoder.read(texts, inputs), ids))

    def best(self, evidence: NetworkEvidence, probabilities: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        """The k best candidates and their probabilities, given those by the classifier."""
        return best_of_scores(evidence.ids, self.scores(evidence, probabilities), k)

    def scores(self, evidence: NetworkEvidence, probabilities: np.ndarray) -> np.ndarray:
        """The probabilities of the candidates, in their order; −∞ where there is none."""
        return self.mix(probabilities, evidence.logits)

    def logits(self, read: Any, ids: np.ndarray) -> np.ndarray:
        """The logits of the candidates, for what the encoder takes; −∞ where there is none."""
        return self.layer.logits_of(self.encoder.encode(read), np.ascontiguousarray(ids, np.int32))

    def mix(self, probabilities: np.ndarray, logits: np.ndarray) -> np.ndarray:
        """β · σ(logit) + (1 − β) · probability; −∞ where there is no candidate."""
        mixed = np.float32(self.beta) * expit(logits) + np.float32(1 - self.beta) * probabilities
        return np.where(np.isneginf(logits), np.float32(-np.inf), mixed).astype(np.float32)

    def multiply_adds(self, texts: Sequence[str], inputs: Any) -> float | None:
        """The mean cost of a text."""
        read = self.encoder.read(texts, inputs)
        counts = read.counts if isinstance(read, Ragged) else np.zeros(len(read))
        encoding = self.encoder.multiply_adds(counts)
        return None if encoding is None else encoding + self.layer.multiply_adds(self.n_candidates)
