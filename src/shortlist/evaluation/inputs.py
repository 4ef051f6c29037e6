"""Predictions and truth in any form that `evaluate` takes, converted to label ids.

Labels are names (strings) or ids (integers). The two are never compared with each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from shortlist.arrays import Ragged, outside
from shortlist.data.dataset import Dataset
from shortlist.errors import DataError, OptionError
from shortlist.kernels.metrics import top_of_rows
from shortlist.lazy import sparse

MAX_ID = np.iinfo(np.int32).max
Train = Dataset | tuple[Any, int]


@dataclass(eq=False)
class Labels:
    """Label ids of each text, with scores as weights if there are any.

    The ids are positions in `names`, or the user's own ids if `names` is None.
    """

    rows: Ragged
    names: Sequence[str] | None = None

    @property
    def kind(self) -> str | None:
        """ "names", "ids", or None without any label: that fits both."""
        if self.names is not None:
            return "names"
        return "ids" if len(self.rows.values) else None


def convert_predictions(predictions: Any) -> Labels:
    """Convert predictions; the labels of a text are in the given order, best first if they have no scores."""
    if sparse.issparse(predictions):
        matrix = sparse.csr_array(predictions)
        if not matrix.has_canonical_format:
            matrix = matrix.copy()
            matrix.sum_duplicates()
        predictions = Ragged(matrix.indptr.astype(np.int64), matrix.indices, matrix.data)
    if isinstance(predictions, np.ndarray):
        if predictions.ndim != 2 or not np.issubdtype(predictions.dtype, np.integer):
            raise OptionError(
                "an array of predictions must contain label ids, texts × places, best first "
                f"(this one is {predictions.dtype} of shape {predictions.shape}); "
                "give scores of all labels as a scipy sparse matrix"
            )
        n_texts, n_places = predictions.shape
        predictions = Ragged(np.arange(n_texts + 1) * n_places, predictions.ravel())
    return _read_rows(predictions, "predictions", lowest=-1)


def convert_truth(truth: Any) -> Labels:
    """Convert the true labels of each text."""
    if isinstance(truth, np.ndarray):
        raise OptionError(
            "an array as truth is ambiguous, as it could contain label ids or indicators: give a Dataset, "
            "a list of labels per text, a Ragged or a scipy sparse matrix"
        )
    return _read_rows(Ragged.from_csr(truth) if sparse.issparse(truth) else truth, "true labels", lowest=0)


def _read_rows(rows: Any, what: str, lowest: int) -> Labels:
    if isinstance(rows, Dataset):
        return Labels(rows.labels, rows.label_names)
    if isinstance(rows, Ragged):
        labels = Labels(Ragged(np.asarray(rows.indptr, np.int64), rows.values, rows.weights))
    else:
        labels = _read_lists(rows, what)
    ids = labels.rows.values
    if labels.kind == "ids" and (wrong := outside(ids, MAX_ID + 1, lowest)) is not None:
        raise DataError(f"{what}: {wrong} is not a label id; ids are between {lowest} and {MAX_ID}")
    return labels


def _read_lists(rows: Any, what: str) -> Labels:
    """Convert one list of labels, or of (label, score, ...) tuples, per text."""
    if isinstance(rows, str | Mapping) or not isinstance(rows, Iterable):
        raise OptionError(f"{what}: expected one list of labels per text, not {type(rows).__name__}")
    flat: list[Any] = []
    scores: list[float] = []
    indptr = [0]
    for number, row in enumerate(rows):
        labels = row
        if type(row) is not list:  # the slow checks are for unusual types
            if isinstance(row, str) or not isinstance(row, Iterable):
                raise OptionError(f"{what}: text {number} should have a list of labels, not {row!r}")
            labels = list(row)
        if labels and isinstance(labels[0], tuple):
            scores += [0.0] * (len(flat) - len(scores))  # of the texts without scores before this one
            try:
                scores += [0.0 + pair[1] for pair in labels]
                labels = [pair[0] for pair in labels]
            except (TypeError, IndexError):
                raise OptionError(f"{what}: text {number} should have (label, score) tuples, not {labels!r}") from None
        flat += labels
        indptr.append(len(flat))
    names, ids = None, np.zeros(0, np.int64)
    kinds = set(map(type, flat))
    if kinds and all(issubclass(kind, str) for kind in kinds):
        position = {name: i for i, name in enumerate(dict.fromkeys(flat))}
        names, ids = list(position), np.fromiter(map(position.__getitem__, flat), np.int32, len(flat))
    elif all(issubclass(kind, int | np.integer) for kind in kinds):
        ids = np.asarray(flat, np.int64)
    else:
        found = ", ".join(sorted(kind.__name__ for kind in kinds))
        raise OptionError(f"{what}: labels must be all names (str) or all ids (int), not {found}")
    weights = np.asarray(scores + [0.0] * (len(flat) - len(scores))) if scores else None
    return Labels(Ragged(np.asarray(indptr, np.int64), ids, weights), names)


def top_k(rows: Ragged, k: int) -> np.ndarray:
    """Return the k best ids of each row by weight, or the first k without weights: texts × k, -1 for none.

    Of equal weights, the first comes first.

    >>> top_k(Ragged(np.array([0, 3, 4]), np.array([5, 6, 7, 8]), np.array([0.1, 0.9, 0.5, 0.2])), k=2).tolist()
    [[6, 7], [8, -1]]
    """
    scores = np.zeros(len(rows.values)) if rows.weights is None else rows.weights.astype(np.float64)
    if np.isnan(scores).any():
        row = rows.row_ids[np.flatnonzero(np.isnan(scores))[0]]
        raise DataError(f"predictions: text {row} has a score of NaN, which cannot be ranked")
    top = np.empty((len(rows), k), np.int32)
    top_of_rows(rows.indptr, rows.values.astype(np.int32), scores, top)
    return top


@dataclass(eq=False)
class Aligned:
    """Predictions and truth with common label ids; those of the training labels come first."""

    predictions: Ragged
    truth: Ragged
    id_of_name: dict[str, int] | None  # None if labels are ids
    n_known: int  # number of labels in training and truth (names), or in training (ids)
    frequencies: np.ndarray | None = None  # training texts of each label
    n_train_texts: int = 0
    truth_ids: np.ndarray | None = None  # ids of the names in the truth's Dataset

    def label_ids(self, labels: Sequence[Any]) -> np.ndarray:
        """Return the ids of labels in filter pairs: names, or ids; with a Dataset as truth, positions in its names."""
        if all(isinstance(label, str) for label in labels):
            if self.id_of_name is None and len(labels):
                raise OptionError("filter_pairs has label names, but predictions and truth have ids")
            return np.asarray([(self.id_of_name or {}).get(label, -1) for label in labels], np.int64)
        ids = np.asarray(labels)
        if not np.issubdtype(ids.dtype, np.integer):
            raise OptionError("filter_pairs must be (text row, label) pairs whose labels are all names or all ids")
        if self.id_of_name is None:
            return ids.astype(np.int64)
        if self.truth_ids is None:
            raise OptionError("filter_pairs has label ids, but predictions and truth have names")
        _check_range(ids, len(self.truth_ids), "filter_pairs", "the truth")
        return self.truth_ids[ids]


def align(predictions: Labels, truth: Labels, train: Train | None, truth_is_dataset: bool) -> Aligned:
    """Give the labels of training data, truth and predictions common ids."""
    if len(predictions.rows) != len(truth.rows):
        raise DataError(
            f"there are predictions for {len(predictions.rows):,} texts but true labels for {len(truth.rows):,}; "
            "give one row per text, in the same order"
        )
    kinds = {predictions.kind, truth.kind} - {None}
    if len(kinds) == 2:
        raise OptionError(
            f"predictions have label {predictions.kind}, but the truth has label {truth.kind}: give both as names "
            "(Dataset, lists of strings) or both as ids (arrays, sparse matrices, lists of integers)"
        )
    by_name = kinds == {"names"} or (not kinds and isinstance(train, Dataset))
    train_names, frequencies, n_train_texts = _read_train(train, by_name)
    if not by_name:
        n_known = 0 if frequencies is None else len(frequencies)
        if frequencies is not None:
            _check_range(predictions.rows.values, n_known, "predictions", "the training data", lowest=-1)
            _check_range(truth.rows.values, n_known, "true labels", "the training data")
        return Aligned(predictions.rows, truth.rows, None, n_known, frequencies, n_train_texts)
    id_of_name = {name: i for i, name in enumerate(train_names)}
    truth_ids = _number(truth.names or [], id_of_name)
    n_known = len(id_of_name)
    predicted_ids = _number(predictions.names or [], id_of_name)
    if frequencies is not None:
        frequencies = np.append(frequencies, np.zeros(len(id_of_name) - len(frequencies), np.int64))
    return Aligned(
        Ragged(predictions.rows.indptr, predicted_ids[predictions.rows.values], predictions.rows.weights),
        Ragged(truth.rows.indptr, truth_ids[truth.rows.values], truth.rows.weights),
        id_of_name,
        n_known,
        frequencies,
        n_train_texts,
        truth_ids if truth_is_dataset else None,
    )


def _number(names: Sequence[str], id_of_name: dict[str, int]) -> np.ndarray:
    """Return the ids of names, and add those that are new."""
    return np.asarray([id_of_name.setdefault(name, len(id_of_name)) for name in names], np.int32)


def _read_train(train: Train | None, by_name: bool) -> tuple[Sequence[str], np.ndarray | None, int]:
    """Return label names (empty if labels are ids), label frequencies, and number of texts of the training data."""
    if train is None:
        return [], None, 0
    if isinstance(train, Dataset):
        return train.label_names, train.label_frequencies, len(train)
    try:
        frequencies, n_texts = train
    except (TypeError, ValueError):
        raise OptionError("train must be a Dataset or a pair (label frequencies, number of texts)") from None
    if by_name != isinstance(frequencies, Mapping):
        expected = "a dict from label name to frequency" if by_name else "an array of frequencies by label id"
        raise OptionError(f"train: with these labels the frequencies must be {expected}")
    counts = list(frequencies.values()) if by_name else frequencies
    return list(frequencies) if by_name else [], np.asarray(counts, np.int64), int(n_texts)


def _check_range(ids: np.ndarray, n_labels: int, what: str, whose: str, lowest: int = 0) -> None:
    if (wrong := outside(ids, n_labels, lowest)) is not None:
        raise DataError(f"{what}: label id {wrong} is out of range ({whose} has {n_labels:,} labels, numbered from 0)")
