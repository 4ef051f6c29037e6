"""Reading CSV and TSV: quotes, separators, headers, and advice in error messages."""

from __future__ import annotations

import gzip
import io
import sys
import types

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import shortlist
from shortlist.data import csv_files
from shortlist.errors import DataError, OptionError


def rows_of(dataset):
    return [(text, dataset.labels_of(i)) for i, text in enumerate(dataset.texts)]


def test_simple_file(put):
    path = put("a.csv", "text,labels\nred shoes,shoes;red\nhat,hats\n")
    assert rows_of(shortlist.read(path)) == [("red shoes", ["shoes", "red"]), ("hat", ["hats"])]
    path = put("a.tsv", "labels\ttext\nshoes ; red;\tred, shoes\n\t\n")
    data = shortlist.read(path)
    assert rows_of(data) == [("red, shoes", ["shoes", "red"]), ("", [])]
    assert (data.report.empty_texts, data.report.texts_without_labels) == (1, 1)


def test_quotes(put):
    content = 'text,labels\n"a, b","x;y"\n"line\nbreak","p\nq"\n"say ""hi""",z\n5" pipe,w\n'
    data = shortlist.read(put("a.csv", content))
    assert rows_of(data) == [
        ("a, b", ["x", "y"]),
        ("line\nbreak", ["p\nq"]),
        ('say "hi"', ["z"]),
        ('5" pipe', ["w"]),
    ]


def test_line_endings(put):
    content = b'text,labels\r\na,x\r\n\r\n"b\r\nc",y\r\n"d\re",z\r\nlast,x'
    data = shortlist.read(put("a.csv", content))
    assert rows_of(data) == [("a", ["x"]), ("b\r\nc", ["y"]), ("d\re", ["z"]), ("last", ["x"])]


def test_a_carriage_return_outside_quotes(put):
    path = put("a.csv", b"text,labels\na,x\nb\rc,y\nd,z\n")
    with pytest.raises(
        DataError, match=r"a\.csv, line 3: not valid CSV \(new-line character seen in unquoted field\);"
    ):
        shortlist.read(path)
    assert rows_of(shortlist.read(path, on_error="skip")) == [("a", ["x"]), ("d", ["z"])]


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_byte_order_mark(put, mark):
    assert rows_of(shortlist.read(put("a.csv", mark + b"text,labels\na,x\n"))) == [("a", ["x"])]
    assert rows_of(shortlist.read(put("b.csv", mark + b'"text","labels"\na,x\n'))) == [("a", ["x"])]


def test_other_columns_and_separators(put):
    path = put("a.csv", "id|Titel|Thema\n1|a;b|x+y\n")
    data = shortlist.read(path, text="Titel", labels="Thema", separator="|", label_separator="+")
    assert rows_of(data) == [("a;b", ["x", "y"])]
    assert rows_of(shortlist.read(path, text="Titel", labels=None, separator="|")) == [("a;b", [])]
    assert rows_of(
        shortlist.read(put("b.txt", "text;labels\na;x\n"), format="csv", separator=";", label_separator=",")
    ) == [("a", ["x"])]


@pytest.mark.parametrize("separator", [";", "\t", "|"])
def test_wrong_separator_error_suggests_the_right_one(put, separator):
    path = put("a.csv", f"text{separator}labels\na{separator}x\n")
    with pytest.raises(DataError, match=r"line 1: there is no column 'text'.*The separator seems to be") as caught:
        shortlist.read(path)
    assert f"separator={separator!r}" in str(caught.value)
    assert rows_of(shortlist.read(path, separator=separator)) == [("a", ["x"])]


def test_missing_column_error_lists_the_columns(put):
    path = put("a.csv", "title,tags\na,x\n")
    with pytest.raises(
        DataError, match=r"no column 'text'; the columns are 'title', 'tags'. Choose other .*--no-header"
    ):
        shortlist.read(path)
    with pytest.raises(DataError, match="no column 'w'"):
        shortlist.read(path, text="title", labels="tags", weights="w")


def test_wrong_number_of_columns(put):
    path = put("a.csv", "text,labels\na,x\nb, with comma,y\nc\nd,z\n")
    with pytest.raises(
        DataError, match=r"a\.csv, line 3: 3 columns; expected 2 as in the first line \(is a ',' missing its quotes"
    ):
        shortlist.read(path)
    data = shortlist.read(path, on_error="skip")
    assert rows_of(data) == [("a", ["x"]), ("d", ["z"])]
    assert [(p.line, p.what) for p in data.report.problems] == [(3, "3 columns"), (4, "1 columns")]


def test_line_numbers_count_lines_not_rows(put):
    path = put("a.csv", 'text,labels\n"a\nb\nc",x\n\nbad\n"d\ne",y\nbad again\n')
    data = shortlist.read(path, on_error="skip")
    assert rows_of(data) == [("a\nb\nc", ["x"]), ("d\ne", ["y"])]
    assert [problem.line for problem in data.report.problems] == [6, 9]


def test_no_header(put):
    path = put("a.csv", "a,x;y,7\nb,z,8\n")
    assert rows_of(shortlist.read(path, header=False)) == [("a", ["x", "y"]), ("b", ["z"])]
    data = shortlist.read(put("b.csv", "a,x;y,7;8\n"), header=False, weights="column 3")
    assert data.labels.weights.tolist() == [7, 8]
    with pytest.raises(DataError, match="no column 'w'; the columns are 'text', 'labels', 'column 3'"):
        shortlist.read(path, header=False, weights="w")
    with pytest.raises(DataError, match=r"line 1: 1 column; expected 2, for text and labels. .*separator="):
        shortlist.read(put("c.csv", "a\tx\n"), header=False)


def test_weights(put):
    path = put("a.csv", "text,labels,w\na,x;y,0.5; 2\nb,,\n")
    data = shortlist.read(path, weights="w")
    assert rows_of(data) == [("a", ["x", "y"]), ("b", [])]
    assert data.labels.weights.tolist() == [0.5, 2]
    for cell, what in (
        ("1;2", "there are 1 labels but 2 values in 'w'"),
        ("one", "the weights are 'one'"),
        ("nan", "a weight is nan"),
    ):
        with pytest.raises(DataError, match=f"line 2: {what}; expected"):
            shortlist.read(put("b.csv", f"text,labels,w\na,x,{cell}\n"), weights="w")


def test_times(put):
    path = put("a.csv", "text,labels,when\na,x,2020\nb,y,1999\n")
    assert shortlist.read(path, time="when").times.tolist() == ["2020", "1999"]


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ('text,labels\na,x\nb,"y\nc,z\nd,w\n', 3),  # unclosed: must not become one giant label
        ('text,labels\na,x\n"b" c,y\nd,z\n', 3),
    ],
)
def test_unmatched_quotes(put, content, line):
    path = put("a.csv", content)
    with pytest.raises(DataError, match=rf"a\.csv, line {line}: not valid CSV \(.*\); expected quotes"):
        shortlist.read(path)
    data = shortlist.read(path, on_error="skip")
    assert rows_of(data)[0] == ("a", ["x"])
    assert "y" not in data.label_names
    assert [problem.line for problem in data.report.problems] == [line]


def test_invalid_bytes_and_nul(put):
    path = put("a.csv", b"text,labels\na,x\nb\xff,y\nc,\xe9\nd\0,z\ne,x\n")
    with pytest.raises(DataError, match=r"line 3: 'text' contains bytes or characters that are not valid.*.*encoding="):
        shortlist.read(path)
    data = shortlist.read(path, on_error="skip")
    assert rows_of(data) == [("a", ["x"]), ("e", ["x"])]
    assert [problem.line for problem in data.report.problems] == [3, 4, 5]


def test_encodings(put):
    content = "text,labels\nKäse,Süß\n"
    for encoding in ("latin-1", "utf-16"):
        assert rows_of(shortlist.read(put("a.csv", content.encode(encoding)), encoding=encoding)) == [("Käse", ["Süß"])]
    with pytest.raises(DataError, match=r"a\.csv: looks like UTF-16. Set encoding='utf-16'"):
        shortlist.read(put("a.csv", content.encode("utf-16")))
    with pytest.raises(DataError, match=r"line 1: the column names are not valid text; expected .*--encoding"):
        shortlist.read(put("a.csv", content.encode("utf-16-le")))


def test_long_lines_and_fields(put):
    long = b"x" * (17 << 20)
    with pytest.raises(DataError, match=r"a\.csv, line 3: the line is longer than 16 MiB"):
        shortlist.read(put("a.csv", b"text,labels\na,x\n" + long + b",y\nb,z\n"), on_error="skip")
    medium = b"y" * (2 << 20)  # more than the default limit of the csv module
    assert shortlist.read(put("b.csv", b"text,labels\n" + medium + b",x\n")).texts.sizes.tolist() == [2 << 20]
    split = b'"' + (b"z" * (9 << 20) + b"\n") * 2 + b'"'  # short lines, but a long field
    data = shortlist.read(put("c.csv", b"text,labels\n" + split + b",x\nb,z\n"), on_error="skip")
    assert rows_of(data) == [("b", ["z"])]
    assert [problem.line for problem in data.report.problems] == [2, 3, 4]


def test_empty_file(put):
    assert len(shortlist.read(put("a.csv", ""))) == 0
    assert len(shortlist.read(put("b.csv", "\n\n"))) == 0
    assert len(shortlist.read(put("c.csv", "text,labels\n"))) == 0
    assert len(shortlist.read(put("d.csv", ""), header=False)) == 0


@pytest.mark.slow
def test_truncated_gzip(put):
    rng = np.random.default_rng(0)
    content = b"text,labels\n" + b"".join(b"%d %s,x\n" % (i, rng.bytes(30).hex().encode()) for i in range(20_000))
    packed = gzip.compress(content)
    path = put("a.csv.gz", packed[: len(packed) // 2])
    with pytest.raises(DataError, match="ends too early"):
        shortlist.read(path)
    data = shortlist.read(path, on_error="skip")
    assert 5000 < len(data) < 15_000
    assert [text.split()[0] for text in data.texts] == [str(i) for i in range(len(data))]


def test_standard_input(monkeypatch):
    monkeypatch.setattr(sys, "stdin", types.SimpleNamespace(buffer=io.BytesIO(b"text\tlabels\na\tx\nb\n")))
    with pytest.raises(DataError, match="standard input, line 3: 1 columns"):
        shortlist.read("-", format="tsv")


cells = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=10)
names = cells.map(lambda name: name.replace(";", "").strip()).filter(bool)


@given(st.lists(st.tuples(cells, st.lists(names, max_size=3, unique=True)), max_size=10), st.sampled_from([",", "\t"]))
def test_reads_what_the_csv_module_writes(tmp_path, rows, separator):
    import csv

    written = io.StringIO(newline="")
    writer = csv.writer(written, delimiter=separator)
    writer.writerow(["text", "labels"])
    for text, labels in rows:
        writer.writerow([text, ";".join(labels)])
    path = tmp_path / "a.csv"
    path.write_bytes(written.getvalue().encode())
    data = shortlist.read(path, separator=separator)
    assert rows_of(data) == rows


def test_quotes_can_be_part_of_the_text(tmp_path):
    path = tmp_path / "songs.tsv"
    path.write_text('text\tlabels\n"Weird Al" Yankovic\tparody\n')
    with pytest.raises(DataError, match="--no-quotes"):
        shortlist.read(path)
    assert list(shortlist.read(path, quotes=False).texts) == ['"Weird Al" Yankovic']


@pytest.mark.parametrize("n_rows", [3, 12_000])
@pytest.mark.parametrize("end", ["", '"quoted, at last",w\n'])
def test_an_unclosed_quote_loses_only_its_line(put, n_rows, end):
    rows = "".join(f"row {i},z\n" for i in range(n_rows))
    data = shortlist.read(put("a.csv", 'text,labels\na,x\nb,"y\n' + rows + end + "last,v\n"), on_error="skip")
    assert list(data.texts) == [
        "a",
        *(f"row {i}" for i in range(n_rows)),
        *(["quoted, at last"] if end else []),
        "last",
    ]
    assert [problem.line for problem in data.report.problems] == [3]


def test_line_numbers_after_unclosed_quotes(put):
    content = 'text,labels\n"a""\n"b""\n"c\nd",x\n"e\nbad\nf,y\n'
    data = shortlist.read(put("a.csv", content), on_error="skip")
    assert rows_of(data) == [("c\nd", ["x"]), ("f", ["y"])]
    assert [problem.line for problem in data.report.problems] == [2, 3, 6, 7]
    assert "unclosed quote" in data.report.problems[-2].what


def test_a_file_full_of_quotes_takes_linear_time(put, monkeypatch):
    read = []

    class Counting(csv_files._RecordLines):
        def __next__(self):
            line = super().__next__()
            read.append(len(line))
            return line

    monkeypatch.setattr(csv_files, "_RecordLines", Counting)
    monkeypatch.setattr(csv_files, "REREAD_SIZE", 0)
    for pattern in ('"a\n', 'b,"x\ngood,y\n', '"' + "a" * 50 + "\n"):
        content = "text,labels\n" + pattern * 3000
        read.clear()
        dataset = shortlist.read(put("a.csv", content), on_error="skip")
        assert sum(read) <= (csv_files.REREAD_FACTOR + 2) * len(content)
        assert dataset.report.n_problems + len(dataset) >= 3000  # no line is lost


def test_records_of_many_lines_beside_an_unclosed_quote(put):
    long = '"' + "line\n" * 500 + '",x\n'
    content = 'text,labels\n"unclosed,x\nshort,y\n' + long
    dataset = shortlist.read(put("a.csv", content), on_error="skip")
    assert dataset.texts[-1].count("line") == 500


def test_headers_with_many_or_repeated_columns(put):
    with pytest.raises(DataError, match=r"and 99,980 more") as caught:
        shortlist.read(put("a.csv", ",".join(f"c{i}" for i in range(100_000)) + "\n1\n"))
    assert len(str(caught.value)) < 1000
    with pytest.raises(DataError, match=r"line 1: there are 2 columns 'text'. Rename"):
        shortlist.read(put("b.csv", "text,labels,text\na,b,c\n"))
    assert len(shortlist.read(put("c.csv", "text,labels,other,other\na,b,c,d\n"))) == 1  # not read


@pytest.mark.parametrize("encoding", ["idna", "punycode", "undefined", "hex", "rot13"])
def test_encodings_that_are_not_for_files(put, encoding):
    with pytest.raises((DataError, OptionError), match=encoding):
        shortlist.read(put("a.csv", "text,labels\na,b\n"), encoding=encoding)


def test_utf_16_without_a_mark(put):
    with pytest.raises(DataError, match=r"is not utf-16 .*encoding="):
        shortlist.read(put("a.csv", "text,labels\na,b\n"), encoding="utf-16")
