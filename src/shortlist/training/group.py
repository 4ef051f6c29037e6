"""Workers that train one model together, and the labels that each of them owns.

Every worker runs the same program on the same data (training/train.py). What has a row per label is sharded: a worker
has the rows, centres and candidates of its own labels only. Everything else is replicated, and stays the same on all
workers, because they add up what they computed in the same order. A training on one machine is a group of one.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from shortlist.arrays import Ragged
from shortlist.errors import OptionError
from shortlist.kernels.top_k import best_of_candidates


class Group:
    """A group of one. Others (cluster/reduce.py) send arrays to each other; all workers make the same calls in order.

    rank, size  the number of this worker, and how many there are
    """

    rank, size = 0, 1

    def sum(self, array: np.ndarray) -> np.ndarray:
        """The sum of the arrays of all workers, added up in the order of their numbers."""
        return array

    def gather(self, array: np.ndarray) -> list[np.ndarray]:
        """The arrays of all workers, in order; their shapes may differ."""
        return [array]

    def collect(self, array: np.ndarray) -> list[np.ndarray]:
        """The same for worker 0; the others get nothing."""
        return [array]


ALONE = Group()


def summed(group: Group, loss: float, gradient: np.ndarray) -> tuple[float, np.ndarray]:
    """The loss, and the gradient to the features, of the rows of all workers: what a step sends to the others."""
    if group.size == 1:
        return loss, gradient
    total = group.sum(np.append(gradient, np.float32(loss)))
    return float(total[-1]), total[:-1].reshape(gradient.shape)


@dataclass(frozen=True, eq=False)
class Shard:
    """The labels of a worker.

    owner  the number of the worker that owns each label
    order  all labels in the order of their rows; None: ascending
    """

    group: Group
    owner: np.ndarray
    order: np.ndarray | None = None

    @staticmethod
    def of(group: Group, cluster_of_label: np.ndarray, order: np.ndarray | None = None) -> Shard | None:
        """The labels of a range of clusters; None if there is one worker."""
        if group.size == 1:
            return None
        bounds = share_bounds(group, np.bincount(cluster_of_label))
        return Shard(group, (np.searchsorted(bounds, cluster_of_label, side="right") - 1).astype(np.int32), order)

    @cached_property
    def labels(self) -> np.ndarray:
        """The labels of this worker, in the order of its rows."""
        order = np.arange(len(self.owner)) if self.order is None else self.order
        return order[self.owner[order] == self.group.rank].astype(np.int32)

    @cached_property
    def row_of_label(self) -> np.ndarray:
        """The row of each label; -1 for labels of others, and for no label, which is -1."""
        rows = np.full(len(self.owner) + 1, -1, np.int32)
        rows[self.labels] = np.arange(len(self.labels))
        return rows

    @property
    def n_labels(self) -> int:
        """The number of labels of all workers."""
        return len(self.owner)

    def best(self, ids: np.ndarray, values: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        """The k best of what all workers found: see `best_of_group`."""
        return best_of_group(self.group, ids, values, k)


@dataclass(frozen=True)
class Range:
    """Consecutive items that a worker owns, of those of all workers: clusters of labels, or label rows in their order.

    >>> own = Range(Group(), 2, 5)
    >>> own.own_ids(np.array([1, 2, 4, 5])).tolist()
    [-1, 0, 2, -1]
    """

    group: Group
    first: int
    end: int

    @staticmethod
    def of(group: Group, weights: np.ndarray) -> Range:
        """The range of this worker, if all have about the same weight of items with these weights."""
        first, end = share_bounds(group, weights)[group.rank :][:2].tolist()
        return Range(group, first, end)

    def __len__(self) -> int:
        return self.end - self.first

    @property
    def ids(self) -> np.ndarray:
        return np.arange(self.first, self.end)

    def owns(self, ids: np.ndarray) -> np.ndarray:
        return (ids >= self.first) & (ids < self.end)

    def own_ids(self, ids: np.ndarray) -> np.ndarray:
        """The numbers of these items among those of this worker; -1 for items of others."""
        return np.where(self.owns(ids), ids - self.first, -1).astype(np.int32)

    def own_pairs(self, pairs: Ragged) -> Ragged:
        """The items of each text that are those of this worker, by their numbers among these."""
        pairs = pairs.keep(self.owns(pairs.values))
        return Ragged(pairs.indptr, pairs.values - self.first, pairs.weights)


def own_clusters(starts: np.ndarray, group: Group) -> tuple[Range, Range, np.ndarray]:
    """The clusters of this worker, the rows of their labels, and the bounds of each among these rows.

    starts  all clusters' bounds, among all rows
    """
    clusters = Range.of(group, np.diff(starts))
    first, end = starts[[clusters.first, clusters.end]].tolist()
    return clusters, Range(group, first, end), starts[clusters.first : clusters.end + 1] - first


def share_bounds(group: Group, weights: np.ndarray) -> np.ndarray:
    """Cut a range into one contiguous range per worker, of about equal weight; at least one item each.

    >>> share_bounds(Group(), np.ones(5)).tolist()
    [0, 5]
    """
    n = len(weights)
    if n < group.size:
        raise OptionError(f"there are {n:,} clusters of labels for {group.size:,} workers: use fewer workers")
    wanted = np.arange(1, group.size) * (weights.sum() / group.size)
    cuts = np.searchsorted(np.cumsum(weights), wanted - 1e-9) + 1
    for i in range(len(cuts)):  # none empty
        cuts[i] = min(max(cuts[i], cuts[i - 1] + 1 if i else 1), n - (group.size - 1 - i))
    return np.concatenate([[0], cuts, [n]]).astype(np.int64)


def best_of_group(group: Group, ids: np.ndarray, values: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """The k items of each text with the largest values, best first, of what every worker found (texts × any number).

    ids     -1 for none
    values  float32, −∞ for none
    """
    every, of_every = (np.concatenate(group.gather(array), axis=1) for array in (ids, values))
    return best_of_candidates(every, of_every, k)
