"""Cutting a data set into training, validation and test parts that can be trusted.

Identical texts are merged first, so that no text stands on both sides; and a label that would occur only
in a held-out part gets one of its texts moved to training, for nobody can predict what was never seen.
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
    """The parts, over the same label names, and what was done to get them."""

    train: Dataset
    validation: Dataset
    test: Dataset
    merged_texts: int
    moved_to_train: int
    held_out_labels_not_in_train: int


def split(dataset: Any, *, test: float = 0.2, validation: float = 0.0, seed: int = 0, by_time: bool = False) -> Split:
    """Cut a data set (or anything `shortlist.read` reads) into parts of these shares.

    At random by `seed`; or, `by_time`, with the latest texts held out.

    By time nothing is moved to training afterwards: that would be learning from the future.
    """
    if not (0 <= test < 1 and 0 <= validation < 1 and test + validation < 1):
        raise OptionError(f"shares of {test} for test and {validation} for validation leave nothing to train on")
    if by_time and dataset.times is None:
        raise OptionError("splitting by time needs the field that holds the time: read with time=… (--time)")
    dataset = dataset if isinstance(dataset, Dataset) else read(dataset)
    merged = merge_identical_texts(dataset)
    n_test, n_validation = round(test * len(merged)), round(validation * len(merged))
    order = np.random.default_rng(seed).permutation(len(merged))
    if by_time:
        order = np.argsort(times_as_numbers(merged), kind="stable")
    part = np.full(len(merged), TRAIN, np.int8)
    part[order[len(order) - n_test :]] = TEST
    part[order[len(order) - n_test - n_validation : len(order) - n_test]] = VALIDATION
    moved = 0 if by_time else _keep_labels_in_train(merged, part, order)
    held_out = np.unique(merged.labels.values[part[merged.labels.row_ids] != TRAIN])
    in_train = np.unique(merged.labels.values[part[merged.labels.row_ids] == TRAIN])
    return Split(
        train=merged.take(np.flatnonzero(part == TRAIN)),
        validation=merged.take(np.flatnonzero(part == VALIDATION)),
        test=merged.take(np.flatnonzero(part == TEST)),
        merged_texts=len(dataset) - len(merged),
        moved_to_train=moved,
        held_out_labels_not_in_train=len(np.setdiff1d(held_out, in_train)),
    )


def merge_identical_texts(dataset: Dataset) -> Dataset:
    """One row for each distinct text, with all labels it was given, the largest weight and the latest time."""
    if dataset.features is not None:
        return dataset
    ids = StringTable().add(dataset.texts.buffer, dataset.texts.offsets)
    n_distinct = int(ids.max()) + 1 if len(ids) else 0
    if n_distinct == len(dataset):
        return dataset
    rows_by_text = np.argsort(ids, kind="stable")
    first_rows = rows_by_text[counts_to_indptr(np.bincount(ids))[:-1]]
    gathered = dataset.labels.take(rows_by_text)
    sizes = np.bincount(ids, weights=dataset.labels.counts, minlength=n_distinct).astype(np.int64)
    labels = Ragged(counts_to_indptr(sizes), gathered.values, gathered.weights)
    if labels.weights is not None:
        # Heaviest first within a text, so that the first of several is the one to keep.
        order = np.lexsort((-labels.weights, labels.row_ids))
        labels = Ragged(labels.indptr, labels.values[order], labels.weights[order])
    labels = labels.keep(first_in_row(labels.indptr, labels.values, dataset.n_labels))
    latest = first_rows
    if dataset.times is not None:
        rows_by_time = np.argsort(times_as_numbers(dataset), kind="stable")
        latest = first_rows.copy()
        latest[ids[rows_by_time]] = rows_by_time  # of several, the last one assigned stays
    pairs = dataset.filter_pairs
    return replace(
        dataset,
        texts=dataset.texts.take(first_rows),
        labels=labels,
        times=None if dataset.times is None else dataset.times[latest],
        filter_pairs=None if pairs is None else np.unique(np.column_stack([ids[pairs[:, 0]], pairs[:, 1]]), axis=0),
    )


def times_as_numbers(dataset: Dataset) -> np.ndarray:
    """Times that sort as they should: numbers as they are, ISO dates as seconds (UTC where no zone is given)."""
    times = dataset.times
    assert times is not None
    try:
        # Numbers that came as text, as in CSV, must not sort as text: "9" is before "10".
        return times.astype(np.float64)
    except (ValueError, TypeError):
        return np.asarray([_seconds(time, row) for row, time in enumerate(times)])


def _seconds(time: Any, row: int) -> float:
    try:
        parsed = datetime.fromisoformat(str(time).strip())
    except ValueError:
        raise DataError(
            f"text {row + 1:,}: the time {str(time)[:40]!r} is neither a number nor an ISO date such as 2024-05-31 or "
            "2024-05-31T18:00+02:00 (and all times must be of one kind)"
        ) from None
    return (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp()


def _keep_labels_in_train(dataset: Dataset, part: np.ndarray, order: np.ndarray) -> int:
    """Move held-out texts to training, in the order given, while they have a label that training lacks."""
    labels = dataset.labels
    in_train = np.zeros(dataset.n_labels, np.int64)
    np.add.at(in_train, labels.values[part[labels.row_ids] == TRAIN], 1)
    lacking = in_train[labels.values] == 0
    wanting = np.zeros(len(dataset), bool)
    wanting[labels.row_ids[lacking]] = True
    moved = 0
    for row in order[wanting[order]]:
        if part[row] != TRAIN and np.any(in_train[labels.row(row)] == 0):
            part[row] = TRAIN
            in_train[labels.row(row)] += 1
            moved += 1
    return moved
