"""Writing data sets: the same formats that can be read, all or nothing, and the same bytes every time."""

from __future__ import annotations

import csv
import importlib
import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import msgspec
import numpy as np

from shortlist.data.dataset import Dataset
from shortlist.data.read import format_of
from shortlist.data.sparse_text import write_sparse_text
from shortlist.data.tables import LABEL_SEPARATOR, import_pyarrow
from shortlist.errors import DataError, OptionError
from shortlist.files import write_atomically
from shortlist.lazy import sparse

ROWS_PER_BATCH = 16_384
FILE_FORMATS = ("jsonl", "csv", "tsv", "parquet")
# Folders in the Extreme Classification Repository's forms, one part at a time.
FOLDER_FORMATS = ("repository-json", "repository-text", "repository-pair", "repository-single")
PREFIX = {"train": "trn", "validation": "val", "test": "tst"}


def write(
    dataset: Dataset,
    path: str | Path,
    *,
    format: str | None = None,
    part: str = "train",
    label_separator: str = LABEL_SEPARATOR,
    features: Any = None,
) -> None:
    """Write to a file in the format of its name, or to a folder in one of the Repository's forms.

    The Repository's pair and single file hold features, not texts: where the data set has none, give them.
    """
    path = Path(path)
    kind = format or format_of(path)
    if kind in FOLDER_FORMATS:
        _write_repository(dataset, path, str(kind), part, dataset.features if features is None else features)
    elif kind == "jsonl":
        _need_texts(dataset, path)
        with write_atomically(path) as file:
            write_jsonl(dataset, file)
    elif kind in ("csv", "tsv"):
        _write_csv(dataset, path, "," if kind == "csv" else "\t", label_separator)
    elif kind == "parquet":
        _write_parquet(dataset, path)
    else:
        known = ", ".join((*FILE_FORMATS, *FOLDER_FORMATS))
        raise OptionError(f"{path}: the name does not say which format is wanted; give one of {known} (format=, --to).")


def records(dataset: Dataset) -> Iterator[dict[str, Any]]:
    """Each row as a dictionary: text, labels, and weights and time where there are any."""
    names = dataset.label_names
    indptr = dataset.labels.indptr.tolist()
    for row, text in enumerate(dataset.texts):
        span = slice(indptr[row], indptr[row + 1])
        record: dict[str, Any] = {"text": text, "labels": [names[i] for i in dataset.labels.values[span]]}
        if dataset.labels.weights is not None:
            record["weights"] = [float(f"{weight:.7g}") for weight in dataset.labels.weights[span]]
        if dataset.times is not None:
            record["time"] = dataset.times[row].item()
        yield record


def write_jsonl(dataset: Dataset, file: IO[bytes]) -> None:
    """JSON lines into an open file."""
    encoder = msgspec.json.Encoder()
    for record in records(dataset):
        if "weights" in record:  # in the form that reads back without being told
            record["labels"] = dict(zip(record["labels"], record.pop("weights"), strict=True))
        file.write(encoder.encode(record) + b"\n")


def _write_csv(dataset: Dataset, path: Path, separator: str, label_separator: str) -> None:
    _need_texts(dataset, path)
    for name in dataset.label_names:
        if label_separator in name or name != name.strip():
            raise DataError(
                f"{path}: the label {name!r} cannot be written with {label_separator!r} between labels. "
                "Choose another separator (label_separator=, --out-label-separator), or JSON lines."
            )
    with write_atomically(path) as file:
        lines = io.TextIOWrapper(file, encoding="utf-8", newline="", write_through=True)
        rows = csv.writer(lines, delimiter=separator, lineterminator="\n")
        # csv quotes the characters of the line's end only, and readers take a bare "\r" for one, too.
        quoted = csv.writer(lines, delimiter=separator, lineterminator="\n", quoting=csv.QUOTE_ALL)
        first = True
        for record in records(dataset):
            if first:
                rows.writerow(record)
            first = False
            record["labels"] = label_separator.join(record["labels"])
            if "weights" in record:
                record["weights"] = label_separator.join(map(str, record["weights"]))
            (quoted if "\r" in record["text"] or "\r" in record["labels"] else rows).writerow(record.values())
        if first:
            rows.writerow(["text", "labels"])
        lines.detach()


def _write_parquet(dataset: Dataset, path: Path) -> None:
    _need_texts(dataset, path)
    pyarrow = import_pyarrow("writing Parquet")
    parquet = importlib.import_module("pyarrow.parquet")
    fields = [("text", pyarrow.string()), ("labels", pyarrow.list_(pyarrow.string()))]
    if dataset.labels.weights is not None:
        fields.append(("weights", pyarrow.list_(pyarrow.float32())))
    if dataset.times is not None:
        fields.append(("time", pyarrow.array(dataset.times[:1].tolist()).type))
    schema = pyarrow.schema(fields)
    with write_atomically(path) as file, parquet.ParquetWriter(file, schema, compression="zstd") as writer:
        batch: list[dict[str, Any]] = []
        for record in records(dataset):
            batch.append(record)
            if len(batch) == ROWS_PER_BATCH:
                writer.write_batch(pyarrow.RecordBatch.from_pylist(batch, schema))
                batch = []
        writer.write_batch(pyarrow.RecordBatch.from_pylist(batch, schema))


def _write_repository(dataset: Dataset, folder: Path, kind: str, part: str, features: Any) -> None:
    if part not in PREFIX:
        raise OptionError(f"part is {part!r}; it can be {', '.join(PREFIX)}")
    prefix = PREFIX[part]
    if kind == "repository-json":
        _need_texts(dataset, folder)
        _write_lines(folder / f"{prefix}.json.gz", _repository_records(dataset))
        titles = ({"uid": name, "title": dataset.display_name(name)} for name in dataset.label_names)
        _write_lines(folder / "lbl.json.gz", titles)
    elif kind == "repository-text":
        _need_texts(dataset, folder)
        _write_text_lines(folder / f"{prefix}.raw.txt", dataset.texts)
        _write_text_lines(folder / "lbl.raw.txt", map(dataset.display_name, dataset.label_names))
        _write_npz(folder / f"{prefix}_X_Y.npz", dataset.labels.to_csr(dataset.n_labels))
    else:
        if features is None:
            raise DataError(f"{folder}: the form {kind!r} holds features, and this data set has texts only.")
        if kind == "repository-pair":
            write_sparse_text(folder / f"{prefix}_X_Xf.txt", features)
            write_sparse_text(folder / f"{prefix}_X_Y.txt", dataset.labels.to_csr(dataset.n_labels))
        else:
            write_sparse_text(folder / f"{part}.txt", features, dataset.labels, dataset.n_labels)
        _write_text_lines(folder / "lbl.raw.txt", map(dataset.display_name, dataset.label_names))
    if dataset.filter_pairs is not None:
        with write_atomically(folder / "filter_labels_test.txt") as file:
            np.savetxt(file, dataset.filter_pairs, fmt="%d")


def _repository_records(dataset: Dataset) -> Iterator[dict[str, Any]]:
    weights = dataset.labels.weights
    for row, text in enumerate(dataset.texts):
        span = slice(dataset.labels.indptr[row], dataset.labels.indptr[row + 1])
        relevance = [1.0] * (span.stop - span.start) if weights is None else weights[span].tolist()
        labels = dataset.labels.values[span].tolist()
        yield {"uid": str(row), "title": text, "target_ind": labels, "target_rel": relevance}


def _write_lines(path: Path, rows: Iterator[dict[str, Any]]) -> None:
    encode: Callable[[Any], bytes] = msgspec.json.Encoder().encode
    with write_atomically(path) as file:
        for row in rows:
            file.write(encode(row) + b"\n")


def _write_text_lines(path: Path, texts: Any) -> None:
    """One text a line; a line break inside a text becomes a space, for the format has no way to keep it."""
    with write_atomically(path) as file:
        for text in texts:
            file.write(" ".join(text.splitlines()).encode() + b"\n")


def _write_npz(path: Path, matrix: sparse.csr_array) -> None:
    with write_atomically(path) as file:
        sparse.save_npz(file, matrix)


def _need_texts(dataset: Dataset, path: Path) -> None:
    if dataset.features is not None:
        raise DataError(
            f"{path}: this data set has features, not texts, and the format holds texts. "
            "Write it as repository-pair or repository-single (format=, --to)."
        )
