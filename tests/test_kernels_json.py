"""The compiled JSON scanner against the full parser: same rows, same complaints, whatever the bytes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import shortlist
from shortlist.data import jsonl
from shortlist.kernels.json_rows import utf8_length

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=15)
labels = st.lists(texts | st.integers(-3, 10**20), max_size=4)
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts
extras = st.dictionaries(
    texts, scalars | st.lists(scalars, max_size=2) | st.dictionaries(texts, scalars, max_size=2), max_size=3
)
separators = st.sampled_from([(",", ":"), (", ", ": "), (" , ", " :\t"), ("\r,", ":\r")])


@st.composite
def lines(draw):
    """One line, mostly of the usual shape."""
    fields = {"text": draw(texts), "labels": draw(labels), **draw(extras)}
    if draw(st.integers(0, 9)) == 0:
        del fields[draw(st.sampled_from(["text", "labels"]))]
    names = draw(st.permutations(list(fields)))
    record = {name: fields[name] for name in names}
    line = json.dumps(record, ensure_ascii=draw(st.booleans()), separators=draw(separators)).encode()
    if draw(st.integers(0, 5)) == 0:  # the same character in another spelling
        line = line.replace(b"a", b"\\u0061").replace(b"/", b"\\/")
    if draw(st.integers(0, 2)) == 0:
        line = damaged(draw, line)
    return line


def damaged(draw, line):
    start = draw(st.integers(0, len(line)))
    end = min(start + draw(st.integers(0, 3)), len(line))
    telling = [
        b'"',
        b"\\",
        b"{",
        b"}",
        b"[",
        b"]",
        b",",
        b":",
        b"\\u",
        b"\\ud83d",
        b"\xff",
        b"\0",
        b" ",
        b"\r",
        b"0",
        b".",
        b"e",
        b"-",
    ]
    new = draw(st.just(b"") | st.sampled_from(telling) | st.binary(min_size=1, max_size=3))
    return line[:start] + new.replace(b"\n", b"") + line[end:]


def read_slowly(self, lines, number, name, builder):
    for offset, line in enumerate(lines.split(b"\n")):
        jsonl._read_line(line, number + offset, name, builder, self.options)


def everything_in(dataset):
    rows = [(text, dataset.labels_of(i)) for i, text in enumerate(dataset.texts)]
    report = dataset.report
    counts = (report.n_problems, report.empty_texts, report.texts_without_labels, report.repeated_labels)
    return rows, dataset.label_names, dataset.labels.weights, counts, report.problems


def read_both_ways(path: Path, content: bytes, **options):
    path.write_bytes(content)
    fast = shortlist.read(path, on_error="skip", **options)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jsonl._PlainLines, "read", read_slowly)
        slow = shortlist.read(path, on_error="skip", **options)
    assert everything_in(fast) == everything_in(slow)
    return fast


@given(st.lists(lines(), max_size=6), st.sampled_from([b"\n", b"\r\n", b"\n\n"]), st.booleans())
def test_fast_and_slow_way_agree(tmp_path, content, end, last):
    read_both_ways(tmp_path / "a.jsonl", end.join(content) + (end if last else b""))


@given(lines(), st.data())
def test_fast_and_slow_way_agree_on_any_cut(tmp_path, line, data):
    cut = data.draw(st.integers(0, len(line)))
    read_both_ways(tmp_path / "a.jsonl", line[:cut])


@given(
    st.lists(
        st.fixed_dictionaries({"text": texts, "labels": st.lists(texts.filter(str.strip), max_size=4)}), max_size=30
    )
)
def test_what_was_written_is_read(tmp_path, records):
    records = [r for r in records if "\0" not in r["text"] and not any("\0" in name for name in r["labels"])]
    content = "".join(json.dumps(record) + "\n" for record in records)
    dataset = read_both_ways(tmp_path / "a.jsonl", content.encode())
    assert list(dataset.texts) == [record["text"] for record in records]
    assert [dataset.labels_of(i) for i in range(len(dataset))] == [list(dict.fromkeys(r["labels"])) for r in records]


@given(st.binary(max_size=60))
@example(b'{"text":"\\ud83d\\ude00","labels":["\\uD83D\\uDE00"]}')
@example(b'{"text":"","labels":[]}{')
@example(b'{"text":"a","labels":[],"text":"b"}')
@example(b'{"text":"a","labels":[],"labels":["b"]}')
@example(b'{"text":"a","labels":["b"],"x":tru}')
@example(b'{"text":"a","labels":["b"],"x":nullx}')
@example(b'{"text":"a","labels":["b"],"x":-}')
@example(b'{"text":"a","labels":["b"],"x":1.}')
@example(b'{"text":"a","labels":["b"],"x":1e}')
@example(b'{"text":"a","labels":["b"],"x":00}')
@example(b'{"text":"a","labels":["b",]}')
@example(b'{"text":"a","labels":[,"b"]}')
@example(b'{"text":"a","labels":[12 , 7]}')
@example(b'{"text":"a","labels":[12.0]}')
@example(b'{"text":"a","labels":[1e2]}')
@example(b'{"text":"a","labels":[00]}')
@example(b'{"text":"a","labels":[-0]}')
@example(b'{"text":"a","labels":[]}\x0c')
@example(b'{"t\\u0065xt":"a","labels":[]}')
@example(b'{"text":"a","labels":[],}')
@example(b'{"text":"a","labels":[]')
@example(b'{"text":"a","labels":[' + b"1," * 500 + b"1]}")
def test_any_bytes(tmp_path, line):
    read_both_ways(tmp_path / "a.jsonl", line)


@given(
    st.lists(
        st.sampled_from([b'{"t":"","l":[]}', b'{"t":"a","l":["b"]}', b"bad", b"", b'{"l":[1],"t":"c","x":{}}']),
        max_size=80,
    )
)
def test_odd_lines_among_others(tmp_path, content):
    dataset = read_both_ways(tmp_path / "a.jsonl", b"\n".join(content), text="t", labels="l")
    assert [problem.line for problem in dataset.report.problems] == [
        i for i, line in enumerate(content, 1) if line == b"bad"
    ]


@pytest.mark.slow
def test_short_rows_and_labels_never_outgrow_their_arrays(tmp_path):
    row = b'{"t":"","l":[]}\n'
    dataset = read_both_ways(tmp_path / "a.jsonl", row * 200_000, text="t", labels="l")
    assert len(dataset) == 200_000
    many = b'{"t":"","l":[' + b",".join([b"1"] * 1_500_000) + b"]}\n"
    dataset = shortlist.read(_put(tmp_path, many), text="t", labels="l")
    assert dataset.report.repeated_labels == 1_499_999


def _put(folder, content):
    (folder / "b.jsonl").write_bytes(content)
    return folder / "b.jsonl"


def test_every_start_of_a_utf8_character():
    """All two-byte beginnings, completed or not, against Python's own decoder."""
    for first in range(128, 256):
        for second in range(0, 256, 1):
            for rest in (b"", b"\x80", b"\x80\x80", b"\xbf\xbf", b"\x7f\x80"):
                data = bytes([first, second]) + rest
                size = utf8_length(np.frombuffer(data + b"\n", np.uint8), 0, len(data))
                valid = [n for n in (2, 3, 4) if n <= len(data) and _is_one_character(data[:n])]
                assert size == (valid[0] if valid else 0), data


def _is_one_character(data):
    try:
        return len(data.decode()) == 1
    except UnicodeDecodeError:
        return False
