"""Common mistakes in data: what is found, what is said, and what `convert --fix` does about it."""

from __future__ import annotations

import csv
import json
import logging

import pytest
from click.testing import CliRunner

import shortlist
from shortlist.cli import shortlist as command
from shortlist.data import Dataset, read
from shortlist.data.hygiene import findings, fix
from shortlist.data.label_names import read_names
from shortlist.data.predictions import read_predictions
from shortlist.errors import DataError, OptionError
from shortlist.labels.hierarchy import read_hierarchy


def rows_of(dataset):
    return [(dataset.texts[i], dataset.labels_of(i)) for i in range(len(dataset))]


def run(*arguments):
    result = CliRunner().invoke(command, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.output
    return result


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv", "a.tsv", "a.parquet", "list", "weighted.jsonl"])
def test_labels_are_trimmed_in_every_format(tmp_path, name):
    labels = [" red\t", "\u00a0blue hat "]
    if name == "list":
        source = [("x", labels)]
    else:
        source = tmp_path / name
        if name.endswith("jsonl"):
            given = dict.fromkeys(labels, 1.0) if name.startswith("weighted") else labels
            source.write_text(json.dumps({"text": "x", "labels": given}))
        elif name.endswith("parquet"):
            pyarrow = pytest.importorskip("pyarrow.parquet")
            import pyarrow as arrow

            pyarrow.write_table(arrow.table({"text": ["x"], "labels": [labels]}), source)
        else:
            with source.open("w", newline="") as file:
                separator = "," if name == "a.csv" else "\t"
                csv.writer(file, delimiter=separator).writerows([["text", "labels"], ["x", ";".join(labels)]])
    assert rows_of(read(source)) == [("x", ["red", "blue hat"])]


def test_names_of_labels_are_trimmed_too(tmp_path):
    (tmp_path / "label_names.csv").write_text(" a ,Apples\n")
    (tmp_path / "a.jsonl").write_text('{"text": "x", "labels": ["a "]}\n')
    assert read(tmp_path / "a.jsonl").display_names == {"a": "Apples"}


def test_label_separator_none_keeps_the_string(tmp_path):
    (tmp_path / "a.csv").write_text("text,labels\nx, a; b \ny,\n")
    assert rows_of(read(tmp_path / "a.csv", label_separator="none")) == [("x", ["a; b"]), ("y", [])]
    (tmp_path / "a.jsonl").write_text('{"text": "x", "labels": "a; b"}\n')
    assert rows_of(read(tmp_path / "a.jsonl", label_separator="none")) == [("x", ["a; b"])]


def test_good_data_has_no_findings():
    texts = ["red shoes", "blue hat", "a green coat", "model 5000"]
    assert findings(Dataset.from_lists(texts, [["a"], ["b", "c"], ["c"], ["Clothing, shoes"]])) == []


@pytest.mark.parametrize(
    "texts, labels, words",
    [
        (["x", "y", "z"], [["Red hat"], ["red  Hat"], ["b"]], ["1 label differs", "'Red hat' and 'red  Hat'", "--fix"]),
        (["x", "y", "z"], [["a|b"], ["b | c"], ["c"]], ["2 labels contain '|'", "'a|b'", "--label-separator"]),
        (["x", "y", "z", "w"], [["a,b"], ["b,a"], ["b"], ["a, b"]], ["3 labels contain ','"]),
        (["x", " ", ""], [["a"], ["b"], ["c"]], ["2 texts are empty", "--fix"]),
        (["B0017", "X-12", "9"], [["a"], ["b"], ["c"]], []),
        (["B0017", "X-12", "9812"], [["a"], ["b"], ["c"]], ["100 % of the texts look like ids", "'B0017'", "--text"]),
        (["x", "x", "y"], [["a"], ["b"], ["c"]], ["Every row has one label, and 1 row repeats", "--fix"]),
        (["x", "x", "y"], [["a"], ["b", "a"], ["c"]], []),  # repeated texts are in the table of `describe`
    ],
)
def test_findings_say_what_how_many_and_what_to_do(texts, labels, words):
    found = findings(Dataset.from_lists(texts, labels))
    assert len(found) == bool(words)
    for word in words:
        assert word in found[0]


def test_fix_repairs_and_lists():
    data = Dataset.from_lists(
        ["red hat", "", "red hat", "blue hat"],
        [["Hats|Red"], ["hats|Old"], ["hats | Cheap"], ["Hats|Blue"]],
        keep=(),
    )
    data.display_names = {"hats": "Headgear"}
    fixed = fix(data)
    assert rows_of(fixed.dataset) == [("red hat", ["Hats", "Red", "Cheap"]), ("blue hat", ["Hats", "Blue"])]
    assert fixed.dataset.display_name("Hats") == "Headgear"
    assert fixed.dataset.label_names == ["Hats", "Red", "Cheap", "Blue"]  # "Old" went with the empty text
    assert fixed.done == [
        "split 4 labels at '|'",
        "merged 'hats' into 'Hats'",
        "dropped 1 empty text",
        "merged 1 row into an earlier one with the same text",
    ]
    assert findings(fixed.dataset) == []
    assert fix(fixed.dataset).done == []


def test_fix_keeps_weights_and_the_most_frequent_spelling():
    data = read([{"text": "x", "labels": {"A": 2.0, "a": 3.0}}, {"text": "y", "labels": {"a": 1.0}}])
    fixed = fix(data).dataset
    assert rows_of(fixed) == [("x", ["a"]), ("y", ["a"])]
    assert fixed.labels.weights.tolist() == [2.0, 1.0]


def test_describe_and_train_warn(caplog):
    data = Dataset.from_lists(["red hat", "blue hat", "coat"], [["Hats"], ["hats"], ["coats"]])
    assert any("train: 1 label differs" in line for line in shortlist.describe(data).warnings)
    with caplog.at_level(logging.WARNING, "shortlist"):
        shortlist.train(data, recipe="centroid")
    assert "Check the data: 1 label differs" in caplog.text


def test_convert_keeps_fields_and_fixes(tmp_path):
    source = tmp_path / "a.csv"
    source.write_text('sku,text,labels,brand\n07,red hat,Hats,"A\rB"\n08,blue hat,hats,\n')
    for name in ("b.csv", "b.jsonl", "b.parquet"):
        result = run("data", "convert", source, tmp_path / name, "--fix", "--keep", "sku", "--keep", "brand")
        assert "merged 'hats' into 'Hats'" in result.output
        again = read(tmp_path / name, keep=["sku", "brand"])
        assert {name: values.tolist() for name, values in again.columns.items()} == {
            "sku": ["07", "08"],
            "brand": ["A\rB", ""],
        }
        assert again.label_names == ["Hats"]
    assert again.take([1]).columns["sku"].tolist() == ["08"]


def test_mixed_values_become_strings_in_parquet(tmp_path):
    rows = [{"text": "x", "labels": ["a"], "id": value} for value in (1, "b", None)]
    read(rows, keep=["id"]).write(tmp_path / "a.parquet")
    assert read(tmp_path / "a.parquet", keep=["id"]).columns["id"].tolist() == ["1", "b", None]


def test_fields_that_cannot_be_kept(tmp_path):
    with pytest.raises(OptionError, match=r"'labels'.*leave it out"):
        read([("x", ["a"])], keep=["labels"])
    with pytest.raises(OptionError, match=r"give a list of names, such as \['sku'\]"):
        read([("x", ["a"])], keep="sku")
    (tmp_path / "a.csv").write_text("text,labels,sku\nx,a,1\n")
    result = CliRunner().invoke(
        command, ["data", "convert", str(tmp_path / "a.csv"), str(tmp_path / "b"), "--to", "annif", "--keep", "sku"]
    )
    assert result.exit_code == 2 and "no place for further fields" in result.output


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model") / "model"
    data = Dataset.from_lists(["red hat", "blue hat", "warm coat"], [["h"], ["h"], ["c"]])
    data.display_names = {"h": "Hats", "c": "Coats; jackets"}
    shortlist.train(data, recipe="centroid").save(folder)
    return folder


def test_predictions_as_csv_with_names_and_kept_fields(model_folder, tmp_path):
    source = tmp_path / "in.csv"
    source.write_text('sku,text,brand\n07,red hat,"A, B"\n08,coat,\n')
    run("predict", model_folder, source, "--out", tmp_path / "out.csv", "--id", "sku", "--keep", "brand", "-k", 1)
    with (tmp_path / "out.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["id", "brand", "labels", "names", "scores", "error"]
    assert [(row["id"], row["brand"], row["labels"], row["names"]) for row in rows] == [
        ("07", "A, B", "h", "Hats"),
        ("08", "", "c", "Coats; jackets"),
    ]
    assert 0 < float(rows[0]["scores"]) <= 1
    run("predict", model_folder, source, "--out", tmp_path / "out.jsonl", "--keep", "sku", "--keep", "brand", "-k", 1)
    first = json.loads((tmp_path / "out.jsonl").read_text().splitlines()[0])
    assert {**first, "scores": 1} == {
        "sku": "07", "brand": "A, B", "text": "red hat", "labels": ["h"], "names": ["Hats"], "scores": 1,
    }  # fmt: skip
    run("predict", model_folder, source, "--out", tmp_path / "out.parquet", "--keep", "sku", "-k", 1)
    parquet = pytest.importorskip("pyarrow.parquet").read_table(tmp_path / "out.parquet").to_pylist()
    assert [(row["sku"], row["labels"], row["names"]) for row in parquet][1] == ("08", ["c"], ["Coats; jackets"])


def test_csv_needs_a_separator_that_no_label_contains(model_folder, tmp_path):
    arguments = ["predict", str(model_folder), "--in", str(tmp_path / "in.txt"), "--from", "lines"]
    (tmp_path / "in.txt").write_text("red hat\n")
    bad = CliRunner().invoke(command, [*arguments, "--out", str(tmp_path / "out.csv"), "--out-label-separator", "h"])
    assert bad.exit_code == 2 and "contains the separator" in bad.output
    assert not (tmp_path / "out.csv").exists()
    run(*arguments, "--out", tmp_path / "out.csv", "--out-label-separator", "|")
    assert (tmp_path / "out.csv").read_text().splitlines()[1].startswith("red hat,h,Hats,")


def test_names_for_other_labels_are_noticed():
    rows = [("red shoes", ["1"]), ("blue hat", ["2"])]
    (found,) = findings(shortlist.read(rows, label_names={"J45": "Asthma"}))
    assert "None of the labels has a name" in found and "'J45'" in found and "'1'" in found
    assert not findings(shortlist.read(rows, label_names={" 1 ": "Shoes"}))  # trimmed, as labels are


def test_label_names_of_a_wrong_type():
    with pytest.raises(shortlist.OptionError, match="give a dict"):
        shortlist.read([("red shoes", ["1"])], label_names=["Shoes"])


@pytest.mark.parametrize("read_it", [read, read_names, read_hierarchy, read_predictions])
def test_json_that_is_nested_too_deeply_is_one_clear_error(tmp_path, read_it):
    path = tmp_path / "deep.jsonl"
    path.write_text('{"text": ' + "[" * 200_000 + "\n")
    with pytest.raises(DataError, match="recursion"):
        read_it(path)
