"""`LabelTree`: clusters of equal size with similar labels, by balanced recursive 2-means over label centroids.

Only the leaves of the tree are kept. Labels are stored in cluster order, so that whatever belongs to a cluster, such as
its rows of weights, is one contiguous slice.

A large node is split by all threads together: 2-means over a sample of its labels gives a direction, and one pass over
all its labels applies it. Small nodes go to one thread each, which clusters everything below on a compact copy. The
number of threads does not change the result.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from shortlist.arrays import counts_to_indptr
from shortlist.errors import DataError, OptionError
from shortlist.kernels import label_tree as kernels
from shortlist.kernels.threads import use_threads
from shortlist.lazy import sparse
from shortlist.progress import Progress

DEFAULT_CLUSTER_SIZE = 8
MAX_SUBTREE_SIZE = 8192
MIN_SAMPLE_SIZE = 2048
LABELS_PER_SAMPLED = 32
LABELS_PER_TASK = 8192


@dataclass(frozen=True, eq=False)
class LabelTree:
    """Cluster c has the labels `order[cluster_starts[c] : cluster_starts[c + 1]]`.

    >>> centroids = sparse.csr_array([[1.0, 0.1], [0.1, 1.0], [1.0, 0.0], [0.0, 1.0]])
    >>> tree = LabelTree.build(centroids, n_clusters=2)
    >>> sorted(sorted(tree.labels_of(cluster).tolist()) for cluster in range(2))
    [[0, 2], [1, 3]]
    """

    order: np.ndarray
    cluster_starts: np.ndarray

    @property
    def n_labels(self) -> int:
        return len(self.order)

    @property
    def n_clusters(self) -> int:
        return len(self.cluster_starts) - 1

    @property
    def cluster_sizes(self) -> np.ndarray:
        return np.diff(self.cluster_starts)

    @cached_property
    def cluster_of_label(self) -> np.ndarray:
        """The cluster of each label."""
        clusters = np.empty(self.n_labels, np.int32)
        clusters[self.order] = np.repeat(np.arange(self.n_clusters, dtype=np.int32), self.cluster_sizes)
        return clusters

    def labels_of(self, cluster: int) -> np.ndarray:
        """Return the labels of a cluster."""
        return self.order[self.cluster_starts[cluster] : self.cluster_starts[cluster + 1]]

    @staticmethod
    def build(
        centroids: Any,
        n_clusters: int | None = None,
        cluster_size: int | None = None,
        seed: int = 0,
        threads: int | None = None,
        normalize: bool = True,
    ) -> LabelTree:
        """Cluster label centroids by balanced recursive spherical 2-means.

        centroids     sparse matrix with one row per label; labels with an empty row fill up clusters
        n_clusters    number of clusters; their sizes differ by at most one
        cluster_size  or the largest number of labels per cluster (default: 8)
        seed          random seed
        threads       number of threads (None: all cores); does not change the result
        normalize     whether only the directions of centroids matter, and not their lengths
        """
        centroids = _canonical(centroids)
        n_labels = centroids.shape[0]
        if n_labels == 0:
            raise DataError("there are no labels to cluster: the matrix of centroids has no rows")
        if n_clusters is not None and cluster_size is not None:
            raise OptionError("give n_clusters or cluster_size, not both")
        if n_clusters is None:
            size = DEFAULT_CLUSTER_SIZE if cluster_size is None else cluster_size
            if size < 1:
                raise OptionError(f"cluster_size must be at least 1, not {size}")
            n_clusters = -(-n_labels // size)
        if not 1 <= n_clusters <= n_labels:
            raise OptionError(f"n_clusters must be between 1 and {n_labels:,} (the labels), not {n_clusters:,}")
        if not np.isfinite(centroids.data).all():
            raise DataError("the centroids contain NaN or infinity; check the features they were computed from")
        return LabelTree(*_cluster_labels(centroids, n_clusters, seed, threads, normalize))

    @staticmethod
    def from_clusters(cluster_of_label: Any) -> LabelTree:
        """Build a tree from the cluster of each label, numbered from 0."""
        clusters = np.asarray(cluster_of_label)
        return LabelTree(np.argsort(clusters, kind="stable").astype(np.int32), counts_to_indptr(np.bincount(clusters)))


def _canonical(matrix: Any) -> sparse.csr_array:
    """Convert to a float32 CSR matrix without duplicates."""
    matrix = sparse.csr_array(matrix, dtype=np.float32)
    if not matrix.has_canonical_format:
        matrix = matrix.copy()
        matrix.sum_duplicates()
    return matrix


class _Node(NamedTuple):
    """The labels order[start:end], to be divided into `n_clusters` clusters from `first_cluster` on."""

    start: int
    end: int
    first_cluster: int
    n_clusters: int

    @property
    def is_large(self) -> bool:
        return self.end - self.start > MAX_SUBTREE_SIZE and self.n_clusters > 1

    def seed(self, seed: int) -> np.uint64:
        """Each node has its own seed, so that the order of the splits does not matter."""
        return np.random.SeedSequence((seed, self.start, self.end)).generate_state(1, np.uint64)[0]


def _cluster_labels(
    centroids: sparse.csr_array, n_clusters: int, seed: int, threads: int | None, normalize: bool = True
) -> tuple[np.ndarray, np.ndarray]:
    """Return the labels in cluster order, and the start of each cluster (and the end of the last one)."""
    n_labels = centroids.shape[0]
    order = np.arange(n_labels, dtype=np.int32)
    cluster_starts = np.zeros(n_clusters + 1, np.int64)
    progress = Progress("clustering labels", n_labels, "labels")
    with use_threads(threads) as n_threads, ThreadPoolExecutor(n_threads) as pool, progress:
        rows, n_words = _kernel_rows(centroids, normalize, pool)

        def find_direction(node: _Node) -> np.ndarray:
            n = node.end - node.start
            n_sampled = min(n, max(MIN_SAMPLE_SIZE, n // LABELS_PER_SAMPLED))
            sample = order[node.start + np.arange(n_sampled) * n // n_sampled]
            _, n_left = kernels.split_sizes(n, node.n_clusters)
            n_left_sampled = max(1, n_left * n_sampled // n)
            return kernels.sample_direction(rows, n_words, sample, n_left_sampled, node.seed(seed))

        def cluster_subtree(node: _Node) -> int:
            ends = cluster_starts[1:][node.first_cluster : node.first_cluster + node.n_clusters]
            labels = order[node.start : node.end]
            kernels.grow_subtree(rows, n_words, labels, node.n_clusters, node.seed(seed), ends)
            ends += node.start
            return len(labels)

        nodes = [_Node(0, n_labels, 0, n_clusters)]
        while large := [node for node in nodes if node.is_large]:
            nodes = [node for node in nodes if not node.is_large]
            for node, direction in zip(large, pool.map(find_direction, large), strict=True):
                nodes += _split(node, rows, order, direction, pool)
        for n_clustered in pool.map(cluster_subtree, nodes):
            progress.advance(n_clustered)
    return order, cluster_starts


def _kernel_rows(centroids: sparse.csr_array, normalize: bool, pool: ThreadPoolExecutor) -> tuple[kernels.Rows, int]:
    """Return the rows in the layout of the kernels, and the number of words that occur.

    Each row has length 1, or, without `normalize`, the longest one has. Words are renumbered by descending frequency,
    which keeps frequent words close together in memory.
    """
    words = centroids.indices.astype(np.int32, copy=False)
    counts = np.bincount(words, minlength=centroids.shape[1])
    new_word = np.empty(len(counts), np.int32)
    new_word[np.argsort(-counts, kind="stable")] = np.arange(len(counts), dtype=np.int32)
    indptr = centroids.indptr.astype(np.int64)
    nnz, n = len(words), centroids.shape[0]
    rows = kernels.Rows(indptr, np.empty(nnz, np.int32), np.empty(nnz, np.float32), np.zeros(n, np.float32))

    # Each row by its own length (0), or all by the largest.
    length = 0.0 if normalize else np.sqrt(centroids.power(2).sum(axis=1).max(initial=0))

    def scale(first: int) -> None:
        last = min(first + LABELS_PER_TASK, n)
        kernels.scaled_rows(indptr, words, centroids.data, first, last, float(length), new_word, rows)

    list(pool.map(scale, range(0, n, LABELS_PER_TASK)))
    return rows, int(np.count_nonzero(counts))


def _split(
    node: _Node, rows: kernels.Rows, order: np.ndarray, direction: np.ndarray, pool: ThreadPoolExecutor
) -> tuple[_Node, _Node]:
    """Move the labels furthest along the direction to the front of the node's slice of `order`."""
    labels = order[node.start : node.end].copy()
    scores = np.empty(len(labels), np.float32)

    def score(first: int) -> None:
        block = slice(first, first + LABELS_PER_TASK)
        kernels.score_labels(rows, labels[block], direction, scores[block])

    list(pool.map(score, range(0, len(labels), LABELS_PER_TASK)))
    left_clusters, n_left = kernels.split_sizes(len(labels), node.n_clusters)
    is_left = np.zeros(len(labels), np.bool_)
    kernels.mark_top(scores, n_left, is_left)
    middle = node.start + n_left
    order[node.start : middle] = labels[is_left]
    order[middle : node.end] = labels[~is_left]
    return (
        _Node(node.start, middle, node.first_cluster, left_clusters),
        _Node(middle, node.end, node.first_cluster + left_clusters, node.n_clusters - left_clusters),
    )
