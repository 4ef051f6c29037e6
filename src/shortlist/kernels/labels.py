"""Sparse sums of texts per label, and random walks between labels that share texts.

A label's sum is collected in a dense array over the words. A first pass counts the words, so that the second can write
each sum to its final place: memory grows with the result only.
"""

from __future__ import annotations

import numpy as np

from shortlist.kernels.native import native


def inverse_lengths(indptr: np.ndarray, data: np.ndarray, scales: np.ndarray) -> None:
    """1 / length of each row; 0 for rows without length."""
    native.inverse_lengths(indptr, data, scales)


def count_words(
    member_indptr: np.ndarray,
    members: np.ndarray,
    indptr: np.ndarray,
    indices: np.ndarray,
    n_words: int,
    enough: int,
    first: int,
    last: int,
    counts: np.ndarray,
) -> None:
    """How many different words the members of labels first to last - 1 have, at most `enough`."""
    native.count_words(member_indptr, members, indptr, indices, n_words, enough, first, last, counts)


def sum_members(
    member_indptr: np.ndarray,
    members: np.ndarray,
    weights: np.ndarray,
    indptr: np.ndarray,
    indices: np.ndarray,
    data: np.ndarray,
    scales: np.ndarray,
    n_words: int,
    unit: bool,
    first: int,
    last: int,
    out_indptr: np.ndarray,
    out_indices: np.ndarray,
    out_data: np.ndarray,
) -> None:
    """Write the weighted sums of the scaled members of labels first to last - 1, with sorted words; length 1 if `unit`.

    `out_indptr` says how many words each label may keep; if it has more, the largest stay.
    """
    native.sum_members(
        member_indptr, members, weights, indptr, indices, data, scales, n_words, unit, first, last, out_indptr,
        out_indices, out_data,
    )  # fmt: skip


def walk(
    labels_indptr: np.ndarray,
    labels: np.ndarray,
    texts_indptr: np.ndarray,
    texts: np.ndarray,
    first: int,
    last: int,
    n_steps: int,
    restart: float,
    seed: np.uint64,
    neighbours: np.ndarray,
    visits: np.ndarray,
) -> None:
    """One random walk from each of the labels first to last - 1; writes its most visited labels and their visits.

    A step goes from a label to one of its texts, and on to one of the labels of that text, both with equal probability.
    Before each step the walk returns to its origin with probability `restart`. Unused places in `neighbours` (labels ×
    places) have 0 visits. Each label draws random numbers of its own (SplitMix64).
    """
    bits = seed.view(np.int64)
    native.walk(
        labels_indptr, labels, texts_indptr, texts, first, last, n_steps, restart, bits, neighbours, visits
    )  # fmt: skip
