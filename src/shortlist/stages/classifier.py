"""Classifiers: candidates in, the best labels and their probabilities out."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from shortlist.arrays import Arrays, ArraySpec, Ragged, check_arrays
from shortlist.errors import ModelError
from shortlist.kernels.candidates import top_labels
from shortlist.kernels.top_k import best_of_candidates, best_of_row
from shortlist.labels.centroids import normalize_rows
from shortlist.lazy import sparse
from shortlist.odds import expit
from shortlist.stages.attention_layer import AttentionLayer, attention_layer_spec
from shortlist.stages.blend import AnyBlend, blend_of
from shortlist.stages.candidates import Candidates
from shortlist.stages.output_layer import OutputLayer, output_layer_spec, projected_layer_spec
from shortlist.stages.stage import Stage, quantize_rows, whole_number, with_n_labels, with_prefix, without_prefix

if TYPE_CHECKING:
    from typing_extensions import Self

LABELS_PER_BLOCK = 8192


def best_of(ids: np.ndarray, log_odds: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """The k candidates (texts × K ids, -1 for none) with the highest log-odds, and their probabilities."""
    best, best_odds = best_of_candidates(ids, log_odds, k)
    return best, expit(best_odds)


def best_of_scores(ids: np.ndarray, scores: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """The k candidates (texts × K ids, -1 for none) with the highest scores, −∞ for none, and these; 0 for none."""
    best, best_scores = best_of_candidates(ids, scores, k)
    return best, np.maximum(best_scores, 0)


class Classifier(Stage):
    """Scores labels for features."""

    n_labels: int
    n_features: int = 0

    def best(self, features: Any, candidates: Candidates, k: int) -> tuple[np.ndarray, np.ndarray]:
        """The k best candidates of each text and their probabilities; -1 where there are fewer."""
        raise NotImplementedError

    def scores(self, features: Any, ids: np.ndarray, evidence: tuple[np.ndarray, ...]) -> np.ndarray:
        """The probabilities of these labels (texts × K), with what the candidate stage knows of them."""
        raise NotImplementedError

    def multiply_adds(self, n_candidates: float | None, features: Any) -> float | None:
        """The mean cost of a text with this many candidates (None: unknown)."""
        raise NotImplementedError


class RowClassifier(Classifier):
    """One row of weights and a bias per label, behind a residual block.

    order  the label of each row, where rows are stored cluster by cluster
    blend  how logits and the evidence of the candidate stage add up, if it gives any; None: only logits count, or,
           where the candidate stage gives cluster logits, the product of both probabilities

    With `unit_features` in its config, it takes the directions of features.
    """

    kind = "rows"
    spec = {
        **output_layer_spec("n_labels"),
        "order": ArraySpec("int32", ("n_labels",), optional=True, below="n_labels", unique=True),
    }

    def __init__(self, arrays: Arrays, config: dict[str, Any] | None = None) -> None:
        super().__init__(arrays, config)
        self.layer, self._order = OutputLayer(arrays), arrays.get("order")
        self.n_labels, self.n_features = len(self.layer), self.layer.n_features
        self._row_of_label = None if self._order is None else np.argsort(self._order).astype(np.int32)
        self.blend: AnyBlend | None = blend_of(self._config.get("blend"))
        self._unit = bool(self._config.get("unit_features"))

    @classmethod
    def from_arrays(cls, arrays: Arrays, config: dict[str, Any], **sizes: int) -> Self:
        projected = projected_layer_spec("n_labels") if "projection" in arrays else {}
        check_arrays(arrays, {**cls.spec, **projected}, **sizes)
        return cls(arrays, config)

    def config(self) -> dict[str, Any]:
        blend = {} if self.blend is None else {"blend": asdict(self.blend)}  # type: ignore[call-overload]
        return {**({"unit_features": True} if self._unit else {}), **blend}

    @property
    def learns_on(self) -> bool:
        return self._order is None

    def best(self, features: np.ndarray, candidates: Candidates, k: int) -> tuple[np.ndarray, np.ndarray]:
        if candidates.ids is not None:
            return best_of(candidates.ids, self._log_odds(features, candidates.ids, candidates.evidence), k)
        rows, scores = self.best_rows(self._inputs(features), candidates, k)
        ids = rows if self._order is None else np.where(rows >= 0, self._order[rows], -1).astype(np.int32)
        return ids, np.exp(scores) if candidates.evidence else expit(scores)

    def best_rows(self, features: np.ndarray, candidates: Candidates, k: int) -> tuple[np.ndarray, np.ndarray]:
        """The k best rows of the clusters, or of all, and their logits.

        Where the clusters have logits, too: the logarithm of the product of both probabilities.
        """
        if candidates.clusters is None or candidates.starts is None:
            return self.layer.best(features, k)
        factors = candidates.evidence[0] if candidates.evidence else None
        return self.layer.best_of_clusters(features, candidates.clusters, candidates.starts, k, factors)

    def scores(self, features: np.ndarray, ids: np.ndarray, evidence: tuple[np.ndarray, ...]) -> np.ndarray:
        rows = ids if self._row_of_label is None else self._row_of_label[ids]
        if self.blend is None:
            probabilities = expit(self.logits_of(features, rows))
            return probabilities * expit(evidence[0]) if evidence else probabilities
        return expit(self._log_odds(features, rows, evidence))

    def logits_of(self, features: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """The logits of these rows (texts × K); −∞ where a row is -1."""
        return self.layer.logits_of(self._inputs(features), rows)

    def hidden(self, features: np.ndarray) -> np.ndarray:
        """What the rows are multiplied with."""
        return self.layer.hidden(self._inputs(features))

    def _inputs(self, features: np.ndarray) -> np.ndarray:
        return normalize_rows(features) if self._unit else features

    def _log_odds(self, features: np.ndarray, ids: np.ndarray, evidence: tuple[np.ndarray, ...]) -> np.ndarray:
        logits = self.logits_of(features, ids)
        return self.blend.log_odds(logits, *evidence) if self.blend is not None and evidence else logits

    def multiply_adds(self, n_candidates: float | None, features: Any) -> float | None:
        return None if n_candidates is None else self.layer.multiply_adds(n_candidates)


class AttentionClassifier(Classifier):
    """One query per label that attends to the words of a text; the layers behind it are shared (AttentionXML).

    order  the label of each query, where they are stored cluster by cluster
    """

    kind = "attention"
    spec = {**attention_layer_spec("n_labels"), "order": RowClassifier.spec["order"]}

    def __init__(self, arrays: Arrays, config: dict[str, Any]) -> None:
        super().__init__(arrays, config)
        self._layer = AttentionLayer(arrays, config)
        self.n_labels, self.n_features = len(self._layer), self._layer.n_features
        self._order = arrays.get("order", np.arange(self.n_labels, dtype=np.int32))
        self._row_of_label = np.argsort(self._order)

    def best(self, features: Ragged, candidates: Candidates, k: int) -> tuple[np.ndarray, np.ndarray]:
        if candidates.clusters is None or candidates.starts is None:
            rows, logits = self._layer.best(features, k)
            return self._order[rows], expit(logits)
        (cluster_logits,) = candidates.evidence
        rows, scores = self._layer.best_of_clusters(features, candidates.clusters, candidates.starts, cluster_logits, k)
        return np.where(rows >= 0, self._order[rows], -1).astype(np.int32), np.exp(scores)

    def scores(self, features: Ragged, ids: np.ndarray, evidence: tuple[np.ndarray, ...]) -> np.ndarray:
        probabilities = expit(self._layer.logits_of(features, self._row_of_label[ids]))
        return probabilities * expit(evidence[0]) if evidence else probabilities

    def multiply_adds(self, n_candidates: float | None, features: Ragged) -> float | None:
        n_words = len(features.values) / max(len(features), 1)
        return None if n_candidates is None else self._layer.multiply_adds(n_candidates, n_words)


class BucketClassifier(Classifier):
    """MACH: every repetition hashes labels into buckets; a label's score is the mean probability of its buckets."""

    kind = "buckets"

    def __init__(self, arrays: Arrays, config: dict[str, Any] | None = None) -> None:
        super().__init__(arrays, config)
        self._buckets = arrays["buckets"]
        n_repetitions, self.n_labels = self._buckets.shape
        self._layers = [OutputLayer(without_prefix(str(i), arrays)) for i in range(n_repetitions)]
        self._bounds = np.cumsum([0, *(layer.rows.shape[1] for layer in self._layers)])
        self.n_features = int(self._bounds[-1])

    @staticmethod
    def _spec(arrays: Arrays) -> dict[str, ArraySpec]:
        """The arrays of each repetition i have names and sizes of their own: "i.weights", "i.biases", "i.block"."""
        spec = {"buckets": ArraySpec("int32", ("n_repetitions", "n_labels"))}
        n_repetitions = len(arrays["buckets"]) if "buckets" in arrays and arrays["buckets"].ndim else 0
        for i in range(n_repetitions):
            for name, array in output_layer_spec(f"n_buckets_{i}", f"{i}.").items():
                shape = tuple(f"n_features_{i}" if axis == "n_features" else axis for axis in array.shape)
                spec[name] = ArraySpec(array.dtype, shape, array.optional, array.finite)
        return spec

    @classmethod
    def from_arrays(cls, arrays: Arrays, config: dict[str, Any], **sizes: int) -> BucketClassifier:
        sizes = check_arrays(arrays, cls._spec(arrays), **sizes)
        if not sizes["n_repetitions"]:
            raise ModelError("a bucket classifier needs at least one repetition")
        for i, buckets in enumerate(arrays["buckets"]):
            check_arrays(
                {"buckets": buckets}, {"buckets": ArraySpec("int32", ("n",), below="b")}, b=sizes[f"n_buckets_{i}"]
            )
        return cls(arrays, config)

    def quantized(self) -> BucketClassifier:
        return BucketClassifier(quantize_rows(self._arrays, self._spec(self._arrays)), self._config)

    def _of_repetition(self, features: np.ndarray, i: int) -> np.ndarray:
        return np.ascontiguousarray(features[:, self._bounds[i] : self._bounds[i + 1]])

    def best(self, features: np.ndarray, candidates: Candidates, k: int) -> tuple[np.ndarray, np.ndarray]:
        n_texts, k = len(features), min(k, self.n_labels)
        ids, scores = np.full((n_texts, k), -1, np.int32), np.full((n_texts, k), -np.inf, np.float32)
        of_buckets = [expit(layer.logits(self._of_repetition(features, i))) for i, layer in enumerate(self._layers)]
        for begin in range(0, self.n_labels, LABELS_PER_BLOCK):
            buckets = self._buckets[:, begin : begin + LABELS_PER_BLOCK]
            scores_of = (np.take(p, own, axis=1) for p, own in zip(of_buckets, buckets, strict=True))
            means = sum(scores_of) / np.float32(len(buckets))
            best_of_row(means, begin, min(begin, k), ids, scores)
        return ids, scores

    def scores(self, features: np.ndarray, ids: np.ndarray, evidence: tuple[np.ndarray, ...]) -> np.ndarray:
        sums = np.zeros(ids.shape, np.float32)
        for i, (layer, buckets) in enumerate(zip(self._layers, self._buckets, strict=True)):
            sums += expit(layer.logits_of(self._of_repetition(features, i), buckets[ids]))
        return sums / len(self._buckets)

    def multiply_adds(self, n_candidates: float | None, features: Any) -> float:
        return sum(layer.multiply_adds(len(layer)) for layer in self._layers)


class VoteClassifier(Classifier):
    """Nearest neighbours: the score of a candidate is the share of the votes of training texts that it has.

    There is nothing but what the candidate stage knows; that must have an index of texts.
    """

    kind = "votes"

    def __init__(self, arrays: Arrays, config: dict[str, Any]) -> None:
        super().__init__(arrays, config)
        self.n_labels, self.n_features = whole_number(config, "n_labels"), whole_number(config, "n_features")

    @classmethod
    def from_arrays(cls, arrays: Arrays, config: dict[str, Any], **sizes: int) -> VoteClassifier:
        return super().from_arrays(arrays, config, **with_n_labels(config, sizes))

    def best(self, features: np.ndarray, candidates: Candidates, k: int) -> tuple[np.ndarray, np.ndarray]:
        assert candidates.ids is not None
        votes = np.where(candidates.ids >= 0, candidates.evidence[1], np.float32(-np.inf))
        return best_of_scores(candidates.ids, votes, k)

    def scores(self, features: np.ndarray, ids: np.ndarray, evidence: tuple[np.ndarray, ...]) -> np.ndarray:
        return evidence[1]

    def multiply_adds(self, n_candidates: float | None, features: Any) -> float:
        return 0.0


class SparseClassifier(Classifier):
    """Sparse weights over sparse features, as an inverted index: for every feature the labels that have it."""

    kind = "sparse"
    spec = {
        "indptr": ArraySpec("int64", ("n_features+1",), indptr="n_weights"),
        "labels": ArraySpec("int32", ("n_weights",), below="n_labels"),
        "weights": ArraySpec("float32", ("n_weights",), finite=False),
    }

    def __init__(self, arrays: Arrays, config: dict[str, Any]) -> None:
        super().__init__(arrays, config)
        self.n_labels, self.n_features = config["n_labels"], len(arrays["indptr"]) - 1

    @classmethod
    def from_arrays(cls, arrays: Arrays, config: dict[str, Any], **sizes: int) -> SparseClassifier:
        return super().from_arrays(arrays, config, **with_n_labels(config, sizes))

    @staticmethod
    def of_rows(rows: sparse.csr_array) -> SparseClassifier:
        """From one sparse row per label."""
        by_feature = sparse.csr_array(rows.T)
        arrays = {
            "indptr": by_feature.indptr.astype(np.int64),
            "labels": by_feature.indices.astype(np.int32),
            "weights": by_feature.data.astype(np.float32),
        }
        return SparseClassifier(arrays, {"n_labels": rows.shape[0]})

    @property
    def learns_on(self) -> bool:
        return True

    def best(self, features: sparse.csr_array, candidates: Candidates, k: int) -> tuple[np.ndarray, np.ndarray]:
        k = min(k, max(self.n_labels, 1))
        ids = np.empty((features.shape[0], k), np.int32)
        scores = np.empty((features.shape[0], k), np.float32)
        index = self._arrays["indptr"], self._arrays["labels"], self._arrays["weights"]
        rows = features.indptr.astype(np.int64), features.indices.astype(np.int32), features.data.astype(np.float32)
        top_labels(*rows, *index, self.n_labels, ids, scores)
        return ids, scores

    def scores(self, features: sparse.csr_array, ids: np.ndarray, evidence: tuple[np.ndarray, ...]) -> np.ndarray:
        index = self._arrays["weights"], self._arrays["labels"], self._arrays["indptr"]
        by_feature = sparse.csr_array(index, shape=(self.n_features, self.n_labels))
        return np.take_along_axis((features @ by_feature).toarray(), ids, axis=1)

    def multiply_adds(self, n_candidates: float | None, features: sparse.csr_array) -> float:
        labels_of_feature = np.diff(self._arrays["indptr"])
        return float(labels_of_feature[features.indices].sum() / max(features.shape[0], 1))


class PriorClassifier(Classifier):
    """The share of training texts that have each label, whatever the text."""

    kind = "prior"
    spec = {"frequencies": ArraySpec("float32", ("n_labels",))}

    def __init__(self, arrays: Arrays, config: dict[str, Any] | None = None) -> None:
        super().__init__(arrays, config)
        self._frequencies = arrays["frequencies"]
        self.n_labels = len(self._frequencies)
        self._by_frequency = np.argsort(-self._frequencies, kind="stable").astype(np.int32)

    def best(self, features: np.ndarray, candidates: Candidates, k: int) -> tuple[np.ndarray, np.ndarray]:
        best = self._by_frequency[:k]
        best = best[self._frequencies[best] > 0]
        return np.tile(best, (len(features), 1)), np.tile(self._frequencies[best], (len(features), 1))

    def scores(self, features: np.ndarray, ids: np.ndarray, evidence: tuple[np.ndarray, ...]) -> np.ndarray:
        return self._frequencies[ids]

    def multiply_adds(self, n_candidates: float | None, features: Any) -> float:
        return 0.0


CLASSIFIERS: dict[str, type[Classifier]] = {
    classifier.kind: classifier
    for classifier in (
        RowClassifier,
        AttentionClassifier,
        BucketClassifier,
        VoteClassifier,
        SparseClassifier,
        PriorClassifier,
    )
}


def bucket_arrays(layers: list[Arrays], buckets: np.ndarray) -> Arrays:
    """The arrays of a `BucketClassifier`, from those of each repetition's output layer."""
    named = [with_prefix(str(i), layer) for i, layer in enumerate(layers)]
    return {"buckets": buckets, **{name: array for layer in named for name, array in layer.items()}}
