"""Growing a label tree: which nodes are split when, and by which threads.

A node of many labels is split by all threads together: 2-means over a sample of its rows gives the direction
of the cut, and one pass over all rows applies it. Once nodes are small, each thread takes whole nodes, and
grows everything below them on its own compact copy. The number of threads changes the speed, never the tree.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np

from shortlist.kernels import label_tree as kernels
from shortlist.kernels.label_leaves import split_sizes
from shortlist.kernels.threads import use_threads
from shortlist.kernels.top_k import mark_top
from shortlist.progress import Progress

LARGEST_SUBTREE = 8192
SMALLEST_SAMPLE = 2048
LABELS_PER_SAMPLED = 32
LABELS_PER_TASK = 8192


class Node(NamedTuple):
    """The labels order[start:end]; they are to become `n_clusters` clusters from `first_cluster` on."""

    start: int
    end: int
    first_cluster: int
    n_clusters: int

    @property
    def is_large(self) -> bool:
        return self.end - self.start > LARGEST_SUBTREE and self.n_clusters > 1

    def seed(self, seed: int) -> np.uint64:
        """A seed of its own, so that it does not matter which node is split first."""
        return np.random.SeedSequence((seed, self.start, self.end)).generate_state(1, np.uint64)[0]


def grow(
    centroids: Any, n_clusters: int, seed: int, threads: int | None, show_progress: bool
) -> tuple[np.ndarray, np.ndarray]:
    """The labels in cluster order, and where each cluster starts in it (with the end of the last one)."""
    n_labels = centroids.shape[0]
    order = np.arange(n_labels, dtype=np.int32)
    cluster_starts = np.zeros(n_clusters + 1, np.int64)
    progress = Progress("clustering labels", n_labels, "labels", show_progress)
    with use_threads(threads) as n_threads, ThreadPoolExecutor(n_threads) as pool, progress:
        rows, n_words = unit_rows(centroids, pool)

        def direction_of_cut(node: Node) -> np.ndarray:
            n = node.end - node.start
            n_sampled = min(n, max(SMALLEST_SAMPLE, n // LABELS_PER_SAMPLED))
            sample = order[node.start + np.arange(n_sampled) * n // n_sampled]
            _, n_left = split_sizes(n, node.n_clusters)
            n_left_sampled = max(1, n_left * n_sampled // n)
            return kernels.sample_direction(rows, n_words, sample, n_left_sampled, node.seed(seed))

        def grow_subtree(node: Node) -> int:
            ends = cluster_starts[1:][node.first_cluster : node.first_cluster + node.n_clusters]
            labels = order[node.start : node.end]
            kernels.grow_subtree(rows, n_words, labels, node.n_clusters, node.seed(seed), ends)
            ends += node.start
            return len(labels)

        nodes = [Node(0, n_labels, 0, n_clusters)]
        while any(node.is_large for node in nodes):
            large = [node for node in nodes if node.is_large]
            nodes = [node for node in nodes if not node.is_large]
            for node, direction in zip(large, pool.map(direction_of_cut, large), strict=True):
                nodes += split_node(node, rows, order, direction, pool)
        for n_grown in pool.map(grow_subtree, nodes):
            progress.advance(n_grown)
    return order, cluster_starts


def unit_rows(centroids: Any, pool: ThreadPoolExecutor) -> tuple[kernels.Rows, int]:
    """The rows as the kernels want them, and how many words they have.

    Words are numbered by falling frequency, which keeps those that are needed all the time close together in
    memory, and those that never occur out of the way.
    """
    words = centroids.indices.astype(np.int32, copy=False)
    counts = np.bincount(words, minlength=centroids.shape[1])
    new_word = np.empty(len(counts), np.uint32)
    new_word[np.argsort(-counts, kind="stable")] = np.arange(len(counts), dtype=np.uint32)
    indptr = centroids.indptr.astype(np.int64)
    nnz, n = len(words), centroids.shape[0]
    rows = kernels.Rows(indptr, np.empty(nnz, np.uint32), np.empty(nnz, np.float32), np.zeros(n, np.float32))

    def copy(first: int) -> None:
        last = min(first + LABELS_PER_TASK, n)
        kernels.unit_rows(indptr, words, centroids.data, first, last, new_word, rows)

    list(pool.map(copy, range(0, n, LABELS_PER_TASK)))
    return rows, int(np.count_nonzero(counts))


def split_node(
    node: Node, rows: kernels.Rows, order: np.ndarray, direction: np.ndarray, pool: ThreadPoolExecutor
) -> tuple[Node, Node]:
    """Put the labels that lie furthest along the direction first in the node's part of `order`."""
    labels = order[node.start : node.end].copy()
    scores = np.empty(len(labels), np.float32)

    def score(first: int) -> None:
        some = slice(first, first + LABELS_PER_TASK)
        kernels.score_rows(rows, labels[some], direction, scores[some])

    list(pool.map(score, range(0, len(labels), LABELS_PER_TASK)))
    left_clusters, n_left = split_sizes(len(labels), node.n_clusters)
    is_left = np.zeros(len(labels), np.bool_)
    mark_top(scores, n_left, is_left)
    middle, middle_cluster = node.start + n_left, node.first_cluster + left_clusters
    order[node.start : middle] = labels[is_left]
    order[middle : node.end] = labels[~is_left]
    return (
        Node(node.start, middle, node.first_cluster, left_clusters),
        Node(middle, node.end, middle_cluster, node.n_clusters - left_clusters),
    )
