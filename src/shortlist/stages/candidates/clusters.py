"""Candidates from clusters of labels: those of the clusters that a meta-classifier ranks best."""

from __future__ import annotations

from typing import Any

import numpy as np

from shortlist.arrays import Arrays, ArraySpec
from shortlist.kernels.top_k import top_columns
from shortlist.stages.attention_layer import AttentionLayer, attention_layer_spec
from shortlist.stages.candidates.stage import Candidates, CandidateStage
from shortlist.stages.output_layer import OutputLayer, output_layer_spec
from shortlist.stages.stage import whole_number, without_prefix

CLUSTERS_SPEC = {
    "starts": ArraySpec("int64", ("n_clusters+1",), indptr="n_labels"),
    "cluster_of_label": ArraySpec("int32", ("n_labels",), below="n_clusters"),
}


class TopClusters(CandidateStage):
    """The labels of the clusters that a meta-classifier ranks best (InceptionXML+, LightXML).

    starts            cluster c has the classifier's rows `starts[c]` to `starts[c + 1]`
    cluster_of_label  the cluster of each label
    use_logits        pass the cluster logits on, for LightXML's product of probabilities
    """

    kind = "clusters"
    spec = {**output_layer_spec("n_clusters", "meta."), **CLUSTERS_SPEC}

    def __init__(self, arrays: Arrays, config: dict[str, Any]) -> None:
        super().__init__(arrays, config)
        self.meta, self._starts = self._layer(without_prefix("meta", arrays), config), arrays["starts"]
        self._cluster_of_label, self._use_logits = arrays["cluster_of_label"], bool(config.get("use_logits"))
        self.n_features = self.meta.n_features
        self.max_searched = min(whole_number(config, "max_searched"), len(self.meta))
        self.n_searched = whole_number(config, "n_searched")

    def _layer(self, arrays: Arrays, config: dict[str, Any]) -> Any:
        return OutputLayer(arrays)

    def config(self) -> dict[str, Any]:
        return {**self._config, "n_searched": self.n_searched}

    def best_clusters(self, features: Any, k: int) -> np.ndarray:
        """The k best clusters of each text, in ascending order of their ids."""
        return top_clusters(self.meta.logits(features), k)

    def find(self, features: Any, n_searched: int) -> Candidates:
        logits = self.meta.logits(features)
        clusters = top_clusters(logits, n_searched)
        return Candidates(clusters=clusters, starts=self._starts, evidence=(logits,) if self._use_logits else ())

    def evidence(
        self, features: Any, ids: np.ndarray, n_searched: int, found: Candidates | None = None
    ) -> tuple[np.ndarray, ...]:
        return (self.meta.logits_of(features, self._cluster_of_label[ids]),) if self._use_logits else ()

    def multiply_adds(self, n_searched: int) -> float | None:
        return float(self.meta.multiply_adds(len(self.meta)))

    def n_candidates(self, n_searched: int, n_labels: int) -> float:
        return n_labels * min(n_searched, len(self.meta)) / len(self.meta)


class AttentionClusters(TopClusters):
    """The same with attention over words as the meta-classifier: the upper level of AttentionXML's label tree."""

    kind = "attention-clusters"
    spec = {**attention_layer_spec("n_clusters", "meta."), **CLUSTERS_SPEC}

    def _layer(self, arrays: Arrays, config: dict[str, Any]) -> AttentionLayer:
        return AttentionLayer(arrays, config)

    def multiply_adds(self, n_searched: int) -> float | None:
        return None  # it depends on the number of words


def top_clusters(logits: np.ndarray, k: int) -> np.ndarray:
    """The k best clusters of each text, in ascending order of their ids."""
    clusters = np.empty((len(logits), min(k, logits.shape[1])), np.int32)
    top_columns(np.ascontiguousarray(logits, np.float32), clusters.shape[1], clusters)
    return clusters
