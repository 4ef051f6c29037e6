"""`LabelTree`: clusters of equal size with similar labels.

Only the leaves of the tree are kept. Labels are stored in cluster order, so that whatever belongs to a cluster, such as
its rows of weights, is one contiguous slice.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from shortlist.arrays import counts_to_indptr
from shortlist.errors import DataError, OptionError
from shortlist.lazy import sparse

DEFAULT_CLUSTER_SIZE = 8


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
        from shortlist.labels.clustering import cluster_labels

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
        return LabelTree(*cluster_labels(centroids, n_clusters, seed, threads, normalize))

    @staticmethod
    def from_clusters(cluster_of_label: Any) -> LabelTree:
        """Build a tree from the cluster of each label, numbered from 0."""
        clusters = np.asarray(cluster_of_label)
        return LabelTree(np.argsort(clusters, kind="stable").astype(np.int32), counts_to_indptr(np.bincount(clusters)))

    def within_cluster_similarity(self, centroids: Any) -> float:
        """Return the mean cosine between a label's centroid and the mean direction of its cluster.

        Labels with an empty centroid are not counted.
        """
        from shortlist.kernels.labels import inverse_lengths

        centroids = _canonical(centroids)
        if centroids.shape[0] != self.n_labels:
            raise OptionError(
                f"the tree has {self.n_labels:,} labels, but there are centroids of {centroids.shape[0]:,} labels"
            )
        scales = np.empty(self.n_labels, np.float64)
        inverse_lengths(centroids.indptr.astype(np.int64), centroids.data, scales)
        # The cosines of unit vectors with the direction of their sum add up to the length of that sum.
        members = (scales[self.order], self.order, self.cluster_starts)
        sums = sparse.csr_array(members, shape=(self.n_clusters, self.n_labels)) @ centroids
        return float(np.sqrt(sums.power(2).sum(axis=1)).sum()) / max(int((scales > 0).sum()), 1)


def _canonical(matrix: Any) -> sparse.csr_array:
    """Convert to a float32 CSR matrix without duplicates."""
    matrix = sparse.csr_array(matrix, dtype=np.float32)
    if not matrix.has_canonical_format:
        matrix = matrix.copy()
        matrix.sum_duplicates()
    return matrix
