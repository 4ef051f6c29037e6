"""Typed decoding of JSON lines against the checks field by field: same rows, same problems, whatever the bytes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

import shortlist
from shortlist.data import jsonl

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=15)
labels = st.lists(texts | st.integers(-3, 10**20), max_size=4)
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts
extras = st.dictionaries(
    texts, scalars | st.lists(scalars, max_size=2) | st.dictionaries(texts, scalars, max_size=2), max_size=3
)
separators = st.sampled_from([(",", ":"), (", ", ": "), (" , ", " :\t"), ("\r,", ":\r")])


@st.composite
def lines(draw):
    """One line, usually in the common form."""
    fields = {"text": draw(texts), "labels": draw(labels), **draw(extras)}
    if draw(st.integers(0, 9)) == 0:
        del fields[draw(st.sampled_from(["text", "labels"]))]
    names = draw(st.permutations(list(fields)))
    record = {name: fields[name] for name in names}
    line = json.dumps(record, ensure_ascii=draw(st.booleans()), separators=draw(separators)).encode()
    if draw(st.integers(0, 5)) == 0:  # the same characters, escaped
        line = line.replace(b"a", b"\\u0061").replace(b"/", b"\\/")
    if draw(st.integers(0, 2)) == 0:
        line = damaged(draw, line)
    return line


def damaged(draw, line):
    start = draw(st.integers(0, len(line)))
    end = min(start + draw(st.integers(0, 3)), len(line))
    special = [
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
    new = draw(st.just(b"") | st.sampled_from(special) | st.binary(min_size=1, max_size=3))
    return line[:start] + new.replace(b"\n", b"") + line[end:]


def everything_in(dataset):
    rows = [(text, dataset.labels_of(i)) for i, text in enumerate(dataset.texts)]
    report = dataset.report
    counts = (report.n_problems, report.empty_texts, report.texts_without_labels, report.repeated_labels)
    return rows, dataset.label_names, dataset.labels.weights, counts, report.problems


def read_both_ways(path: Path, content: bytes, **options):
    path.write_bytes(content)
    typed = shortlist.read(path, on_error="skip", **options)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jsonl, "_typed_decoder", lambda options: None)
        untyped = shortlist.read(path, on_error="skip", **options)
    # The typed decoder does not parse numbers in fields that are not read.
    assume(not any("out of range" in problem.what for problem in untyped.report.problems))
    assert everything_in(typed) == everything_in(untyped)
    return typed


@given(st.lists(lines(), max_size=6), st.sampled_from([b"\n", b"\r\n", b"\n\n"]), st.booleans())
def test_typed_and_untyped_agree(tmp_path, content, end, last):
    read_both_ways(tmp_path / "a.jsonl", end.join(content) + (end if last else b""))


@given(lines(), st.data())
def test_typed_and_untyped_agree_on_truncated_lines(tmp_path, line, data):
    cut = data.draw(st.integers(0, len(line)))
    read_both_ways(tmp_path / "a.jsonl", line[:cut])


@given(
    st.lists(
        st.fixed_dictionaries({"text": texts, "labels": st.lists(texts.filter(str.strip), max_size=4)}), max_size=30
    )
)
def test_reads_what_json_writes(tmp_path, records):
    records = [r for r in records if "\0" not in r["text"] and not any("\0" in name for name in r["labels"])]
    content = "".join(json.dumps(record) + "\n" for record in records)
    dataset = read_both_ways(tmp_path / "a.jsonl", content.encode())
    assert list(dataset.texts) == [record["text"] for record in records]
    assert [dataset.labels_of(i) for i in range(len(dataset))] == [
        list(dict.fromkeys(map(str.strip, r["labels"]))) for r in records
    ]


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
def test_typed_and_untyped_agree_on_any_bytes(tmp_path, line):
    read_both_ways(tmp_path / "a.jsonl", line)


@given(
    st.lists(
        st.sampled_from([b'{"t":"","l":[]}', b'{"t":"a","l":["b"]}', b"bad", b"", b'{"l":[1],"t":"c","x":{}}']),
        max_size=80,
    )
)
def test_uncommon_lines_among_others(tmp_path, content):
    dataset = read_both_ways(tmp_path / "a.jsonl", b"\n".join(content), text="t", labels="l")
    assert [problem.line for problem in dataset.report.problems] == [
        i for i, line in enumerate(content, 1) if line == b"bad"
    ]
