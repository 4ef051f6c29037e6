"""Balanced spherical 2-means over sparse rows: the splits of a label tree.

A split of rows z into a left half of a given size and a right half looks for the largest |S_left| + |S_right|, where S
is the sum of a half's rows: of unit rows, this is the sum of the cosines between each row and the mean direction of its
half; of others, the cosines are weighted with the lengths.
An iteration scores the rows by z · (S_left / |S_left| − S_right / |S_right|) and moves the highest scores to the left.

Values are multiples of 2**-24 (`scaled_rows` rounds them), so their sums in float64 are exact: they do not depend on
the order of the rows, and rows can be added and subtracted without drift.

At the end, clusters that are close in the tree exchange labels. Once the cosines between the rows of a few clusters are
known, moving a row costs a few additions instead of a pass over words. So single labels can be exchanged between any
two of these clusters as long as that raises the sum of |S|, where S is the sum of a cluster's rows.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from shortlist.kernels.native import native


class Rows(NamedTuple):
    """Sparse rows. Words that only one row has are left out; `private` is the sum of their squares.

    They do not count in dot products between rows, but they count in lengths.
    """

    indptr: np.ndarray  # int64
    indices: np.ndarray  # int32
    data: np.ndarray  # float32
    private: np.ndarray  # float32, one per row


def scaled_rows(
    indptr: np.ndarray,
    indices: np.ndarray,
    data: np.ndarray,
    first: int,
    last: int,
    length: float,
    new_word: np.ndarray,
    into: Rows,
) -> None:
    """Copy rows first to last - 1 into `into`, divided by `length`, or by their own length where that is 0.

    Values are rounded to the grid, and words renumbered.
    """
    native.scaled_rows(indptr, indices, data, first, last, length, new_word, into)


def score_labels(rows: Rows, chosen: np.ndarray, direction: np.ndarray, scores: np.ndarray) -> None:
    """scores[i] = row chosen[i] · direction."""
    native.score_labels(rows, chosen, direction, scores)


def sample_direction(rows: Rows, n_words: int, sample: np.ndarray, n_left: int, seed: np.uint64) -> np.ndarray:
    """The direction in which 2-means splits a sample of the rows, in the words of all rows."""
    direction = np.empty(n_words, np.float32)
    native.sample_direction(rows, n_words, sample, n_left, seed.view(np.int64), direction)
    return direction


def grow_subtree(
    rows: Rows, n_words: int, labels: np.ndarray, n_clusters: int, seed: np.uint64, cluster_ends: np.ndarray
) -> None:
    """Split the rows `labels` into clusters: reorders `labels`, and writes where each cluster ends."""
    native.grow_subtree(rows, n_words, labels, n_clusters, seed.view(np.int64), cluster_ends)


def split_sizes(n_rows: int, n_clusters: int) -> tuple[int, int]:
    """How many clusters and rows go to the left half, so that the sizes of all clusters differ by at most one."""
    return (n_clusters + 1) // 2, native.left_size(n_rows, n_clusters)


def mark_top(scores: np.ndarray, k: int, is_top: np.ndarray) -> int:
    """Mark the k largest scores, the first of equal ones; returns how many marks changed."""
    return native.mark_top(scores, k, is_top)
