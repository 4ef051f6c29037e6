"""Filter pairs: (text, label) pairs that must not count (`filter_labels_test.txt` of the repository)."""

from __future__ import annotations

from typing import Any

import numpy as np

from shortlist.arrays import Ragged
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
    if rows.min() < 0 or rows.max() >= n_texts:
        wrong = rows.min() if rows.min() < 0 else rows.max()
        raise DataError(f"filter_pairs: text row {wrong} is out of range ({n_texts:,} texts, rows from 0)")
    return rows.astype(np.int64), [label for _, label in pairs]


def places_needed(k: int, pairs: np.ndarray | None) -> int:
    """Return how many predictions per text leave k of them when the pairs (text row, label) are removed."""
    return k if pairs is None or not len(pairs) else k + int(np.bincount(pairs[:, 0]).max())


def is_filtered(ids: np.ndarray, pairs: np.ndarray) -> np.ndarray:
    """Return which of the label ids (texts × K, -1 for none) form one of the pairs with their text."""
    keys = pair_keys(np.arange(len(ids))[:, None], ids)
    return (ids >= 0) & contains(pair_keys(pairs[:, 0], pairs[:, 1]), keys)


def unfiltered(ids: np.ndarray, scores: np.ndarray, pairs: np.ndarray | None, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the first k labels (ids and scores, texts × K) of each text that form none of the pairs with it."""
    if pairs is not None and len(pairs):
        ids = np.where(is_filtered(ids, pairs), -1, ids)
    order = np.argsort(ids < 0, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(ids, order, axis=1), np.take_along_axis(scores, order, axis=1)


def drop_pairs(ids: np.ndarray, truth: Ragged, rows: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, Ragged]:
    """Remove the pairs from ranked predictions (texts × K), where lower ranks move up, and from the truth."""
    pairs = pair_keys(rows[labels >= 0], labels[labels >= 0])
    truth = truth.keep(~contains(pairs, pair_keys(truth.row_ids, truth.values)))
    touched = np.unique(rows)
    dropped = (ids[touched] >= 0) & contains(pairs, pair_keys(touched[:, None], ids[touched]))
    order = np.argsort(dropped, axis=1, kind="stable")
    ids = ids.copy()
    ids[touched] = np.take_along_axis(np.where(dropped, -1, ids[touched]), order, axis=1)
    return ids, truth


def pair_keys(rows: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return one integer per pair, so that sets of pairs are sets of integers."""
    return (rows.astype(np.int64) << 32) + labels


def contains(known: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """Return which keys are among the known ones; faster than np.isin, which sorts the keys."""
    known = np.sort(known)
    if not len(known):
        return np.zeros(keys.shape, np.bool_)
    return known[np.minimum(np.searchsorted(known, keys), len(known) - 1)] == keys
