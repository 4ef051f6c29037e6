"""`Dataset`: texts, their labels, and the names of the labels. All readers return it; training takes it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, overload

import msgspec
import numpy as np

from shortlist.arrays import Ragged, counts_to_indptr, row_numbers
from shortlist.data.records import ReadReport
from shortlist.errors import DataError, ShortlistError
from shortlist.lazy import sparse
from shortlist.text.fields import TextFields
from shortlist.text.texts import Texts


@dataclass(eq=False)
class Dataset:
    """Texts and their labels.

    texts           the texts; all empty if the data set has features instead
    labels          label ids per text: positions in `label_names`
    label_names     the labels as the user gave them
    display_names   what labels mean, if they are codes: {label: name}
    more_names      further names of labels, such as synonyms and descriptions: {label: [names]}
    features        a matrix with one row per text, for data sets without texts: a numpy array, or sparse (scipy)
    label_features  a matrix with one row per label
    times           one time per text, for splitting by time
    groups          {field: the number of each text's group}, for splits that keep groups together
    columns         {field: one value per text}, for fields that were kept, such as ids
    filter_pairs    (text, label) pairs that evaluation ignores
    report          what the reader skipped or found odd
    text_fields     the fields that the texts were joined from, if there are several

    >>> data = Dataset.from_lists(["red shoes", "blue hat"], [["shoes"], ["hats", "blue"]])
    >>> data[1]
    ('blue hat', ['hats', 'blue'])
    >>> data[:1]
    Dataset(1 texts, 3 labels, 1 pairs)
    >>> [text for text, labels in data]
    ['red shoes', 'blue hat']
    """

    texts: Texts
    labels: Ragged
    label_names: list[str]
    display_names: dict[str, str] = field(default_factory=dict)
    features: Any = None
    label_features: Any = None
    times: np.ndarray | None = None
    groups: dict[str, np.ndarray] = field(default_factory=dict)
    columns: dict[str, np.ndarray] = field(default_factory=dict)
    filter_pairs: np.ndarray | None = None
    report: ReadReport = field(default_factory=ReadReport)
    text_fields: TextFields | None = None
    more_names: dict[str, list[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        counts = {"rows of labels": len(self.labels)}
        if self.features is not None:
            counts["rows of features"] = self.features.shape[0]
        if self.times is not None:
            counts["times"] = len(self.times)
        counts |= {f"groups by {name!r}": len(groups) for name, groups in self.groups.items()}
        counts |= {f"values of {name!r}": len(values) for name, values in self.columns.items()}
        for what, count in counts.items():
            if count != len(self.texts):
                raise DataError(f"there are {len(self.texts):,} texts but {count:,} {what}; expected one per text")

    @staticmethod
    def from_lists(texts: Sequence[str], labels: Sequence[str | int | Sequence[str | int]], **options: Any) -> Dataset:
        """Create a data set from texts and, for each text, one label or a list of labels.

        The options are those of `shortlist.read`.
        """
        from shortlist.data.read import read

        if len(texts) != len(labels):
            raise DataError(f"there are {len(texts):,} texts but {len(labels):,} lists of labels")
        lists = [[given] if isinstance(given, str | int | np.integer) else given for given in labels]
        return read(list(zip(texts, lists, strict=True)), **options)

    def __len__(self) -> int:
        return len(self.texts)

    @overload
    def __getitem__(self, rows: int | np.integer) -> tuple[str, list[str]]: ...

    @overload
    def __getitem__(self, rows: slice | np.ndarray | Sequence[int]) -> Dataset: ...

    def __getitem__(self, rows: Any) -> Any:
        """One row as (text, labels); several (a slice, row numbers, or a mask) as a data set."""
        if isinstance(rows, int | np.integer):
            if not -len(self) <= rows < len(self):
                raise IndexError(f"row {rows} is out of range ({len(self):,} texts)")
            row = int(rows) % len(self)
            return self.texts[row], self.labels_of(row)
        try:
            return self.take(np.arange(len(self))[rows])
        except IndexError:
            what = f"{rows!r:.60} does not name rows of {len(self):,} texts"
            raise IndexError(f"{what}; give a number, a slice, row numbers, or a mask") from None

    def __iter__(self) -> Iterator[tuple[str, list[str]]]:
        return zip(self.texts, map(self.labels_of, range(len(self))), strict=True)

    def to_pandas(self) -> Any:
        """A pandas frame with the columns text and labels (lists of strings), and the columns that were kept.

        >>> Dataset.from_lists(["red shoes"], [["shoes"]]).to_pandas().labels[0]
        ['shoes']
        """
        try:
            import pandas
        except ImportError:
            raise ShortlistError("to_pandas needs pandas: pip install pandas") from None
        rows = list(self)
        frame = {"text": [text for text, _ in rows], "labels": [labels for _, labels in rows]}
        return pandas.DataFrame(frame | self.columns)

    def __repr__(self) -> str:
        return f"Dataset({len(self):,} texts, {self.n_labels:,} labels, {len(self.labels.values):,} pairs)"

    @property
    def n_labels(self) -> int:
        return len(self.label_names)

    @property
    def input_kind(self) -> str:
        """What there is to learn from: "texts", or "sparse" or "dense" features.

        A sparse matrix of which half is not zero is a dense one that was stored as sparse.
        """
        if self.features is None:
            return "texts"
        is_sparse = sparse.issparse(self.features) and 2 * self.features.nnz < np.prod(self.features.shape, dtype=float)
        return "sparse" if is_sparse else "dense"

    @property
    def longest_row(self) -> int:
        """The largest number of columns that a row of sparse features has; 0 for everything else."""
        if self.input_kind != "sparse":
            return 0
        return int(np.diff(sparse.csr_array(self.features).indptr).max(initial=1))

    @cached_property
    def label_frequencies(self) -> np.ndarray:
        """The number of texts of each label."""
        return np.bincount(self.labels.values, minlength=self.n_labels).astype(np.int64)

    @cached_property
    def label_index(self) -> dict[str, int]:
        """Label ids by label name."""
        return {name: i for i, name in enumerate(self.label_names)}

    def labels_of(self, row: int) -> list[str]:
        """The label names of one text, in their original order."""
        return [self.label_names[i] for i in self.labels.row(row)]

    def display_name(self, label: str) -> str:
        """What a label means, if it is a code and has a name; otherwise the label itself."""
        return self.display_names.get(label, label)

    def fingerprint(self) -> str:
        """16 hexadecimal digits that identify the data a model learns from or is measured on.

        They depend on texts, features, labels, weights, filter pairs and all names, but not on the memory layout.
        """
        digest = hashlib.sha256()
        for name, array in self._arrays():
            digest.update(f"{name} {array.dtype.str} {array.shape};".encode())
            digest.update(np.ascontiguousarray(array).data)
        digest.update(msgspec.json.encode([(name, self.display_name(name)) for name in self.label_names]))
        if self.more_names:
            digest.update(msgspec.json.encode([(name, self.more_names.get(name)) for name in self.label_names]))
        return digest.hexdigest()[:16]

    def _arrays(self) -> Iterator[tuple[str, np.ndarray]]:
        """All arrays of the data set, each in one type, whatever the reader or scipy chose."""
        yield "text", self.texts.buffer[self.texts.offsets[0] : self.texts.offsets[-1]]
        yield "text sizes", self.texts.sizes.astype(np.int64)
        yield "label counts", self.labels.counts.astype(np.int64)
        yield "labels", self.labels.values.astype(np.int64)
        if self.labels.weights is not None:
            yield "weights", self.labels.weights.astype(np.float32)
        if self.filter_pairs is not None:
            yield "filter pairs", self.filter_pairs.astype(np.int64)
        for name, matrix in (("features", self.features), ("label features", self.label_features)):
            if matrix is not None:
                rows = sparse.csr_array(matrix)
                yield f"{name}, indptr", rows.indptr.astype(np.int64)
                yield f"{name}, indices", rows.indices.astype(np.int64)
                yield f"{name}, data", rows.data.astype(np.float32)

    def take(self, rows: np.ndarray | Sequence[int]) -> Dataset:
        """The given rows as a data set with the same label names."""
        rows = row_numbers(rows, len(self))
        return replace(
            self,
            texts=self.texts.take(rows),
            labels=self.labels.take(rows),
            features=None if self.features is None else self.features[rows],
            times=None if self.times is None else self.times[rows],
            groups={name: groups[rows] for name, groups in self.groups.items()},
            columns={name: values[rows] for name, values in self.columns.items()},
            filter_pairs=None if self.filter_pairs is None else _take_pairs(self.filter_pairs, rows),
        )

    def with_features(self, features: Any) -> Dataset:
        """The same labels with features in place of the texts, one row per text.

        >>> Dataset.from_lists(["red shoes"], [["shoes"]]).with_features(np.array([[0.5, 1.5]])).input_kind
        'dense'
        """
        empty = Texts(np.zeros(0, np.uint8), np.zeros(len(self) + 1, np.int64))
        return replace(self, texts=empty, features=features)

    def relabelled(self, label_names: list[str]) -> Dataset:
        """The same texts with another list of labels; pairs whose label is not in the list are dropped."""
        position = {name: i for i, name in enumerate(label_names)}
        new_id = np.asarray([position.get(name, -1) for name in self.label_names] or [0], np.int32)
        labels = Ragged(self.labels.indptr, new_id[self.labels.values], self.labels.weights)
        pairs = self.filter_pairs
        if pairs is not None:
            pairs = np.column_stack([pairs[:, 0], new_id[pairs[:, 1]]])
            pairs = pairs[pairs[:, 1] >= 0]
        return replace(
            self,
            labels=labels.keep(labels.values >= 0),
            label_names=label_names,
            label_features=None,
            filter_pairs=pairs,
        )

    def without_unused_labels(self) -> Dataset:
        """The same texts with only the labels that occur."""
        used = np.flatnonzero(self.label_frequencies)
        kept = self.relabelled([self.label_names[i] for i in used])
        return kept if self.label_features is None else replace(kept, label_features=self.label_features[used])

    def write(self, path: str | Path, format: str | None = None, **options: Any) -> None:
        """Write the data set to a file or folder. The name tells the format unless `format` is given.

        >>> Dataset.from_lists(["red shoes"], [["shoes"]]).write("pairs.jsonl.gz")  # doctest: +SKIP
        """
        from shortlist.data.write import write

        write(self, path, format=format, **options)


def _take_pairs(pairs: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """(text, label) pairs after text `rows[i]` became text i. Texts may have been dropped or repeated."""
    n_rows = int(max(rows.max(initial=-1), pairs[:, 0].max(initial=-1))) + 1
    new_rows = Ragged(counts_to_indptr(np.bincount(rows, minlength=n_rows)), np.argsort(rows, kind="stable"))
    taken = new_rows.take(pairs[:, 0])
    return np.column_stack([taken.values, np.repeat(pairs[:, 1], taken.counts)])
