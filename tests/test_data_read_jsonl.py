"""Reading JSON lines: every form that is valid, and the message for every form that is not."""

from __future__ import annotations

import gzip
import io
import json
import subprocess
import sys
import tracemalloc
import types

import numpy as np
import pytest
import zstandard

import shortlist
from shortlist.data import jsonl
from shortlist.errors import DataError, MissingExtraError, OptionError

GOOD = b'{"text": "good", "labels": ["g"]}\n'


def rows_of(dataset):
    return [(text, dataset.labels_of(i)) for i, text in enumerate(dataset.texts)]


def weights_of(dataset):
    return [part.tolist() for part in np.split(dataset.labels.weights, dataset.labels.indptr[1:-1])]


def lines(*records):
    return "".join(json.dumps(record) + "\n" for record in records)


def test_simple_file(put):
    path = put("a.jsonl", lines({"text": "red shoes", "labels": ["shoes", "red"]}, {"text": "hat", "labels": ["red"]}))
    data = shortlist.read(path)
    assert rows_of(data) == [("red shoes", ["shoes", "red"]), ("hat", ["red"])]
    assert data.label_names == ["shoes", "red"]
    assert data.labels.weights is None
    assert data.times is None
    assert data.report.lines() == []


@pytest.mark.parametrize("name", ["a.jsonl", "a.ndjson", "a.json", "A.JSONL"])
def test_file_names_of_json_lines(put, name):
    assert len(shortlist.read(put(name, GOOD))) == 1


def test_other_field_names(put):
    path = put("a.jsonl", lines({"titel": "x", "Schlagwörter": ["a"], "text": 5, "labels": None}))
    assert rows_of(shortlist.read(path, text="titel", labels="Schlagwörter")) == [("x", ["a"])]


def test_extra_fields_are_ignored(put):
    extras = {"n": 1, "f": -2.5e3, "t": True, "z": None, "s": "x\n", "d": {"text": "no", "labels": ["no"]}, "l": [[1]]}
    records = [{name: value, "text": name, "labels": ["y"], "after": value} for name, value in extras.items()]
    data = shortlist.read(put("a.jsonl", lines(*records)))
    assert rows_of(data) == [(name, ["y"]) for name in extras]
    assert data.label_names == ["y"]


def test_only_texts_or_only_labels(put):
    path = put("a.jsonl", lines({"text": "x", "labels": ["a"]}))
    assert rows_of(shortlist.read(path, labels=None)) == [("x", [])]
    assert rows_of(shortlist.read(path, text=None)) == [("", ["a"])]


def test_weights_as_an_object(put):
    path = put("a.jsonl", lines({"text": "x", "labels": {"a": 0.5, "b": 2}}, {"text": "y", "labels": ["a"]}))
    data = shortlist.read(path)
    assert rows_of(data) == [("x", ["a", "b"]), ("y", ["a"])]
    assert weights_of(data) == [[0.5, 2.0], [1.0]]


def test_weights_in_their_own_field(put):
    path = put(
        "a.jsonl",
        lines({"text": "x", "labels": ["a", "b", "a"], "w": [0.5, 2, 9]}, {"text": "y", "labels": [], "w": []}),
    )
    data = shortlist.read(path, weights="w")
    assert rows_of(data) == [("x", ["a", "b"]), ("y", [])]
    assert weights_of(data) == [[0.5, 2.0], []]
    assert data.report.repeated_labels == 1


def test_weights_of_many_rows(put):
    records = [{"text": "x", "labels": {"a": i} if i % 3 else ["a"]} for i in range(20_000)]
    data = shortlist.read(put("a.jsonl", lines(*records)))
    assert data.labels.weights.tolist() == [i if i % 3 else 1.0 for i in range(20_000)]


def test_label_separator(put):
    path = put(
        "a.jsonl",
        lines({"text": "x", "labels": " a | b||c "}, {"text": "y", "labels": ["d|e"]}, {"text": "z", "labels": ""}),
    )
    assert rows_of(shortlist.read(path, label_separator="|")) == [("x", ["a", "b", "c"]), ("y", ["d|e"]), ("z", [])]


def test_integer_labels(put):
    path = put("a.jsonl", lines({"text": "x", "labels": [12, "12", 0, -7, 10**25]}, {"text": "y", "labels": {"3": 1}}))
    data = shortlist.read(path)
    assert rows_of(data) == [("x", ["12", "0", "-7", "1" + "0" * 25]), ("y", ["3"])]
    assert data.report.repeated_labels == 1


def test_unusual_labels_are_unchanged(put):
    labels = ["a\tb", "line\nbreak", 'a "quote"', "back\\slash", "a;b,c", "日本", "😀", "a\u2028b", "\x7f"]
    for ascii_only in (True, False):
        path = put("a.jsonl", json.dumps({"text": "x", "labels": labels}, ensure_ascii=ascii_only) + "\n")
        assert rows_of(shortlist.read(path)) == [("x", labels)]


def test_repeated_labels_are_kept_once_and_counted(put):
    many = [f"l{i % 50}" for i in range(120)]
    path = put("a.jsonl", lines({"text": "x", "labels": ["a", "b", "a", "a"]}, {"text": "y", "labels": many}))
    data = shortlist.read(path)
    assert rows_of(data) == [("x", ["a", "b"]), ("y", many[:50])]
    assert data.report.repeated_labels == 2 + 70
    assert "72 labels repeated" in data.report.lines()[0]


def test_empty_texts_and_label_lists_are_kept_and_counted(put):
    path = put("a.jsonl", lines({"text": "", "labels": ["a"]}, {"text": "x", "labels": []}, {"text": "", "labels": {}}))
    data = shortlist.read(path)
    assert rows_of(data) == [("", ["a"]), ("x", []), ("", [])]
    assert data.report.empty_texts == 2
    assert data.report.texts_without_labels == 2
    assert data.report.lines() == ["2 empty texts", "2 texts without labels"]


def test_blank_lines_line_endings_and_a_missing_final_newline(put):
    path = put(
        "a.jsonl", b"\n  \t\n" + GOOD.replace(b"\n", b"\r\n") + b"\r\n" + GOOD + b'\n{"labels":[],"text":"last"}'
    )
    assert rows_of(shortlist.read(path)) == [("good", ["g"]), ("good", ["g"]), ("last", [])]


def test_empty_file(put):
    for content in (b"", b"\n", b"\n\n \n", b"\xef\xbb\xbf"):
        data = shortlist.read(put("a.jsonl", content))
        assert (len(data), data.n_labels) == (0, 0)
        assert data.labels.to_csr(0).shape == (0, 0)


def test_byte_order_mark(put):
    assert rows_of(shortlist.read(put("a.jsonl", b"\xef\xbb\xbf" + GOOD))) == [("good", ["g"])]


BAD_LINES = {
    "null label": (b'{"text": "x", "labels": [null]}', "a label is null", "strings or integers"),
    "bool label": (b'{"text": "x", "labels": [true]}', "a label is true or false", "strings or integers"),
    "float label": (b'{"text": "x", "labels": [1.5]}', r"a label is a number \(1.5\)", "strings or integers"),
    "whole float": (b'{"text": "x", "labels": [2.0]}', r"a label is a number \(2.0\)", "strings or integers"),
    "list label": (b'{"text": "x", "labels": [["a"]]}', "a label is a list", "strings or integers"),
    "empty label": (b'{"text": "x", "labels": ["a", ""]}', "a label is empty", "visible character"),
    "blank label": (b'{"text": "x", "labels": [" \\t\\n"]}', "a label is empty", "visible character"),
    "labels a text": (b'{"text": "x", "labels": "a;b"}', "'labels' is a string, 'a;b'", "label_separator"),
    "labels a number": (b'{"text": "x", "labels": 5}', r"'labels' is a number \(5\)", "list of labels"),
    "labels null": (b'{"text": "x", "labels": null}', "'labels' is null", "list of labels"),
    "weight null": (b'{"text": "x", "labels": {"a": null}}', "a weight is None", "finite numbers"),
    "weight bool": (b'{"text": "x", "labels": {"a": true}}', "a weight is True", "finite numbers"),
    "weight text": (b'{"text": "x", "labels": {"a": "1"}}', "a weight is '1'", "finite numbers"),
    "weight huge": (b'{"text": "x", "labels": {"a": 1e39}}', r"a weight is 1e\+39", "finite numbers"),
    "weight vast": (b'{"text": "x", "labels": {"a": 1' + b"0" * 400 + b"}}", "a weight is 10000|out of range", ""),
    "text null": (b'{"text": null, "labels": []}', "'text' is null", "a string"),
    "text number": (b'{"text": 5, "labels": []}', r"'text' is a number \(5\)", "a string"),
    "no text": (b'{"title": "x", "labels": []}', "no field 'text', only 'title', 'labels'", "'text', 'labels'"),
    "no labels": (b'{"text": "x"}', "no field 'labels', only 'text'", "'text', 'labels'"),
    "no fields": (b"{}", "no field 'text', only no fields", "'text', 'labels'"),
    "a list": (b'["x", ["a"]]', "not an object", "an object such as"),
    "a number": (b"17", "not an object", "an object such as"),
    "cut": (b'{"text": "x", "labels": ["a"', "not valid JSON", "one JSON object per line"),
    "two": (b'{"text": "x", "labels": []} {"text": "y", "labels": []}', "not valid JSON", "one JSON object per line"),
    "single quotes": (b"{'text': 'x', 'labels': []}", "not valid JSON", "one JSON object per line"),
    "raw tab": (b'{"text": "a\tb", "labels": []}', "not valid JSON", "one JSON object per line"),
    "NaN": (b'{"text": "x", "labels": [], "n": NaN}', "not valid JSON", "one JSON object per line"),
    "leading zero": (b'{"text": "x", "labels": [01]}', "not valid JSON", "one JSON object per line"),
    "deep": (b"[" * 100_000, "not valid JSON", "one JSON object per line"),
    "broken UTF-8": (b'{"text": "a\xffb", "labels": []}', "byte 12 of the line is not valid text", "encoding="),
    "broken label": (b'{"text": "a", "labels": ["\xc3"]}', "is not valid text", "encoding="),
    "overlong UTF-8": (b'{"text": "\xc0\xaf", "labels": []}', "is not valid text", "encoding="),
    "UTF-8 surrogate": (b'{"text": "\xed\xa0\x80", "labels": []}', "is not valid text", "encoding="),
    "raw NUL": (b'{"text": "a\x00b", "labels": []}', "NUL bytes", "encoding="),
    "escaped NUL": (b'{"text": "a\\u0000b", "labels": []}', "'text' contains a NUL", "encoding="),
    "NUL in label": (b'{"text": "a", "labels": ["\\u0000"]}', "a label contains a NUL", "encoding="),
    "lone surrogate": (b'{"text": "a\\ud83d", "labels": []}', "utf-16 surrogate", "one JSON object"),
    "lone low surrogate": (b'{"text": "a\\udc00b", "labels": []}', "utf-16 surrogate", "one JSON object"),
    "two high surrogates": (b'{"text": "\\ud83d\\ud83d", "labels": []}', "utf-16 surrogate", "one JSON object"),
    "bad escape": (b'{"text": "\\x41", "labels": []}', "not valid JSON", "one JSON object per line"),
    "short escape": (b'{"text": "\\u12"}', "not valid JSON", "one JSON object per line"),
}


@pytest.mark.parametrize(("line", "what", "expected"), BAD_LINES.values(), ids=BAD_LINES.keys())
def test_bad_lines(put, line, what, expected):
    path = put("a.jsonl", b"\n" + GOOD + line + b"\n" + GOOD)
    with pytest.raises(DataError, match=what) as caught:
        shortlist.read(path)
    message = str(caught.value)
    assert message.startswith(f"{path}, line 3: ")
    assert "expected" in message
    assert expected in message
    assert "on_error='skip'" in message
    data = shortlist.read(path, on_error="skip")
    assert rows_of(data) == [("good", ["g"])] * 2
    assert data.label_names == ["g"]
    assert data.report.n_problems == 1
    (problem,) = data.report.problems
    assert (problem.file, problem.line) == (str(path), 3)
    assert data.report.lines() == ["skipped 1 bad line:", f"  {problem}"]


@pytest.mark.parametrize(
    ("line", "what"),
    [
        (b'{"text": "x", "labels": ["a"]}', "no field 'w'"),
        (b'{"text": "x", "labels": ["a"], "w": [1, 2]}', "1 labels but 2 values in 'w'"),
        (b'{"text": "x", "labels": ["a"], "w": "1"}', "'w' is a string"),
        (b'{"text": "x", "labels": ["a"], "w": 1}', r"'w' is a number \(1\)"),
        (b'{"text": "x", "labels": ["a"], "w": [null]}', "a weight is None"),
    ],
)
def test_bad_weights(put, line, what):
    with pytest.raises(DataError, match=f"line 1: .*{what}"):
        shortlist.read(put("a.jsonl", line), weights="w")


def test_times(put):
    path = put(
        "a.jsonl", lines({"text": "x", "labels": [], "t": "2024-05-31"}, {"text": "y", "labels": [], "t": "2024-04-01"})
    )
    assert shortlist.read(path, time="t").times.tolist() == ["2024-05-31", "2024-04-01"]
    with pytest.raises(DataError, match="'t' is not a time"):
        shortlist.read(put("b.jsonl", lines({"text": "x", "labels": [], "t": None})), time="t")


def test_skip_counts_all_problems_and_lists_some(put):
    path = put("a.jsonl", (b"oops\n" + GOOD) * 3000)
    data = shortlist.read(path, on_error="skip")
    assert len(data) == 3000
    assert data.report.n_problems == 3000
    assert [problem.line for problem in data.report.problems] == list(range(1, 2000, 2))
    shown = data.report.lines(limit=3)
    assert shown[0] == "skipped 3,000 bad lines:"
    assert shown[-1] == "  … and 2,997 more"
    assert "line 1,999" in str(data.report.problems[-1])


def test_error_messages_stay_short(put):
    vast = {"x" * 100_000: 1} | {f"field {i}": i for i in range(10_000)}
    path = put("a.jsonl", lines(vast, {"text": "x", "labels": "y" * 100_000}))
    data = shortlist.read(path, on_error="skip")
    assert data.report.n_problems == 2
    assert all(len(str(problem)) < 2000 for problem in data.report.problems)


LONG = 100_000_000


def long_line_gzip(size=LONG):
    packed = io.BytesIO()
    with gzip.GzipFile(fileobj=packed, mode="wb", compresslevel=1) as file:
        file.write(GOOD + b'{"labels": [], "text": "')
        for _ in range(size // 1_000_000):
            file.write(b"a" * 1_000_000)
        file.write(b'"}\n' + GOOD + GOOD)
    return packed.getvalue()


@pytest.mark.parametrize("on_error", ["raise", pytest.param("skip", marks=pytest.mark.slow)])
def test_a_line_of_100_mb_is_refused_and_never_in_memory(put, on_error):
    path = put("a.jsonl.gz", long_line_gzip())
    shortlist.read(put("warm.jsonl", GOOD))
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match=r"a\.jsonl\.gz, line 2: the line is longer than 16 MiB; expected"):
            shortlist.read(path, on_error=on_error)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 60_000_000


@pytest.mark.slow
def test_a_line_of_15_mb_is_read(put):
    fits = json.dumps({"text": "y" * (15 << 20), "labels": ["a"]})
    data = shortlist.read(put("b.jsonl", GOOD + fits.encode() + b"\n" + GOOD))
    assert data.texts.sizes.tolist() == [4, 15 << 20, 4]


def test_rows_across_blocks_keep_their_numbers(put):
    count = 25_000  # several blocks of a megabyte
    content = b"".join(
        b"oops\n"
        if i % 997 == 5
        else b'{"text": "number %d of many, ' % i + b"x" * (i % 60) + b'", "labels": ["l%d"]}\n' % (i % 700)
        for i in range(count)
    )
    data = shortlist.read(put("a.jsonl", content), on_error="skip")
    good = [i for i in range(count) if i % 997 != 5]
    assert [problem.line for problem in data.report.problems] == [i + 1 for i in range(count) if i % 997 == 5]
    assert [text.split()[1] for text in data.texts] == [str(i) for i in good]
    assert [data.labels_of(row) for row in range(len(data))] == [[f"l{i % 700}"] for i in good]


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress], ids=["gzip", "zstd"])
def test_compressed(put, pack):
    assert rows_of(shortlist.read(put("a.jsonl", pack(GOOD * 3)))) == [("good", ["g"])] * 3
    assert len(shortlist.read(put("b.jsonl", pack(GOOD * 2) + pack(GOOD)))) == 3


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress], ids=["gzip", "zstd"])
def test_truncated_file(put, pack):
    rng = np.random.default_rng(0)
    content = b"".join(
        b'{"text": "%d %s", "labels": ["g"]}\n' % (i, rng.bytes(90).hex().encode()) for i in range(6_000)
    )
    packed = pack(content)
    path = put("a.jsonl", packed[: len(packed) * 3 // 4])
    with pytest.raises(
        DataError,
        match=r"a\.jsonl, line [\d,]+: the .* data ends too early; .*expected a complete file. Download",
    ):
        shortlist.read(path)
    data = shortlist.read(path, on_error="skip")
    assert 3_000 < len(data) < 5_000
    assert [text.split()[0] for text in data.texts] == [str(i) for i in range(len(data))]
    (problem,) = data.report.problems
    assert problem.line == len(data) + 1


def test_garbage_after_gzip(put):
    path = put("a.jsonl.gz", gzip.compress(GOOD * 3) + b"garbage")
    with pytest.raises(DataError, match="line 4: the gzip data is damaged"):
        shortlist.read(path)
    data = shortlist.read(path, on_error="skip")
    assert len(data) == 3
    assert data.report.n_problems == 1


def test_utf_16_without_the_encoding_option(put):
    path = put("a.jsonl", (GOOD * 2).decode().encode("utf-16"))
    for on_error in ("raise", "skip"):
        with pytest.raises(DataError, match=r"looks like UTF-16. Set encoding='utf-16' \(--encoding utf-16\)"):
            shortlist.read(path, on_error=on_error)
    with pytest.raises(DataError, match="looks like UTF-16"):
        shortlist.read(put("be.jsonl", b"\xfe\xff" + GOOD.decode().encode("utf-16-be")))
    folder = put("folder/train.jsonl", (GOOD * 2).decode().encode("utf-16")).parent
    put("folder/notes_train.txt", "3 4 5".encode("utf-16"))
    assert len(shortlist.read(folder, encoding="utf-16")) == 2
    with pytest.raises(DataError, match="line 1: the line contains NUL bytes"):
        shortlist.read(put("b.jsonl", GOOD.decode().encode("utf-16-le")))


@pytest.mark.parametrize(
    "encoding", ["utf-16", "utf-16-le", "utf-32", "latin-1", "cp1252", "utf-8-sig", "utf8", "ascii"]
)
def test_other_encodings(put, encoding):
    text = "plain" if encoding == "ascii" else "Käse und Brot"
    line = json.dumps({"text": text, "labels": ["é" if encoding != "ascii" else "e"]}, ensure_ascii=False) + "\n"
    data = shortlist.read(put("a.jsonl", (line * 40_000).encode(encoding)), encoding=encoding)
    assert len(data) == 40_000
    assert set(data.texts) == {text}


def test_invalid_bytes_in_other_encodings(put):
    good = GOOD.decode()
    lone = '{"text": "a\ud800b", "labels": []}\n'
    content = good.encode("utf-16-le") + lone.encode("utf-16-le", "surrogatepass") + good.encode("utf-16-le") + b"x"
    data = shortlist.read(put("a.jsonl", content), encoding="utf-16-le", on_error="skip")
    assert rows_of(data) == [("good", ["g"])] * 2
    assert [problem.line for problem in data.report.problems] == [2, 4]
    # 0x81 is undefined in this code page.
    data = shortlist.read(
        put("b.jsonl", GOOD + b'{"text": "a\x81b", "labels": []}\n'), encoding="cp1252", on_error="skip"
    )
    assert [problem.line for problem in data.report.problems] == [2]


def test_bad_options(put):
    path = put("a.jsonl", GOOD)
    for options in (
        {"encoding": "klingon"},
        {"on_error": "ignore"},
        {"label_separator": ""},
        {"separator": ";;"},
        {"labls": "x"},
        {"text": ""},
        {"weights": ""},
        {"format": "xml"},
        {"part": "train"},
    ):
        with pytest.raises(OptionError, match=r".{20}"):
            shortlist.read(path, **options)


def test_missing_and_invalid_sources(put, tmp_path):
    for source, what in (
        (tmp_path / "missing.jsonl", "missing.jsonl: no such file"),
        (tmp_path / "missing", "missing: no such file"),
        (tmp_path, "found nothing to read"),
        ("x" * 5000, "cannot be opened"),
        (put("notes.txt", "hello\n"), r"not a Repository header .*format="),
        (17, "cannot read from int"),
    ):
        with pytest.raises(DataError, match=what):
            shortlist.read(source)


def test_explicit_format(put):
    assert len(shortlist.read(put("data", GOOD), format="jsonl")) == 1
    assert len(shortlist.read(put("data.csv", GOOD), format="jsonl")) == 1


@pytest.mark.parametrize("pack", [bytes, gzip.compress, zstandard.compress], ids=["plain", "gzip", "zstd"])
def test_standard_input(monkeypatch, pack, tmp_path, put):
    put("label_names.json", '{"g": "not for standard input"}')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdin", types.SimpleNamespace(buffer=io.BytesIO(pack(GOOD + b"bad\n" + GOOD))))
    data = shortlist.read("-", on_error="skip")
    assert len(data) == 2
    assert str(data.report.problems[0]).startswith("standard input, line 2: not valid JSON")
    assert data.display_names == {}


@pytest.mark.slow  # starts a process
def test_standard_input_through_a_pipe():
    program = "import shortlist; d = shortlist.read('-'); print(len(d), list(d.texts)[-1])"
    run = subprocess.run(
        [sys.executable, "-c", program], input=gzip.compress(GOOD * 5), capture_output=True, check=True
    )
    assert run.stdout.split() == [b"5", b"good"]


def test_zstd_without_zstandard(put, monkeypatch):
    path = put("a.jsonl.zst", zstandard.compress(GOOD))
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(MissingExtraError, match=r'pip install "shortlist\[zstd\]"'):
        shortlist.read(path)


def test_python_lists():
    data = shortlist.read([("x", ["a", 3]), ["y", ("b",)], {"text": "z", "labels": {"a": 2}, "extra": 0}])
    assert rows_of(data) == [("x", ["a", "3"]), ("y", ["b"]), ("z", ["a"])]
    assert weights_of(data) == [[1, 1], [1], [2]]
    assert rows_of(shortlist.read(("x", ["a"]) for _ in range(2))) == [("x", ["a"])] * 2
    assert rows_of(shortlist.read([{"t": "x", "l": ["a"]}], text="t", labels="l")) == [("x", ["a"])]
    assert rows_of(shortlist.read([("x", "a,b")], label_separator=",")) == [("x", ["a", "b"])]
    assert shortlist.read(data) is data
    assert len(shortlist.read([])) == 0
    assert len(shortlist.read([("x", [])] * 20_000)) == 20_000


def test_python_lists_with_numpy_in_them():
    row = {"text": np.str_("x"), "labels": np.array([3, 5]), "w": np.array([0.5, 1], np.float32)}
    data = shortlist.read([row], weights="w")
    assert rows_of(data) == [("x", ["3", "5"])]
    assert weights_of(data) == [[0.5, 1]]
    assert weights_of(shortlist.read([("x", {"a": np.float32(0.25), "b": np.int64(2)})])) == [[0.25, 2]]


@pytest.mark.parametrize(
    ("row", "what"),
    [
        ("just a text", "an item of type str"),
        (("x", ["a"], 1), "an item of type tuple"),
        (("x", "a"), "'labels' is a string, 'a'"),
        (("x", b"ab"), "'labels' is of type bytes"),
        (("x", {"a", "b"}), "'labels' is of type set"),
        (("x", np.int64(5)), "'labels' is of type int64"),
        (("x", np.array(5)), "'labels' is of type ndarray"),
        (("x", [np.True_]), "a label is of type bool"),
        (("x", [np.float64(1)]), r"a label is a number \(1.0\)"),
        (("x", [b"a"]), "a label is of type bytes"),
        ((None, ["a"]), "'text' is null"),
        (("\ud800", ["a"]), "not valid text"),
        (("x", ["\ud800"]), "a label contains bytes"),
        (("x", {"a": float("nan")}), "a weight is nan"),
        (("x", {"a": 10**400}), "a weight is 1000"),
        ({"labels": ["a"]}, "no field 'text'"),
    ],
)
def test_bad_items_in_lists(row, what):
    with pytest.raises(DataError, match=rf"the list, item 2: .*{what}"):
        shortlist.read([("good", ["g"]), row])
    data = shortlist.read([("good", ["g"]), row, ("good", ["g"])], on_error="skip")
    assert len(data) == 2
    assert str(data.report.problems[0]).startswith("the list, item 2")


def test_common_lines_use_the_typed_decoder(put, monkeypatch):
    """Reading is fast only if the common forms are not checked field by field."""
    monkeypatch.setattr(jsonl, "decode_line", lambda *arguments: pytest.fail("used the slow path"))
    records = [
        {"text": "plain", "labels": ["a", "b"]},
        {"labels": [], "text": ""},
        {"text": 'escapes \\ / " \b\f\n\r\t é 😀 \u2028', "labels": ["😀"]},
        {
            "id": 17,
            "text": "x",
            "labels": [1, 20, 0],
            "f": -1.5e-3,
            "z": 0,
            "t": True,
            "g": False,
            "n": None,
            "s": "é\n",
        },
    ]
    for ascii_only in (True, False):
        for separators in ((",", ":"), (", ", ": "), (" ,\t", " : ")):
            content = "".join(
                json.dumps(record, ensure_ascii=ascii_only, separators=separators) + end
                for record, end in zip(records * 2, ["\n", "\r\n", " \n", "\n\n"] * 2, strict=True)
            )
            data = shortlist.read(put("a.jsonl", content))
            assert rows_of(data) == [(r["text"], [str(label) for label in r["labels"]]) for r in records * 2]


def test_advice_for_common_mistakes(put):
    for content, advice in (
        (b'{"title": "x"}\n', r"Choose other fields with text= and labels= \(--text, --labels\)"),
        (
            b'[\n{"text": "x", "labels": []}\n]',
            "line 1: the start of a JSON array; expected JSON lines",
        ),
        (
            b'[{"text": "x", "labels": []}]',
            "line 1: the start of a JSON array; expected JSON lines",
        ),
        (b'{"text": "\xe9", "labels": []}', r"for another encoding, set for example encoding='cp1252' or --encoding"),
    ):
        with pytest.raises(DataError, match=advice):
            shortlist.read(put("a.jsonl", content))


def test_part_and_format_apply_only_to_files():
    rows = [("a", ["x"])]
    for source in (rows, shortlist.read(rows)):
        for option in ({"part": "train"}, {"format": "csv"}):
            with pytest.raises(OptionError, match="applies only to files and folders"):
                shortlist.read(source, **option)
