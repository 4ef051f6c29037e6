"""The files of the Extreme Classification Repository, in all variants.

| variant | files of the training part |
|---|---|
| single file | `train.txt`: header `N D L`, then `label,label column:value column:value` |
| pair | `trn_X_Xf.txt` (features) and `trn_X_Y.txt` (labels), header `N D`; also as `.npz`, dense features as `.npy` |
| raw JSON | `trn.json.gz` with `title`, `target_ind`, `target_rel`; the labels' own texts in `lbl.json.gz` |
| raw text | one text per line (`trn.raw.txt`, `trn_X.txt`, `train_raw_texts.txt`, `X.trn.txt`) beside label files |

File names of the test part have `tst` or `test` instead. It may have `filter_labels_test.txt`: (text, label) pairs that
evaluation must ignore.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from shortlist.arrays import Ragged, counts_to_indptr
from shortlist.data.builder import count_empty_rows, drop_repeated_labels
from shortlist.data.dataset import Dataset
from shortlist.data.feature_rows import open_matrix
from shortlist.data.jsonl import decode_line
from shortlist.data.lines import first_line, numbered_lines
from shortlist.data.options import ReadOptions
from shortlist.data.records import VALID_TEXT, BadRow, ReadReport, check_label, check_text, check_weights, shorten
from shortlist.data.sparse_text import MAX_DIGITS, has_header, read_sparse_text
from shortlist.errors import DataError
from shortlist.lazy import sparse
from shortlist.streams import COMPRESSED_SUFFIXES
from shortlist.text.texts import Texts

PREFIXES = {"train": ("trn", "train"), "validation": ("val", "valid", "dev"), "test": ("tst", "test")}
FILE_NAMES = {
    "json": ["{0}.json"],
    "labels": ["{0}_X_Y.txt", "{0}_X_Y.npz", "Y.{0}.npz", "{0}_Y.npz", "{0}_labels.txt", "{0}.labels.txt"],
    "single": ["{0}.txt", "*_{0}.txt"],
    "features": [
        "{0}_X_Xf.txt",
        "{0}_X_Xf.npz",
        "X.{0}.npz",
        "{0}_X.npz",
        "X.{0}.tfidf.npz",
        "{0}_X_Xf.npy",
        "X.{0}.npy",
    ],
    "texts": ["{0}.raw.txt", "{0}_raw_texts.txt", "{0}_texts.txt", "{0}_X.txt", "X.{0}.txt", "raw/{0}_X.txt"],
}
LABEL_TEXTS = ("lbl.raw.txt", "lbl_raw_texts.txt", "Yf.txt", "lbl_X.txt", "output-items.txt")
# Without lbl.json the largest label number decides how many labels there are. A typo must not create a billion of them.
MAX_LABELS, SURELY_LABELS, LABELS_PER_ROW = 100_000_000, 5_000_000, 100
NO_ROWS = np.zeros(0, np.int64)

Row = TypeVar("Row")


def has_part(folder: Path, part: str) -> bool:
    """Whether the folder has this part in one of the variants."""
    return any(_find(folder, part, kind) for kind in ("json", "labels", "single"))


def read_part(folder: Path, part: str, options: ReadOptions) -> Dataset:
    report = ReadReport(options.on_error)
    if path := _find(folder, part, "json"):
        dataset, bad_rows = _read_json(path, folder, report, options)
    elif path := _find(folder, part, "labels"):
        dataset, bad_rows = _read_pair(path, folder, part, report, options)
    elif path := _find(folder, part, "single"):
        dataset, bad_rows = _read_single(path, report, options)
    else:
        raise DataError(f"{folder}: found no {part} part in any of the Repository's variants.")
    if part == "test" and (filter_file := next(_existing(folder, "filter_labels_test.txt"), None)):
        dataset.filter_pairs = read_filter_pairs(filter_file, dataset, report, options)
    return _drop_bad_rows(dataset, bad_rows)


def read_single_file(path: Path, options: ReadOptions) -> Dataset:
    """The oldest variant: header `N D L`, then `label,label column:value column:value`."""
    if not has_header(path, 3):
        raise DataError(
            f"{path}: cannot tell the format from the name, and the first line is not a Repository header (three "
            "numbers: texts, features, labels). Set format='jsonl', 'csv', 'tsv', 'parquet', "
            "'fasttext' or 'annif' (--from)."
        )
    return _drop_bad_rows(*_read_single(path, ReadReport(options.on_error), options))


def read_matrix(path: Path, report: ReadReport, options: ReadOptions) -> tuple[Any, np.ndarray]:
    """A matrix from `.npy`, `.npz` or sparse text, and its bad rows, which are empty. Repeated entries are added up."""
    if path.suffix == ".npy":
        return np.asarray(open_matrix(path)), NO_ROWS
    matrix, bad_rows = _read_entries(path, report, options)
    matrix.sum_duplicates()
    return matrix, bad_rows


def read_filter_pairs(path: Path, dataset: Dataset, report: ReadReport, options: ReadOptions) -> np.ndarray:
    """`filter_labels_test.txt`: the number of a text and the number of a label per line."""
    pairs = []
    for number, line in numbered_lines(path, report, options):
        fields = line.split()
        pair = [int(field) for field in fields if field.isdigit() and len(field) < MAX_DIGITS]
        if len(fields) == len(pair) == 2 and pair[0] < len(dataset) and pair[1] < dataset.n_labels:
            pairs.append(pair)
        elif fields:
            expected = f"a text number below {len(dataset):,} and a label number below {dataset.n_labels:,}"
            report.add(str(path), number, repr(line[:60].decode(errors="replace")), expected)
    return np.asarray(pairs, np.int64).reshape(-1, 2)


def is_repository_json(path: Path) -> bool:
    return b'"target_ind"' in first_line(path)


def _find(folder: Path, part: str, kind: str) -> Path | None:
    """The file of a part that holds its texts, labels or features, or all of them."""
    for name in FILE_NAMES[kind]:
        for path in _existing(folder, *(name.format(prefix) for prefix in PREFIXES[part])):
            if (kind != "json" or is_repository_json(path)) and (kind != "single" or has_header(path, 3)):
                return path
    return None


def _existing(folder: Path, *patterns: str) -> Iterator[Path]:
    """The files that match, compressed or not, in the order of the patterns."""
    for pattern in patterns:
        for suffix in ("", *COMPRESSED_SUFFIXES):
            yield from filter(Path.is_file, sorted(folder.glob(pattern + suffix)))


def _read_single(path: Path, report: ReadReport, options: ReadOptions) -> tuple[Dataset, np.ndarray]:
    features, labels, n_labels, bad_rows = read_sparse_text(path, report, options, with_labels=True)
    _check_label_count(path, n_labels, len(labels))
    return _assemble(None, labels, n_labels, features, report), bad_rows


def _read_json(path: Path, folder: Path, report: ReadReport, options: ReadOptions) -> tuple[Dataset, np.ndarray]:
    label_names, display_names = _read_label_json(folder, report, options)
    max_labels = len(label_names) or MAX_LABELS
    texts: list[str] = []
    bad_rows: list[int] = []
    # Millions of lists of numbers would need many times the memory of the file.
    counts, labels, weights = array("q"), array("i"), array("f")
    for row in _json_rows(path, report, options, lambda record: _parse_text(record, max_labels)):
        if row is None:
            bad_rows.append(len(texts))
        text, row_labels, row_weights = row or ("", [], [])
        texts.append(text)
        counts.append(len(row_labels))
        labels.extend(row_labels)
        weights.extend(row_weights)
    rows = _drop_unit_weights(Ragged(counts_to_indptr(counts), np.asarray(labels), np.asarray(weights)))
    n_labels = len(label_names) or int(rows.values.max(initial=-1)) + 1
    _check_label_count(path, n_labels, len(texts))
    dataset = _assemble(Texts.from_strings(texts), rows, n_labels, None, report)
    dataset = replace(dataset, label_names=label_names or dataset.label_names, display_names=display_names)
    return dataset, np.asarray(bad_rows, np.int64)


def _json_rows(
    path: Path, report: ReadReport, options: ReadOptions, parse: Callable[[Any], Row]
) -> Iterator[Row | None]:
    """What `parse` returns for each record; None for a bad one, so that the others keep their numbers."""
    for number, line in numbered_lines(path, report, options):
        if line.strip():
            try:
                yield parse(decode_line(line))
            except BadRow as bad:
                report.add(str(path), number, bad.what, bad.expected)
                yield None


def _parse_text(record: Any, max_labels: int) -> tuple[str, list[int], list[float]]:
    if not isinstance(record, dict) or "title" not in record or "target_ind" not in record:
        raise BadRow("no 'title' and 'target_ind'", 'an object such as {"title": …, "target_ind": [3, 17]}')
    text = check_text(record["title"], "title")
    labels = record["target_ind"]
    if not isinstance(labels, list) or not all(type(label) is int and label >= 0 for label in labels):
        raise BadRow("'target_ind' is not a list of label numbers", "integers from 0")
    if any(label >= max_labels for label in labels):
        raise BadRow(f"label number {shorten(max(labels))} is out of range", f"numbers below {max_labels:,}")
    return text, labels, check_weights(record.get("target_rel", [1.0] * len(labels)), labels, "target_rel")


def _read_label_json(folder: Path, report: ReadReport, options: ReadOptions) -> tuple[list[str], dict[str, str]]:
    """The names (`uid`) and titles of the labels from `lbl.json`, if it exists."""
    path = next(_existing(folder, "lbl.json"), None)
    if path is None:
        return [], {}
    # A bad label keeps its number: targets are positions in this file.
    rows = [row or (None, "") for row in _json_rows(path, report, options, _parse_label)]
    names = [str(number) if name is None else name for number, (name, _) in enumerate(rows)]
    if len(set(names)) < len(names):
        names = [str(number) for number in range(len(names))]
    return names, {name: title for name, (_, title) in zip(names, rows, strict=True)}


def _parse_label(record: Any) -> tuple[str | None, str]:
    if not isinstance(record, dict) or "title" not in record:
        raise BadRow("no 'title'", 'an object such as {"uid": …, "title": …}')
    name = record.get("uid")
    return None if name is None else check_label(name), check_text(record["title"], "title")


def _read_pair(
    label_file: Path, folder: Path, part: str, report: ReadReport, options: ReadOptions
) -> tuple[Dataset, np.ndarray]:
    labels, n_labels, names, bad_rows = _read_label_file(label_file, report, options)
    texts = features = None
    if input_file := _find(folder, part, "texts"):
        texts = _read_text_lines(input_file, report, options)
    elif input_file := _find(folder, part, "features"):
        features, bad_inputs = read_matrix(input_file, report, options)
        bad_rows = np.union1d(bad_rows, bad_inputs)
    else:
        raise DataError(
            f"{folder}: {label_file.name} has labels, but there are no texts or features beside it. "
            f"Expected for example {label_file.name.replace('X_Y', 'X_Xf')} or {PREFIXES[part][0]}.raw.txt."
        )
    n_rows = len(texts) if features is None else features.shape[0]  # type: ignore[arg-type]
    if n_rows != len(labels):
        raise DataError(
            f"{label_file}: has {len(labels):,} rows, but {input_file} has {n_rows:,}; "
            "line by line, the two must belong together."
        )
    dataset = _assemble(texts, labels, n_labels, features, report)
    if path := next(_existing(folder, "lbl_X_Xf.txt", "lbl_X_Xf.npz"), None):
        dataset.label_features, _ = read_matrix(path, report, options)
        _check_one_row_per_label(path, dataset.label_features.shape[0], n_labels)
    if names is not None:
        dataset.label_names = names
    elif path := next(_existing(folder, *LABEL_TEXTS), None):
        titles = _read_text_lines(path, report, options)
        _check_one_row_per_label(path, len(titles), n_labels)
        dataset.display_names = dict(zip(dataset.label_names, titles, strict=True))
    return dataset, bad_rows


def _read_label_file(
    path: Path, report: ReadReport, options: ReadOptions
) -> tuple[Ragged, int, list[str] | None, np.ndarray]:
    """Labels, how many there are, their names (if the file has names instead of numbers), and the bad rows."""
    if path.name.removesuffix(".gz").removesuffix(".zst").endswith(("_labels.txt", ".labels.txt")):
        ids: dict[str, int] = {}
        counts, values = array("q"), array("i")
        for line in _read_text_lines(path, report, options):
            names = line.split()
            counts.append(len(names))
            values.extend(ids.setdefault(name, len(ids)) for name in names)
        return Ragged(counts_to_indptr(counts), np.asarray(values)), len(ids), list(ids), NO_ROWS
    matrix, bad_rows = _read_entries(path, report, options)
    _check_label_count(path, matrix.shape[1], matrix.shape[0])
    return _drop_unit_weights(Ragged.from_csr(matrix)), matrix.shape[1], None, bad_rows


def _read_entries(path: Path, report: ReadReport, options: ReadOptions) -> tuple[sparse.csr_array, np.ndarray]:
    """A matrix with its entries in the order of the file, repeats included, and its bad rows."""
    if path.suffix == ".npz":
        return open_matrix(path), NO_ROWS
    matrix, _, _, bad_rows = read_sparse_text(path, report, options)
    return matrix, bad_rows


def _read_text_lines(path: Path, report: ReadReport, options: ReadOptions) -> Texts:
    """One text per line. With on_error="skip", invalid bytes are replaced by � and the text is kept."""
    texts: list[str] = []
    for number, line in numbered_lines(path, report, options):
        try:
            text = line.decode()
        except UnicodeDecodeError:
            report.add(str(path), number, "bytes that are not valid text", VALID_TEXT)
            text = line.decode(errors="replace")
        texts.append(text.rstrip("\r"))
    return Texts.from_strings(texts)


def _check_label_count(path: Path, n_labels: int, n_rows: int) -> None:
    """A few bytes must not create names for many millions of labels."""
    if n_labels > min(MAX_LABELS, max(SURELY_LABELS, LABELS_PER_ROW * n_rows)):
        raise DataError(f"{path}: has {n_labels:,} labels for {n_rows:,} rows. Is a number in it wrong?")


def _check_one_row_per_label(path: Path, n_rows: int, n_labels: int) -> None:
    if n_rows != n_labels:
        raise DataError(f"{path}: has {n_rows:,} rows, but there are {n_labels:,} labels; expected one row per label.")


def _drop_unit_weights(labels: Ragged) -> Ragged:
    return Ragged(labels.indptr, labels.values) if np.all(labels.weights == 1) else labels


def _assemble(texts: Texts | None, labels: Ragged, n_labels: int, features: Any, report: ReadReport) -> Dataset:
    if texts is None:
        texts = Texts(np.zeros(0, np.uint8), np.zeros(features.shape[0] + 1, np.int64))
    if sparse.issparse(features):
        features.sum_duplicates()
    labels = drop_repeated_labels(labels, n_labels, report)
    return Dataset(texts, labels, [str(label) for label in range(n_labels)], features=features, report=report)


def _drop_bad_rows(dataset: Dataset, bad_rows: np.ndarray) -> Dataset:
    """Drop rows that could not be read. They kept their places until here, because other files refer to row numbers."""
    if len(bad_rows):
        dataset = dataset.take(np.setdiff1d(np.arange(len(dataset)), bad_rows))
    count_empty_rows(dataset)
    return dataset
