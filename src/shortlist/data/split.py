"""Splits a data set into training, validation and test parts.

Identical texts are merged first, so that no text is in two parts. If a label would occur only in a held-out part, one
of its texts moves to the training part: no model can predict a label it has never seen.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np

from shortlist.arrays import Ragged, counts_to_indptr
from shortlist.data.dataset import Dataset
from shortlist.data.read import read
from shortlist.errors import DataError, OptionError
from shortlist.kernels.ragged import first_in_row
from shortlist.kernels.strings import StringTable

TRAIN, VALIDATION, TEST = range(3)


@dataclass(frozen=True)
class Split:
    """The parts, with the same label names, and how they were made."""

    train: Dataset
    validation: Dataset
    test: Dataset
    merged_texts: int
    moved_to_train: int
    held_out_labels_not_in_train: int


def split(dataset: Any, *, test: float = 0.2, validation: float = 0.0, seed: int = 0, by_time: bool = False) -> Split:
    """Split a data set (or anything `shortlist.read` reads) at random, or hold out the latest texts with `by_time`.

    test        fraction of the texts in the test part
    validation  fraction of the texts in the validation part
    seed        random seed
    by_time     split by time. Nothing moves to the training part then: it would be learning from the future

    >>> parts = split([("red shoes", ["shoes"]), ("blue shoes", ["shoes"])], test=0.5)
    >>> len(parts.train), len(parts.test)
    (1, 1)
    """
    if not (0 <= test < 1 and 0 <= validation < 1 and test + validation < 1):
        raise OptionError(
            f"test={test} and validation={validation} leave nothing to train on; their sum must be below 1"
        )
    dataset = read(dataset)
    if by_time and dataset.times is None:
        raise OptionError("splitting by time needs times: read the data with time= (--time), the name of their field")
    merged = merge_identical_texts(dataset)
    n_test, n_validation = round(test * len(merged)), round(validation * len(merged))
    if by_time:
        order = np.argsort(times_as_numbers(merged), kind="stable")
    else:
        order = np.random.default_rng(seed).permutation(len(merged))
    part = np.full(len(merged), TRAIN, np.int8)
    part[order[len(order) - n_test :]] = TEST
    part[order[len(order) - n_test - n_validation : len(order) - n_test]] = VALIDATION
    moved = 0 if by_time else _keep_labels_in_train(merged, part, order)
    is_train_pair = part[merged.labels.row_ids] == TRAIN
    unseen = np.setdiff1d(merged.labels.values[~is_train_pair], merged.labels.values[is_train_pair])
    return Split(
        train=merged.take(part == TRAIN),
        validation=merged.take(part == VALIDATION),
        test=merged.take(part == TEST),
        merged_texts=len(dataset) - len(merged),
        moved_to_train=moved,
        held_out_labels_not_in_train=len(unseen),
    )


def merge_identical_texts(dataset: Dataset) -> Dataset:
    """One row per distinct text, with all of its labels, their largest weights, and the latest time."""
    if dataset.features is not None:
        return dataset
    ids = StringTable().add(dataset.texts.buffer, dataset.texts.offsets)
    n_distinct = int(ids.max()) + 1 if len(ids) else 0
    if n_distinct == len(dataset):
        return dataset
    rows_by_text = np.argsort(ids, kind="stable")
    first_rows = rows_by_text[counts_to_indptr(np.bincount(ids))[:-1]]
    gathered = dataset.labels.take(rows_by_text)
    counts = np.bincount(ids, weights=dataset.labels.counts, minlength=n_distinct).astype(np.int64)
    labels = Ragged(counts_to_indptr(counts), gathered.values, gathered.weights)
    if labels.weights is not None:
        # Largest weight first: of several equal labels, the first is kept.
        order = np.lexsort((-labels.weights, labels.row_ids))
        labels = Ragged(labels.indptr, labels.values[order], labels.weights[order])
    labels = labels.keep(first_in_row(labels.indptr, labels.values, dataset.n_labels))
    latest_rows = first_rows
    if dataset.times is not None:
        rows_by_time = np.argsort(times_as_numbers(dataset), kind="stable")
        latest_rows = first_rows.copy()
        latest_rows[ids[rows_by_time]] = rows_by_time  # the last assignment wins
    pairs = dataset.filter_pairs
    return replace(
        dataset,
        texts=dataset.texts.take(first_rows),
        labels=labels,
        times=None if dataset.times is None else dataset.times[latest_rows],
        filter_pairs=None if pairs is None else np.unique(np.column_stack([ids[pairs[:, 0]], pairs[:, 1]]), axis=0),
    )


def times_as_numbers(dataset: Dataset) -> np.ndarray:
    """Times as numbers that sort correctly: numbers as they are, ISO dates as seconds (UTC unless they have a zone)."""
    times = dataset.times
    assert times is not None
    try:
        # Numbers from a CSV file are strings, and must not sort as strings: "9" is before "10".
        return times.astype(np.float64)
    except (ValueError, TypeError):
        return np.asarray([_seconds(time, row) for row, time in enumerate(times)])


def _seconds(time: Any, row: int) -> float:
    try:
        parsed = datetime.fromisoformat(str(time).strip())
    except ValueError:
        raise DataError(
            f"text {row + 1:,}: the time {str(time)[:40]!r} is neither a number nor an ISO date such as 2024-05-31 or "
            "2024-05-31T18:00+02:00 (all times must be of the same kind)"
        ) from None
    return (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp()


def _keep_labels_in_train(dataset: Dataset, part: np.ndarray, order: np.ndarray) -> int:
    """Move held-out texts with a label that the training part lacks, in the given order. Returns how many moved."""
    labels = dataset.labels
    train_counts = np.bincount(labels.values[part[labels.row_ids] == TRAIN], minlength=dataset.n_labels)
    may_move = np.zeros(len(dataset), bool)
    may_move[labels.row_ids[train_counts[labels.values] == 0]] = True
    moved = 0
    for row in order[may_move[order]]:
        if part[row] != TRAIN and np.any(train_counts[labels.row(row)] == 0):
            part[row] = TRAIN
            train_counts[labels.row(row)] += 1
            moved += 1
    return moved
