"""Reading Parquet and data frames."""

from __future__ import annotations

import datetime
import gzip
import io
import sys
import types

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import zstandard
from pyarrow import parquet

import shortlist
from shortlist.errors import DataError, MissingExtraError

COLUMNS = {
    "text": ["red shoes", "", "hat é\n"],
    "labels": [["shoes", "red"], [], ["hats"]],
    "w": [[0.5, 2.0], [], [1.0]],
    "when": [datetime.date(2024, 5, 31), datetime.date(2023, 1, 1), datetime.date(2024, 1, 1)],
}
ROWS = list(zip(COLUMNS["text"], COLUMNS["labels"], strict=True))


def rows_of(dataset):
    return [(text, dataset.labels_of(i)) for i, text in enumerate(dataset.texts)]


def parquet_bytes(table):
    file = io.BytesIO()
    parquet.write_table(table, file)
    return file.getvalue()


MAKERS = {
    "arrow": pa.table,
    "arrow batches": lambda columns: pa.table(columns).to_reader(),
    "pandas": pd.DataFrame,
    "polars": pl.DataFrame,
}


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS.keys())
def test_tables(make):
    assert rows_of(shortlist.read(make(COLUMNS))) == ROWS
    data = shortlist.read(make(COLUMNS), weights="w", time="when")
    assert rows_of(data) == ROWS
    assert data.labels.weights.tolist() == [0.5, 2, 1]
    assert data.times.tolist() == ["2024-05-31", "2023-01-01", "2024-01-01"]
    assert data.report.empty_texts == 1
    renamed = make({"titel": COLUMNS["text"], "tags": [[1, 2], [], [1]]})
    assert rows_of(shortlist.read(renamed, text="titel", labels="tags"))[0] == ("red shoes", ["1", "2"])


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS.keys())
def test_tables_with_missing_columns_and_values(make):
    with pytest.raises(
        DataError, match=r"table: there is no column 'text'; the columns are 'titel', 'labels'. Choose other"
    ):
        shortlist.read(make({"titel": ["x"], "labels": [["a"]]}))
    columns = {"text": ["x", None, "y", "z"], "labels": [["a"], ["b"], None, ["c", None]]}
    with pytest.raises(DataError, match=r"table, row 2: 'text' is null; expected a string. Fix the row"):
        shortlist.read(make(columns))
    data = shortlist.read(make(columns), on_error="skip")
    assert rows_of(data) == [("x", ["a"])]
    assert [(p.line, p.what) for p in data.report.problems] == [
        (2, "'text' is null"),
        (3, "'labels' is null"),
        (4, "a label is null"),
    ]
    assert len(shortlist.read(make({"text": [], "labels": []}))) == 0


def test_labels_in_one_string():
    table = pa.table({"text": ["x", "y"], "labels": ["a|b", ""]})
    assert rows_of(shortlist.read(table, label_separator="|")) == [("x", ["a", "b"]), ("y", [])]
    with pytest.raises(DataError, match=r"row 1: 'labels' is a string, 'a\|b'; expected a list .*label_separator"):
        shortlist.read(table)


def test_column_types():
    for kind in (pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())):
        table = pa.table({"text": pa.array(["x", "y"]).cast(kind), "labels": [["a"], ["b"]]})
        assert rows_of(shortlist.read(table)) == [("x", ["a"]), ("y", ["b"])]
    bad = pa.table({"text": ["x", "y"], "labels": [[1.0], [2.5]]})
    with pytest.raises(DataError, match=r"row 1: a label is a number \(1.0\)"):
        shortlist.read(bad)
    with pytest.raises(DataError, match="row 1: 'text' is of type bytes"):
        shortlist.read(pa.table({"text": [b"x"], "labels": [["a"]]}))
    with pytest.raises(DataError, match="row 1: 'labels' is of type bytes"):
        shortlist.read(pa.table({"text": ["x"], "labels": [b"ab"]}))


def test_other_pandas_columns_are_ignored():
    frame = pd.DataFrame({"text": ["x", "y"], "labels": [["a"], ["b"]], "mess": [{1: 2}, object()], 5: [1, "a"]})
    frame.index = ["p", "q"]
    assert rows_of(shortlist.read(frame)) == [("x", ["a"]), ("y", ["b"])]
    frame.columns = ["text", "labels", "mess", "text 2"]
    frame["text"] = ["x", np.nan]
    data = shortlist.read(frame, on_error="skip")
    assert rows_of(data) == [("x", ["a"])]
    numbered = pd.DataFrame([["x", ["a"]]])
    assert rows_of(shortlist.read(numbered, text="0", labels="1")) == [("x", ["a"])]
    with pytest.raises(DataError, match="the pandas table: cannot be read"):
        shortlist.read(pd.DataFrame({"text": ["x", "y"], "labels": [["a"], object()]}))


def test_a_series_is_not_a_table():
    with pytest.raises(DataError, match="cannot read from a Series; expected a table"):
        shortlist.read(pl.Series("text", ["a"]))


@pytest.mark.parametrize("pack", [bytes, gzip.compress, zstandard.compress], ids=["plain", "gzip", "zstd"])
def test_parquet(put, pack, monkeypatch):
    content = pack(parquet_bytes(pa.table(COLUMNS)))
    path = put("a.parquet", content)
    assert rows_of(shortlist.read(path)) == ROWS
    assert shortlist.read(path, weights="w").labels.weights.tolist() == [0.5, 2, 1]
    monkeypatch.setattr(sys, "stdin", types.SimpleNamespace(buffer=io.BytesIO(content)))
    assert rows_of(shortlist.read("-", format="parquet")) == ROWS


@pytest.mark.slow
def test_parquet_of_many_batches(put):
    n = 40_000
    table = pa.table({"text": [f"text {i}" for i in range(n)], "labels": [[str(i % 7)] for i in range(n)]})
    table = table.set_column(0, "text", pa.array([None if i == 35_000 else f"text {i}" for i in range(n)]))
    data = shortlist.read(put("a.parquet", parquet_bytes(table)), on_error="skip")
    assert len(data) == n - 1
    assert data.texts[-1] == f"text {n - 1}"
    assert [(p.unit, p.line) for p in data.report.problems] == [("row", 35_001)]


def test_damaged_names_of_parquet_columns(put):
    whole = parquet_bytes(pa.table(COLUMNS))
    assert whole.count(b"text") > 1
    with pytest.raises(DataError, match="not a readable Parquet file"):
        shortlist.read(put("t.parquet", whole.replace(b"text", b"te\xfft")))


def test_invalid_parquet(put, tmp_path):
    whole = parquet_bytes(
        pa.table({"text": [f"text {i * 7919 % 1000}" for i in range(5000)], "labels": [["a"]] * 5000})
    )
    broken = bytearray(whole)
    broken[100:400] = bytes(300)
    for path in (
        put("cut.parquet", whole[:500]),
        put("text.parquet", b"hello"),
        put("empty.parquet", b""),
        put("hit.parquet", bytes(broken)),
        put("cut.parquet.gz", gzip.compress(whole)[:300]),
    ):
        with pytest.raises(DataError, match=path.name):
            shortlist.read(path)
    with pytest.raises(DataError, match="no such file"):
        shortlist.read(tmp_path / "missing.parquet")
    with pytest.raises(DataError, match=r"a\.parquet: there is no column 'text'; the columns are 'x'"):
        shortlist.read(put("a.parquet", parquet_bytes(pa.table({"x": [1]}))))


def test_without_pyarrow(put, monkeypatch):
    path = put("a.parquet", parquet_bytes(pa.table(COLUMNS)))
    frame = pl.DataFrame(COLUMNS)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    for source in (path, frame):
        with pytest.raises(MissingExtraError, match=r'pip install "shortlist\[parquet\]"'):
            shortlist.read(source)


INVALID = pa.Array.from_buffers(
    pa.string(), 2, [None, pa.py_buffer(np.array([0, 1, 3], "i4")), pa.py_buffer(b"ab\xff")]
)


@pytest.mark.parametrize("column", ["text", "labels"])
def test_invalid_utf8_in_parquet_makes_a_bad_row(put, column):
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), INVALID)
    good = {"text": pa.array(["a", "b"]), "labels": pa.array([["x"], ["y"]])}
    table = pa.table({**good, column: INVALID if column == "text" else lists})
    path = put("a.parquet", parquet_bytes(table))
    with pytest.raises(DataError, match=r"row 2: .*not valid text"):
        shortlist.read(path)
    assert len(shortlist.read(path, on_error="skip")) == 1


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.duration("ns"), [1, 2]),
        (pa.duration("s"), [2**62, 2]),
        (pa.timestamp("ns"), [1, 2]),
        (pa.timestamp("us", tz="Nowhere/Town"), [1, 2]),
        (pa.date32(), [2**30, 2]),
        (pa.date64(), [2**60, 2]),
        (pa.time64("ns"), [1, 2]),
        (pa.list_(pa.duration("ns")), [[1], [2]]),
        (pa.binary(), [b"\xff", b"b"]),
    ],
    ids=str,
)
@pytest.mark.parametrize("role", ["text", "labels", "kept", "time"])
def test_odd_parquet_columns_are_read_or_refused(put, kind, values, role):
    columns = {"text": pa.array(["a", "b"]), "labels": pa.array([["x"], ["y"]]), role: pa.array(values, kind)}
    options = {"kept": {"keep": ["kept"]}, "time": {"time": "time"}}.get(role, {})
    try:
        assert len(shortlist.read(put("a.parquet", parquet_bytes(pa.table(columns))), **options)) == 2
    except DataError as error:
        assert "a.parquet" in str(error)


def test_repeated_parquet_columns(put):
    table = pa.table([pa.array(["a"]), pa.array(["b"]), pa.array([["x"]])], names=["text", "text", "labels"])
    with pytest.raises(DataError, match="there are 2 columns 'text'"):
        shortlist.read(put("a.parquet", parquet_bytes(table)))
