"""Reading the Extreme Classification Repository's files, in all variants, valid and invalid."""

from __future__ import annotations

import gzip
import io
import json

import numpy as np
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

import shortlist
from shortlist.data.options import ReadOptions
from shortlist.data.predictions import read_predictions
from shortlist.data.records import ReadReport
from shortlist.data.sparse_text import read_sparse_text
from shortlist.errors import DataError
from shortlist.kernels.native import native
from shortlist.kernels.sparse_text import NOT_A_PAIR, parse_rows

SINGLE = "3 4 5\n0,4 0:1.5 3:-2e-1\n 1:1\n2 \n"


def rows_of(dataset):
    return [(text, dataset.labels_of(i)) for i, text in enumerate(dataset.texts)]


def labels_of(dataset):
    return [dataset.labels_of(i) for i in range(len(dataset))]


def problems_of(dataset):
    return [(problem.file.rpartition("/")[2], problem.line) for problem in dataset.report.problems]


def json_lines(*records):
    return gzip.compress("".join(json.dumps(record) + "\n" for record in records).encode())


def npz(matrix):
    file = io.BytesIO()
    sparse.save_npz(file, sparse.csr_array(matrix))
    return file.getvalue()


# The single file


@pytest.mark.parametrize("pack", [bytes, gzip.compress, zstandard.compress], ids=["plain", "gzip", "zstd"])
@pytest.mark.parametrize("name", ["train.txt", "eurlex_train.txt", "whatever.dat"])
def test_single_file(put, pack, name):
    data = shortlist.read(put(name, pack(SINGLE.encode())))
    assert labels_of(data) == [["0", "4"], [], ["2"]]
    assert data.label_names == ["0", "1", "2", "3", "4"]
    assert np.allclose(data.features.toarray(), [[1.5, 0, 0, -0.2], [0, 1, 0, 0], [0, 0, 0, 0]])
    assert data.features.dtype == np.float32
    assert list(data.texts) == ["", "", ""]
    assert (data.report.texts_without_labels, data.report.empty_texts) == (1, 0)


def test_single_files_in_a_folder(put, tmp_path):
    put("d/Bibtex_train.txt", SINGLE)
    put("d/Bibtex_test.txt", "1 4 5\n3 2:1\n")
    put("d/filter_labels_test.txt", "0 3\n")
    assert len(shortlist.read(tmp_path / "d", "train")) == 3
    test = shortlist.read(tmp_path / "d", part="test")
    assert labels_of(test) == [["3"]]
    assert test.filter_pairs.tolist() == [[0, 3]]
    with pytest.raises(DataError, match="has the parts train, test: choose one with part="):
        shortlist.read(tmp_path / "d")
    with pytest.raises(DataError, match="has no validation part; it has train, test"):
        shortlist.read(tmp_path / "d", "validation")


def test_rows_without_labels(put):
    data = shortlist.read(put("a.txt", "4 3 2\n 0:1 2:2\n0:1 2:2\n\n1 \n"))
    assert labels_of(data) == [[], [], [], ["1"]]
    assert data.features.toarray().tolist() == [[1, 0, 2], [1, 0, 2], [0, 0, 0], [0, 0, 0]]


def test_line_endings_tabs_and_a_missing_final_newline(put):
    data = shortlist.read(put("a.txt", b"2 3 2\r\n0,1\t0:1\t2:2\r\n1 1:+3.0E0"))
    assert labels_of(data) == [["0", "1"], ["1"]]
    assert data.features.toarray().tolist() == [[1, 0, 2], [0, 3, 0]]


def test_repeated_labels_and_columns(put):
    data = shortlist.read(put("a.txt", "1 3 4\n3,1,3 2:1 2:0.5\n"))
    assert labels_of(data) == [["3", "1"]]
    assert data.report.repeated_labels == 1
    assert data.features.toarray().tolist() == [[0, 0, 1.5]]


@pytest.mark.parametrize(
    ("row", "what"),
    [
        ("0 3", "no error"),
        ("0 x:1", "something other than column:value"),
        ("0 1:", "something other than column:value"),
        ("0 1:x", "something other than column:value"),
        ("0 1:1x", "something other than column:value"),
        ("0 1:1:1", "something other than column:value"),
        ("0 1:1,2", "something other than column:value"),
        ("0 -1:1", "something other than column:value"),
        ("0 1:nan", "something other than column:value"),
        ("0 1:1e999", "something other than column:value"),
        ("0 1:1e", "something other than column:value"),
        ("0 1: 1", "something other than column:value"),
        ("0 99999999999999999999:1", "a column number is out of range"),
        ("0 4:1", "a column number is out of range"),
        ("0 999999999999999999:1", "a column number is out of range"),
        ("5 1:1", "a label number is out of range"),
        ("0,x 1:1", "something other than label numbers"),
        ("0, 1:1", "something other than label numbers"),
        ("0,,1 1:1", "something other than label numbers"),
        ("-1 1:1", "something other than label numbers"),
        ("0;1 1:1", "something other than label numbers"),
    ],
)
def test_malformed_rows(put, row, what):
    path = put("a.txt", f"3 4 5\n1 0:1\n{row}\n2 3:1\n")
    if what == "no error":  # a column without a value is a 1
        assert shortlist.read(path).features.toarray()[1].tolist() == [0, 0, 0, 1]
        return
    with pytest.raises(DataError, match=rf"a\.txt, line 3: {what}; expected .+\. Fix the line"):
        shortlist.read(path)
    data = shortlist.read(path, on_error="skip")
    assert labels_of(data) == [["1"], ["2"]]
    assert data.features.toarray().tolist() == [[1, 0, 0, 0], [0, 0, 0, 1]]
    assert problems_of(data) == [("a.txt", 3)]
    assert data.report.texts_without_labels == 0


def test_header_must_match_the_rows(put):
    path = put("a.txt", "4 4 5\n0 1:1\n")
    with pytest.raises(
        DataError, match=r"a\.txt, line 1: the header says 4 rows, but the file has 1; expected a complete file"
    ):
        shortlist.read(path)
    assert len(shortlist.read(path, on_error="skip")) == 1
    assert len(shortlist.read(put("none.txt", "0 4 5\n"))) == 0
    with pytest.raises(DataError, match="line 1: the header says 99,999,999,999; expected numbers below"):
        shortlist.read(put("b.txt", "1 99999999999 5\n0 1:1\n"))
    with pytest.raises(DataError, match="not a Repository header"):
        shortlist.read(put("c.txt", "1 4\n0 1:1\n"))


# The pair


def put_pair(put, prefix="trn", features="2 3\n0:1 2:0.5\n1:2\n", labels="2 4\n3:1 0:1\n\n"):
    put(f"d/{prefix}_X_Xf.txt", features)
    return put(f"d/{prefix}_X_Y.txt", labels).parent


def test_pair(put):
    folder = put_pair(put)
    put("d/lbl_X_Xf.txt", "4 3\n0:1\n1:1\n2:1\n\n")
    put("d/lbl.raw.txt", "null\none\ntwo\nthree\n")
    data = shortlist.read(folder)
    assert labels_of(data) == [["3", "0"], []]
    assert data.labels.weights is None
    assert data.features.toarray().tolist() == [[1, 0, 0.5], [0, 2, 0]]
    assert data.label_features.shape == (4, 3)
    assert data.display_names == {"0": "null", "1": "one", "2": "two", "3": "three"}
    assert data.report.texts_without_labels == 1


def test_pair_with_weights_and_repeated_labels(put):
    data = shortlist.read(put_pair(put, labels="2 4\n3:0.5 0:1 3:0.5\n1:0 2:1\n"))
    assert labels_of(data) == [["3", "0"], ["2"]]
    assert data.labels.weights.tolist() == [0.5, 1, 1]
    assert data.report.repeated_labels == 1


def test_npz_pair(put):
    labels = np.array([[0, 1, 1], [0, 0, 0]])
    put("d/trn_X_Y.npz", npz(labels))
    folder = put("d/trn_X_Xf.npz", npz(np.eye(2, dtype=np.float32))).parent
    data = shortlist.read(folder, "train")
    assert labels_of(data) == [["1", "2"], []]
    assert data.features.toarray().tolist() == [[1, 0], [0, 1]]
    put("e/Y.trn.npz", npz(labels * 0.5))
    data = shortlist.read(put("e/X.trn.npz", npz(np.eye(2))).parent)
    assert data.labels.weights.tolist() == [0.5, 0.5]
    with pytest.raises(DataError, match=r"trn_X_Y\.npz: not a matrix saved by numpy \(\.npy\) or scipy"):
        shortlist.read(put("f/trn_X_Y.npz", b"not at all").parent)


def test_row_counts_must_match(put):
    with pytest.raises(DataError, match=r"trn_X_Y\.txt: has 1 rows, but .*trn_X_Xf\.txt has 2; line by line"):
        shortlist.read(put_pair(put, labels="1 4\n3:1\n"))
    with pytest.raises(DataError, match=r"has labels, but there are no texts or features beside it. .*trn_X_Xf.txt"):
        shortlist.read(put("e/trn_X_Y.txt", "1 4\n3:1\n").parent)
    folder = put_pair(put)
    put("d/lbl_X_Xf.txt", "3 3\n0:1\n1:1\n2:1\n")
    with pytest.raises(DataError, match=r"lbl_X_Xf\.txt: has 3 rows, but there are 4 labels"):
        shortlist.read(folder)
    (folder / "lbl_X_Xf.txt").unlink()
    put("d/lbl.raw.txt", "a\nb\n")
    with pytest.raises(DataError, match=r"lbl\.raw\.txt: has 2 rows, but there are 4 labels"):
        shortlist.read(folder)


def test_headers_of_a_pair(put):
    with pytest.raises(DataError, match=r"trn_X_Y\.txt, line 1: the header is '3:1'; expected the numbers of rows and"):
        shortlist.read(put_pair(put, labels="3:1\n"))
    with pytest.raises(DataError, match=r"trn_X_Xf\.txt, line 1: the header is ''"):
        shortlist.read(put_pair(put, features=""))
    with pytest.raises(DataError, match=r"trn_X_Xf\.txt, line 1: the header says 3 rows, but the file has 2"):
        shortlist.read(put_pair(put, features="3 3\n0:1\n1:1\n", labels="3 4\n\n\n\n"))


def test_skip_keeps_the_files_aligned(put):
    folder = put_pair(
        put,
        "tst",
        features="5 3\n0:1\n1:1\nbad\n2:1\n0:5\n",
        labels="5 4\n0:1\n9:1\n1:1\n2:1\n3:1\n",
    )
    put("d/filter_labels_test.txt", "0 1\n1 0\n2 0\n3 0\n4 2\n")
    with pytest.raises(DataError, match=r"tst_X_Y\.txt, line 3: a column number is out of range"):
        shortlist.read(folder)
    data = shortlist.read(folder, on_error="skip")
    assert labels_of(data) == [["0"], ["2"], ["3"]]
    assert data.features.toarray().tolist() == [[1, 0, 0], [0, 0, 1], [5, 0, 0]]
    assert problems_of(data) == [("tst_X_Y.txt", 3), ("tst_X_Xf.txt", 4)]
    # Pairs refer to rows of the files: they move with their texts, and those of dropped rows are dropped.
    assert data.filter_pairs.tolist() == [[0, 1], [1, 0], [2, 2]]


# Raw text


def test_raw_text_beside_a_label_matrix(put):
    put("d/trn.raw.txt", "red shoes\r\n\nblau ü\n")
    put("d/lbl.raw.txt", "shoes\nhats\n")
    put("d/trn_X_Xf.txt", "this is not looked at where there are texts")
    data = shortlist.read(put("d/trn_X_Y.txt", "3 2\n0:1\n1:1\n0:1 1:1\n").parent)
    assert rows_of(data) == [("red shoes", ["0"]), ("", ["1"]), ("blau ü", ["0", "1"])]
    assert data.display_names == {"0": "shoes", "1": "hats"}
    assert data.features is None
    assert data.report.empty_texts == 1


@pytest.mark.parametrize(
    "name", ["train_raw_texts.txt", "train_texts.txt.gz", "trn_X.txt", "X.trn.txt", "raw/trn_X.txt.zst"]
)
def test_file_names_of_raw_text(put, tmp_path, name):
    pack = {"gz": gzip.compress, "zst": zstandard.compress}.get(name.rpartition(".")[2], bytes)
    put(f"d/{name}", pack(b"one\ntwo\n"))
    put("d/train_labels.txt", "a b\nb c b\n")
    data = shortlist.read(tmp_path / "d")
    assert rows_of(data) == [("one", ["a", "b"]), ("two", ["b", "c"])]
    assert data.report.repeated_labels == 1


def test_raw_text_with_invalid_bytes(put):
    put("d/test_raw_texts.txt", b"one\nt\xffo\nthree\n")
    folder = put("d/test_labels.txt", "a\nb\nc\n").parent
    with pytest.raises(DataError, match=r"test_raw_texts\.txt, line 2: bytes that are not valid text"):
        shortlist.read(folder)
    data = shortlist.read(folder, on_error="skip")
    assert rows_of(data) == [("one", ["a"]), ("t\ufffdo", ["b"]), ("three", ["c"])]
    assert problems_of(data) == [("test_raw_texts.txt", 2)]


def test_raw_text_with_an_extra_line(put):
    put("d/train_raw_texts.txt", "one\ntwo\n\n")
    with pytest.raises(DataError, match=r"has 2 rows, but .*train_raw_texts\.txt has 3"):
        shortlist.read(put("d/train_labels.txt", "a\nb\n").parent)


# Raw JSON


def put_json(put, *records, labels=None, name="d/trn.json.gz"):
    if labels is not None:
        put("d/lbl.json.gz", json_lines(*labels))
    return put(name, json_lines(*records)).parent


LABELS = [{"uid": "B1", "title": "shoes"}, {"uid": "B2", "title": "hats"}, {"uid": "B3", "title": ""}]


def test_raw_json(put):
    folder = put_json(
        put,
        {"uid": "1", "title": "red shoes", "content": "long", "target_ind": [0, 2], "target_rel": [1.0, 1.0]},
        {"title": "", "target_ind": []},
        labels=LABELS,
    )
    data = shortlist.read(folder)
    assert rows_of(data) == [("red shoes", ["B1", "B3"]), ("", [])]
    assert data.label_names == ["B1", "B2", "B3"]
    assert data.display_names == {"B1": "shoes", "B2": "hats", "B3": ""}
    assert data.labels.weights is None
    assert (data.report.empty_texts, data.report.texts_without_labels) == (1, 1)


def test_raw_json_relevance_and_repeated_targets(put):
    data = shortlist.read(put_json(put, {"title": "x", "target_ind": [3, 1, 3], "target_rel": [0.5, 2, 9]}))
    assert labels_of(data) == [["3", "1"]]
    assert data.label_names == ["0", "1", "2", "3"]
    assert data.labels.weights.tolist() == [0.5, 2]
    assert data.report.repeated_labels == 1


def test_raw_json_labels_without_unique_names(put):
    labels = [{"uid": "same", "title": "a"}, {"uid": "same", "title": "b"}, {"title": "c"}]
    data = shortlist.read(put_json(put, {"title": "x", "target_ind": [1]}, labels=labels))
    assert data.label_names == ["0", "1", "2"]
    assert data.display_names == {"0": "a", "1": "b", "2": "c"}
    labels = [{"uid": 7, "title": "a"}, {"uid": None, "title": "b"}]
    assert shortlist.read(put_json(put, {"title": "x", "target_ind": [1]}, labels=labels)).label_names == ["7", "1"]


@pytest.mark.parametrize("name", ["trn.json", "train.json.gz"])
def test_raw_json_is_detected_by_its_fields(put, name):
    content = b'{"title": "x", "target_ind": [0]}\n'
    data = shortlist.read(put(f"d/{name}", gzip.compress(content) if name.endswith("gz") else content).parent)
    assert rows_of(data) == [("x", ["0"])]


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("oops", "not valid JSON"),
        ("[" * 100_000, "not valid JSON"),
        ('"a"', "no 'title' and 'target_ind'"),
        ('{"title": "x"}', "no 'title' and 'target_ind'"),
        ('{"title": null, "target_ind": []}', "'title' is null"),
        ('{"title": "a\\u0000", "target_ind": []}', "'title' contains a NUL"),
        ('{"title": "x", "target_ind": 5}', "'target_ind' is not a list"),
        ('{"title": "x", "target_ind": [-1]}', "'target_ind' is not a list"),
        ('{"title": "x", "target_ind": ["1"]}', "'target_ind' is not a list"),
        ('{"title": "x", "target_ind": [true]}', "'target_ind' is not a list"),
        ('{"title": "x", "target_ind": [3]}', "label number 3 is out of range; expected numbers below 3"),
        ('{"title": "x", "target_ind": [1], "target_rel": []}', "there are 1 labels but 0 values in 'target_rel'"),
        ('{"title": "x", "target_ind": [1], "target_rel": ["a"]}', "a weight is 'a'"),
        ('{"title": "x", "target_ind": [1], "target_rel": [null]}', "a weight is None"),
        ('{"title": "x", "target_ind": [1], "target_rel": 1}', "'target_rel' is a number"),
    ],
)
def test_malformed_raw_json(put, line, what):
    good = '{"title": "%s", "target_ind": [1]}\n'
    content = f"{good % 'a'}{line}\n{good % 'b'}".encode()
    put("d/lbl.json.gz", json_lines(*LABELS))
    folder = put("d/tst.json.gz", gzip.compress(content)).parent
    put("d/filter_labels_test.txt", "0 0\n1 0\n2 2\n")
    with pytest.raises(DataError, match=rf"tst\.json\.gz, line 2: {what}"):
        shortlist.read(folder)
    data = shortlist.read(folder, on_error="skip")
    assert rows_of(data) == [("a", ["B2"]), ("b", ["B2"])]
    assert problems_of(data) == [("tst.json.gz", 2)]
    assert data.report.empty_texts == 0
    assert data.filter_pairs.tolist() == [[0, 0], [1, 2]]


def test_a_typo_does_not_create_a_billion_labels(put):
    folder = put_json(put, {"title": "x", "target_ind": [10**9]}, {"title": "y", "target_ind": [10**30]})
    data = shortlist.read(folder, on_error="skip")
    assert (len(data), data.n_labels, data.report.n_problems) == (0, 0, 2)


def test_bad_labels_keep_their_numbers(put):
    lines = [json.dumps(LABELS[0]), "oops", '{"uid": "B9"}', "", json.dumps(LABELS[2])]
    put("d/lbl.json.gz", gzip.compress("\n".join(lines).encode()))
    folder = put_json(put, {"title": "x", "target_ind": [0, 1, 2, 3]})
    with pytest.raises(DataError, match=r"lbl\.json\.gz, line 2: not valid JSON"):
        shortlist.read(folder)
    data = shortlist.read(folder, on_error="skip")
    assert labels_of(data) == [["B1", "1", "2", "B3"]]
    assert problems_of(data) == [("lbl.json.gz", 2), ("lbl.json.gz", 3)]


# Filter pairs


@pytest.mark.parametrize("line", ["0", "0 1 2", "a b", "-1 0", "2 0", "0 4", "0 " + "9" * 5000, "0.0 1"])
def test_malformed_filter_pairs(put, line):
    folder = put_pair(put, "tst")
    put("d/filter_labels_test.txt", f"0 3\n{line}\n\n1 0\n")
    with pytest.raises(
        DataError,
        match=r"filter_labels_test\.txt, line 2: .*; expected a text number below 2 and a label number below 4",
    ):
        shortlist.read(folder)
    data = shortlist.read(folder, on_error="skip")
    assert data.filter_pairs.tolist() == [[0, 3], [1, 0]]
    assert problems_of(data) == [("filter_labels_test.txt", 2)]


def test_filter_pairs_apply_only_to_the_test_part(put):
    folder = put_pair(put)
    put("d/filter_labels_test.txt", "0 3\n")
    assert shortlist.read(folder, "train").filter_pairs is None
    put("e/test.txt", SINGLE)
    folder = put("e/filter_labels_test.txt", "").parent
    assert shortlist.read(folder).filter_pairs.shape == (0, 2)
    put("e/filter_labels_test.txt", "oops\n")
    assert shortlist.read(folder, on_error="skip").report.n_problems == 1


# The compiled reader against a plain one

columns = st.integers(0, 9)
values = st.floats(-1e6, 1e6, width=32) | st.integers(-5, 5)
spaces = st.sampled_from([" ", "  ", "\t"])
number_formats = st.sampled_from(["{}", "{:.3f}", "{:e}", "{:+.2E}", "{:g}", "{:.12f}"])


@st.composite
def sparse_rows(draw, with_labels):
    labels = draw(st.lists(columns, max_size=4)) if with_labels else []
    pairs = draw(st.lists(st.tuples(columns, values), max_size=5))
    row = ",".join(map(str, labels))
    for column, value in pairs:
        row += draw(spaces) + f"{column}:{draw(number_formats).format(value)}"
    if draw(st.integers(0, 4)) == 0:
        at = draw(st.integers(0, len(row)))
        row = (
            row[:at]
            + draw(st.sampled_from([":", ",", ".", "-", "e", "x", "9", " ", ""]))
            + row[at + draw(st.integers(0, 1)) :]
        )
    return row + draw(st.sampled_from(["", " ", "\r"]))


def plain_reading(row, with_labels, n_labels, n_columns):
    """(labels, pairs), or None for a bad row."""
    labels = []
    if with_labels and row and not row[0].isspace():
        head = row.split()[0]
        if ":" not in head or "," in head.partition(":")[0]:
            row = row[len(head) :]
            fields = head.split(",")
            if not all(field.isdigit() and int(field) < n_labels for field in fields):
                return None
            labels = [int(field) for field in fields]
    pairs = []
    for field in row.split():
        column, colon, value = field.partition(":")
        try:
            number = float(value) if colon else 1.0
        except ValueError:
            return None
        if not column.isdigit() or int(column) >= n_columns or "_" in value or not abs(number) < 3.4e38:
            return None
        pairs.append((int(column), number))
    return labels, pairs


@given(st.booleans(), st.data())
def test_sparse_rows_against_plain_python(tmp_path, with_labels, data):
    rows = data.draw(st.lists(sparse_rows(with_labels), max_size=6))
    n_labels = data.draw(st.sampled_from([5, 10]))
    n_columns = data.draw(st.sampled_from([7, 10]))
    header = f"{len(rows)} {n_columns}" + (f" {n_labels}" if with_labels else "")
    path = tmp_path / "a.txt"
    path.write_bytes("".join(line + "\n" for line in [header, *rows]).encode())
    report = ReadReport("skip")
    matrix, row_labels, _, bad_rows = read_sparse_text(path, report, ReadOptions(), with_labels)
    expected = [plain_reading(row, with_labels, n_labels, n_columns) for row in rows]
    bad = [i for i, row in enumerate(expected) if row is None]
    assert bad_rows.tolist() == bad
    assert [problem.line for problem in report.problems] == [i + 2 for i in bad]
    assert matrix.shape == (len(rows), n_columns)
    for i, row in enumerate(expected):
        labels, pairs = row or ([], [])
        span = slice(matrix.indptr[i], matrix.indptr[i + 1])
        assert matrix.indices[span].tolist() == [column for column, _ in pairs]
        assert np.allclose(matrix.data[span], [value for _, value in pairs], rtol=1e-6, atol=1e-30)
        if with_labels:
            assert row_labels.row(i).tolist() == labels


def test_the_parser_reads_nothing_behind_the_last_newline():
    with pytest.raises(ValueError, match="newline"):
        parse_rows(np.frombuffer(b"1:2\n3:4", np.uint8), 1, -1, 9)
    data = np.frombuffer(b"5 1:2\n6 3:4", np.uint8)
    ints, numbers = np.zeros((2, 5), np.int32), np.zeros(5, np.float32)
    counts = np.full((3, 2), -7)
    native.parse_rows(data, 9, 9, ints[0], numbers, ints[1], *counts)
    assert counts.tolist() == [[1, -7], [1, -7], [0, -7]]
    columns, values, pairs, labels, n_labels, errors = parse_rows(data[:6], 3, 9, 9)  # fewer lines than announced
    assert (columns.tolist(), values.tolist(), labels.tolist()) == ([1], [2], [5])
    assert pairs.tolist() == n_labels.tolist() == [1, 0, 0] and not errors.any()
    assert [len(array) for array in parse_rows(data[:0], 0, -1, 9)] == [0] * 6


@pytest.mark.parametrize("end", ["", ":", ":-", ":.", ":1e", ":1e+", ",", "1,", ":5 ", "\t", "\r"])
def test_rows_that_end_early(end):
    """Every way of stopping in the middle: the next row is read as if nothing had been before it."""
    data = np.frombuffer(f"7 1{end}\n8 2:3\n".encode(), np.uint8)
    columns, values, pairs, labels, _, errors = parse_rows(data, 2, 9, 20)
    assert (columns[-1], values[-1], pairs[1], labels[-1], errors[1]) == (2, 3, 1, 8, 0)
    assert errors[0] == (0 if end.strip() in ("", "1", ":5") else NOT_A_PAIR)


def test_numbers_have_float32_precision(put):
    rng = np.random.default_rng(0)
    numbers = np.concatenate([rng.normal(size=5000), rng.lognormal(0, 20, 5000)]).astype(np.float32)
    rows = "\n".join(f"{number:.9g}" for number in numbers).replace("\n", "\n0:")
    path = put("a.txt", f"{len(numbers)} 1\n0:{rows}\n")
    matrix = read_sparse_text(path, ReadReport(), ReadOptions())[0]
    assert np.allclose(matrix.data, numbers, rtol=1.2e-7, atol=0)


def test_rows_across_blocks(put):
    n = 150_000
    body = "".join(f"{i % 7} {i % 11}:{i}\n" if i != 123_456 else "bad\n" for i in range(n))
    data = shortlist.read(put("a.txt", f"{n} 11 7\n{body}"), on_error="skip")
    assert problems_of(data) == [("a.txt", 123_458)]
    rows = np.delete(np.arange(n), 123_456)
    assert np.array_equal(data.labels.values, rows % 7)
    assert np.array_equal(data.features.indices, rows % 11)
    assert np.array_equal(data.features.data, rows.astype(np.float32))


def test_too_many_labels(put):
    for name, content in (("a/train.txt", "1 2 2000000000\n0 0:1\n"), ("b/trn_X_Y.txt", "1 2000000000\n0:1\n")):
        folder = put(name, content).parent
        put("b/trn_X_Xf.txt", "1 2\n0:1\n")
        with pytest.raises(DataError, match=r"has 2,000,000,000 labels for 1 rows"):
            shortlist.read(folder)


def test_unknown_file_name_error_names_the_format_option(put):
    with pytest.raises(DataError, match=r"Set format=.* \(--from\)"):
        shortlist.read(put("a.dat", "hello\n"))


@pytest.mark.parametrize(
    "damage",
    [
        {"indices": np.full(4, 10**8, np.int32)},
        {"indices": np.full(4, -(10**8), np.int32)},
        {"indptr": np.array([0, 10**9, 4], np.int32)},
        {"indptr": np.array([0, -(10**9), 4], np.int32)},
        {"indptr": np.array([0, 2, 10**9], np.int32)},
        {"data": np.ones(4) * 1j},
        {"shape": np.array([4])},
        {"shape": np.array([2, -2])},
        {"format": b"bsr", "data": np.ones((4, 1, 1))},
        {"format": b"dia", "offsets": np.array([10**9])},
        {"format": b"coo", "row": np.full(4, 10**8), "col": np.zeros(4, int)},
    ],
    ids=str,
)
def test_a_damaged_npz_is_refused_before_it_is_used(tmp_path, damage):
    matrix = sparse.csr_array(np.ones((2, 2)))
    parts = {"data": matrix.data, "indices": matrix.indices, "indptr": matrix.indptr, "shape": matrix.shape}
    np.savez(tmp_path / "scores.npz", **{"format": b"csr", **parts, **damage})
    with pytest.raises(DataError, match=r"scores\.npz"):
        read_predictions(tmp_path / "scores.npz")


@pytest.mark.parametrize(
    ("name", "content"),
    [("a.txt", "1 5 42949672\n0 1:1\n"), ("d/trn.json", '{"title": "a", "target_ind": [42949672]}\n')],
)
def test_a_few_bytes_do_not_make_millions_of_labels(put, name, content):
    path = put(name, content)
    with pytest.raises(DataError, match=r"has 42,949,67\d labels for 1 rows"):
        shortlist.read(path.parent if name.startswith("d/") else path)
