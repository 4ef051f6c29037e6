"""Growing a label tree: which nodes are split where, with which threads.

Nodes of many labels are split one after the other, all threads working on the rows of the same node: 2-means
on a sample gives the direction of the cut, and passes over all rows apply it. Once nodes are small, each
thread takes whole nodes and grows everything below them on its own copy.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from shortlist.kernels import label_tree as kernels
from shortlist.kernels.balanced_cut import cut, shares
from shortlist.kernels.threads import use_threads
from shortlist.progress import Progress

# None of these depends on the number of threads: neither must the tree.
SUBTREE_ROWS = 4096
SAMPLE_ROWS = 4096
PASSES_OVER_ALL_ROWS = 1
MAX_ITERATIONS = 20
LEAVES_ROWS = 512


@dataclass(frozen=True)
class Rows:
    """The unit rows that are clustered, as the kernels want them; words are numbered by falling frequency,
    which keeps those that matter most close together in memory."""

    indptr: np.ndarray
    indices: np.ndarray
    data: np.ndarray
    private: np.ndarray
    n_words: int


@dataclass(frozen=True)
class Node:
    """Labels order[start:end], to become this many clusters, the first of them numbered `first_cluster`."""

    start: int
    end: int
    n_clusters: int
    first_cluster: int

    def seed(self, seed: int) -> np.uint64:
        return np.random.SeedSequence((seed, self.start, self.end)).generate_state(1, np.uint64)[0]


def grow(
    centroids: Any, n_clusters: int, seed: int, threads: int | None, show_progress: bool
) -> tuple[np.ndarray, np.ndarray]:
    """The labels in cluster order, and where each cluster starts in it."""
    n_labels = centroids.shape[0]
    order = np.arange(n_labels, dtype=np.int32)
    starts = np.zeros(n_clusters + 1, dtype=np.int64)
    with (
        use_threads(threads) as n_threads,
        ThreadPoolExecutor(n_threads) as pool,
        Progress("clustering labels", n_labels, "labels", show_progress) as progress,
    ):
        rows = prepare(centroids, pool, n_threads)
        small: list[Node] = []
        large = [Node(0, n_labels, n_clusters, 0)]
        while large:
            large, small = split_level(rows, large, small, order, seed, pool, n_threads)

        def grow_subtree(node: Node) -> int:
            kernels.grow_subtree(
                rows.indptr, rows.indices, rows.data, rows.private, rows.n_words,
                order[node.start : node.end], node.n_clusters, node.seed(seed), MAX_ITERATIONS, LEAVES_ROWS,
                starts[node.first_cluster + 1 : node.first_cluster + node.n_clusters + 1],
            )  # fmt: skip
            starts[node.first_cluster + 1 : node.first_cluster + node.n_clusters + 1] += node.start
            return node.end - node.start

        for n_done in pool.map(grow_subtree, small):
            progress.advance(n_done)
    return order, starts


def prepare(centroids: Any, pool: ThreadPoolExecutor, n_threads: int) -> Rows:
    indptr = centroids.indptr.astype(np.int64)
    counts = np.bincount(centroids.indices, minlength=centroids.shape[1])
    by_frequency = np.argsort(-counts, kind="stable")
    new_word = np.empty(len(counts), dtype=np.int32)
    new_word[by_frequency] = np.arange(len(counts), dtype=np.int32)
    n_words = int(np.count_nonzero(counts))
    indices = np.empty(len(centroids.indices), dtype=np.uint32)
    data = np.empty(len(indices), dtype=np.float32)
    bounds = np.linspace(0, len(indptr) - 1, 4 * n_threads + 1).astype(np.int64)
    tasks = [
        pool.submit(kernels.prepare_rows, indptr, centroids.indices, centroids.data, a, b, new_word, indices, data)
        for a, b in zip(bounds[:-1], bounds[1:])
    ]
    for t in tasks:
        t.result()
    return Rows(indptr, indices, data, np.zeros(len(indptr) - 1, np.float32), n_words)


def split_level(rows, large, small, order, seed, pool, n_threads):
    to_split = []
    for node in large:
        if node.end - node.start <= SUBTREE_ROWS or node.n_clusters == 1:
            small.append(node)
        else:
            to_split.append(node)

    def direction(node):
        n = node.end - node.start
        _, n_left = shares(n, node.n_clusters)
        labels = order[node.start : node.end]
        m = min(n, SAMPLE_ROWS)
        sample = labels[np.arange(m) * n // m]
        return kernels.sample_direction(
            rows.indptr, rows.indices, rows.data, rows.private, rows.n_words, sample,
            max(1, n_left * m // n), node.seed(seed), MAX_ITERATIONS,
        )

    out = []
    for node, d in zip(to_split, pool.map(direction, to_split)):
        n = node.end - node.start
        labels = order[node.start : node.end].copy()
        k1, n_left = shares(n, node.n_clusters)
        scores = np.empty(n, np.float32)
        scratch = np.empty(n, np.float32)
        is_left = np.zeros(n, np.bool_)
        bounds = np.linspace(0, n, 4 * n_threads + 1).astype(np.int64)
        for p in range(PASSES_OVER_ALL_ROWS):
            if p:
                def acc(t):
                    l, r = np.zeros(rows.n_words), np.zeros(rows.n_words)
                    a, b = n*t//n_threads, n*(t+1)//n_threads
                    kernels.add_rows(rows.indptr, rows.indices, rows.data, labels[a:b], is_left[a:b], l, r)
                    return l, r
                parts = list(pool.map(acc, range(n_threads)))
                kernels.write_direction(sum(x for x, _ in parts), sum(y for _, y in parts), 0.0, 0.0, d)
            list(pool.map(lambda ab: kernels.score_rows(rows.indptr, rows.indices, rows.data, labels[ab[0]:ab[1]], d, scores[ab[0]:ab[1]]), zip(bounds[:-1], bounds[1:])))
            cut(scores, n_left, scratch, is_left)
        order[node.start : node.start + n_left] = labels[is_left]
        order[node.start + n_left : node.end] = labels[~is_left]
        out.append(Node(node.start, node.start + n_left, k1, node.first_cluster))
        out.append(Node(node.start + n_left, node.end, node.n_clusters - k1, node.first_cluster + k1))
    return out, small
