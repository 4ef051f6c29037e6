"""Convert JSON lines of predictions to Parquet, one batch of rows at a time."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import IO, Any

import msgspec

from shortlist.data.arrow import ROWS_PER_BATCH, import_pyarrow
from shortlist.files import write_atomically

TEXTS = ("text", "error")  # strings in every row
MIN_INT64, MAX_INT64 = -(2**63), 2**63 - 1


def id_type(value: Any) -> str:
    """The type an id needs in Parquet, where a column has one type: int, float, bool, str or null."""
    if isinstance(value, int) and not MIN_INT64 <= value <= MAX_INT64:
        return "str"
    return "null" if value is None else type(value).__name__


def convert_to_parquet(lines: IO[bytes], path: Path, columns: list[str], id_types: list[str]) -> None:
    """Write JSON lines as a Parquet file, all or nothing. Ids of mixed types become strings."""
    pyarrow = import_pyarrow("writing Parquet")
    arrow_types = {"int": pyarrow.int64(), "float": pyarrow.float64(), "bool": pyarrow.bool_()}
    found = [name for name in id_types if name != "null"]
    types = {
        "id": arrow_types.get(found[0], pyarrow.string()) if len(found) == 1 else pyarrow.string(),
        "text": pyarrow.string(),
        "labels": pyarrow.list_(pyarrow.string()),
        "names": pyarrow.list_(pyarrow.string()),
        "scores": pyarrow.list_(pyarrow.float32()),
        "error": pyarrow.string(),
    }
    # Kept fields are strings: their types are known only after the last row.
    schema = pyarrow.schema([(column, types.get(column, pyarrow.string())) for column in columns])
    as_strings = [field.name for field in schema if field.name not in TEXTS and field.type == pyarrow.string()]
    decode = msgspec.json.Decoder().decode
    with (
        write_atomically(path) as file,
        pyarrow.parquet.ParquetWriter(file, schema, compression="zstd") as writer,
    ):
        while records := [decode(line) for line in itertools.islice(lines, ROWS_PER_BATCH)]:
            for column in as_strings:
                for record in records:
                    if not isinstance(record[column], str | None):
                        record[column] = msgspec.json.encode(record[column]).decode()
            writer.write_batch(pyarrow.RecordBatch.from_pylist(records, schema))
