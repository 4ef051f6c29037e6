"""Stages with some labels replaced: they have learnt on. What the others have does not change, bit for bit.

Works for stages that `learn_on`: those with one row per label. A matrix in 8 bits has one scale per row, so that new
rows do not touch others.
"""

from __future__ import annotations

import numpy as np

from shortlist.arrays import Arrays, QuantizedMatrix, Ragged, counts_to_indptr
from shortlist.labels.centroids import nearest_centroid, normalize_rows
from shortlist.lazy import sparse
from shortlist.stages.candidates import NearestLabels
from shortlist.stages.classifier import RowClassifier, SparseClassifier
from shortlist.stages.pages import PAGE, n_pages, paged, paged_weights, pages_of, unpaged
from shortlist.stages.relabelling import side_by_side, sparse_of
from shortlist.stages.reranker import Reranker
from shortlist.text import Vocabulary


def first_centres(stage: NearestLabels, labels: np.ndarray) -> np.ndarray:
    """The vector of each of these labels: the mean of its texts. Frequent labels have others behind it."""
    owner = stage.arrays()["owner"]
    first = np.empty(stage.config()["n_labels"], np.int64)
    first[owner[::-1]] = np.arange(len(owner))[::-1]
    return first[labels]


def centres_of(stage: NearestLabels, labels: np.ndarray) -> np.ndarray:
    arrays = stage.arrays()
    place_of = np.argsort(arrays["centres.order"])
    return QuantizedMatrix.of_arrays(arrays, "centres.vectors")[place_of[first_centres(stage, labels)]]


def replace_centres(stage: NearestLabels, labels: np.ndarray, centres: np.ndarray) -> NearestLabels:
    """Each centre moves to the nearest cell."""
    arrays, cells = stage.arrays(), QuantizedMatrix.of_arrays(stage.arrays(), "centres.cells")
    centres = normalize_rows(centres).astype(np.float32)
    places = np.argsort(arrays["centres.order"])[first_centres(stage, labels)]
    cell_of_place = np.repeat(np.arange(len(cells)), np.diff(arrays["centres.starts"]))
    cell_of_place[places] = nearest_centroid(centres, cells[:]) if len(cells) > 1 else 0
    order = np.argsort(cell_of_place, kind="stable")
    vectors = replace_rows(QuantizedMatrix.of_arrays(arrays, "centres.vectors"), places, centres)
    moved = {
        **vectors.take(order).to_arrays("centres.vectors"),
        "centres.order": arrays["centres.order"][order],
        "centres.starts": counts_to_indptr(np.bincount(cell_of_place, minlength=len(cells))),
    }
    return NearestLabels({**arrays, **moved}, stage.config())


def replace_label_rows(stage: RowClassifier, labels: np.ndarray, rows: np.ndarray, biases: np.ndarray) -> RowClassifier:
    arrays, new_biases = stage.arrays(), stage.arrays()["biases"].copy()
    new_biases[labels] = biases
    weights = replace_rows(QuantizedMatrix.of_arrays(arrays, "weights"), labels, rows)
    return RowClassifier({**arrays, **weights.to_arrays("weights"), "biases": new_biases}, stage.config())


def replace_rows(matrix: QuantizedMatrix, which: np.ndarray, rows: np.ndarray) -> QuantizedMatrix:
    """The matrix with other rows at these places, in 8 bits if it is."""
    new = QuantizedMatrix.of_floats(np.ascontiguousarray(rows, np.float32))
    if matrix.values.dtype == np.int8:
        new = new.in_8_bits()
    values, scales = np.array(matrix.values), np.array(matrix.scales)
    values[which], scales[which] = new.values, new.scales
    return QuantizedMatrix(values, scales)


def sparse_rows_of(stage: SparseClassifier, labels: np.ndarray) -> sparse.csr_array:
    """The weights of these labels, one row each."""
    arrays, row_of = stage.arrays(), np.full(stage.n_labels, -1, np.int32)
    row_of[labels] = np.arange(len(labels))
    index = Ragged(arrays["indptr"], row_of[arrays["labels"]], arrays["weights"])
    return sparse.csr_array(index.keep(index.values >= 0).to_csr(len(labels)).T)


def replace_sparse(stage: SparseClassifier, labels: np.ndarray, rows: sparse.csr_array) -> SparseClassifier:
    arrays, is_new = stage.arrays(), np.zeros(stage.n_labels, bool)
    is_new[labels] = True
    index = Ragged(arrays["indptr"], arrays["labels"], arrays["weights"])
    by_feature = sparse.csr_array(rows.T)
    new = Ragged(by_feature.indptr.astype(np.int64), labels[by_feature.indices].astype(np.int32), by_feature.data)
    return sparse_of(side_by_side(index.keep(~is_new[index.values]), new), stage.n_labels)


def words_of(stage: Reranker, labels: np.ndarray) -> sparse.csr_array:
    """The weights of the words of these labels, one row each."""
    arrays, pages = stage.arrays(), n_pages(stage.features.n_features)
    weights = Ragged(arrays["starts"], arrays["words"], arrays["weights"]).take(pages_of(labels, pages))
    return unpaged(weights, arrays["scales"][labels], stage.features.n_features)


def replace_words(
    stage: Reranker, labels: np.ndarray, words: sparse.csr_array, biases: np.ndarray, frequencies: np.ndarray
) -> Reranker:
    arrays, n_features = stage.arrays(), stage.features.n_features
    words = sparse.csr_array(words).sorted_indices()
    new = paged_weights(words.indptr, words.indices, words.data.astype(np.float32), biases, n_features)
    if arrays["weights"].dtype == np.int8:
        new = stage.with_arrays(new).quantized().arrays()
    pages = n_pages(n_features)
    both = Ragged.concatenate([Ragged(a["starts"], a["words"], a["weights"]) for a in (arrays, new)])
    rows = np.arange(pages * stage.n_labels)
    rows[pages_of(labels, pages)] = pages * stage.n_labels + np.arange(pages * len(labels))
    both = both.take(rows)
    assert both.weights is not None
    changed: Arrays = {"starts": both.indptr, "words": both.values, "weights": both.weights}
    for name, values in (("scales", new["scales"]), ("biases", new["biases"]), ("frequencies", frequencies)):
        changed[name] = arrays[name].copy()
        changed[name][labels] = values
    return stage.with_arrays(changed)


def with_more_features(
    stage: Reranker, words: Vocabulary, idf: np.ndarray, subwords: Vocabulary, subword_idf: np.ndarray
) -> Reranker:
    """The re-ranker with larger vocabularies, and the idf of what is new in each. No label has a weight for it yet.

    New words come before all subwords, so the numbers of these move. The weights of labels are the same.
    """
    arrays, before = stage.arrays(), stage.features.n_features
    n_features, n_words = len(words) + len(subwords), len(stage.features.words)
    moved = np.arange(before) + np.where(np.arange(before) < n_words, 0, len(words) - n_words)
    pages = n_pages(before)
    page_of = np.repeat(np.tile(np.arange(pages), stage.n_labels), np.diff(arrays["starts"]))
    ids = moved[arrays["words"].astype(np.int64) + PAGE * page_of]
    starts, ids = paged(arrays["starts"][::pages], ids, n_features)
    in_names = np.zeros(n_features, np.int64)
    in_names[moved] = np.diff(arrays["names.indptr"])
    changed = {
        "starts": starts,
        "words": ids,
        "names.indptr": counts_to_indptr(in_names),
        "idf": np.append(arrays["idf"], idf).astype(np.float32),
        "subword_idf": np.append(arrays["subword_idf"], subword_idf).astype(np.float32),
    }
    return Reranker({**arrays, **changed}, stage.config(), words, subwords)
