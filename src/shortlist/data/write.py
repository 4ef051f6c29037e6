"""Writes data sets in all formats that can be read. The same data gives the same bytes."""

from __future__ import annotations

import csv
import io
import itertools
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import msgspec
import numpy as np

from shortlist.data.annif import write_corpus, write_vocabulary
from shortlist.data.arrow import ROWS_PER_BATCH, import_pyarrow
from shortlist.data.csv_files import LABEL_SEPARATOR, SEPARATORS
from shortlist.data.dataset import Dataset
from shortlist.data.fasttext import write_fasttext
from shortlist.data.read import format_of
from shortlist.data.sparse_text import write_sparse_text
from shortlist.errors import DataError, OptionError
from shortlist.files import write_atomically
from shortlist.lazy import sparse

FILE_FORMATS = ("jsonl", "csv", "tsv", "parquet", "fasttext", "annif", "annif-vocabulary")
# Folders in the variants of the Extreme Classification Repository, one part at a time.
TEXT_FOLDERS, FEATURE_FOLDERS = ("repository-json", "repository-text"), ("repository-pair", "repository-single")
FOLDER_FORMATS = (*TEXT_FOLDERS, *FEATURE_FOLDERS)
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
    """Write a file in the format of its name, or a folder in one of the Repository's variants.

    The variants repository-pair and repository-single contain features. Give them if the data set has texts only.
    """
    path = Path(path)
    format = format or format_of(path)
    if format not in (*FILE_FORMATS, *FOLDER_FORMATS):
        known = ", ".join((*FILE_FORMATS, *FOLDER_FORMATS))
        raise OptionError(f"{path}: cannot tell the format from the name; choose one of {known} (format=, --to).")
    if dataset.features is not None and format not in FEATURE_FOLDERS:
        raise DataError(
            f"{path}: the data set has features, but {format} needs texts. "
            "Write it as repository-pair or repository-single (format=, --to)."
        )
    if format == "jsonl":
        with write_atomically(path) as file:
            write_jsonl(dataset, file)
    elif format in SEPARATORS:
        _write_csv(dataset, path, SEPARATORS[format], label_separator)
    elif format == "parquet":
        _write_parquet(dataset, path)
    elif format == "fasttext":
        write_fasttext(dataset, path)
    elif format == "annif":
        write_corpus(dataset, path)
    elif format == "annif-vocabulary":
        write_vocabulary(dataset, path)
    else:
        _write_repository(dataset, path, format, part, dataset.features if features is None else features)


def records(dataset: Dataset) -> Iterator[dict[str, Any]]:
    """Each row as a dictionary: text, labels, and weights, time and kept columns if the data set has them."""
    names, labels = dataset.label_names, dataset.labels
    indptr = labels.indptr.tolist()
    for row, text in enumerate(dataset.texts):
        span = slice(indptr[row], indptr[row + 1])
        record: dict[str, Any] = {"text": text, "labels": [names[i] for i in labels.values[span]]}
        if labels.weights is not None:
            record["weights"] = [float(f"{weight:.7g}") for weight in labels.weights[span]]
        if dataset.times is not None:
            record["time"] = dataset.times[row].item()
        record |= {name: values[row] for name, values in dataset.columns.items()}
        yield record


def write_jsonl(dataset: Dataset, file: IO[bytes]) -> None:
    """Write JSON lines to an open file."""
    encoder = msgspec.json.Encoder()
    for record in records(dataset):
        if "weights" in record:  # as {label: weight}, which reads back without options
            record["labels"] = dict(zip(record["labels"], record.pop("weights"), strict=True))
        file.write(encoder.encode(record) + b"\n")


def _write_csv(dataset: Dataset, path: Path, separator: str, label_separator: str) -> None:
    for name in dataset.label_names:
        if label_separator in name or name != name.strip():
            raise DataError(
                f"{path}: the label {name!r} cannot be written with the label separator {label_separator!r}. "
                "Choose another separator (label_separator=, --out-label-separator), or JSON lines."
            )
    with write_atomically(path) as file:
        lines = io.TextIOWrapper(file, encoding="utf-8", newline="", write_through=True)
        plain = csv.writer(lines, delimiter=separator, lineterminator="\n")
        # The csv module quotes only the line terminator, but readers also take a bare "\r" for the end of a line.
        quoted = csv.writer(lines, delimiter=separator, lineterminator="\n", quoting=csv.QUOTE_ALL)
        rows = records(dataset)
        first = next(rows, None)
        plain.writerow(first or ["text", "labels"])
        for record in itertools.chain([first] if first else [], rows):
            record["labels"] = label_separator.join(record["labels"])
            if "weights" in record:
                record["weights"] = label_separator.join(map(str, record["weights"]))
            writer = quoted if any("\r" in value for value in record.values() if isinstance(value, str)) else plain
            writer.writerow(record.values())
        lines.detach()


def _write_parquet(dataset: Dataset, path: Path) -> None:
    pyarrow = import_pyarrow("writing Parquet")
    fields = [("text", pyarrow.string()), ("labels", pyarrow.list_(pyarrow.string()))]
    if dataset.labels.weights is not None:
        fields.append(("weights", pyarrow.list_(pyarrow.float32())))
    if dataset.times is not None:
        fields.append(("time", pyarrow.array(dataset.times[:1].tolist()).type))
    columns = {name: _one_type(values) for name, values in dataset.columns.items()}
    dataset = replace(dataset, columns=columns)
    fields += [(name, pyarrow.array(values.tolist()).type) for name, values in columns.items()]
    schema = pyarrow.schema(fields)
    rows = records(dataset)
    with write_atomically(path) as file, pyarrow.parquet.ParquetWriter(file, schema, compression="zstd") as writer:
        while batch := list(itertools.islice(rows, ROWS_PER_BATCH)):
            writer.write_batch(pyarrow.RecordBatch.from_pylist(batch, schema))


def _one_type(values: np.ndarray) -> np.ndarray:
    """Values of a Parquet column, which has one type: those of mixed types become strings."""
    types = {type(value) for value in values.tolist() if value is not None}
    too_large = int in types and any(abs(value) >= 2**63 for value in values.tolist() if isinstance(value, int))
    if len(types) <= 1 and not too_large:
        return values
    return np.asarray([None if value is None else str(value) for value in values.tolist()], object)


def _write_repository(dataset: Dataset, folder: Path, format: str, part: str, features: Any) -> None:
    if part not in PREFIX:
        raise OptionError(f"part is {part!r}; choose one of {', '.join(PREFIX)}")
    if format in FEATURE_FOLDERS and features is None:
        raise DataError(f"{folder}: {format} needs features, but the data set has only texts.")
    prefix, display_names = PREFIX[part], [dataset.display_name(name) for name in dataset.label_names]
    encode = msgspec.json.Encoder().encode
    if format == "repository-json":
        _write_lines(folder / f"{prefix}.json.gz", map(encode, _repository_records(dataset)))
        labels = zip(dataset.label_names, display_names, strict=True)
        _write_lines(folder / "lbl.json.gz", (encode({"uid": name, "title": title}) for name, title in labels))
    else:
        _write_lines(folder / "lbl.raw.txt", map(_text_line, display_names))
    if format == "repository-text":
        _write_lines(folder / f"{prefix}.raw.txt", map(_text_line, dataset.texts))
        with write_atomically(folder / f"{prefix}_X_Y.npz") as file:
            sparse.save_npz(file, dataset.labels.to_csr(dataset.n_labels))
    elif format == "repository-pair":
        write_sparse_text(folder / f"{prefix}_X_Xf.txt", features)
        write_sparse_text(folder / f"{prefix}_X_Y.txt", dataset.labels.to_csr(dataset.n_labels))
    elif format == "repository-single":
        write_sparse_text(folder / f"{part}.txt", features, dataset.labels, dataset.n_labels)
    if dataset.filter_pairs is not None:
        with write_atomically(folder / "filter_labels_test.txt") as file:
            np.savetxt(file, dataset.filter_pairs, fmt="%d")


def _repository_records(dataset: Dataset) -> Iterator[dict[str, Any]]:
    weights = dataset.labels.weights
    for row, text in enumerate(dataset.texts):
        span = slice(dataset.labels.indptr[row], dataset.labels.indptr[row + 1])
        labels = dataset.labels.values[span].tolist()
        relevance = [1.0] * len(labels) if weights is None else weights[span].tolist()
        yield {"uid": str(row), "title": text, "target_ind": labels, "target_rel": relevance}


def _text_line(text: str) -> bytes:
    """A line break inside a text becomes a space: the format has no other way."""
    return " ".join(text.splitlines()).encode()


def _write_lines(path: Path, lines: Iterable[bytes]) -> None:
    with write_atomically(path) as file:
        for line in lines:
            file.write(line + b"\n")
