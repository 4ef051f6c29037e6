"""The sharded stages of a model in training: each worker finds and scores its own labels, and all get the same result.

They take the places of `NearestLabels` or `TopClusters` and of `RowClassifier`, so that whatever follows (blend,
re-ranker, calibration) does not know that labels are sharded. `whole_pipeline` makes one model of them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from shortlist.arrays import Arrays, Ragged, counts_to_indptr
from shortlist.kernels.threads import use_threads
from shortlist.labels.centroids import normalize_rows
from shortlist.stages.candidates import Candidates, CandidateStage, NearestLabels, TopClusters, top_clusters
from shortlist.stages.candidates.cells import CellIndex
from shortlist.stages.classifier import RowClassifier
from shortlist.stages.encoders import Encoder
from shortlist.stages.pipeline import Pipeline, Ranking
from shortlist.stages.stage import quantize_rows
from shortlist.training.data import TEXTS_PER_BLOCK, rows_of
from shortlist.training.group import Group, Range, Shard, best_of_group, own_clusters


class EncodedTexts:
    """The features of the training texts, computed when they are asked for: all at once would be a large matrix."""

    def __init__(self, encoder: Encoder, inputs: Any) -> None:
        self._encoder, self._inputs = encoder, inputs

    def __len__(self) -> int:
        return len(self._inputs)

    def __getitem__(self, rows: Any) -> np.ndarray:
        rows = np.arange(len(self))[rows] if isinstance(rows, slice) else rows
        return self._encoder.encode(rows_of(self._inputs, rows))


class ShardedCandidates(NearestLabels):
    """The nearest labels of all workers. The index has the centres of this worker's labels; cells are the same for all.

    centres  the number of each centre of this worker among those of all
    """

    def __init__(self, arrays: Arrays, config: dict[str, Any], shard: Shard, centres: np.ndarray) -> None:
        super().__init__(arrays, config)
        self.shard, self.centres = shard, centres

    def find(self, features: np.ndarray, n_searched: int) -> Candidates:
        k = min(self._config["n_nearest"], self.shard.n_labels)
        ids, cosines = np.empty((len(features), k), np.int32), np.empty((len(features), k), np.float32)
        for begin in range(0, len(features), TEXTS_PER_BLOCK):
            block = slice(begin, begin + TEXTS_PER_BLOCK)
            found = super().find(features[block], n_searched)
            assert found.ids is not None
            there = found.ids >= 0
            labels = np.where(there, self.shard.labels[found.ids], np.int32(-1))
            values = np.where(there, found.evidence[0], np.float32(-np.inf))
            ids[block], cosines[block] = self.shard.best(labels, values, k)
        return Candidates(ids, evidence=(np.where(ids >= 0, cosines, 0), np.zeros_like(cosines)))

    def evidence(
        self, features: np.ndarray, ids: np.ndarray, n_searched: int, found: Candidates | None = None
    ) -> tuple[np.ndarray, ...]:
        rows = self.shard.row_of_label[ids]
        cosines, votes = super().evidence(features, rows, n_searched)
        cosines = self.shard.group.sum(np.where(rows >= 0, cosines, 0))
        return np.where(ids >= 0, cosines, np.float32(-1)), votes

    def quantized(self) -> ShardedCandidates:
        return ShardedCandidates(quantize_rows(self.arrays(), self.spec), self.config(), self.shard, self.centres)


class ShardedClusters(TopClusters):
    """The clusters of all workers. The meta-classifier has the rows of this worker's clusters.

    own               these clusters
    starts            the bounds of their labels among the rows of this worker
    cluster_of_label  the cluster of each label of all workers
    """

    def __init__(self, arrays: Arrays, config: dict[str, Any], own: Range) -> None:
        super().__init__(arrays, config)
        self.own, self.n_clusters = own, int(arrays["cluster_of_label"].max()) + 1
        self.max_searched = min(config["max_searched"], self.n_clusters)

    @staticmethod
    def of(arrays: Arrays, config: dict[str, Any], group: Group) -> ShardedClusters:
        """With the bounds of all clusters in `arrays`, among the rows of all workers."""
        own, _, starts = own_clusters(arrays["starts"], group)
        return ShardedClusters({**arrays, "starts": starts}, config, own)

    def best_clusters(self, features: Any, k: int) -> np.ndarray:
        return best_clusters(self.own, self.meta.logits(features), k)

    def find(self, features: Any, n_searched: int) -> Candidates:
        logits = self.meta.logits(features)
        clusters = self.own.own_ids(best_clusters(self.own, logits, n_searched))
        return Candidates(clusters=clusters, starts=self._starts, evidence=(logits,) if self._use_logits else ())

    def evidence(
        self, features: Any, ids: np.ndarray, n_searched: int, found: Candidates | None = None
    ) -> tuple[np.ndarray, ...]:
        if not self._use_logits:
            return ()
        clusters = self.own.own_ids(np.where(ids >= 0, self._cluster_of_label[ids], -1))
        logits = self.meta.logits_of(features, clusters)
        return (self.own.group.sum(np.where(clusters >= 0, logits, 0)),)

    def n_candidates(self, n_searched: int, n_labels: int) -> float:
        return n_labels * min(n_searched, self.n_clusters) / self.n_clusters

    def quantized(self) -> ShardedClusters:
        return ShardedClusters(quantize_rows(self.arrays(), self.spec), self.config(), self.own)


def best_clusters(own: Range, logits: np.ndarray, k: int) -> np.ndarray:
    """The k best clusters of each text, of all workers, in ascending order of their ids.

    logits  those of this worker's clusters
    """
    best = top_clusters(logits, k)
    if own.group.size == 1:
        return best
    ids, _ = best_of_group(own.group, best + np.int32(own.first), np.take_along_axis(logits, best, axis=1), k)
    return np.sort(ids, axis=1)


class ShardedRows(RowClassifier):
    """Label rows of all workers; the layer has those of this worker. Outside, a row is the label that it belongs to."""

    def __init__(self, arrays: Arrays, config: dict[str, Any], shard: Shard) -> None:
        super().__init__(arrays, config)
        self.shard, self.n_labels = shard, shard.n_labels

    def best_rows(self, features: np.ndarray, candidates: Candidates, k: int) -> tuple[np.ndarray, np.ndarray]:
        rows, scores = super().best_rows(features, candidates, k)
        return self.shard.best(np.where(rows >= 0, self.shard.labels[rows], np.int32(-1)), scores, k)

    def logits_of(self, features: np.ndarray, rows: np.ndarray) -> np.ndarray:
        own = self.shard.row_of_label[rows]
        logits = self.shard.group.sum(np.where(own >= 0, super().logits_of(features, own), 0))
        return np.where(rows >= 0, logits, np.float32(-np.inf))

    def own_logits(self, features: np.ndarray, own: np.ndarray) -> np.ndarray:
        """The logits of these rows of this worker (texts × K); −∞ for -1."""
        return super().logits_of(features, own)

    def quantized(self) -> ShardedRows:
        return ShardedRows(quantize_rows(self.arrays(), self.spec), self.config(), self.shard)


class ShardedPipeline(Pipeline):
    """A pipeline of sharded stages. Blocks of texts come one after the other: workers must ask each other in order."""

    def in_blocks(self, rank: Any, inputs: Any) -> Ranking:
        with use_threads(1):
            return super().in_blocks(rank, inputs)


def own_candidates(features: EncodedTexts, stage: ShardedCandidates) -> Ragged:
    """The rows of this worker that are candidates of each training text, with their cosines."""
    parts = []
    for begin in range(0, len(features), TEXTS_PER_BLOCK):
        found = stage.find(features[begin : begin + TEXTS_PER_BLOCK], stage.n_searched_in_training)
        assert found.ids is not None
        rows = stage.shard.row_of_label[found.ids]
        counts = (rows >= 0).sum(axis=1)
        parts.append(Ragged(np.append(0, np.cumsum(counts)), rows[rows >= 0], found.evidence[0][rows >= 0]))
    return Ragged.concatenate(parts)


def padded_rows(candidates: Ragged) -> tuple[np.ndarray, np.ndarray]:
    """Rows and their cosines, texts × the most of any text; -1 and 0 for none."""
    assert candidates.weights is not None
    return candidates.padded(-1), Ragged(candidates.indptr, candidates.weights).padded(0)


def hard_negatives_of_group(
    stage: ShardedRows, features: EncodedTexts, candidates: Ragged, n_candidates: int, k: int
) -> np.ndarray:
    """The k candidates of each training text that the classifier ranks best, of all workers."""
    assert stage.blend is not None
    k = min(k, n_candidates)
    best = np.full((len(features), k), -1, np.int32)
    for begin in range(0, len(features), TEXTS_PER_BLOCK):
        block = slice(begin, begin + TEXTS_PER_BLOCK)
        rows, cosines = padded_rows(candidates[block])
        logits = stage.own_logits(features[block], rows)
        odds = stage.blend.log_odds(logits, cosines, np.zeros_like(cosines))
        labels = np.where(rows >= 0, stage.shard.labels[rows], np.int32(-1))
        found, _ = stage.shard.best(labels, odds, k)
        best[block, : found.shape[1]] = found
    return best


def whole_pipeline(pipeline: Pipeline, bits: int) -> Pipeline | None:
    """One model of the shards of all workers, for worker 0, in 8 or 32 bits; None for the others."""
    rows = pipeline.classifier
    if not isinstance(rows, ShardedRows):
        return pipeline
    candidates = pipeline.candidates
    if bits == 8:
        candidates, rows = candidates.quantized(), rows.quantized()
    whole: CandidateStage | None = candidates
    if isinstance(candidates, ShardedCandidates):
        whole = whole_centres(candidates)
    elif isinstance(candidates, ShardedClusters):
        whole = whole_clusters(candidates)
    classifier = whole_rows(rows)
    if whole is None or classifier is None:
        return None
    return Pipeline(pipeline.vocabulary, pipeline.encoder, whole, classifier, pipeline.reranker)


def whole_rows(rows: ShardedRows) -> RowClassifier | None:
    """The label rows of all workers, for worker 0; None for the others."""
    shard = rows.shard
    order = np.arange(shard.n_labels) if shard.order is None else shard.order
    place_of_label = np.argsort(order)
    places = [place_of_label[labels] for labels in shard.group.collect(shard.labels)]
    arrays = {
        name: collect_rows(shard.group, array, places) if name.startswith(("weights", "biases")) else array
        for name, array in sorted(rows.arrays().items())
    }
    if shard.group.rank:
        return None
    return RowClassifier(arrays if shard.order is None else {**arrays, "order": shard.order}, rows.config())


def whole_clusters(stage: ShardedClusters) -> TopClusters | None:
    """The meta-classifier of all workers, which own clusters in their order, for worker 0; None for the others."""
    group, arrays = stage.own.group, {**stage.arrays(), "starts": np.diff(stage.arrays()["starts"])}
    for name in sorted(arrays):
        if name == "starts" or name.startswith(("meta.weights", "meta.biases")):
            arrays[name] = joined(group.collect(arrays[name]))
    if group.rank:
        return None
    return TopClusters({**arrays, "starts": counts_to_indptr(arrays["starts"])}, stage.config())


def whole_centres(candidates: ShardedCandidates) -> NearestLabels | None:
    """The index of the centres of all workers, for worker 0; None for the others.

    Centres go to the places that the index of a training on one machine would give them.
    """
    shard, arrays = candidates.shard, candidates.arrays()
    group = shard.group
    centres = group.collect(candidates.centres)
    cells = np.repeat(np.arange(len(arrays["centres.starts"]) - 1), np.diff(arrays["centres.starts"]))
    numbers, cells = (joined(group.collect(array)) for array in (candidates.centres[arrays["centres.order"]], cells))
    order = np.lexsort((numbers, cells))
    places = np.empty_like(order)
    places[order] = np.arange(len(order))
    where = np.split(places, np.cumsum([len(own) for own in centres])[:-1]) if centres else []
    vectors = {name: array for name, array in arrays.items() if name.startswith("centres.vectors")}
    whole = {name: collect_rows(group, array, where) for name, array in sorted(vectors.items())}
    owner = collect_rows(group, shard.labels[arrays["owner"]], centres)
    starts = np.sum(group.collect(arrays["centres.starts"]), axis=0)
    if group.rank:
        return None
    whole |= {"centres.order": numbers[order].astype(np.int32), "centres.starts": starts, "owner": owner}
    return NearestLabels({**arrays, **whole}, {**candidates.config(), "n_labels": shard.n_labels})


def collect_rows(group: Group, array: np.ndarray, places: list[np.ndarray]) -> np.ndarray:
    """Rows of all workers at these places, for worker 0."""
    parts = group.collect(array)
    whole = np.empty((sum(map(len, parts)), *array.shape[1:]), array.dtype)
    for part, own in zip(parts, places, strict=True):
        whole[own] = part
    return whole


def joined(parts: list[np.ndarray]) -> np.ndarray:
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)


def shared_cells(group: Group, vectors: np.ndarray, numbers: np.ndarray, seed: int) -> np.ndarray:
    """The directions of the cells for the centres of all workers: this worker has the centres with these numbers."""
    vectors, n_vectors = normalize_rows(np.asarray(vectors, np.float32)), int(group.sum(np.array([len(vectors)]))[0])
    place = np.full(n_vectors, -1)
    place[numbers] = np.arange(len(numbers))

    def sample(chosen: np.ndarray) -> np.ndarray:
        some = np.zeros((len(chosen), vectors.shape[1]), np.float32)
        own = place[chosen] >= 0
        some[own] = vectors[place[chosen[own]]]
        return group.sum(some)

    return CellIndex.find_cells(n_vectors, vectors.shape[1], sample, seed)
