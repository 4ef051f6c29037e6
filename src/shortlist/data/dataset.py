"""`Dataset`: texts, their labels, and the labels' names. What every reader makes and every trainer takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from shortlist.arrays import Ragged, counts_to_indptr, row_numbers
from shortlist.data.report import Report
from shortlist.data.texts import Texts
from shortlist.errors import DataError
from shortlist.lazy import sparse


@dataclass(eq=False)
class Dataset:
    """Texts and their labels.

    `labels` holds, for each text, positions in `label_names`, the strings the user gave. Where these are
    codes, `display_names` may say what they mean. Data sets that come as numbers instead of texts have a
    `features` matrix (one row a text) and empty texts.

    >>> data = Dataset.from_lists(["red shoes", "blue hat"], [["shoes"], ["hats", "blue"]])
    >>> data.labels_of(1)
    ['hats', 'blue']
    """

    texts: Texts
    labels: Ragged
    label_names: list[str]
    display_names: dict[str, str] = field(default_factory=dict)
    features: Any = None
    label_features: Any = None
    times: np.ndarray | None = None
    filter_pairs: np.ndarray | None = None
    report: Report = field(default_factory=Report)

    def __post_init__(self) -> None:
        sizes = {"label rows": len(self.labels)}
        if self.features is not None:
            sizes["feature rows"] = self.features.shape[0]
        if self.times is not None:
            sizes["times"] = len(self.times)
        for what, rows in sizes.items():
            if rows != len(self.texts):
                raise DataError(f"there are {len(self.texts):,} texts but {rows:,} {what}; each text needs one")

    @staticmethod
    def from_lists(texts: Sequence[str], labels: Sequence[Sequence[str | int]], **options: Any) -> Dataset:
        """From plain Python lists; the options are those of `shortlist.read`."""
        from shortlist.data.read import read

        if len(texts) != len(labels):
            raise DataError(f"there are {len(texts):,} texts but {len(labels):,} lists of labels")
        return read(list(zip(texts, labels, strict=True)), **options)

    def __len__(self) -> int:
        return len(self.texts)

    def __repr__(self) -> str:
        return f"Dataset({len(self):,} texts, {self.n_labels:,} labels, {len(self.labels.values):,} pairs)"

    @property
    def n_labels(self) -> int:
        return len(self.label_names)

    @cached_property
    def label_frequencies(self) -> np.ndarray:
        """How many texts have each label."""
        return np.bincount(self.labels.values, minlength=self.n_labels).astype(np.int64)

    @cached_property
    def label_index(self) -> dict[str, int]:
        """From a label's name to its position."""
        return {name: i for i, name in enumerate(self.label_names)}

    def labels_of(self, row: int) -> list[str]:
        """The names of one text's labels, in the order given."""
        return [self.label_names[i] for i in self.labels.row(row)]

    def display_name(self, label: str) -> str:
        return self.display_names.get(label, label)

    def take(self, rows: np.ndarray | Sequence[int]) -> Dataset:
        """The given rows as a data set of their own, over the same label names."""
        rows = row_numbers(rows, len(self))
        return replace(
            self,
            texts=self.texts.take(rows),
            labels=self.labels.take(rows),
            features=None if self.features is None else self.features[rows],
            times=None if self.times is None else self.times[rows],
            filter_pairs=None if self.filter_pairs is None else _follow_rows(self.filter_pairs, rows),
        )

    def relabelled(self, label_names: list[str]) -> Dataset:
        """The same texts over another list of labels; pairs whose label is not in it are dropped."""
        position = {name: i for i, name in enumerate(label_names)}
        new_id = np.asarray([position.get(name, -1) for name in self.label_names] or [0], np.int32)
        moved = Ragged(self.labels.indptr, new_id[self.labels.values], self.labels.weights)
        pairs = self.filter_pairs
        if pairs is not None:
            pairs = np.column_stack([pairs[:, 0], new_id[pairs[:, 1]]])
            pairs = pairs[pairs[:, 1] >= 0]
        return replace(
            self,
            labels=moved.keep(moved.values >= 0),
            label_names=label_names,
            label_features=None,
            filter_pairs=pairs,
        )

    def without_unused_labels(self) -> Dataset:
        """The same texts over only those labels that occur."""
        used = self.label_frequencies > 0
        return self.relabelled([name for name, keep in zip(self.label_names, used, strict=True) if keep])

    def fingerprint(self) -> str:
        """16 hexadecimal digits that differ between data sets that training would tell apart."""
        import hashlib

        texts, labels = self.texts, self.labels
        arrays = [texts.buffer[texts.offsets[0] : texts.offsets[-1]], texts.sizes, labels.indptr, labels.values]
        if labels.weights is not None:
            arrays.append(labels.weights)
        for matrix in (self.features, self.label_features):
            if matrix is not None:
                rows = sparse.csr_array(matrix)
                arrays += [rows.indptr, rows.indices, rows.data]
        digest = hashlib.sha256()
        for array in arrays:
            digest.update(f"{len(array)};".encode())
            digest.update(np.ascontiguousarray(array).data)
        for name in self.label_names:
            digest.update(f"{name}\n{self.display_name(name)}\n".encode())
        return digest.hexdigest()[:16]

    def write(self, path: str | Path, format: str | None = None, **options: Any) -> None:
        """Write the data set to a file or folder; the format follows from the name unless given.

        >>> Dataset.from_lists(["red shoes"], [["shoes"]]).write("pairs.jsonl.gz")  # doctest: +SKIP
        """
        from shortlist.data.write import write

        write(self, path, format=format, **options)


def _follow_rows(pairs: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """(text, label) pairs where text `rows[i]` has become text i; some texts are gone, some are there twice."""
    n_rows = int(max(rows.max(initial=-1), pairs[:, 0].max(initial=-1))) + 1
    places_of = Ragged(counts_to_indptr(np.bincount(rows, minlength=n_rows)), np.argsort(rows, kind="stable"))
    places = places_of.take(pairs[:, 0])
    return np.column_stack([places.values, np.repeat(pairs[:, 1], places.counts)])
