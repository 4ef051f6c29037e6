"""`LabelTree`: many labels in fewer clusters of equal size and similar meaning.

Only the leaves are kept. Labels are numbered in cluster order, so that what belongs to a cluster, such as its
rows of weights, is one contiguous slice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from shortlist.errors import DataError, ModelError, OptionError
from shortlist.lazy import sparse

DEFAULT_CLUSTER_SIZE = 8


@dataclass(frozen=True, eq=False)
class LabelTree:
    """Cluster c holds the labels `order[cluster_starts[c] : cluster_starts[c + 1]]`.

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
        """The cluster each label is in."""
        clusters = np.empty(self.n_labels, np.int32)
        clusters[self.order] = np.repeat(np.arange(self.n_clusters, dtype=np.int32), self.cluster_sizes)
        return clusters

    def labels_of(self, cluster: int) -> np.ndarray:
        return self.order[self.cluster_starts[cluster] : self.cluster_starts[cluster + 1]]

    @staticmethod
    def build(
        centroids: Any,
        n_clusters: int | None = None,
        cluster_size: int | None = None,
        seed: int = 0,
        threads: int | None = None,
        show_progress: bool = False,
    ) -> LabelTree:
        """Cluster the rows of a sparse matrix by balanced, recursive, spherical 2-means.

        Say how many clusters there are to be, or how many labels a cluster may hold at most (8 if you say
        nothing). Cluster sizes differ by at most one. Only the direction of a row matters; labels with an
        empty row go where there is room. The same seed gives the same tree on any number of threads.
        """
        from shortlist.labels.grow import grow

        centroids = as_rows(centroids)
        n_labels = centroids.shape[0]
        if n_labels == 0:
            raise DataError("there are no labels to cluster: the matrix of centroids has no rows")
        if n_clusters is not None and cluster_size is not None:
            raise OptionError("give n_clusters or cluster_size, not both: one follows from the other")
        if n_clusters is None:
            size = DEFAULT_CLUSTER_SIZE if cluster_size is None else cluster_size
            if size < 1:
                raise OptionError(f"cluster_size must be at least 1, not {size}")
            n_clusters = -(-n_labels // size)
        if not 1 <= n_clusters <= n_labels:
            raise OptionError(f"n_clusters must lie between 1 and the {n_labels:,} labels, not be {n_clusters:,}")
        if not np.isfinite(centroids.data).all():
            raise DataError("some centroids hold NaN or infinity; check the features they were made from")
        return LabelTree(*grow(centroids, n_clusters, seed, threads, show_progress))

    @staticmethod
    def from_clusters(cluster_of_label: Any) -> LabelTree:
        """From clusters made elsewhere: the number of each label's cluster, counted from 0."""
        clusters = np.asarray(cluster_of_label)
        order = np.argsort(clusters, kind="stable").astype(np.int32)
        starts = np.zeros(int(clusters.max(initial=-1)) + 2, np.int64)
        np.cumsum(np.bincount(clusters), out=starts[1:])
        return LabelTree(order, starts)

    def to_arrays(self) -> dict[str, np.ndarray]:
        """All there is to save."""
        return {"order": self.order, "cluster_starts": self.cluster_starts}

    @staticmethod
    def from_arrays(arrays: Mapping[str, np.ndarray]) -> LabelTree:
        """The tree that `to_arrays` took apart."""
        order, starts = arrays["order"], arrays["cluster_starts"]
        if [order.dtype, starts.dtype] != [np.int32, np.int64] or not order.ndim == starts.ndim == 1:
            raise ModelError("the saved label tree is damaged: its arrays are not of whole numbers, int32 and int64")
        if len(starts) == 0 or starts[0] != 0 or starts[-1] != len(order):
            raise ModelError("the saved label tree is damaged: its clusters do not cover its labels")
        if (starts[1:] < starts[:-1]).any():
            raise ModelError("the saved label tree is damaged: a cluster ends before it starts")
        if not np.array_equal(np.sort(order), np.arange(len(order))):
            raise ModelError("the saved label tree is damaged: it does not hold every label once")
        return LabelTree(order, starts)

    def within_cluster_similarity(self, centroids: Any) -> float:
        """The average cosine between a label's centroid and the mean direction of its cluster.

        Labels with an empty centroid have no direction, and are not counted.
        """
        from shortlist.kernels.labels import inverse_lengths, summed_lengths

        centroids = as_rows(centroids)
        if centroids.shape[0] != self.n_labels:
            raise OptionError(
                f"the tree has {self.n_labels:,} labels, the matrix {centroids.shape[0]:,} rows; give a row a label"
            )
        indptr, indices = centroids.indptr.astype(np.int64), centroids.indices.astype(np.int32, copy=False)
        scales = np.empty(self.n_labels, np.float64)
        inverse_lengths(indptr, centroids.data, scales)
        # The cosines of unit rows with the direction of their sum add up to the length of that sum.
        total = summed_lengths(
            indptr, indices, centroids.data, scales, centroids.shape[1], self.order, self.cluster_starts
        )
        return total / max(np.count_nonzero(scales), 1)


def as_rows(matrix: Any) -> sparse.csr_array:
    """A sparse float32 matrix that has no word twice in a row."""
    matrix = sparse.csr_array(matrix, dtype=np.float32)
    if not matrix.has_canonical_format:
        matrix = matrix.copy()
        matrix.sum_duplicates()
    return matrix
