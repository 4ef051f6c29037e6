"""Reading folders: parts, shards, and label names beside the data."""

from __future__ import annotations

import gzip
import json

import pyarrow as pa
import pytest
import zstandard
from pyarrow import parquet

import shortlist
from shortlist.data.read import parts_of
from shortlist.errors import DataError, OptionError


def rows_of(dataset):
    return [(text, dataset.labels_of(i)) for i, text in enumerate(dataset.texts)]


def line(text, *labels):
    return json.dumps({"text": text, "labels": labels}) + "\n"


def test_shards_are_read_in_the_order_of_their_names(put, tmp_path):
    put("d/part-2.jsonl.zst", zstandard.compress(line("c", "y", "z").encode()))
    put("d/part-1.jsonl.gz", gzip.compress((line("a", "x") + line("b", "y")).encode()))
    put("d/part-3.json", line("d", "x"))
    for name in ("_SUCCESS", "_meta.jsonl", ".part-1.jsonl.crc", ".hidden.jsonl", "README.md"):
        put(f"d/{name}", "not data")
    data = shortlist.read(tmp_path / "d")
    assert rows_of(data) == [("a", ["x"]), ("b", ["y"]), ("c", ["y", "z"]), ("d", ["x"])]
    assert data.label_names == ["x", "y", "z"]


@pytest.mark.parametrize("kind", ["csv", "tsv", "parquet"])
def test_shards_of_other_formats(put, tmp_path, kind):
    for i in range(3):
        if kind == "parquet":
            (tmp_path / "d").mkdir(exist_ok=True)
            parquet.write_table(pa.table({"text": [f"t{i}"], "labels": [["x"]]}), tmp_path / "d" / f"{i}.parquet")
        else:
            separator = "," if kind == "csv" else "\t"
            put(f"d/{i}.{kind}", f"text{separator}labels\nt{i}{separator}x\n")
    assert rows_of(shortlist.read(tmp_path / "d")) == [(f"t{i}", ["x"]) for i in range(3)]


def test_problems_name_the_shard(put, tmp_path):
    put("d/1.jsonl", line("a", "x"))
    put("d/2.jsonl", line("b", "x") + "oops\n")
    put("d/3.jsonl", "oops\n" + line("c", "x"))
    with pytest.raises(DataError, match=r"2\.jsonl, line 2: not valid JSON"):
        shortlist.read(tmp_path / "d")
    data = shortlist.read(tmp_path / "d", on_error="skip")
    assert list(data.texts) == ["a", "b", "c"]
    assert [(p.file.rpartition("/")[2], p.line) for p in data.report.problems] == [("2.jsonl", 2), ("3.jsonl", 1)]


def test_several_formats_need_an_explicit_format(put, tmp_path):
    put("d/1.jsonl", line("a", "x"))
    put("d/2.csv", "text,labels\nb,x\n")
    with pytest.raises(DataError, match=r"has files of several formats \(csv, jsonl\): choose one with format="):
        shortlist.read(tmp_path / "d")
    assert list(shortlist.read(tmp_path / "d", format="jsonl").texts) == ["a"]
    assert list(shortlist.read(tmp_path / "d", format="csv").texts) == ["b"]


def test_shards_without_suffixes(put, tmp_path):
    put("d/part-00000", line("a", "x"))
    put("d/part-00001.gz", gzip.compress(line("b", "x").encode()))
    put("d/_SUCCESS", "")
    with pytest.raises(DataError, match="found nothing to read"):
        shortlist.read(tmp_path / "d")
    assert list(shortlist.read(tmp_path / "d", format="jsonl").texts) == ["a", "b"]


def test_an_empty_folder(tmp_path):
    with pytest.raises(DataError, match=r"found nothing to read. Expected train and test files"):
        shortlist.read(tmp_path)
    assert parts_of(tmp_path) == []


def test_parts(put, tmp_path):
    put("d/train.jsonl", line("a", "x"))
    put("d/test.csv.gz", gzip.compress(b"text,labels\nb,y\n"))
    put("d/validation/1.jsonl", line("c", "z"))
    put("d/validation/2.jsonl", line("d", "z"))
    put("d/train.md", "notes")
    folder = tmp_path / "d"
    assert parts_of(folder) == ["train", "validation", "test"]
    assert list(shortlist.read(folder, "train").texts) == ["a"]
    assert list(shortlist.read(folder, part="test").texts) == ["b"]
    assert list(shortlist.read(str(folder), "validation").texts) == ["c", "d"]
    with pytest.raises(DataError, match="has the parts train, validation, test: choose one with part="):
        shortlist.read(folder)
    with pytest.raises(OptionError, match="part is 'dev'; choose one of train, validation, test"):
        shortlist.read(folder, "dev")


def test_a_single_part_is_the_default(put, tmp_path):
    put("d/train.jsonl", line("a", "x"))
    assert list(shortlist.read(tmp_path / "d").texts) == ["a"]
    with pytest.raises(DataError, match="has no test part; it has train"):
        shortlist.read(tmp_path / "d", "test")
    put("e/1.jsonl", line("a", "x"))
    with pytest.raises(DataError, match="has no test part; it has no parts"):
        shortlist.read(tmp_path / "e", "test")


def test_a_file_has_no_parts(put):
    with pytest.raises(OptionError, match="is a file; only folders have parts"):
        shortlist.read(put("a.jsonl", line("a", "x")), "train")


NAMES = {
    "label_names.json": '{"x": "the X", "y": "naïve"}',
    "label_names.json.gz": gzip.compress('{"x": "the X", "y": "naïve"}'.encode()),
    "label_names.tsv": "x\tthe X\ny\tnaïve\n",
    "label_names.csv": "x,the X\r\n\r\ny,naïve\r\n",
    "label_names.tsv.zst": zstandard.compress("\ufeffx\tthe X\ny\tnaïve".encode()),
}


@pytest.mark.parametrize("name", NAMES)
def test_label_names_beside_the_data(put, tmp_path, name):
    put(f"d/{name}", NAMES[name])
    path = put("d/train.jsonl", line("a", "x", "y", "z"))
    for source in (path, tmp_path / "d"):
        data = shortlist.read(source)
        assert data.display_names == {"x": "the X", "y": "naïve"}
        assert [data.display_name(label) for label in data.labels_of(0)] == ["the X", "naïve", "z"]
    put(f"e/{name}", NAMES[name])
    put("e/1.jsonl", line("a", "x"))
    data = shortlist.read(tmp_path / "e")  # the file of names is not a shard
    assert len(data) == 1
    assert data.display_names["x"] == "the X"


def test_explicit_label_names(put):
    path = put("d/a.jsonl", line("a", "x"))
    put("d/label_names.json", '{"x": "beside"}')
    given = put("names/mine.csv", 'x,"one, two"\nlabel\u2028odd,name\u0085odd\nq,"line\nbreak"\n')
    for source in (path, path.parent, [("a", ["x"])]):
        data = shortlist.read(source, label_names=given)
        assert data.display_names == {"x": "one, two", "label\u2028odd": "name\u0085odd", "q": "line\nbreak"}
    assert shortlist.read([("a", ["x"])]).display_names == {}


@pytest.mark.parametrize(
    ("name", "content", "what"),
    [
        ("n.json", '["a", "b"]', "expected one JSON object"),
        ("n.json", "x\ty", "expected one JSON object"),
        ("n.json", '{"a": 5}', "expected one JSON object"),
        ("n.json", '{"a": "b"', "expected one JSON object"),
        ("n.tsv", "a\tb\nc\n", "line 2: 1 columns; expected a label"),
        ("n.csv", "a,b\n\nc,d,e\n", "line 3: 3 columns; expected a label"),
        ("n.csv", 'a,b\nc,"d', "line 2: not valid CSV"),
        ("n.csv", b"a,\xff\n", "byte 3 is not valid UTF-8"),
    ],
)
def test_invalid_label_names(put, name, content, what):
    with pytest.raises(DataError, match=what) as caught:
        shortlist.read([("a", ["x"])], label_names=put(name, content))
    assert name in str(caught.value)


def test_missing_label_names(tmp_path):
    for path, what in ((tmp_path / "missing.json", "no such file"), (tmp_path, "is a folder")):
        with pytest.raises(DataError, match=what):
            shortlist.read([("a", ["x"])], label_names=path)


def test_label_names_beside_repository_files(put, tmp_path):
    put("d/label_names.json", '{"0": "nought"}')
    path = put("d/train.txt", "1 1 1\n0 0:1\n")
    assert shortlist.read(path).display_names == {"0": "nought"}
    assert shortlist.read(tmp_path / "d").display_names == {"0": "nought"}


def test_a_part_in_two_files_is_refused(tmp_path):
    for name in ("train.jsonl", "train.csv"):
        shortlist.read([("a", ["b"])]).write(tmp_path / name)
    with pytest.raises(DataError, match=r"train\.csv and train\.jsonl"):
        shortlist.read(tmp_path, "train")


def test_several_names_per_label(put):
    names = {"a": {"name": "Shoes", "alt_names": ["boots", " "], "description": "for feet"}, "b": "Hats"}
    path = put("names.json", json.dumps(names))
    for source in (path, names):
        data = shortlist.read([("x", ["a"]), ("y", ["b"])], label_names=source)
        assert data.display_names == {"a": "Shoes", "b": "Hats"}
        assert data.more_names == {"a": ["boots", "for feet"]}
    plain = shortlist.read([("x", ["a"]), ("y", ["b"])], label_names={"a": "Shoes", "b": "Hats"})
    assert plain.fingerprint() != data.fingerprint()
    for wrong in ({"a": {"alt_names": ["boots"]}}, {"a": {"name": "Shoes", "synonyms": []}}, {"a": ["Shoes"]}):
        with pytest.raises(DataError, match="a label with several names has"):
            shortlist.read([("x", ["a"])], label_names=wrong)


def test_label_names_as_a_dict():
    data = shortlist.read([("red shoes", ["1"])], label_names={"1": "Shoes"})
    assert data.display_name("1") == "Shoes"
    with pytest.raises(DataError, match="label_names has 1: 'Shoes'; labels and names must be strings"):
        shortlist.read([("red shoes", ["1"])], label_names={1: "Shoes"})
