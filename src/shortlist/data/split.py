"""Splits a data set into training, validation and test parts, or into folds.

A test part should be what a model meets in use. So the default is a plain random split, in which some test labels have
no training text, as some labels of tomorrow's texts will have none. Identical texts are merged first, and texts that
differ only in case, punctuation or spacing stay in one part: a text whose twin was learnt is no test.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import Any

import numpy as np

from shortlist.arrays import Ragged, counts_to_indptr, random_generator
from shortlist.data.dataset import Dataset
from shortlist.data.read import read
from shortlist.errors import DataError, OptionError
from shortlist.kernels.ragged import first_in_row
from shortlist.kernels.strings import StringTable
from shortlist.lazy import sparse
from shortlist.tables import wrapped
from shortlist.text.same_words import same_words

log = logging.getLogger("shortlist")

TRAIN, VALIDATION, TEST = range(3)


@dataclass(frozen=True)
class Split:
    """The parts, and how they were made.

    The training part has only the labels that occur in it: recipes learn from the names of labels, too, and must not
    see those of labels that are new in the test part.
    """

    train: Dataset
    validation: Dataset
    test: Dataset
    merged_texts: int
    moved_to_train: int  # by keep_labels
    held_out_labels: int
    held_out_labels_not_in_train: int

    @property
    def moved_share(self) -> float:
        """The share of the held-out texts that `keep_labels` moved to training; P@1 may be too high by this share."""
        return self.moved_to_train / max(len(self.validation) + len(self.test) + self.moved_to_train, 1)


def split(
    dataset: Any,
    *,
    test: float = 0.2,
    validation: float = 0.0,
    seed: int = 0,
    by_time: bool = False,
    group: str | None = None,
    stratified: bool = False,
    keep_labels: bool = False,
) -> Split:
    """Split a data set (or anything `shortlist.read` reads) at random, or in one of three other ways.

    test         fraction of the texts in the test part
    validation   fraction of the texts in the validation part
    seed         random seed
    by_time      hold out the latest texts. Read the data with `time=`
    group        name of a field: texts with the same value stay in one part. Read a `Dataset` with `group=`
    stratified   divide the texts of every label between the parts as evenly as possible
    keep_labels  move held-out texts to training until it has every label. This flatters: in use, a model also meets
                 labels that it has never seen. A warning says by how much

    >>> parts = split([("red shoes", ["shoes"]), ("blue shoes", ["shoes"])], test=0.5)
    >>> len(parts.train), len(parts.test)
    (1, 1)
    """
    if not (0 <= test < 1 and 0 <= validation < 1 and test + validation < 1):
        raise OptionError(
            f"test={test} and validation={validation} leave nothing to train on; their sum must be below 1"
        )
    _check_way(by_time, group, stratified, keep_labels)
    dataset = read(dataset, group=group)
    if by_time and dataset.times is None:
        raise OptionError("splitting by time needs times: read the data with time= (--time), the name of their field")
    if group is not None and group not in dataset.groups:
        raise OptionError(
            f"splitting by {group!r} needs its values: read the data with group={group!r} (--group), from JSON lines, "
            "CSV, TSV, Parquet, a list of dictionaries or a data frame"
        )
    merged = merge_identical_texts(dataset)
    rng = random_generator(seed)
    if by_time:
        part = np.empty(len(merged), np.int64)
        order = np.argsort(times_as_numbers(merged), kind="stable")
        part[order] = np.searchsorted(_bounds(len(merged), test, validation), np.arange(len(merged)) + 0.5)
    elif stratified:
        part = _stratify(merged, test, validation, rng)
    else:
        part = _place(_units(merged, group), _bounds(len(merged), test, validation), rng)
    moved = _keep_labels_in_train(merged, part, rng) if keep_labels else 0
    is_train_pair = part[merged.labels.row_ids] == TRAIN
    held_out = np.unique(merged.labels.values[~is_train_pair])
    result = Split(
        train=merged.take(part == TRAIN).without_unused_labels(),
        validation=merged.take(part == VALIDATION),
        test=merged.take(part == TEST),
        merged_texts=len(dataset) - len(merged),
        moved_to_train=moved,
        held_out_labels=len(held_out),
        held_out_labels_not_in_train=len(np.setdiff1d(held_out, merged.labels.values[is_train_pair])),
    )
    if moved:
        percent = 100 * result.moved_share
        # At worst, all moved texts would have been misses: P@1 of all held-out texts ≥ (1 - share) · P@1 of the rest.
        flattery = (
            f"keep_labels moved {moved:,} held-out texts ({percent:.1f} %) to training, because no other training text "
            "has one of their labels. In use, a model meets such texts, too, and misses these labels. So scores on the "
            f"other held-out texts are too high: P@1 by up to {percent:.1f} % of its value, which is {percent / 2:.1f} "
            "points if P@1 is 50."
        )
        log.warning("%s", wrapped(flattery))
    return result


def folds(dataset: Any, n_folds: int, seed: int = 0) -> Iterator[tuple[Dataset, Dataset]]:
    """The training and the test part of each fold of a plain random cross-validation.

    Every distinct text is in one test part. The training parts have only the labels that occur in them.

    >>> [len(test) for _, test in folds([("red hat", ["hat"]), ("red  hat", ["hat"]), ("shoe", ["shoe"])], 2)]
    [2, 1]
    """
    merged = merge_identical_texts(read(dataset))
    units = _units(merged)
    n_units = int(units.max(initial=-1)) + 1
    if not 2 <= n_folds <= n_units:
        raise OptionError(f"folds={n_folds}: there are {n_units:,} different texts; choose from 2 to {n_units:,} folds")
    fold = _place(units, len(merged) * np.arange(1, n_folds) / n_folds, random_generator(seed))
    for number in range(n_folds):
        yield merged.take(fold != number).without_unused_labels(), merged.take(fold == number)


def _check_way(by_time: bool, group: str | None, stratified: bool, keep_labels: bool) -> None:
    given = {"by_time (--time)": by_time, "group (--group)": group is not None, "stratified (--stratified)": stratified}
    names = [name for name, is_given in given.items() if is_given]
    if len(names) > 1:
        raise OptionError(f"{' and '.join(names)} are different ways to split: choose one")
    if keep_labels and by_time:
        raise OptionError(
            "keep_labels (--keep-labels) would move later texts to training, and by_time (--time) holds them out: "
            "choose one"
        )
    if keep_labels and group is not None:
        raise OptionError(
            "keep_labels (--keep-labels) would move single texts of a group to training, and group (--group) keeps "
            "groups together: choose one"
        )


def _bounds(n_texts: int, test: float, validation: float) -> np.ndarray:
    """Where the validation and the test part begin, if the texts of the training part come first."""
    start_of_test = n_texts - round(test * n_texts)
    return np.asarray([start_of_test - round(validation * n_texts), start_of_test])


def _units(dataset: Dataset, group: str | None = None) -> np.ndarray:
    """The number of each text's unit: the texts that must stay together, as they have the same words or group."""
    units = np.arange(len(dataset))
    if dataset.features is None:
        units = np.unique(same_words(dataset.texts)[0], return_inverse=True)[1]
    return units if group is None else _join(units, dataset.groups[group])


def _join(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Number rows so that those with an equal value in either array have an equal number, also by way of others.

    >>> _join(np.array([0, 0, 1, 2]), np.array([7, 8, 8, 9])).tolist()
    [0, 0, 0, 1]
    """
    from scipy.sparse.csgraph import connected_components

    (_, rows), (_, columns) = (np.unique(values, return_inverse=True) for values in (first, second))
    n_rows, n_columns = (int(values.max(initial=-1)) + 1 for values in (rows, columns))
    edges = sparse.coo_array(
        (np.ones(len(rows), np.int8), (rows, n_rows + columns)), shape=(n_rows + n_columns, n_rows + n_columns)
    )
    return np.unique(connected_components(edges, directed=False)[1][rows], return_inverse=True)[1]


def _place(units: np.ndarray, bounds: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The part of each text: units in random order, cut where the parts begin.

    A unit across a boundary goes where its middle is, so large and small units are held out equally often.
    """
    sizes = np.bincount(units)
    order = rng.permutation(len(sizes))
    middles = np.cumsum(sizes[order]) - sizes[order] / 2
    part_of_unit = np.empty(len(sizes), np.int64)
    part_of_unit[order] = np.searchsorted(bounds, middles)
    return part_of_unit[units]


def _stratify(dataset: Dataset, test: float, validation: float, rng: np.random.Generator) -> np.ndarray:
    part = np.full(len(dataset), TRAIN)
    rest = np.arange(len(dataset))
    for which, fraction in ((TEST, test), (VALIDATION, validation / (1 - test))):
        held_out = _hold_out_evenly(dataset.labels.take(rest), dataset.n_labels, fraction, rng)
        part[rest[held_out]] = which
        rest = rest[~held_out]
    units = _units(dataset)
    first_rows = np.unique(units, return_index=True)[1]
    return part[first_rows[units]]


def _hold_out_evenly(labels: Ragged, n_labels: int, fraction: float, rng: np.random.Generator) -> np.ndarray:
    """Whether to hold out each text, so that every label has this fraction of its texts held out, as far as possible.

    Labels are served one after the other, the rarest first: it has the fewest ways to be divided.
    """
    order = rng.permutation(len(labels))
    shuffled = labels.take(order)
    texts = order[shuffled.row_ids[np.argsort(shuffled.values, kind="stable")]]
    frequencies = np.bincount(labels.values, minlength=n_labels)
    starts = counts_to_indptr(frequencies)
    undecided, held_out = np.ones(len(labels), bool), np.zeros(len(labels), bool)
    excess = 0.0  # texts that are held out so far, beyond the fraction
    by_chance = rng.permutation(n_labels)
    for label in by_chance[np.argsort(frequencies[by_chance], kind="stable")].tolist():
        rows = texts[starts[label] : starts[label + 1]]
        free = rows[undecided[rows]]
        if not len(free):
            continue
        wanted = round(fraction * len(rows) - np.count_nonzero(held_out[rows]), 6)
        # Rounding up or down is equally even for this label; the size of the part decides.
        count = min(max(math.floor(wanted) if excess > 0 else math.ceil(wanted), 0), len(free))
        held_out[free[:count]] = True
        undecided[free] = False
        excess += count - fraction * len(free)
    without_labels = order[undecided[order]]
    held_out[without_labels[: max(round(fraction * len(without_labels) - excess), 0)]] = True
    return held_out


def merge_identical_texts(dataset: Dataset) -> Dataset:
    """One row per distinct text, with all of its labels, their largest weights, the latest time, and the first columns.

    Groups that have a text in common become one.
    """
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
        groups={name: _join(ids, groups)[first_rows] for name, groups in dataset.groups.items()},
        columns={name: values[first_rows] for name, values in dataset.columns.items()},
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
        parsed = datetime.fromisoformat(str(time).strip().removesuffix("Z"))
    except ValueError:
        raise DataError(
            f"text {row + 1:,}: the time {str(time)[:40]!r} is neither a number nor an ISO date such as 2024-05-31 or "
            "2024-05-31T18:00+02:00 (all times must be of the same kind)"
        ) from None
    return (parsed if parsed.tzinfo else parsed.replace(tzinfo=timezone.utc)).timestamp()


def _keep_labels_in_train(dataset: Dataset, part: np.ndarray, rng: np.random.Generator) -> int:
    """Move held-out texts with a label that the training part lacks, in random order. Returns how many moved."""
    labels = dataset.labels
    train_counts = np.bincount(labels.values[part[labels.row_ids] == TRAIN], minlength=dataset.n_labels)
    before = np.count_nonzero(part == TRAIN)
    for row in rng.permutation(np.unique(labels.row_ids[train_counts[labels.values] == 0])):
        if np.any(train_counts[labels.row(row)] == 0):
            part[row] = TRAIN
            train_counts[labels.row(row)] += 1
    units = _units(dataset)
    part[np.isin(units, units[part == TRAIN])] = TRAIN  # a text follows its twin
    return int(np.count_nonzero(part == TRAIN) - before)
