"""Convert JSON lines of predictions to Parquet, one batch of rows at a time."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import msgspec

from shortlist.data.arrow import ROWS_PER_BATCH, import_pyarrow
from shortlist.files import write_atomically

MIN_INT64, MAX_INT64 = -(2**63), 2**63 - 1


def id_type(value: Any) -> str:
    """The type an id needs in Parquet, where a column has one type: int, float, bool, str or null."""
    if isinstance(value, int) and not MIN_INT64 <= value <= MAX_INT64:
        return "str"
    return "null" if value is None else type(value).__name__


def convert_to_parquet(lines: Path, path: Path, columns: list[str], id_types: list[str]) -> None:
    """Write the JSON lines of a file as Parquet, all or nothing. Ids of mixed types become strings."""
    pyarrow = import_pyarrow("writing Parquet")
    arrow_types = {"int": pyarrow.int64(), "float": pyarrow.float64(), "bool": pyarrow.bool_()}
    found = [name for name in id_types if name != "null"]
    types = {
        "id": arrow_types.get(found[0], pyarrow.string()) if len(found) == 1 else pyarrow.string(),
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
        pyarrow.parquet.ParquetWriter(file, schema, compression="zstd") as writer,
    ):
        while records := [decode(line) for line in itertools.islice(rows, ROWS_PER_BATCH)]:
            if "id" in columns and types["id"] == pyarrow.string():
                for record in records:
                    if not isinstance(record["id"], str | None):
                        record["id"] = msgspec.json.encode(record["id"]).decode()
            writer.write_batch(pyarrow.RecordBatch.from_pylist(records, schema))
