"""`shortlist predict` on files of features: the Repository's format, .npy and .npz; and what does not fit."""

from __future__ import annotations

import gzip
import json

import numpy as np
import pytest
from click.testing import CliRunner
from scipy import sparse

import shortlist as library
from shortlist.batch import predict as batch
from shortlist.cli import shortlist
from shortlist.data.feature_rows import FeatureRow, stack_rows
from shortlist.errors import OptionError

LABELS = [["shoes", "red"], ["hat", "blue"], ["hat", "red"]]
FEATURES = sparse.csr_array(np.asarray([[0.5, 0, 2, 0], [0, 1, 0, 1.5], [1, 1, 0, 0]]))
TEXT = "3 4\n0:0.5 2:2\n1:1 3:1.5\n0:1 1:1\n"


def data(features=FEATURES):
    return library.Dataset.from_lists(["a", "b", "c"], LABELS).with_features(features)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Models of sparse and dense features, and of texts."""
    folder = tmp_path_factory.mktemp("models")
    trained = {"sparse": data(), "dense": data(FEATURES.toarray()), "texts": [("red shoes", ["shoes"])]}
    for name, source in trained.items():
        library.train(source, "centroid").save(folder / name)
    return folder


@pytest.fixture
def run(models):
    def call(*arguments, model="sparse", stdin=None, code=0):
        done = CliRunner().invoke(shortlist, ["predict", str(models / model), *map(str, arguments)], input=stdin)
        assert done.exit_code == code, done.output + repr(done.exception)
        assert "Traceback" not in done.output
        return done

    return call


def lines(text):
    return [json.loads(line) for line in text.splitlines()]


@pytest.fixture
def expected(models):
    """What `predict` says in Python, as rows of the output."""
    rows = library.load(models / "sparse").predict(FEATURES, k=2)
    return [{"labels": [p.label for p in row], "scores": [round(p.score, 6) for p in row]} for row in rows]


@pytest.mark.parametrize("model", ["sparse", "dense"])
class TestFormats:
    def test_features_with_any_name(self, run, put, expected, model):
        done = run(put("tst_X_Xf.txt", TEXT), "-k", 2, model=model)
        assert lines(done.stdout) == expected
        assert "3 rows in" in done.stderr

    def test_labels_before_the_features_are_skipped(self, run, put, expected, model):
        single = put("test.txt", "3 4 9\n1,2 0:0.5 2:2\n 1:1 3:1.5\n8 0:1 1:1\n")
        assert lines(run(single, "-k", 2, model=model).stdout) == expected

    def test_compressed_and_from_standard_input(self, run, put, expected, model):
        zipped = put("tst.txt.gz", gzip.compress(TEXT.encode()))
        assert lines(run(zipped, "-k", 2, model=model).stdout) == expected
        assert lines(run("--from", "sparse", "-k", 2, stdin=TEXT, model=model).stdout) == expected

    def test_saved_matrices(self, run, tmp_path, expected, model):
        sparse.save_npz(tmp_path / "x.npz", FEATURES)
        np.save(tmp_path / "x.npy", FEATURES.toarray())
        for name in ("x.npz", "x.npy"):
            assert lines(run(tmp_path / name, "-k", 2, model=model).stdout) == expected

    def test_what_the_library_writes(self, run, tmp_path, expected, model):
        for form, name in (("repository-pair", "tst_X_Xf.txt"), ("repository-single", "test.txt")):
            data().write(tmp_path / form, format=form, part="test")
            assert lines(run(tmp_path / form / name, "-k", 2, model=model).stdout) == expected


def test_an_output_file_in_chunks_and_resumed(run, put, tmp_path, expected, monkeypatch):
    monkeypatch.setattr(batch, "CHUNK_ROWS", 2)
    path, out = put("tst.txt", TEXT), tmp_path / "out.jsonl"
    predict_chunk, seen = batch.predict_chunk, []

    def stop_at_the_second(*arguments, **options):
        seen.append(1)
        if len(seen) == 2:
            raise KeyboardInterrupt
        return predict_chunk(*arguments, **options)

    monkeypatch.setattr(batch, "predict_chunk", stop_at_the_second)
    assert "2 rows are done" in run(path, "--out", out, "-k", 2, code=130).stderr
    assert "3 rows (2 of them before)" in run(path, "--out", out, "-k", 2, "--resume").stderr
    assert lines(out.read_text()) == expected


class TestBadRows:
    def test_keep_their_places(self, run, put, expected):
        path = put("tst.txt", "3 4\n0:0.5 2:2\n1:1 4:1.5\n0:1 1:1\n")
        done = run(path, "-k", 2)
        first, bad, last = lines(done.stdout)
        assert [first, last] == [expected[0], expected[2]]
        assert bad["labels"] == [] and "line 3: a column number is out of range" in bad["error"]
        assert "tst.txt, line 3: a column number is out of range; expected columns below" in done.stderr

    def test_all_of_them(self, run, put):
        done = run(put("tst.txt", "1 4\nnonsense\n"), code=1)
        assert "something other than column:value" in lines(done.stdout)[0]["error"]

    def test_nan(self, run, put, tmp_path):
        np.save(tmp_path / "x.npy", np.asarray([[1, 0, 0, 0], [np.nan, 0, 0, 0]]))
        good, bad = lines(run(tmp_path / "x.npy").stdout)
        assert good["labels"] and "row 2: NaN or infinity among the features" in bad["error"]
        assert "something other" in lines(run(put("t.txt", "2 4\n0:nan\n0:1\n")).stdout)[0]["error"]


class TestRefused:
    def refused(self, run, message, *arguments, **options):
        assert message in run(*arguments, code=2, **options).stderr

    def test_other_columns_than_in_training(self, run, put, tmp_path):
        self.refused(run, "takes 4 features; the matrix has 5 columns", put("t.txt", "1 5\n0:1\n"))
        np.save(tmp_path / "x.npy", np.zeros((2, 3)))
        self.refused(run, "takes 4 features; the matrix has 3 columns", tmp_path / "x.npy", model="dense")

    def test_features_for_a_model_of_texts_and_the_reverse(self, run, put):
        self.refused(run, "trained on texts; it got a matrix of features", put("t.txt", TEXT), model="texts")
        self.refused(run, "trained on features; give it a matrix of 4 columns", "red shoes")
        self.refused(run, "trained on features; give it a matrix of 4 columns", put("t.jsonl", '{"text": "a"}\n'))

    def test_a_truncated_file(self, run, put):
        self.refused(run, "the header says 4 rows, but there are 3", put("t.txt", TEXT.replace("3 4", "4 4")))

    def test_files_that_are_no_matrix(self, run, put, tmp_path):
        self.refused(run, "not a matrix saved by numpy", put("x.npy", b"nonsense"))
        self.refused(run, "not a matrix saved by numpy", put("x.npz", b"nonsense"))
        np.save(tmp_path / "y.npy", np.zeros(3))
        self.refused(run, "has 1 axes of float64; expected a matrix", tmp_path / "y.npy")
        np.save(tmp_path / "z.npy", np.asarray([[{}]], object), allow_pickle=True)
        self.refused(run, "not a matrix saved by numpy", tmp_path / "z.npy")
        self.refused(run, "the header is 'red shoes'", "--from", "sparse", "--in", put("t.txt", "red shoes\n"))

    def test_options_for_texts(self, run, put):
        self.refused(run, "--id sku: features have no fields", put("t.txt", TEXT), "--id", "sku")
        self.refused(run, "has features and no texts", put("t.txt", TEXT), "--with-text")


def test_stacked_rows():
    rows = [FeatureRow([2, 0], [0.5, 1], 3), FeatureRow([], [], 3)]
    assert stack_rows(rows).toarray().tolist() == [[1, 0, 0.5], [0, 0, 0]]
    for column in (-1, 3):
        with pytest.raises(OptionError, match=f"column {column} is out of range; expected columns from 0 to below 3"):
            stack_rows([FeatureRow([column], [1], 3)])


def test_a_folder_with_dense_features(put, tmp_path):
    put("trn_X_Y.txt", "3 4\n0:1 1:1\n2:1\n3:1\n")
    np.save(tmp_path / "trn_X_Xf.npy", FEATURES.toarray())
    read = library.read(tmp_path, "train")
    assert read.input_kind == "dense" and read.labels_of(0) == ["0", "1"]
    assert library.train(read, "centroid").inputs == "dense features"
