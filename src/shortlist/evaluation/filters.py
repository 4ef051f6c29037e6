"""Filter pairs: (text, label) pairs that must not count (`filter_labels_test.txt` of the repository)."""

from __future__ import annotations

from typing import Any

import numpy as np

from shortlist.arrays import Ragged, outside
from shortlist.errors import DataError, OptionError


def split_pairs(pairs: Any, n_texts: int) -> tuple[np.ndarray, list[Any]]:
    """Return the text rows and the labels of (text row, label) pairs: a list of tuples or an array with two columns."""
    if isinstance(pairs, np.ndarray):
        if pairs.size and (pairs.ndim != 2 or pairs.shape[1] != 2):
            raise OptionError(f"filter_pairs must have two columns (text row, label), not shape {pairs.shape}")
        pairs = pairs.reshape(-1, 2).tolist()
    pairs = list(pairs)
    if not pairs:
        return np.zeros(0, np.int64), []
    if any(len(pair) != 2 for pair in pairs):
        raise OptionError("each filter pair must be (text row, label)")
    rows = np.asarray([row for row, _ in pairs])
    if not np.issubdtype(rows.dtype, np.integer):
        raise OptionError(f"filter pairs must start with the row number of a text, not {rows.dtype}")
    if (wrong := outside(rows, n_texts)) is not None:
        raise DataError(f"filter_pairs: text row {wrong} is out of range ({n_texts:,} texts, rows from 0)")
    return rows.astype(np.int64), [label for _, label in pairs]


def places_needed(k: int, pairs: np.ndarray | None) -> int:
    """Return how many predictions per text leave k of them when the pairs (text row, label) are removed."""
    return k if pairs is None or not len(pairs) else k + int(np.bincount(pairs[:, 0]).max())


def is_filtered(ids: np.ndarray, pairs: np.ndarray) -> np.ndarray:
    """Return which of the label ids (texts × K, -1 for none) form one of the pairs with their text."""
    keys = pair_keys(np.arange(len(ids))[:, None], ids)
    return (ids >= 0) & contains(pair_keys(*pairs.T), keys)


def unfiltered(ids: np.ndarray, scores: np.ndarray, pairs: np.ndarray | None, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the first k labels (ids and scores, texts × K) of each text that form none of the pairs with it."""
    if pairs is None or not len(pairs):
        return ids[:, :k], scores[:, :k]
    dropped = is_filtered(ids, pairs)
    order = np.argsort(dropped, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(np.where(dropped, -1, ids), order, axis=1), np.take_along_axis(scores, order, axis=1)


def without_pairs(labels: Ragged, pairs: np.ndarray) -> Ragged:
    """Return the labels of each text that form none of the pairs with it."""
    return labels.keep(~contains(pair_keys(*pairs.T), pair_keys(labels.row_ids, labels.values)))


def pair_keys(rows: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return one integer per pair, so that sets of pairs are sets of integers."""
    return (rows.astype(np.int64) << 32) + labels


def contains(known: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """Return which keys are among the known ones; faster than np.isin, which sorts the keys."""
    known = np.sort(known)
    if not len(known):
        return np.zeros(keys.shape, np.bool_)
    return known[np.minimum(np.searchsorted(known, keys), len(known) - 1)] == keys
