"""Label centroids ("positive instance feature aggregation"): the mean direction of each label's texts.

Sparse centroids are for clustering labels by their words, dense ones for the candidate index.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np

from shortlist.arrays import Ragged, counts_to_indptr, outside
from shortlist.errors import DataError, OptionError
from shortlist.kernels import labels as kernels
from shortlist.kernels.threads import run_shares, use_threads
from shortlist.lazy import sparse

TASKS_PER_THREAD = 8
KMEANS_ITERATIONS = 10
ROWS_PER_BLOCK = 8192
TEXTS_PER_BLOCK = 32_768


def label_centroids(
    features: Any, labels: Ragged, n_labels: int, threads: int | None = None, max_words: int | None = None
) -> sparse.csr_array:
    """Return the centroid of each label: the sum of its texts' normalised features, normalised again.

    features   sparse matrix with one row per text
    labels     labels of each text; their weights, if any, weight the sum
    threads    number of threads (None: all cores)
    max_words  keep only this many of the largest values per label; bounds memory for frequent labels

    A label without texts gets an empty row.

    >>> texts = sparse.csr_array([[1.0, 0.0], [1.0, 0.0], [0.0, 2.0]])
    >>> label_centroids(texts, Ragged.from_lists([[0], [0], [1]]), n_labels=3).toarray().tolist()
    [[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]
    """
    if len(labels) != features.shape[0]:
        raise DataError(f"there are features of {features.shape[0]:,} texts but labels of {len(labels):,}")
    return sums_of_rows(texts_by_label(labels, n_labels), features, threads, max_words)


def texts_by_label(labels: Ragged, n_labels: int) -> sparse.csr_array:
    """Transpose the labels of each text: one row per label, one column per text, label weights as values."""
    if (wrong := outside(labels.values, n_labels)) is not None:
        raise DataError(f"label id {wrong} is out of range ({n_labels:,} labels)")
    weights = np.ones(len(labels.values), np.float32) if labels.weights is None else labels.weights
    by_text = sparse.csr_array((weights, labels.values, labels.indptr), shape=(len(labels), n_labels))
    return by_text.T.tocsr()


def sums_of_rows(
    weights: sparse.csr_array, features: Any, threads: int | None, max_words: int | None, unit: bool = True
) -> sparse.csr_array:
    """Return weights @ features with the rows of features normalised, and those of the result if `unit`.

    There are no large intermediates.
    """
    if max_words is not None and max_words < 1:
        raise OptionError(f"max_words must be at least 1, not {max_words}")
    features = sparse.csr_array(features)
    n_labels, n_words = weights.shape[0], features.shape[1]
    member_indptr, members = weights.indptr.astype(np.int64), weights.indices.astype(np.int32, copy=False)
    member_weights = weights.data.astype(np.float32, copy=False)
    indptr, indices = features.indptr.astype(np.int64), features.indices.astype(np.int32, copy=False)
    data = features.data.astype(np.float32, copy=False)
    scales = np.empty(features.shape[0], np.float64)
    kernels.inverse_lengths(indptr, data, scales)
    counts = np.zeros(n_labels, np.int64)
    most_words = n_words if max_words is None else max_words
    with use_threads(threads) as n_threads:
        # Tasks of about equal work, which is proportional to the number of members.
        work = np.linspace(0, member_indptr[-1], TASKS_PER_THREAD * n_threads + 1)
        bounds = np.unique(np.concatenate([[0], np.searchsorted(member_indptr, work[1:-1]), [n_labels]]))
        begins, ends = bounds[:-1].tolist(), bounds[1:].tolist()

        def count(i: int) -> None:
            own = begins[i], ends[i]
            kernels.count_words(member_indptr, members, indptr, indices, n_words, most_words, *own, counts)

        run_shares(count, len(begins))
        out_indptr = counts_to_indptr(counts)
        out_indices, out_data = np.empty(out_indptr[-1], np.int32), np.empty(out_indptr[-1], np.float32)

        def fill(i: int) -> None:
            kernels.sum_members(
                member_indptr, members, member_weights, indptr, indices, data, scales, n_words, unit,
                begins[i], ends[i], out_indptr, out_indices, out_data,
            )  # fmt: skip

        run_shares(fill, len(begins))
    return sparse.csr_array((out_data, out_indices, out_indptr), shape=(n_labels, n_words))


def label_representatives(
    features: Any,
    labels: Ragged,
    n_labels: int,
    common: float = 0.01,
    per_common: int = 50,
    seed: int = 0,
    n_common: int | None = None,
    unit: bool = True,
    own: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Return vectors that represent the labels in a candidate index, and the label of each vector.

    Every label is represented by its centroid; a label without texts by zeros. The texts of a very common label are
    too diverse for one centroid: it gets more vectors, by k-means over its texts.

    features    dense features with one row per text: a matrix, or what gives some of its rows when asked for them
    labels      labels of each text
    common      a label is common if it has more than this share of all texts
    per_common  largest number of vectors to add per common label
    seed        random seed of k-means
    n_common    instead, the number of common labels: so many of the most frequent
    unit        whether a centroid is the mean of its texts' directions, or of their features as they are
    own         some labels, ascending: only they are represented

    >>> vectors, owners = label_representatives(np.array([[3.0, 4.0], [0.0, 2.0]]), Ragged.from_lists([[1], [0]]), 2)
    >>> vectors.tolist(), owners.tolist()
    ([[0.0, 1.0], [0.6, 0.8]], [0, 1])
    """
    by_label = texts_by_label(Ragged(labels.indptr, labels.values), n_labels)
    own = np.arange(n_labels, dtype=np.int32) if own is None else own
    vectors = [normalize_rows(sums_of_texts(by_label, features, own, normalize_rows if unit else np.asarray))]
    owners = [own]
    frequencies = np.diff(by_label.indptr)
    chosen = np.flatnonzero(frequencies > max(common * len(labels), 2 * per_common))
    if n_common is not None:
        chosen = np.sort(np.argsort(-frequencies, kind="stable")[:n_common])
        chosen = chosen[frequencies[chosen] > 1]
    chosen = np.intersect1d(chosen, own)
    for label in chosen:
        texts = by_label.indices[by_label.indptr[label] : by_label.indptr[label + 1]]
        rng = np.random.default_rng([seed, int(label)])
        n_vectors = min(per_common, len(texts) // 2)
        vectors.append(spherical_kmeans(normalize_rows(features[texts]), n_vectors, rng))
        owners.append(np.full(len(vectors[-1]), label, np.int32))
    return np.concatenate(vectors), np.concatenate(owners)


def sums_of_texts(
    by_label: sparse.csr_array, features: Any, own: np.ndarray, change: Callable[[np.ndarray], np.ndarray]
) -> np.ndarray:
    """The sums of the changed features of each label's texts, for some labels (ascending): see `texts_by_label`.

    Features that are computed when they are asked for are never all there at once.
    """
    if isinstance(features, np.ndarray):
        return by_label[own] @ change(features) if len(own) < by_label.shape[0] else by_label @ change(features)
    of_own = Ragged(by_label.indptr.astype(np.int64), by_label.indices, by_label.data).take(own)
    cuts = np.searchsorted(of_own.indptr, np.arange(TEXTS_PER_BLOCK, of_own.indptr[-1], TEXTS_PER_BLOCK), side="right")
    sums = np.zeros((len(own), change(features[:1]).shape[1]), np.float32)
    for begin, end in pairwise(np.unique(np.concatenate([[0], cuts, [len(own)]])).tolist()):
        block = of_own[begin:end]
        texts = np.unique(block.values)
        for first in range(0, len(texts), TEXTS_PER_BLOCK):
            some = texts[first : first + TEXTS_PER_BLOCK]
            part = block.keep((block.values >= some[0]) & (block.values <= some[-1]))
            columns = Ragged(part.indptr, np.searchsorted(some, part.values), part.weights)
            sums[begin:end] += columns.to_csr(len(some)) @ change(features[some])
    return sums


def normalize_rows(vectors: np.ndarray) -> np.ndarray:
    """Scale every row to Euclidean length 1; zeros stay zeros."""
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)


def spherical_kmeans(vectors: np.ndarray, k: int, rng: np.random.Generator) -> np.ndarray:
    """Cluster normalised vectors by cosine; returns up to k normalised centroids, fewer if clusters are empty."""
    centroids = vectors[rng.choice(len(vectors), k, replace=False)]
    for _ in range(KMEANS_ITERATIONS):
        clusters = nearest_centroid(vectors, centroids)
        members = sparse.csr_array((np.ones(len(vectors), np.float32), (clusters, np.arange(len(vectors)))))
        sums = members @ vectors
        has_direction = np.linalg.norm(sums, axis=1) > 0
        if not has_direction.any():  # all vectors are zero
            break
        centroids = normalize_rows(sums[has_direction])
    return centroids.astype(np.float32)


def nearest_centroid(vectors: np.ndarray, centroids: np.ndarray) -> np.ndarray:
    """Return for each vector the centroid with the largest dot product."""
    nearest = np.zeros(len(vectors), np.int64)
    for start in range(0, len(vectors), ROWS_PER_BLOCK):
        block = slice(start, start + ROWS_PER_BLOCK)
        nearest[block] = (vectors[block] @ centroids.T).argmax(axis=1)
    return nearest
