"""Stages with other labels: some are left out, new ones come after those that stay. What stays does not change.

Works for stages with one row per label. In label trees, buckets, graphs and attention, labels share what was learnt.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from shortlist.arrays import Arrays, QuantizedMatrix, Ragged, counts_to_indptr
from shortlist.errors import OptionError
from shortlist.labels.centroids import nearest_centroid, normalize_rows
from shortlist.lazy import sparse
from shortlist.stages.candidates import AllLabels, CandidateStage, NearestLabels
from shortlist.stages.classifier import PriorClassifier, RowClassifier, SparseClassifier
from shortlist.stages.evidence import index_names
from shortlist.stages.pages import n_pages, paged_weights, pages_of
from shortlist.stages.parts_of_names import PAGES, rows_of_parts
from shortlist.stages.pipeline import Pipeline
from shortlist.stages.reranker import Reranker
from shortlist.text.parts import WordParts


@dataclass(frozen=True, eq=False)
class NewLabels:
    """What the stages of a pipeline get for new labels: one row per label in each array.

    features      where the label lies among encoded texts: its centre; a sparse matrix for a sparse classifier
    rows, biases  of the classifier
    words         weights of lexical features, for the re-ranker; None: there is no re-ranker
    word_biases   and their biases
    names         lexical features of the names
    parts         the names in parts of words, and what reads these; where the re-ranker has none yet, it gets them
    """

    features: Any
    rows: np.ndarray
    biases: np.ndarray
    words: sparse.csr_array | None = None
    word_biases: np.ndarray | None = None
    names: sparse.csr_array | None = None
    parts: tuple[WordParts, sparse.csr_array] | None = None

    def __len__(self) -> int:
        return self.features.shape[0]


def keep_labels(pipeline: Pipeline, kept: np.ndarray) -> Pipeline:
    """The pipeline with these labels only (ascending ids): label `kept[i]` becomes label i."""
    new_id = np.full(pipeline.classifier.n_labels, -1, np.int32)
    new_id[kept] = np.arange(len(kept))
    return _change_stages(pipeline, KEEP, new_id)


def append_labels(pipeline: Pipeline, new: NewLabels) -> Pipeline:
    """The pipeline with further labels after its own."""
    return _change_stages(pipeline, APPEND, new)


def _change_stages(pipeline: Pipeline, table: dict[str, Callable[..., Any]], given: Any) -> Pipeline:
    """The pipeline with every stage that has labels changed by the function for its kind."""
    stages = {name: getattr(pipeline, name) for name in ("candidates", "classifier", "reranker")}
    stages = {name: stage for name, stage in stages.items() if stage is not None}
    changes = {name: _of_kind(table, stage) for name, stage in stages.items()}  # all of them, before any work
    return replace(pipeline, **{name: change(stages[name], given) for name, change in changes.items()})


def _of_kind(table: dict[str, Callable[..., Any]], stage: Any) -> Callable[..., Any]:
    if stage.kind not in table or "order" in stage.arrays() or "centres.graph.0" in stage.arrays():
        raise OptionError(
            f"this model has a stage of kind {stage.kind!r} whose labels are fixed when it is trained. Models that can "
            "change their labels have one row per label: astec, slice, deepxml-…, centroid, popular."
        )
    return table[stage.kind]


def keep_all(stage: AllLabels, new_id: np.ndarray) -> CandidateStage:
    return stage


def keep_centres(stage: NearestLabels, new_id: np.ndarray) -> NearestLabels:
    arrays = stage.arrays()
    owner, order, starts = arrays["owner"], arrays["centres.order"], arrays["centres.starts"]
    is_kept = new_id[owner] >= 0
    new_vector = np.cumsum(is_kept) - 1
    places = np.flatnonzero(is_kept[order])
    kept = {
        **_rows_at(arrays, "centres.vectors", places),
        "centres.order": new_vector[order[places]].astype(np.int32),
        "centres.starts": np.append(0, np.cumsum(is_kept[order]))[starts],
        "owner": new_id[owner[is_kept]],
    }
    if "text_labels.values" in arrays:
        labels = Ragged(arrays["text_labels.indptr"], new_id[arrays["text_labels.values"]])
        labels = labels.keep(labels.values >= 0)
        kept |= {"text_labels.indptr": labels.indptr, "text_labels.values": labels.values}
    return NearestLabels({**arrays, **kept}, {**stage.config(), "n_labels": int((new_id >= 0).sum())})


def append_centres(stage: NearestLabels, new: NewLabels) -> NearestLabels:
    """Each centre joins the nearest cell, after the vectors that are there."""
    arrays, n_labels = stage.arrays(), stage.config()["n_labels"]
    vectors, cells = normalize_rows(new.features), QuantizedMatrix.of_arrays(arrays, "centres.cells")
    own = nearest_centroid(vectors, cells[:]) if len(cells) > 1 else np.zeros(len(new), np.int64)
    starts, n_vectors = arrays["centres.starts"], len(arrays["owner"])
    order = np.argsort(np.append(np.repeat(np.arange(len(cells)), np.diff(starts)), own), kind="stable")
    both = np.append(arrays["centres.order"], n_vectors + np.arange(len(new), dtype=np.int32))
    appended = _with_rows(arrays, "centres.vectors", vectors)
    added = {
        **_rows_at(appended, "centres.vectors", order),
        "centres.order": both[order].astype(np.int32),
        "centres.starts": starts + np.append(0, np.cumsum(np.bincount(own, minlength=len(cells)))),
        "owner": np.append(arrays["owner"], n_labels + np.arange(len(new), dtype=np.int32)).astype(np.int32),
    }
    return NearestLabels({**arrays, **added}, {**stage.config(), "n_labels": n_labels + len(new)})


def keep_rows(stage: RowClassifier, new_id: np.ndarray) -> RowClassifier:
    arrays, kept = stage.arrays(), np.flatnonzero(new_id >= 0)
    rows = {**_rows_at(arrays, "weights", kept), "biases": arrays["biases"][kept]}
    return RowClassifier({**arrays, **rows}, stage.config())


def append_rows(stage: RowClassifier, new: NewLabels) -> RowClassifier:
    arrays = stage.arrays()
    rows = {**_with_rows(arrays, "weights", new.rows), "biases": np.append(arrays["biases"], new.biases)}
    return RowClassifier({**arrays, **rows}, stage.config())


def keep_sparse(stage: SparseClassifier, new_id: np.ndarray) -> SparseClassifier:
    arrays = stage.arrays()
    index = Ragged(arrays["indptr"], new_id[arrays["labels"]], arrays["weights"])
    return sparse_of(index.keep(index.values >= 0), int((new_id >= 0).sum()))


def append_sparse(stage: SparseClassifier, new: NewLabels) -> SparseClassifier:
    arrays, by_feature = stage.arrays(), sparse.csr_array(new.features.T)
    index = Ragged(arrays["indptr"], arrays["labels"], arrays["weights"])
    added = Ragged(by_feature.indptr.astype(np.int64), by_feature.indices + stage.n_labels, by_feature.data)
    return sparse_of(side_by_side(index, added), stage.n_labels + len(new))


def sparse_of(index: Ragged, n_labels: int) -> SparseClassifier:
    assert index.weights is not None
    arrays = {
        "indptr": index.indptr,
        "labels": index.values.astype(np.int32),
        "weights": index.weights.astype(np.float32),
    }
    return SparseClassifier(arrays, {"n_labels": n_labels})


def keep_prior(stage: PriorClassifier, new_id: np.ndarray) -> PriorClassifier:
    return PriorClassifier({"frequencies": stage.arrays()["frequencies"][new_id >= 0]})


def append_prior(stage: PriorClassifier, new: NewLabels) -> PriorClassifier:
    """A label without texts has a frequency of 0."""
    return PriorClassifier({"frequencies": np.append(stage.arrays()["frequencies"], np.zeros(len(new), np.float32))})


def keep_words(stage: Reranker, new_id: np.ndarray) -> Reranker:
    arrays, kept = stage.arrays(), np.flatnonzero(new_id >= 0)
    pages = n_pages(stage.features.n_features)
    words = Ragged(arrays["starts"], arrays["words"], arrays["weights"]).take(pages_of(kept, pages))
    names = Ragged(arrays["names.indptr"], new_id[arrays["names.labels"]], arrays["names.weights"])
    taught = Ragged(arrays["taught.indptr"], new_id[arrays["taught.labels"]])
    parts: Arrays = {}
    if stage.parts is not None:
        in_parts = _rows_of(arrays).take(pages_of(kept, PAGES))
        if len(in_parts.values):
            parts = _arrays_of(in_parts)
        else:
            stage = stage.without_parts()
    return _reranker_of(
        stage,
        words,
        {name: arrays[name][kept] for name in ("scales", "biases", "frequencies")},
        names.keep(names.values >= 0),
        {"taught.hashes": arrays["taught.hashes"], **_taught(taught.keep(taught.values >= 0)), **parts},
    )


def append_words(stage: Reranker, new: NewLabels) -> Reranker:
    assert new.words is not None and new.word_biases is not None and new.names is not None
    arrays, n_features = stage.arrays(), stage.features.n_features
    words = sparse.csr_array(new.words).sorted_indices()
    added = paged_weights(words.indptr, words.indices, words.data.astype(np.float32), new.word_biases, n_features)
    if arrays["weights"].dtype == np.int8:
        added = stage.with_arrays(added).quantized().arrays()
    labels = {name: np.append(arrays[name], added[name]).astype(np.float32) for name in ("scales", "biases")}
    labels["frequencies"] = np.append(arrays["frequencies"], np.zeros(len(new), np.float32))
    own, more = (Ragged(a["starts"], a["words"], a["weights"]) for a in (arrays, added))
    names = _with_names(arrays, new.names, stage.n_labels)
    others = {name: arrays[name] for name in ("taught.hashes", "taught.indptr", "taught.labels")}
    if new.parts is not None:
        parts, of_names = new.parts
        before = (
            arrays if stage.parts is not None else rows_of_parts(sparse.csr_array((stage.n_labels, of_names.shape[1])))
        )
        in_parts = Ragged.concatenate([_rows_of(before), _rows_of(rows_of_parts(of_names))])
        others |= {"parts.idf": parts.idf, **_arrays_of(in_parts)}
    return _reranker_of(stage, Ragged.concatenate([own, more]), labels, names, others)


def _with_names(arrays: Arrays, new: sparse.csr_array, n_labels: int) -> Ragged:
    """The index of names (see `index_names`) with those of new labels."""
    added = index_names(new)
    own, more = (Ragged(a["names.indptr"], a["names.labels"], a["names.weights"]) for a in (arrays, added))
    return side_by_side(own, replace(more, values=more.values + n_labels))


def _rows_of(arrays: Arrays) -> Ragged:
    """Names in parts of words, one row per label and page."""
    return Ragged(arrays["parts.starts"], arrays["parts.words"], arrays["parts.weights"])


def _arrays_of(parts: Ragged) -> Arrays:
    assert parts.weights is not None
    return {"parts.starts": parts.indptr, "parts.words": parts.values, "parts.weights": parts.weights}


def _reranker_of(stage: Reranker, words: Ragged, labels: Arrays, names: Ragged, others: Arrays) -> Reranker:
    assert words.weights is not None and names.weights is not None
    arrays = {
        **labels,
        **others,
        "names.indptr": names.indptr,
        "names.labels": names.values.astype(np.int32),
        "names.weights": names.weights,
        "starts": words.indptr,
        "words": words.values,
        "weights": words.weights,
    }
    return stage.with_arrays(arrays)


def _taught(labels: Ragged) -> Arrays:
    return {"taught.indptr": labels.indptr, "taught.labels": labels.values.astype(np.int32)}


def side_by_side(first: Ragged, second: Ragged) -> Ragged:
    """Rows of the first, each followed by the same row of the second."""
    both = Ragged.concatenate([first, second])
    order = np.argsort(np.append(first.row_ids, second.row_ids), kind="stable")
    assert both.weights is not None
    return Ragged(counts_to_indptr(first.counts + second.counts), both.values[order], both.weights[order])


def _rows_at(arrays: Arrays, name: str, places: np.ndarray) -> Arrays:
    """Some rows of a matrix, in 8 bits if it is."""
    return QuantizedMatrix.of_arrays(arrays, name).take(places).to_arrays(name)


def _with_rows(arrays: Arrays, name: str, more: np.ndarray) -> Arrays:
    """A matrix with more rows, in 8 bits if it is."""
    rows, added = QuantizedMatrix.of_arrays(arrays, name), QuantizedMatrix.of_floats(np.asarray(more, np.float32))
    if rows.values.dtype == np.int8:
        added = added.in_8_bits()
    both = np.concatenate([rows.values, added.values]), np.append(rows.scales, added.scales)
    return QuantizedMatrix(*both).to_arrays(name)


KEEP: dict[str, Callable[..., Any]] = {
    "all": keep_all,
    "nearest": keep_centres,
    "rows": keep_rows,
    "sparse": keep_sparse,
    "prior": keep_prior,
    "words": keep_words,
}
APPEND: dict[str, Callable[..., Any]] = {
    "all": keep_all,
    "nearest": append_centres,
    "rows": append_rows,
    "sparse": append_sparse,
    "prior": append_prior,
    "words": append_words,
}
