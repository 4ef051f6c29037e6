"""Collects rows, one by one or in blocks of bytes, into a `Dataset`.

Every reader ends here, so that labels are numbered, repeated labels dropped and oddities counted in one
place and in the same way for all formats.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from shortlist.arrays import Ragged, counts_to_indptr
from shortlist.data.dataset import Dataset
from shortlist.data.report import Report
from shortlist.data.texts import Texts
from shortlist.kernels.ragged import first_in_row
from shortlist.kernels.strings import StringTable, pack

ROWS_PER_BLOCK = 8192


class DatasetBuilder:
    """`keep_repeats` is for predictions, where saying a label twice is a mistake that must be seen."""

    def __init__(self, report: Report, keep_repeats: bool = False) -> None:
        self.report = report
        self.keep_repeats = keep_repeats
        self._table = StringTable()
        self._text_parts: list[np.ndarray] = []
        self._size_parts: list[np.ndarray] = []
        self._label_parts: list[Ragged] = []
        self._times: list[Any] = []
        self._pending: list[tuple[str, Sequence[str], Sequence[float] | None]] = []

    def add_row(
        self, text: str, labels: Sequence[str], weights: Sequence[float] | None = None, time: Any = None
    ) -> None:
        self._pending.append((text, labels, weights))
        if time is not None:
            self._times.append(time)
        if len(self._pending) >= ROWS_PER_BLOCK:
            self._flush()

    def add_block(
        self,
        text: np.ndarray,
        text_sizes: np.ndarray,
        label: np.ndarray,
        label_sizes: np.ndarray,
        label_counts: np.ndarray,
        weights: np.ndarray | None = None,
    ) -> None:
        """Rows as bytes: all texts end to end, all labels end to end, and the sizes of each."""
        self._flush()
        ids = self._table.add(label, counts_to_indptr(label_sizes))
        rows = Ragged(counts_to_indptr(label_counts), ids, weights)
        if not self.keep_repeats:
            first = first_in_row(rows.indptr, rows.values, len(self._table))
            self.report.repeated_labels += int(len(first) - np.count_nonzero(first))
            rows = rows.keep(first)
        self.report.empty_texts += int(np.count_nonzero(text_sizes == 0))
        self.report.texts_without_labels += int(np.count_nonzero(label_counts == 0))
        self._text_parts.append(text.copy())
        self._size_parts.append(text_sizes.astype(np.int32))
        self._label_parts.append(rows)

    def _flush(self) -> None:
        if not self._pending:
            return
        pending, self._pending = self._pending, []
        text, text_bounds = pack([row[0] for row in pending])
        label, label_bounds = pack([name for row in pending for name in row[1]])
        weights = None
        if any(row[2] is not None for row in pending):
            flat = [w for row in pending for w in (row[2] if row[2] is not None else [1.0] * len(row[1]))]
            weights = np.asarray(flat, np.float32)
        counts = np.asarray([len(row[1]) for row in pending], np.int64)
        self.add_block(text, np.diff(text_bounds), label, np.diff(label_bounds), counts, weights)

    def finish(self) -> Dataset:
        self._flush()
        sizes = np.concatenate(self._size_parts) if self._size_parts else np.zeros(0, np.int64)
        self._size_parts.clear()
        buffer = np.concatenate(self._text_parts) if self._text_parts else np.zeros(0, np.uint8)
        self._text_parts.clear()
        return Dataset(
            texts=Texts(buffer, counts_to_indptr(sizes)),
            labels=Ragged.concatenate(self._label_parts),
            label_names=self._table.strings(),
            times=np.asarray(self._times) if self._times else None,
            report=self.report,
        )
