"""Predictions as Parquet, made from JSON lines some rows at a time."""

from __future__ import annotations

import importlib
import itertools
from pathlib import Path
from typing import Any

import msgspec

from shortlist.data.arrow import ROWS_PER_BATCH, import_pyarrow
from shortlist.files import write_atomically

SMALLEST_INT, LARGEST_INT = -(2**63), 2**63 - 1


def kind_of_id(value: Any) -> str:
    """What an id is to Parquet, whose columns hold values of one kind: int, float, bool, str, or null."""
    if isinstance(value, int) and not SMALLEST_INT <= value <= LARGEST_INT:
        return "str"
    return "null" if value is None else type(value).__name__


def parquet_from_lines(lines: Path, path: Path, columns: list[str], id_kinds: list[str]) -> None:
    """Write the JSON lines of a file as Parquet, all or nothing. Ids of several kinds become texts."""
    pyarrow = import_pyarrow("writing Parquet")
    parquet = importlib.import_module("pyarrow.parquet")
    number_types = {"int": pyarrow.int64(), "float": pyarrow.float64(), "bool": pyarrow.bool_()}
    kinds = [kind for kind in id_kinds if kind != "null"]
    id_type = number_types.get(kinds[0], pyarrow.string()) if len(kinds) == 1 else pyarrow.string()
    types = {
        "id": id_type,
        "text": pyarrow.string(),
        "labels": pyarrow.list_(pyarrow.string()),
        "scores": pyarrow.list_(pyarrow.float32()),
        "error": pyarrow.string(),
    }
    schema = pyarrow.schema([(column, types[column]) for column in columns])
    decode = msgspec.json.Decoder().decode
    with (
        lines.open("rb") as rows,
        write_atomically(path) as file,
        parquet.ParquetWriter(file, schema, compression="zstd") as writer,
    ):
        while records := [decode(line) for line in itertools.islice(rows, ROWS_PER_BATCH)]:
            if "id" in columns and id_type == pyarrow.string():
                for record in records:
                    record["id"] = _as_text(record["id"])
            writer.write_batch(pyarrow.RecordBatch.from_pylist(records, schema))


def _as_text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else msgspec.json.encode(value).decode()
