"""Whatever form predictions and truth come in, the metrics get ids: this is where names become numbers.

Two kinds of labels are kept apart: names (strings) and ids (whole numbers). They never meet by chance:
`merge` refuses to compare one with the other.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from shortlist.arrays import Ragged
from shortlist.data.dataset import Dataset
from shortlist.errors import DataError, OptionError
from shortlist.kernels.metrics import NOTHING, top_of_rows
from shortlist.lazy import sparse

LARGEST_ID = np.iinfo(np.int32).max


@dataclass(eq=False)
class Labelled:
    """Label ids, and what they stand for: positions in `names`, or (None) the user's own ids."""

    ids: Any  # an int32 array or a Ragged
    names: list[str] | None = None
    empty: bool = False  # no label at all: goes with names as well as with ids


def read_predictions(predictions: Any, width: int) -> Labelled:
    """The first `width` predictions of each text, best first, as an int32 array padded with -1."""
    if isinstance(predictions, Dataset):
        return Labelled(ranked_rows(predictions.labels, width), predictions.label_names)
    if isinstance(predictions, Ragged):
        return Labelled(ranked_rows(predictions, width))
    if sparse.issparse(predictions):
        return Labelled(top_scores(predictions, width))
    if isinstance(predictions, np.ndarray):
        if predictions.ndim != 2 or not np.issubdtype(predictions.dtype, np.integer):
            raise OptionError(
                "an array of predictions must hold label ids, texts × places, best first "
                f"(this one is {predictions.dtype} of shape {predictions.shape}); "
                "scores of all labels go in as a scipy sparse matrix"
            )
        check_ids(predictions, "predictions", lowest=-1)
        return Labelled(predictions[:, :width].astype(np.int32))
    rows, names, empty = flatten(predictions, "predictions", width)
    return Labelled(first_of_rows(rows, width), names, empty)


def read_truth(truth: Any) -> Labelled:
    """The true labels of each text."""
    if isinstance(truth, Dataset):
        return Labelled(truth.labels, truth.label_names)
    if isinstance(truth, Ragged):
        check_ids(truth.values, "true labels", lowest=0)
        return Labelled(truth)
    if sparse.issparse(truth):
        return Labelled(Ragged.from_csr(truth))
    if isinstance(truth, np.ndarray):
        raise OptionError(
            "an array does not say whether it holds ids or marks for labels: give the truth as a Dataset, "
            "a list with a list of labels per text, a Ragged or a scipy sparse matrix"
        )
    rows, names, empty = flatten(truth, "true labels", None)
    if names is None:
        check_ids(rows.values, "true labels", lowest=0)
    return Labelled(rows, names, empty)


def ranked_rows(rows: Ragged, width: int) -> np.ndarray:
    """Rows with weights are ranked by them (of equal ones the first stays first), others stand as given."""
    if rows.weights is None:
        return first_of_rows(rows, width)
    check_scores(rows.weights)
    top = np.empty((len(rows), width), np.int32)
    top_of_rows(rows.indptr, rows.values.astype(np.int32), rows.weights.astype(np.float64), top)
    return top


def first_of_rows(rows: Ragged, width: int) -> np.ndarray:
    counts = np.minimum(rows.counts, width)
    there = np.arange(width) < counts[:, None]
    first = np.full((len(rows), width), NOTHING, np.int32)
    first[there] = rows.values[(rows.indptr[:-1, None] + np.arange(width))[there]]
    return first


def top_scores(matrix: Any, width: int) -> np.ndarray:
    """The best stored scores of each row of a sparse matrix; of equal ones the smaller id."""
    matrix = sparse.csr_array(matrix)
    if not matrix.has_canonical_format:
        matrix = matrix.copy()
        matrix.sum_duplicates()
    check_scores(matrix.data)
    top = np.empty((matrix.shape[0], width), np.int32)
    top_of_rows(matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32), matrix.data.astype(np.float64), top)
    return top


def check_scores(scores: np.ndarray) -> None:
    if np.isnan(scores).any():
        raise DataError("a predicted score is not a number (NaN): predictions cannot be ranked by it")


def check_ids(ids: np.ndarray, what: str, lowest: int) -> None:
    if ids.size and (ids.min() < lowest or ids.max() > LARGEST_ID):
        wrong = ids.min() if ids.min() < lowest else ids.max()
        raise DataError(f"{what}: {wrong} is no label id; ids go from {lowest} to {LARGEST_ID}")


def flatten(rows: Any, what: str, width: int | None) -> tuple[Ragged, list[str] | None, bool]:
    """Python lists of labels, or of (label, score, ...) tuples, one list per text."""
    if isinstance(rows, str | Mapping) or not isinstance(rows, Iterable):
        raise OptionError(f"{what}: expected a list with one list of labels per text, not {type(rows).__name__}")
    flat: list[Any] = []
    ends = [0]
    for number, row in enumerate(rows):
        labels = row
        if type(row) is not list:  # spares the slow check for the usual case
            if isinstance(row, str) or not isinstance(row, Iterable):
                raise OptionError(f"{what}: text {number} should have a list of labels, not {row!r}")
            labels = list(row)
        if labels and isinstance(labels[0], tuple):
            labels = by_score(labels, what, number)
        flat += labels if width is None or len(labels) <= width else labels[:width]
        ends.append(len(flat))
    indptr = np.asarray(ends, np.int64)
    if not flat:
        return Ragged(indptr, np.zeros(0, np.int32)), None, True
    kinds = set(map(type, flat))
    if all(issubclass(kind, str) for kind in kinds):
        names = list(dict.fromkeys(flat))
        position = dict(zip(names, range(len(names)), strict=True))
        ids = np.fromiter(map(position.__getitem__, flat), np.int32, len(flat))
        return Ragged(indptr, ids), names, False
    if all(issubclass(kind, int | np.integer) for kind in kinds):
        numbers = np.asarray(flat, np.int64)
        check_ids(numbers, what, lowest=-1)
        return Ragged(indptr, numbers.astype(np.int32)), None, False
    found = ", ".join(sorted(kind.__name__ for kind in kinds))
    raise OptionError(f"{what}: labels must be all names (str) or all ids (int); there are {found}")


def by_score(pairs: list[Any], what: str, row: int) -> list[Any]:
    """The labels of (label, score, ...) tuples, best first; sorting is stable, so ranked ones stay."""
    try:
        scores = [-pair[1] for pair in pairs]
        if any(map(math.isnan, scores)):
            raise DataError(f"{what}: text {row} has a score that is not a number (NaN)")
        return [pairs[place][0] for place in sorted(range(len(pairs)), key=scores.__getitem__)]
    except (TypeError, IndexError):
        raise OptionError(f"{what}: text {row} should have (label, score) tuples, not {pairs!r}") from None


@dataclass(eq=False)
class Merged:
    """Predictions and truth over one numbering of the labels, in which training's labels come first."""

    predictions: np.ndarray
    truth: Ragged
    position: dict[str, int] | None  # from name to id; None: the ids are the user's own
    frequencies: np.ndarray | None  # how often each label occurs in training
    n_train_texts: int
    n_known: int  # labels of training and truth; ids from here on were only predicted
    truth_ids: np.ndarray | None  # from positions in the truth's own names to ids

    def label_ids(self, labels: Sequence[Any]) -> np.ndarray:
        """Ids of labels given by name, or by id: positions in the truth's names when these are names."""
        if all(isinstance(label, str) for label in labels):
            if self.position is None and len(labels):
                raise OptionError("filter pairs hold label names, but predictions and truth hold ids")
            return np.asarray([(self.position or {}).get(label, -1) for label in labels], np.int64)
        ids = np.asarray(labels)
        if not np.issubdtype(ids.dtype, np.integer):
            raise OptionError("filter pairs must be (text row, label) with labels that are all names or all ids")
        if self.position is None:
            return ids.astype(np.int64)
        if self.truth_ids is None:
            raise OptionError("filter pairs hold label ids, but predictions and truth hold names")
        if ids.size and (ids.min() < 0 or ids.max() >= len(self.truth_ids)):
            wrong = ids.min() if ids.min() < 0 else ids.max()
            raise DataError(f"filter pairs name label {wrong}, but the truth has {len(self.truth_ids):,} labels")
        return self.truth_ids[ids]


Train = Dataset | tuple[Any, int]


def merge(predictions: Labelled, truth: Labelled, train: Train | None, truth_is_dataset: bool) -> Merged:
    """Number the labels of training, truth and predictions together."""
    n_predicted, n_true = len(predictions.ids), len(truth.ids)
    if n_predicted != n_true:
        raise DataError(
            f"there are predictions for {n_predicted:,} texts but true labels for {n_true:,}; "
            "both need one row per text, in the same order"
        )
    kinds = {one.names is not None for one in (predictions, truth) if not one.empty}
    if len(kinds) == 2:
        held = ("names", "ids") if predictions.names is not None else ("ids", "names")
        raise OptionError(
            f"predictions hold label {held[0]} but the truth holds label {held[1]}: give both as names "
            "(Dataset, lists of strings) or both as ids (arrays, sparse matrices, lists of whole numbers)"
        )
    with_names = kinds == {True} or (not kinds and isinstance(train, Dataset))
    train_names, frequencies, n_train_texts = read_train(train, with_names)
    if not with_names:
        if frequencies is not None:
            check_known(predictions.ids, len(frequencies), "predictions")
            check_known(truth.ids.values, len(frequencies), "true labels")
        n_known = 0 if frequencies is None else len(frequencies)
        return Merged(predictions.ids, truth.ids, None, frequencies, n_train_texts, n_known, None)

    position = {name: i for i, name in enumerate(train_names)}
    truth_ids = number_names(position, truth.names or [])
    n_known = len(position)
    predicted_ids = np.append(number_names(position, predictions.names or []), NOTHING)  # -1 stays -1
    if frequencies is not None:
        frequencies = np.append(frequencies, np.zeros(len(position) - len(frequencies), np.int64))
    return Merged(
        predicted_ids[predictions.ids],
        Ragged(truth.ids.indptr, truth_ids[truth.ids.values]),
        position,
        frequencies,
        n_train_texts,
        n_known,
        truth_ids if truth_is_dataset else None,
    )


def number_names(position: dict[str, int], names: Sequence[str]) -> np.ndarray:
    """The ids of these names; new ones are added to `position`."""
    return np.asarray([position.setdefault(name, len(position)) for name in names], np.int32)


def read_train(train: Train | None, with_names: bool) -> tuple[Sequence[str], np.ndarray | None, int]:
    """Names (where names are used) and training frequencies of the labels, and the number of texts."""
    if train is None:
        return [], None, 0
    if isinstance(train, Dataset):
        return train.label_names, train.label_frequencies, len(train)
    try:
        frequencies, n_texts = train
    except (TypeError, ValueError):
        raise OptionError("train must be a Dataset or a pair (label frequencies, number of texts)") from None
    if with_names != isinstance(frequencies, Mapping):
        wanted = "a dict from label name to frequency" if with_names else "an array of frequencies by label id"
        raise OptionError(f"train: with these labels the frequencies must be {wanted}")
    names = list(frequencies) if with_names else []
    counts = np.asarray(list(frequencies.values()) if with_names else frequencies, np.int64)
    return names, counts, int(n_texts)


def check_known(ids: np.ndarray, n_labels: int, what: str) -> None:
    largest = int(ids.max(initial=-1))
    if largest >= n_labels:
        raise DataError(
            f"{what} hold label id {largest}, but training has {n_labels:,} labels, numbered from 0; "
            "ids are positions in training's labels"
        )
