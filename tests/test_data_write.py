"""Writing: every format reads back the same, and a failed write leaves nothing behind."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

import shortlist
from shortlist.errors import DataError, OptionError

ODD_TEXTS = [
    "red shoes",
    "tab\there",
    'quote " and , comma',
    "line\nbreak",
    "Straße — 日本語",
    "",
    "  spaces  ",
    "a\rb",
]
ODD_LABELS = [["a"], ["a", "label\twith tab"], ['"quoted"'], ["c,d"], ["日本"], ["a"], [], ["x\ry"]]


@pytest.fixture
def odd():
    return shortlist.read(list(zip(ODD_TEXTS, ODD_LABELS, strict=True)))


def rows_of(dataset):
    return [(dataset.texts[i], dataset.labels_of(i)) for i in range(len(dataset))]


@pytest.mark.parametrize("kind", ["jsonl", "csv", "tsv", "parquet"])
@pytest.mark.parametrize("packed", ["", ".gz", ".zst"])
def test_round_trip_of_files(odd, tmp_path, kind, packed):
    path = tmp_path / f"pairs.{kind}{packed}"
    odd.write(path)
    assert rows_of(shortlist.read(path)) == rows_of(odd)
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("kind", ["jsonl.gz", "csv", "parquet"])
def test_round_trip_of_weights_and_times(tmp_path, kind):
    rows = [{"text": "x", "labels": {"a": 0.25, "b": 3}, "time": "2024-01-01"}]
    dataset = shortlist.read([*rows, {"text": "y", "labels": ["c"], "time": "2024-01-02"}], time="time")
    dataset.write(tmp_path / f"pairs.{kind}")
    weights = None if kind == "jsonl.gz" else "weights"
    again = shortlist.read(tmp_path / f"pairs.{kind}", weights=weights, time="time")
    assert again.labels.weights.tolist() == [0.25, 3.0, 1.0]
    assert again.times.tolist() == ["2024-01-01", "2024-01-02"]


def test_same_data_gives_same_bytes(odd, tmp_path):
    for name in ("one", "two"):
        odd.write(tmp_path / f"{name}.jsonl.gz")
    assert (tmp_path / "one.jsonl.gz").read_bytes() == (tmp_path / "two.jsonl.gz").read_bytes()


def test_repository_json_and_text_variants(tmp_path):
    train = shortlist.read([("red shoes", ["s", "r"]), ("hat", ["h"])])
    train.display_names = {"s": "shoes", "r": "red things"}
    for form in ("repository-json", "repository-text"):
        train.write(tmp_path / form, format=form, part="train")
        again = shortlist.read(tmp_path / form)
        assert list(again.texts) == ["red shoes", "hat"]
        shown = [{again.display_name(name) for name in again.labels_of(row)} for row in range(2)]
        assert shown == [{"shoes", "red things"}, {"h"}]


def test_repository_feature_variants(tmp_path):
    dataset = shortlist.read([("x", ["a"]), ("y", ["b", "a"]), ("z", [])])
    features = sparse.csr_array(np.asarray([[0, 0.5], [1.25, 0], [0, 0]], np.float32))
    for form in ("repository-pair", "repository-single"):
        dataset.write(tmp_path / form, format=form, part="train", features=features)
        again = shortlist.read(tmp_path / form)
        assert np.array_equal(again.features.toarray(), features.toarray())
        assert again.labels.to_csr(2).toarray().tolist() == [[1, 0], [1, 1], [0, 0]]


def test_round_trip_of_filter_pairs(tmp_path):
    test = shortlist.read([("x", ["a"]), ("y", ["b"])])
    test.filter_pairs = np.asarray([[0, 1], [1, 0]])
    test.write(tmp_path, format="repository-json", part="test")
    assert shortlist.read(tmp_path, "test").filter_pairs.tolist() == [[0, 1], [1, 0]]


def test_labels_that_contain_the_separator_are_refused(odd, tmp_path):
    with pytest.raises(DataError, match="c,d"):
        odd.write(tmp_path / "pairs.csv", label_separator=",")
    assert list(tmp_path.iterdir()) == []


def test_unknown_formats_and_missing_features_are_refused(odd, tmp_path):
    with pytest.raises(OptionError, match="--to"):
        odd.write(tmp_path / "pairs.xyz")
    with pytest.raises(DataError, match="features"):
        odd.write(tmp_path / "out", format="repository-pair")
    (tmp_path / "a file").touch()
    with pytest.raises(DataError, match="cannot be written"):
        odd.write(tmp_path / "a file" / "pairs.jsonl")


def test_a_failed_write_keeps_the_old_file(odd, tmp_path, monkeypatch):
    path = tmp_path / "pairs.jsonl"
    odd.write(path)
    before = path.read_bytes()

    def explode(dataset):
        yield {"text": "half"}
        raise RuntimeError("disk full")

    monkeypatch.setattr("shortlist.data.write.records", explode)
    with pytest.raises(RuntimeError):
        odd.write(path)
    assert path.read_bytes() == before
    assert len(list(tmp_path.iterdir())) == 1
