"""Pairs of a text and a label that must not count (the repository's `filter_labels_test.txt`)."""

from __future__ import annotations

from typing import Any

import numpy as np

from shortlist.arrays import Ragged
from shortlist.errors import DataError, OptionError


def split_pairs(pairs: Any, n_texts: int) -> tuple[np.ndarray, list[Any]]:
    """The text rows and the labels of (row, label) pairs: a list of tuples or an array with two columns."""
    if isinstance(pairs, np.ndarray):
        if pairs.size and (pairs.ndim != 2 or pairs.shape[1] != 2):
            raise OptionError(f"filter pairs must have two columns (text row, label), not shape {pairs.shape}")
        rows, labels = pairs.reshape(-1, 2)[:, 0], pairs.reshape(-1, 2)[:, 1].tolist()
    else:
        pairs = list(pairs)
        if any(len(pair) != 2 for pair in pairs):
            raise OptionError("each filter pair must be (text row, label)")
        rows, labels = np.asarray([pair[0] for pair in pairs]), [pair[1] for pair in pairs]
    if len(rows) == 0:
        return np.zeros(0, np.int64), []
    if not np.issubdtype(rows.dtype, np.integer):
        raise OptionError(f"filter pairs must begin with a text's row number, not {rows.dtype}")
    if rows.min() < 0 or rows.max() >= n_texts:
        wrong = rows.min() if rows.min() < 0 else rows.max()
        raise DataError(f"filter pairs name text row {wrong}, but there are {n_texts:,} texts (rows from 0)")
    return rows.astype(np.int64), labels


def most_per_text(rows: np.ndarray) -> int:
    """How many pairs the text with most pairs has: so many predictions more must be at hand."""
    return int(np.bincount(rows).max()) if len(rows) else 0


def among_pairs(ids: np.ndarray, pairs: np.ndarray) -> np.ndarray:
    """Which of the labels of each text (texts × K ids) make one of these (text, label) pairs."""
    keys = pair_keys(np.arange(len(ids))[:, None], ids)
    return (ids >= 0) & np.isin(keys, pair_keys(pairs[:, 0], pairs[:, 1]))


def drop_pairs(
    predictions: np.ndarray, truth: Ragged, rows: np.ndarray, labels: np.ndarray
) -> tuple[np.ndarray, Ragged]:
    """Take the pairs out of the predictions, where what follows moves up, and out of the truth."""
    pairs = np.unique(pair_keys(rows[labels >= 0], labels[labels >= 0]))
    kept = truth.keep(~np.isin(pair_keys(truth.row_ids, truth.values), pairs))
    touched = np.unique(rows)
    part = predictions[touched]
    dropped = (part >= 0) & np.isin(pair_keys(touched[:, None], part), pairs)
    part[dropped] = -1
    moved_up = np.take_along_axis(part, np.argsort(dropped, axis=1, kind="stable"), axis=1)
    predictions = predictions.copy()
    predictions[touched] = moved_up
    return predictions, kept


def pair_keys(rows: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """One number for each pair, so that sets of pairs are sets of numbers."""
    return (rows.astype(np.int64) << 32) + labels
