"""The Extreme Classification Repository's files, in all the forms they have had over the years.

| form | files of the training part |
|---|---|
| single file | `train.txt`: header `N D L`, then `l1,l2 f:v f:v` |
| pair | `trn_X_Xf.txt` (features) and `trn_X_Y.txt` (labels), header `N D`; also as `.npz` matrices |
| raw JSON | `trn.json.gz` with `title`, `target_ind`, `target_rel`; the labels' own texts in `lbl.json.gz` |
| raw text | one text a line (`trn.raw.txt`, `trn_X.txt`, `train_raw_texts.txt`, `X.trn.txt`) beside label files |

The test part says `tst` or `test` instead, and may have `filter_labels_test.txt`: pairs of (text, label)
that evaluation must ignore.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from shortlist.arrays import Ragged, counts_to_indptr
from shortlist.data.dataset import Dataset
from shortlist.data.jsonl import decoded
from shortlist.data.lines import line_blocks
from shortlist.data.options import ReadOptions
from shortlist.data.report import Report
from shortlist.data.sparse_text import has_header, read_sparse_text
from shortlist.data.texts import Texts
from shortlist.data.values import VALID_TEXT, BadRow, checked_label, checked_text, checked_weights, shortened
from shortlist.errors import DataError
from shortlist.files import PACKED
from shortlist.kernels.ragged import first_in_row
from shortlist.lazy import sparse

PREFIXES = {"train": ("trn", "train"), "validation": ("val", "valid", "dev"), "test": ("tst", "test")}
# Without lbl.json the largest number decides how many labels there are: one slip must not make a billion.
MOST_LABELS = 100_000_000
MOST_DIGITS = 18

Row = TypeVar("Row")


def find_part(folder: Path, part: str) -> bool:
    """Whether the folder holds this part in one of the Repository's forms."""
    return any(_find(folder, part, kind) for kind in ("json", "labels", "single"))


def read_part(folder: Path, part: str, options: ReadOptions) -> Dataset:
    report = Report(options.on_error)
    if json_file := _find(folder, part, "json"):
        dataset, bad_rows = _read_json(json_file, folder, report, options)
    elif label_file := _find(folder, part, "labels"):
        dataset, bad_rows = _read_pair(label_file, folder, part, report, options)
    elif single := _find(folder, part, "single"):
        dataset, bad_rows = _read_single(single, report, options)
    else:
        raise DataError(f"{folder}: there is no {part} part in any of the Repository's forms.")
    if part == "test":
        filter_file = _first_existing(folder, ("filter_labels_test.txt",))
        if filter_file is not None:
            dataset = replace(dataset, filter_pairs=read_filter_pairs(filter_file, dataset, report, options))
    return _without_bad_rows(dataset, bad_rows)


def read_single_file(path: Path, options: ReadOptions) -> Dataset:
    """The oldest form: header `N D L`, then `l1,l2 f:v f:v`."""
    if not has_header(path, 3):
        raise DataError(
            f"{path}: the name does not say what is in it and the first line is not a Repository header "
            "(three numbers: texts, features, labels). Say format='jsonl', 'csv', 'tsv' or 'parquet' (--from)."
        )
    return _without_bad_rows(*_read_single(path, Report(options.on_error), options))


def _read_single(path: Path, report: Report, options: ReadOptions) -> tuple[Dataset, np.ndarray]:
    read = read_sparse_text(path, report, options, with_labels=True)
    assert read.labels is not None
    _check_label_count(path, read.n_labels)
    return _assemble(None, read.labels, read.n_labels, read.matrix, report), read.bad_rows


def _find(folder: Path, part: str, kind: str) -> Path | None:
    names = {
        "json": ["{0}.json"],
        "labels": [
            "{0}_X_Y.txt",
            "{0}_X_Y.npz",
            "Y.{0}.npz",
            "{0}_Y.npz",
            "{0}_labels.txt",
            "{0}.labels.txt",
        ],
        "features": ["{0}_X_Xf.txt", "{0}_X_Xf.npz", "X.{0}.npz", "{0}_X.npz", "X.{0}.tfidf.npz"],
        "texts": [
            "{0}.raw.txt",
            "{0}_raw_texts.txt",
            "{0}_texts.txt",
            "{0}_X.txt",
            "X.{0}.txt",
            "raw/{0}_X.txt",
        ],
        "single": ["{0}.txt", "*_{0}.txt"],
    }[kind]
    for name in names:
        for prefix in PREFIXES[part]:
            for packed in ("", *PACKED):
                for path in sorted(folder.glob(name.format(prefix) + packed)):
                    if kind == "json" and not is_repository_json(path):
                        continue
                    if kind == "single" and not has_header(path, 3):
                        continue
                    return path
    return None


def is_repository_json(path: Path) -> bool:
    # Not plain UTF-8, which refuses UTF-16: a look inside must not fail, whatever the encoding.
    first, _ = next(line_blocks(path, Report("skip"), ReadOptions(encoding="utf-8-sig", show_progress=False)), (b"", 0))
    return b'"target_ind"' in first.partition(b"\n")[0]


def _read_json(path: Path, folder: Path, report: Report, options: ReadOptions) -> tuple[Dataset, np.ndarray]:
    label_names, display_names = _label_texts(folder, report, options)
    most_labels = len(label_names) or MOST_LABELS
    texts: list[str] = []
    bad_rows: list[int] = []
    # Millions of lists of numbers would take many times the room of the file.
    counts, targets, relevances = array("q"), array("i"), array("f")
    for row in _json_rows(path, report, options, lambda record: _json_row(record, most_labels)):
        if row is None:
            bad_rows.append(len(texts))
        text, target, relevance = row or ("", [], [])
        texts.append(text)
        counts.append(len(target))
        targets.extend(target)
        relevances.extend(relevance)
    values, weights = np.asarray(targets, np.int32), np.asarray(relevances, np.float32)
    labels = Ragged(counts_to_indptr(np.asarray(counts, np.int64)), values, weights if np.any(weights != 1) else None)
    n_labels = len(label_names) or (int(values.max()) + 1 if len(values) else 0)
    dataset = _assemble(Texts.from_strings(texts), labels, n_labels, None, report)
    dataset = replace(dataset, label_names=label_names or dataset.label_names, display_names=display_names)
    return dataset, np.asarray(bad_rows, np.int64)


def _json_rows(path: Path, report: Report, options: ReadOptions, make: Callable[[Any], Row]) -> Iterator[Row | None]:
    """What `make` makes of each record; None for one that cannot be used, so that all keep their numbers."""
    for lines, first in line_blocks(path, report, options):
        for offset, line in enumerate(lines.split(b"\n")):
            if not line.strip():
                continue
            try:
                yield make(decoded(line))
            except BadRow as bad:
                report.add(str(path), first + offset, bad.what, bad.expected)
                yield None


def _json_row(record: Any, most_labels: int) -> tuple[str, list[int], list[float]]:
    if not isinstance(record, dict) or "title" not in record or "target_ind" not in record:
        raise BadRow("no 'title' and 'target_ind'", 'an object such as {"title": …, "target_ind": [3, 17]}')
    text = checked_text(record["title"], "title")
    target = record["target_ind"]
    if not isinstance(target, list) or not all(type(item) is int and item >= 0 for item in target):
        raise BadRow("'target_ind' is not a list of label numbers", "whole numbers from 0 on")
    if any(item >= most_labels for item in target):
        raise BadRow(f"label number {shortened(max(target))} is too large", f"numbers below {most_labels:,}")
    relevance = checked_weights(record.get("target_rel", [1.0] * len(target)), target, "target_rel")
    return text, target, relevance


def _label_texts(folder: Path, report: Report, options: ReadOptions) -> tuple[list[str], dict[str, str]]:
    """The labels' own names (their uid) and titles from `lbl.json`, if it is there."""
    path = _first_existing(folder, ("lbl.json",))
    if path is None:
        return [], {}
    # A label that cannot be read keeps its number: targets are positions in this file.
    rows = [row or (None, "") for row in _json_rows(path, report, options, _label_row)]
    names = [str(number) if name is None else name for number, (name, _) in enumerate(rows)]
    if len(set(names)) < len(names):
        names = [str(number) for number in range(len(names))]
    return names, {name: title for name, (_, title) in zip(names, rows, strict=True)}


def _label_row(record: Any) -> tuple[str | None, str]:
    if not isinstance(record, dict) or "title" not in record:
        raise BadRow("no 'title'", 'an object such as {"uid": …, "title": …}')
    name = record.get("uid")
    return None if name is None else checked_label(name), checked_text(record["title"], "title")


def _read_pair(
    label_file: Path, folder: Path, part: str, report: Report, options: ReadOptions
) -> tuple[Dataset, np.ndarray]:
    labels, n_labels, names, bad_rows = _read_label_file(label_file, report, options)
    features = None
    texts = None
    if text_file := _find(folder, part, "texts"):
        texts = read_text_lines(text_file, report, options)
    feature_file = _find(folder, part, "features")
    if feature_file is not None and texts is None:
        features, more_bad = read_matrix(feature_file, report, options)
        bad_rows = np.union1d(bad_rows, more_bad)
    if features is None and texts is None:
        raise DataError(
            f"{folder}: {label_file.name} has labels, but there are neither texts nor features beside it. "
            f"Expected e.g. {label_file.name.replace('X_Y', 'X_Xf')} or {PREFIXES[part][0]}.raw.txt."
        )
    n_rows = features.shape[0] if texts is None and features is not None else len(texts or ())
    if n_rows != len(labels):
        raise DataError(
            f"{label_file}: {len(labels):,} rows of labels, but {text_file or feature_file} has {n_rows:,} rows; "
            "the two must go together line by line."
        )
    dataset = _assemble(texts, labels, n_labels, features, report)
    label_feature_file = _first_existing(folder, ("lbl_X_Xf.txt", "lbl_X_Xf.npz"))
    if label_feature_file is not None:
        label_features = read_matrix(label_feature_file, report, options)[0]
        _check_rows(label_feature_file, label_features.shape[0], n_labels)
        dataset = replace(dataset, label_features=label_features)
    label_texts = _first_existing(
        folder, ("lbl.raw.txt", "lbl_raw_texts.txt", "Yf.txt", "lbl_X.txt", "output-items.txt")
    )
    if names is not None:
        dataset = replace(dataset, label_names=names)
    elif label_texts is not None:
        titles = read_text_lines(label_texts, report, options)
        _check_rows(label_texts, len(titles), n_labels)
        dataset = replace(dataset, display_names=dict(zip(dataset.label_names, titles, strict=True)))
    return dataset, bad_rows


def _check_label_count(path: Path, n_labels: int) -> None:
    if n_labels > MOST_LABELS:
        raise DataError(f"{path}: the file says it has {n_labels:,} labels; expected at most {MOST_LABELS:,}.")


def _check_rows(path: Path, n_rows: int, n_labels: int) -> None:
    if n_rows != n_labels:
        raise DataError(f"{path}: {n_rows:,} rows, but there are {n_labels:,} labels; expected one row for each.")


def _first_existing(folder: Path, names: tuple[str, ...]) -> Path | None:
    candidates = (folder / (name + packed) for name in names for packed in ("", *PACKED))
    return next((path for path in candidates if path.is_file()), None)


def read_matrix(path: Path, report: Report, options: ReadOptions) -> tuple[Any, np.ndarray]:
    """The matrix, and which of its rows could not be read and are empty."""
    matrix, bad_rows = _read_stored_matrix(path, report, options)
    matrix.sum_duplicates()
    return matrix, bad_rows


def _read_stored_matrix(path: Path, report: Report, options: ReadOptions) -> tuple[Any, np.ndarray]:
    """As it stands in the file: in its order, and with a column that stands twice in a row standing twice."""
    if path.suffix == ".npz":
        return _read_npz(path), np.zeros(0, np.int64)
    read = read_sparse_text(path, report, options)
    return read.matrix, read.bad_rows


def _read_npz(path: Path) -> sparse.csr_array:
    try:
        return sparse.csr_array(sparse.load_npz(path))
    except Exception as error:  # noqa: BLE001 - scipy, numpy and zipfile each raise their own kinds
        raise DataError(f"{path}: not a sparse matrix saved by scipy ({error}).") from None


def _read_label_file(
    path: Path, report: Report, options: ReadOptions
) -> tuple[Ragged, int, list[str] | None, np.ndarray]:
    if path.name.removesuffix(".gz").removesuffix(".zst").endswith(("_labels.txt", ".labels.txt")):
        table: dict[str, int] = {}
        counts, ids = array("q"), array("i")
        for line in read_text_lines(path, report, options):
            names = line.split()
            counts.append(len(names))
            ids.extend(table.setdefault(name, len(table)) for name in names)
        rows = Ragged(counts_to_indptr(np.asarray(counts, np.int64)), np.asarray(ids, np.int32))
        return rows, len(table), list(table), np.zeros(0, np.int64)
    matrix, bad_rows = _read_stored_matrix(path, report, options)
    _check_label_count(path, matrix.shape[1])
    labels = Ragged.from_csr(matrix)
    if labels.weights is not None and np.all(labels.weights == 1):
        labels = Ragged(labels.indptr, labels.values)
    return labels, matrix.shape[1], None, bad_rows


def read_text_lines(path: Path, report: Report, options: ReadOptions) -> Texts:
    """One text a line. Bad bytes are a problem; with on_error="skip" the text is kept with � in their place."""
    texts: list[str] = []
    for lines, first in line_blocks(path, report, options):
        for offset, line in enumerate(lines.split(b"\n")[:-1]):
            try:
                text = line.decode()
            except UnicodeDecodeError:
                report.add(str(path), first + offset, "bytes that are not valid text", VALID_TEXT)
                text = line.decode(errors="replace")
            texts.append(text.rstrip("\r"))
    return Texts.from_strings(texts)


def _assemble(texts: Texts | None, labels: Ragged, n_labels: int, features: Any, report: Report) -> Dataset:
    if texts is None:
        texts = Texts(np.zeros(0, np.uint8), np.zeros(features.shape[0] + 1, np.int64))
    if features is not None:
        features.sum_duplicates()
    first = first_in_row(labels.indptr, labels.values, n_labels)
    report.repeated_labels += int(len(first) - np.count_nonzero(first))
    names = [str(i) for i in range(n_labels)]
    return Dataset(texts, labels.keep(first), names, features=features, report=report)


def _without_bad_rows(dataset: Dataset, bad_rows: np.ndarray) -> Dataset:
    """The rows that could be read. Until here the others kept their places, for other files count on them."""
    if len(bad_rows):
        dataset = dataset.take(np.setdiff1d(np.arange(len(dataset)), bad_rows))
    if dataset.features is None:
        dataset.report.empty_texts += int(np.count_nonzero(dataset.texts.sizes == 0))
    dataset.report.texts_without_labels += int(np.count_nonzero(dataset.labels.counts == 0))
    return dataset


def read_filter_pairs(path: Path, dataset: Dataset, report: Report, options: ReadOptions) -> np.ndarray:
    """`filter_labels_test.txt`: a text's number and a label's number a line."""
    pairs = []
    for lines, first in line_blocks(path, report, options):
        for offset, line in enumerate(lines.split(b"\n")[:-1]):
            fields = line.split()
            if not fields:
                continue
            pair = [int(field) for field in fields if field.isdigit() and len(field) < MOST_DIGITS]
            if len(fields) != 2 or len(pair) != 2 or pair[0] >= len(dataset) or pair[1] >= dataset.n_labels:
                report.add(
                    str(path),
                    first + offset,
                    f"{line[:60].decode(errors='replace')!r}",
                    f"a text number below {len(dataset):,} and a label number below {dataset.n_labels:,}",
                )
                continue
            pairs.append(pair)
    return np.asarray(pairs, np.int64).reshape(-1, 2)
