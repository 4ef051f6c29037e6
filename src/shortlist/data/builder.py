"""Collects rows into a `Dataset`. All readers end here, so labels are numbered and repeats dropped in one place."""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from shortlist.arrays import Ragged, counts_to_indptr
from shortlist.data.dataset import Dataset
from shortlist.data.options import ReadOptions
from shortlist.data.records import BadRow, NumberedRecord, ReadReport, parse_record
from shortlist.errors import DataError
from shortlist.kernels.ragged import first_in_row
from shortlist.text.fields import TextFields
from shortlist.text.texts import Texts


class DatasetBuilder:
    """Add rows, then `finish`.

    `keep_repeats` keeps labels that occur twice in a row. It is for predictions, where a repeat is an error to report.
    """

    def __init__(self, report: ReadReport, keep_repeats: bool = False) -> None:
        self.report, self.keep_repeats = report, keep_repeats
        self._label_ids: defaultdict[str, int] = defaultdict()
        self._label_ids.default_factory = self._label_ids.__len__  # a new label gets the next id
        self._text_bytes, self._text_sizes = bytearray(), array("q")
        self._labels, self._label_counts = array("i"), array("q")
        self._weights = array("f")  # those after the last weight given are 1
        self._times: list[Any] = []
        self._groups: defaultdict[str, array] = defaultdict(lambda: array("q"))
        self._columns: defaultdict[str, list[Any]] = defaultdict(list)
        self._text_fields: TextFields | None = None
        self._found_fields: set[str] = set()
        self._group_ids: defaultdict[Any, int] = defaultdict()
        self._group_ids.default_factory = self._group_ids.__len__

    def add_row(
        self,
        text: str,
        labels: Sequence[str],
        weights: Sequence[float] | None = None,
        time: Any = None,
        groups: Mapping[str, Any] | None = None,
        columns: Mapping[str, Any] | None = None,
    ) -> None:
        if weights is not None:
            self._weights.extend([1.0] * (len(self._labels) - len(self._weights)))
            self._weights.extend(weights)
        if time is not None:
            self._times.append(time)
        for field, group in (groups or {}).items():
            rows = self._groups[field]
            # A text without a group is a group of its own.
            rows.append(self._group_ids[len(rows) if group in (None, "") else str(group)])
        for field, value in (columns or {}).items():
            self._columns[field].append(value)
        self.add_rows([text], labels, [len(labels)])

    def add_records(
        self, records: Iterable[NumberedRecord], name: str, options: ReadOptions, unit: str = "line"
    ) -> None:
        """Add numbered records from the source of this name; bad ones go to the report."""
        self._text_fields = options.text_fields
        for number, record in records:
            if self._text_fields and isinstance(record, dict):
                self._found_fields.update(name for name in options.text_names if record.get(name))
            try:
                self.add_row(*parse_record(record, options))
            except BadRow as bad:
                self.report.add(name, number, bad.what, bad.expected, unit)

    def add_rows(self, texts: Sequence[str], labels: Sequence[str], label_counts: Sequence[int]) -> None:
        """Add several rows: their texts, the labels of all of them, and the number of labels per text."""
        encoded = [text.encode() for text in texts]
        self._text_bytes += b"".join(encoded)
        self._text_sizes.extend(map(len, encoded))
        self._labels.extend([self._label_ids[label] for label in labels])
        self._label_counts.extend(label_counts)

    def finish(self) -> Dataset:
        labels = Ragged(counts_to_indptr(self._label_counts), np.asarray(self._labels))
        if self._weights:
            self._weights.extend([1.0] * (len(self._labels) - len(self._weights)))
            labels = replace(labels, weights=np.asarray(self._weights))
        if not self.keep_repeats:
            labels = drop_repeated_labels(labels, len(self._label_ids), self.report)
        for name in self._text_fields.names if self._text_fields and len(self._text_sizes) else ():
            if name not in self._found_fields:
                raise DataError(f"no row has a text in the field {name!r}. Choose other fields with text= (--text).")
        dataset = Dataset(
            texts=Texts(np.frombuffer(self._text_bytes, np.uint8), counts_to_indptr(self._text_sizes)),
            labels=labels,
            label_names=list(self._label_ids),
            times=np.asarray(self._times) if self._times else None,
            groups={field: np.asarray(rows) for field, rows in self._groups.items()},
            columns={field: np.asarray(values, object) for field, values in self._columns.items()},
            report=self.report,
            text_fields=self._text_fields,
        )
        count_empty_rows(dataset)
        return dataset


def drop_repeated_labels(labels: Ragged, n_labels: int, report: ReadReport) -> Ragged:
    """Keep the first of several equal labels in a row, and count the others in the report."""
    is_first = first_in_row(labels.indptr, labels.values, n_labels)
    report.repeated_labels += int(len(is_first) - np.count_nonzero(is_first))
    return labels.keep(is_first)


def count_empty_rows(dataset: Dataset) -> None:
    """Count empty texts and texts without labels in the data set's report."""
    if dataset.features is None:
        dataset.report.empty_texts += int(np.count_nonzero(dataset.texts.sizes == 0))
    dataset.report.texts_without_labels += int(np.count_nonzero(dataset.labels.counts == 0))
