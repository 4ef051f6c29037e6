"""`shortlist predict` on files and pipes: formats, bad rows, kills and resumption, memory."""

from __future__ import annotations

import errno
import gzip
import json
import multiprocessing
import os
import re
import shlex
import signal
import subprocess
import sys

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from click.testing import CliRunner

import shortlist as library
from shortlist.batch import predict as batch
from shortlist.batch.output import ResumableOutput, check_output, job_identity
from shortlist.batch.predict import JsonLines, predict_rows
from shortlist.cli import shortlist
from shortlist.data.rows import RowOptions, RowSource
from shortlist.errors import DataError, OptionError
from shortlist.files import partial_folder
from shortlist.streams import read_blocks

PAIRS = [("red shoes", ["shoes", "red"]), ("blue hat", ["hat", "blue"]), ("red hat", ["hat", "red"])]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "model"
    library.train(PAIRS, "centroid").save(folder)
    return folder


@pytest.fixture
def run(model):
    """`run("in.jsonl", "--out", …)` runs the command with the model."""

    def call(*arguments, stdin=None, code=0):
        done = CliRunner().invoke(shortlist, ["predict", str(model), *map(str, arguments)], input=stdin)
        assert done.exit_code == code, done.output + repr(done.exception)
        assert "Traceback" not in done.output
        return done

    return call


@pytest.fixture
def small_chunks(monkeypatch):
    monkeypatch.setattr(batch, "CHUNK_ROWS", 7)


def rows_in(path):
    return [json.loads(line) for line in b"".join(read_blocks(path)).splitlines()]


def texts(n):
    return [f"{('red', 'blue')[i % 2]} {('hat', 'shoes', 'coat')[i % 3]} {i}" for i in range(n)]


def many(n, bad=()):
    """JSON lines with ids; the rows in `bad` are not valid."""
    return "".join(
        "nonsense\n" if i in bad else json.dumps({"sku": i, "text": text}) + "\n" for i, text in enumerate(texts(n))
    )


class FakeModel:
    """Predicts the length of a text. Needs no kernels, so that many processes can be forked and killed."""

    label_names = all_labels = tuple(f"{n} bytes" for n in range(1000))

    def rank(self, inputs, k=5, threads=None, min_score=None, search_effort=1.0, tail=0.0):
        ids = np.stack([inputs.sizes, np.full(len(inputs), -1)], axis=1)
        return ids, np.full(ids.shape, 0.5, np.float32)


# Arguments: texts or a file


def test_texts_as_arguments_and_as_lines_of_standard_input(run):
    readable = run("red shoes", "xyz", "-k", 1).stdout
    assert re.fullmatch(r"red shoes\n   0\.\d{3}  shoes\nxyz\n  \(no known words\)\n", readable)
    assert run("-k", 1, stdin="red shoes\r\nxyz\n").stdout == readable
    assert run("--from", "lines", "-k", 1, stdin="red shoes\n\n").stdout.count("\n") == 2
    assert json.loads(run("red shoes", "--json").stdout)["text"] == "red shoes"
    assert run("red", "--min-score", 0.99).stdout == "red\n  (not sure: no label scores 0.99 or more)\n"


def test_an_argument_with_the_extension_of_a_data_file_is_a_file(run, put):
    path = put("in.jsonl", many(3))
    assert [json.loads(line)["text"] for line in run(path).stdout.splitlines()] == texts(3)
    assert run("--in", path).stdout == run(path).stdout
    assert "no such file" in run("red.csv", code=2).stderr
    assert "give one file" in run(path, "red", code=2).stderr
    assert "give one file" in run("red", "how to read data.csv", code=2).stderr


def test_an_existing_file_is_never_taken_as_a_text(run, put, tmp_path, monkeypatch):
    put("red", "blue hat\n")
    (tmp_path / "hat").mkdir()
    monkeypatch.chdir(tmp_path)
    assert "--in red" in run("red", code=2).stderr
    assert "--in red" in run("blue", "red", code=2).stderr
    assert "--from" in run("--in", "red", code=2).stderr
    assert json.loads(run("--in", "red", "--from", "lines", "--json").stdout)["text"] == "blue hat"
    assert run("hat", "-k", 1).stdout.startswith("hat\n")  # a folder cannot be meant
    assert run("x" * 5000, "red\0hat", "-k", 1).stdout.count("\n") == 4
    assert "is a folder" in run("--in", "hat", "--from", "lines", code=2).stderr
    assert "not both" in run("blue", "--in", "red", code=2).stderr


def test_json_lines_without_from_are_an_error(run):
    assert "--from jsonl" in run(stdin='{"text": "red hat"}\n', code=2).stderr
    assert "--from jsonl" in run("--in", "-", "--json", stdin='{"text": "red hat"}\n', code=2).stderr
    assert "{" in run("--from", "lines", stdin='{"text": "red hat"}\n').stdout


def test_options_that_do_not_apply(run, put, tmp_path):
    assert "--from, --id and --keep" in run("red", "--id", "sku", code=2).stderr
    assert "no fields" in run("--id", "sku", stdin="red\n", code=2).stderr
    assert "--out" in run(put("in.jsonl", many(1)), "--resume", code=2).stderr
    assert "impossible" in run("--out", tmp_path / "o.jsonl", "--resume", stdin="red\n", code=2).stderr
    assert ".parquet" in run(put("in.jsonl", many(1)), "--out", tmp_path / "o.tsv", code=2).stderr
    assert run("red", "-k", 0, code=2)
    done = run(put("in.jsonl", many(1)), "--out", tmp_path / "o.jsonl", "--threads", 0, code=2)
    assert "threads" in done.stderr and [path.name for path in tmp_path.iterdir()] == ["in.jsonl"]
    assert "no such model" in CliRunner().invoke(shortlist, ["predict", "nowhere", "red"]).stderr


# Formats


@pytest.mark.parametrize("name", ["in.jsonl", "in.jsonl.gz", "in.jsonl.zst", "in.csv", "in.tsv.gz", "in.parquet"])
@pytest.mark.parametrize("out", ["out.jsonl", "out.jsonl.gz", "out.jsonl.zst", "out.parquet"])
@pytest.mark.usefixtures("small_chunks")
def test_every_format_to_every_format(run, put, tmp_path, name, out):
    library.read([(text, ["x"]) for text in texts(20)]).write(tmp_path / name)
    run(tmp_path / name, "--out", tmp_path / out, "-k", 2)
    if out.endswith("parquet"):
        table = pyarrow.parquet.read_table(tmp_path / out)
        assert table.column_names == ["text", "labels", "scores", "error"]
        found = table.to_pylist()
        assert {row.pop("error") for row in found} == {None}
    else:
        found = rows_in(tmp_path / out)
    expected = [json.loads(line) for line in run(*texts(20), "--json", "-k", 2).stdout.splitlines()]
    assert [(row["text"], row["labels"]) for row in found] == [(row["text"], row["labels"]) for row in expected]
    np.testing.assert_allclose([row["scores"] for row in found], [row["scores"] for row in expected], rtol=1e-6)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([name, out])  # no temporary files remain


def test_evaluate_reads_the_output(run, put, tmp_path):
    truth = put("truth.jsonl", "".join(json.dumps({"text": text, "labels": labels}) + "\n" for text, labels in PAIRS))
    for name in ("out.jsonl", "ids.jsonl", "out.parquet"):
        run(truth, "--out", tmp_path / name, *(["--id", "text"] if name == "ids.jsonl" else []))
        done = CliRunner().invoke(shortlist, ["evaluate", str(tmp_path / name), str(truth), "--json", "-k", "1,2"])
        assert json.loads(done.stdout)["values"]["P@2"] == 100, done.output


def test_reading_options(run, put):
    path = put("in.csv", "name;title\nn1;'red hat'\n".encode("utf-16"))
    done = run(path, "--text", "title", "--id", "name", "--separator", ";", "--encoding", "utf-16", "--with-text")
    assert json.loads(done.stdout) | {"scores": 0, "labels": 0} == {
        "id": "n1", "text": "'red hat'", "labels": 0, "scores": 0}  # fmt: skip
    done = run(put("bare.tsv", "red hat\tn2\n"), "--no-header", "--id", "column 2")
    assert json.loads(done.stdout)["id"] == "n2"
    done = run(put("wrong.csv", "a,b\n1,2\n"), code=2)
    assert "no column 'text'" in done.stderr and "--text, --id" in done.stderr


@pytest.mark.slow
def test_pipes(run, model, put, tmp_path):
    stdin = many(20_000)
    by_file = run(put("in.jsonl", stdin), "--id", "sku").stdout
    assert run("--in", "-", "--from", "jsonl", "--id", "sku", stdin=gzip.compress(stdin.encode())).stdout == by_file
    assert run("--from", "jsonl", "--id", "sku", "--out", "-", stdin=stdin).stdout == by_file
    run("--from", "jsonl", "--id", "sku", "--out", tmp_path / "out.jsonl", stdin=stdin)
    assert (tmp_path / "out.jsonl").read_text() == by_file
    assert [path.name for path in tmp_path.glob("*partial*")] == []
    assert run("--from", "csv", stdin="text\nred hat\n").stdout.startswith('{"text":"red hat"')
    run(put("in.jsonl", many(3)), "--out", "/dev/null")
    command = f"cat {tmp_path}/in.jsonl | {sys.executable} -m shortlist predict {model} --from jsonl | head -n 1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["text"] == texts(1)[0]
    assert "Traceback" not in done.stderr


def test_a_failed_pipe_leaves_no_files(run, tmp_path):
    done = run("--from", "jsonl", "--out", tmp_path / "out.jsonl", stdin=gzip.compress(many(99).encode())[:-9], code=2)
    assert "ends too early" in done.stderr
    assert list(tmp_path.iterdir()) == []


# Ids, texts and scores


def test_ids_keep_their_values(run, put, tmp_path):
    ids = ['"a"', "7", "1.5", "true", "null", "12345678901234567890123", '"ü\\n"']
    path = put("in.jsonl", "".join(f'{{"text": "red", "id": {one}}}\n' for one in ids))
    found = [json.loads(line) for line in run(path, "--id", "id").stdout.splitlines()]
    assert [row["id"] for row in found] == [json.loads(one) for one in ids]
    assert not any("text" in row for row in found)  # with --id, texts are omitted by default
    assert '"text":"red"' in run(path, "--id", "id", "--with-text").stdout
    assert "text" not in json.loads(run(path, "--without-text").stdout.splitlines()[0])
    run(path, "--id", "id", "--out", tmp_path / "mixed.parquet")
    as_text = pyarrow.parquet.read_table(tmp_path / "mixed.parquet")["id"].to_pylist()
    assert as_text == ["a", "7", "1.5", "true", None, "12345678901234567890123", "ü\n"]


@pytest.mark.parametrize(
    ("values", "kind", "expected"),
    [
        ([1, 2**40, None], pyarrow.int64(), [1, 2**40, None]),
        ([1, 2, 3], pyarrow.int32(), [1, 2, 3]),
        ([1.5, 2.5, 3.5], pyarrow.float64(), [1.5, 2.5, 3.5]),
        ([True, False, True], pyarrow.bool_(), [True, False, True]),
        (["a", "b", "c"], pyarrow.dictionary(pyarrow.int8(), pyarrow.string()), ["a", "b", "c"]),
        ([0, 1, 2], pyarrow.date32(), ["1970-01-01", "1970-01-02", "1970-01-03"]),
        ([1, 2, 3], pyarrow.timestamp("ns"), [f"1970-01-01 00:00:00.00000000{i}" for i in (1, 2, 3)]),
    ],
)
def test_parquet_id_column(run, tmp_path, values, kind, expected):
    table = pyarrow.table({"text": texts(3), "id": pyarrow.array(values, kind), "other": [None] * 3})
    pyarrow.parquet.write_table(table, tmp_path / "in.parquet")
    run(tmp_path / "in.parquet", "--id", "id", "--out", tmp_path / "out.parquet")
    assert pyarrow.parquet.read_table(tmp_path / "out.parquet")["id"].to_pylist() == expected
    lines = run(tmp_path / "in.parquet", "--id", "id").stdout.splitlines()
    assert [json.loads(line)["id"] for line in lines] == expected


WITHOUT_PANDAS = """
import sys
class NoPandas:
    def find_spec(self, name, path=None, target=None):
        if name == "pandas": raise ImportError(name)
sys.meta_path.insert(0, NoPandas())
from shortlist.data.rows import RowOptions, RowSource
print([row.id for row in RowSource(sys.argv[1], None, RowOptions(id="id")).rows()])
"""


@pytest.mark.slow
def test_nanoseconds_without_pandas(tmp_path):
    table = pyarrow.table({"text": ["red"], "id": pyarrow.array([1], pyarrow.timestamp("ns"))})
    pyarrow.parquet.write_table(table, tmp_path / "in.parquet")
    command = [sys.executable, "-c", WITHOUT_PANDAS, str(tmp_path / "in.parquet")]
    found = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert found == "['1970-01-01 00:00:00.000000001']\n"


def test_an_id_must_be_a_single_value(run, put, tmp_path):
    done = run(put("in.jsonl", '{"text": "red", "id": [1]}\n{"text": "red"}\n{"id": 3}\n{"id": 4, "text": "red"}\n'),
               "--id", "id")  # fmt: skip
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["id"] for row in rows] == [None, None, 3, 4]
    assert ["error" in row for row in rows] == [True, True, True, False]
    pyarrow.parquet.write_table(pyarrow.table({"text": ["red"], "id": [[1]]}), tmp_path / "in.parquet")
    assert "a string or a number as id" in run(tmp_path / "in.parquet", "--id", "id", code=1).stderr
    assert "no column 'sku'" in run(tmp_path / "in.parquet", "--id", "sku", code=2).stderr


def test_labels_below_min_score_are_omitted(run, put):
    path = put("in.jsonl", many(50))
    every = [json.loads(line) for line in run(path).stdout.splitlines()]
    some = [json.loads(line) for line in run(path, "--min-score", 0.5).stdout.splitlines()]
    for before, after in zip(every, some, strict=True):
        assert after["scores"] == [score for score in before["scores"] if score >= 0.5]
        assert after["labels"] == before["labels"][: len(after["scores"])]
    assert any(len(one["labels"]) < len(other["labels"]) for one, other in zip(some, every, strict=True))
    assert all(len(json.loads(line)["labels"]) == 1 for line in run(path, "-k", 1).stdout.splitlines())


# Bad rows


def test_bad_rows_are_reported_and_keep_their_position(run, put, tmp_path):
    content = [b'{"text": "red"}', b"nonsense", b"", b'{"title": "red"}', b'{"text": 3}', b'{"text": "\xff"}', b"[1]",
               b'{"text": null}', b'{"text": "a\\u0000b"}', b'{"text": "blue"}']  # fmt: skip
    path = put("in.jsonl", b"\n".join(content))
    done = run(path, "--out", tmp_path / "out.jsonl")
    rows = rows_in(tmp_path / "out.jsonl")
    assert ["error" in row for row in rows] == [False, *[True] * 7, False]
    for row in rows[1:-1]:
        assert (row["text"], row["labels"], row["scores"]) == ("", [], [])
    assert rows[1]["error"].startswith("line 2: not valid JSON")
    for number, what in ((2, "not valid JSON"), (4, "no field 'text', only 'title'"), (5, "a number (3)"),
                         (6, "not valid text"), (7, "not an object"), (8, "null"), (9, "NUL")):  # fmt: skip
        assert any(line.startswith(f"{path}, line {number}:") and what in line for line in done.stderr.splitlines())
    assert done.stderr.splitlines()[-1].startswith(f"{tmp_path / 'out.jsonl'}: 9 rows, 7 of them bad, in ")
    run(path, "--out", tmp_path / "out.parquet")
    table = pyarrow.parquet.read_table(tmp_path / "out.parquet").to_pylist()
    assert [row["error"] for row in table] == [row.get("error") for row in rows]


def test_only_the_first_bad_rows_are_shown(run, put):
    done = run(put("in.jsonl", many(100, bad=range(10, 60))))
    assert done.stderr.count("not valid JSON") == batch.MAX_PROBLEMS_SHOWN
    assert "counted but not shown" in done.stderr
    assert "100 rows, 50 of them bad" in done.stderr


def test_exit_code_1_if_every_row_is_bad(run, put, tmp_path):
    run(put("in.jsonl", many(3, bad=range(3))), "--out", tmp_path / "out.jsonl", code=1)
    assert len(rows_in(tmp_path / "out.jsonl")) == 3
    run(put("in.jsonl", "red hat\n"), code=1)
    run(stdin=b"\xff\n", code=1)
    run(put("empty.jsonl", ""), "--out", tmp_path / "none.jsonl")
    assert (tmp_path / "none.jsonl").read_bytes() == b""
    run(put("empty.jsonl", ""), "--id", "sku", "--out", tmp_path / "none.parquet")
    assert pyarrow.parquet.read_table(tmp_path / "none.parquet").num_rows == 0


def test_bad_rows_in_csv_and_parquet(run, put, tmp_path):
    path = put("in.csv", b'sku,text\n1,red\n2\n3,"re"d\n4,\xff\n5,blue\n')
    rows = [json.loads(line) for line in run(path, "--id", "sku").stdout.splitlines()]
    assert [(row["id"], row.get("error", "")[:6]) for row in rows] == [
        ("1", ""), (None, "line 3"), (None, "line 4"), ("4", "line 5"), ("5", "")]  # fmt: skip
    offsets = pyarrow.py_buffer(np.array([0, 3, 5, 9], np.int32))
    column = pyarrow.StringArray.from_buffers(3, offsets, pyarrow.py_buffer(b"red\xff\xfeblue"))
    pyarrow.parquet.write_table(pyarrow.table({"text": column}), tmp_path / "in.parquet")
    rows = [json.loads(line) for line in run(tmp_path / "in.parquet").stdout.splitlines()]
    assert [(row["text"], row.get("error", "")[:5]) for row in rows] == [("red", ""), ("", "row 2"), ("blue", "")]


@pytest.mark.slow
def test_a_damaged_file_is_an_error(run, put, tmp_path):
    path = put("in.jsonl.gz", gzip.compress(many(50_000).encode())[:-100])
    done = run(path, "--out", tmp_path / "out.jsonl", code=2)
    assert "ends too early" in done.stderr
    assert not (tmp_path / "out.jsonl").exists()


# Resuming after a kill


def job(source, out, resume=False, die_at=None):
    """Run a job with the fake model in this process; it kills itself at the n-th fsync."""
    if die_at is not None:
        left, sync = iter(range(die_at)), os.fsync

        def sync_or_die(handle):
            if next(left, None) is None:
                os.kill(os.getpid(), signal.SIGKILL)
            sync(handle)

        os.fsync = sync_or_die
    rows = RowSource(source, None, RowOptions(id="sku"))
    with ResumableOutput(out, JsonLines(rows.unit, True, True), {"input": rows.fingerprint}, resume) as output:
        if not output.finished:
            predict_rows(FakeModel(), rows, output)
        output.finish()
    return output.written


@pytest.mark.slow
@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("name", ["out.jsonl", "out.jsonl.gz", "out.parquet"])
def test_a_kill_at_any_moment_does_not_change_the_output(put, tmp_path, name):
    source = put("in.jsonl.gz", gzip.compress(many(24, bad=[5, 15]).encode()))
    whole, out = tmp_path / f"whole-{name}", tmp_path / name
    job(source, whole)
    fork = multiprocessing.get_context("fork")
    for moment in range(1000):
        out.unlink(missing_ok=True)
        child = fork.Process(target=job, args=(source, out, False, moment))
        child.start()
        child.join()
        if child.exitcode == 0:
            break
        assert child.exitcode == -signal.SIGKILL
        if partial_folder(out).exists():  # else it was killed right at the end
            with pytest.raises(OptionError, match=r"--resume.*rm -r"):
                check_output(out)
            assert job(source, out, resume=True).rows == 24
        assert out.read_bytes() == whole.read_bytes(), moment
        assert not partial_folder(out).exists()
    assert moment > 10
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"in.jsonl.gz", whole.name, name}


def test_repeated_kills_do_not_change_the_output(put, tmp_path, small_chunks):
    source, out = put("in.jsonl", many(40)), tmp_path / "out.jsonl"
    job(source, tmp_path / "whole.jsonl")
    fork = multiprocessing.get_context("fork")
    for resume in (False, True, True, True, True):
        child = fork.Process(target=job, args=(source, out, resume, 6))
        child.start()
        child.join()
        assert child.exitcode == -signal.SIGKILL
    assert job(source, out, resume=True).rows == 40
    assert out.read_bytes() == (tmp_path / "whole.jsonl").read_bytes()


SLOW_CHUNKS = """
import signal, sys, threading
signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs of a shell ignore it
from shortlist.batch import output, predict as batch
batch.CHUNK_ROWS = 500
write, calls = output.ResumableOutput.write, []
def stop_in_the_middle(self, predicted):
    write(self, predicted)
    calls.append(1)
    if len(calls) == 3:
        self._rows.open("ab").write(b"half a line")
        print("now", flush=True)
        threading.Event().wait()
output.ResumableOutput.write = stop_in_the_middle
from shortlist.cli import main
main()
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_resume_the_command_after_a_signal(run, model, put, tmp_path, how):
    source, out = put("in.jsonl", many(4000, bad=[7, 3000])), tmp_path / "out.jsonl"
    arguments = [str(source), "--out", str(out), "--id", "sku"]
    child = subprocess.Popen(
        [sys.executable, "-c", SLOW_CHUNKS, "predict", str(model), *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    with child:
        assert child.stdout.readline() == "now\n"
        child.send_signal(how)
        stderr = child.stderr.read()
    if how == signal.SIGINT:
        assert child.returncode == 130
        assert "1,500 rows are done" in stderr
        assert shlex.join(["shortlist", "predict", str(model), *arguments, "--resume"]) in stderr
    assert not out.exists()
    assert "1,500 rows done" in run(*arguments, code=2).stderr
    done = run(*arguments, "--resume")
    assert "4,000 rows (1,500 of them before), 2 of them bad" in done.stderr
    run(*arguments[:2], tmp_path / "whole.jsonl", *arguments[3:])
    assert out.read_bytes() == (tmp_path / "whole.jsonl").read_bytes()
    assert not partial_folder(out).exists()


@pytest.fixture
def stopped(run, put, tmp_path, monkeypatch):
    """The arguments of a job that Ctrl-C stopped after 14 of 40 rows."""
    monkeypatch.setattr(batch, "CHUNK_ROWS", 7)
    arguments = [put("in.jsonl", many(40)), "--out", tmp_path / "out.jsonl", "--id", "sku"]
    with monkeypatch.context() as patched:
        done, calls = batch.predict_chunk, iter(range(2))

        def interrupted(*given, **options):
            if next(calls, None) is None:
                raise KeyboardInterrupt
            return done(*given, **options)

        patched.setattr(batch, "predict_chunk", interrupted)
        assert "14 rows are done and kept" in run(*arguments, code=130).stderr
    return arguments


def test_resume_after_ctrl_c(run, stopped, tmp_path):
    run(*stopped, "--resume")
    assert [row["id"] for row in rows_in(tmp_path / "out.jsonl")] == list(range(40))


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (["-k", 3], "different k"),
        (["--min-score", 0.5], "different min_score"),
        (["--search-effort", 2], "different search_effort"),
        (["--with-text"], "different with_text"),
        (["--id", "text"], "different id"),
        (["--text", "sku"], "different text"),
    ],
)
def test_resume_refuses_different_options(run, stopped, tmp_path, change, what):
    done = run(*stopped, *change, "--resume", code=2)
    assert what in done.stderr and f"rm -r {tmp_path}/out.jsonl.partial" in done.stderr
    run(*stopped, "--resume", "--threads", 1)  # does not affect the output


def test_resume_refuses_a_different_input_or_model(run, model, stopped, tmp_path):
    path = stopped[0]
    times = path.stat().st_atime_ns, path.stat().st_mtime_ns
    content = path.read_text()
    path.write_text(content.replace("red", "RED"))
    os.utime(path, ns=times)
    assert "different input" in run(*stopped, "--resume", code=2).stderr
    path.write_text(content)
    assert "different input" in run(*stopped, "--resume", code=2).stderr  # modified at another time
    os.utime(path, ns=times)
    library.train([*PAIRS, ("coat", ["coat"])], "centroid").save(tmp_path / "other")
    arguments = ["predict", tmp_path / "other", *stopped, "--resume"]
    assert "different model" in CliRunner().invoke(shortlist, [str(argument) for argument in arguments]).stderr
    run(*stopped, "--resume")


def test_existing_files_are_not_overwritten(run, put, tmp_path):
    source, out = put("in.jsonl", many(3)), put("out.jsonl", "old")
    assert "--overwrite" in run(source, "--out", out, code=2).stderr
    os.utime(out, ns=(0, source.stat().st_mtime_ns - 1))
    assert "--overwrite" in run(source, "--out", out, "--resume", code=2).stderr
    put("other.jsonl.partial/thesis.txt", "old")
    assert "not an unfinished job" in run(source, "--out", tmp_path / "other.jsonl", "--resume", code=2).stderr
    (tmp_path / "folder.jsonl").mkdir()
    assert "is a folder" in run(source, "--out", tmp_path / "folder.jsonl", code=2).stderr
    assert out.read_text() == "old"
    run(source, "--out", out, "--overwrite")
    assert len(rows_in(out)) == 3


def test_a_symlink_is_kept(run, put, tmp_path):
    target = put("elsewhere/out.jsonl", "old")
    (tmp_path / "out.jsonl").symlink_to(target)
    run(put("in.jsonl", many(3)), "--out", tmp_path / "out.jsonl", "--overwrite")
    assert (tmp_path / "out.jsonl").is_symlink() and len(rows_in(target)) == 3


def test_two_processes_cannot_write_the_same_output(put, tmp_path):
    source, out = put("in.jsonl", many(3)), tmp_path / "out.jsonl"
    with ResumableOutput(out, JsonLines("line", True, True), {}), pytest.raises(DataError, match="another process"):
        job(source, out, resume=True)


def test_a_damaged_journal_is_an_error(run, stopped, tmp_path):
    folder = tmp_path / "out.jsonl.partial"
    (folder / "rows").write_bytes(b"")
    assert "is damaged" in run(*stopped, "--resume", code=2).stderr
    (folder / "journal.json").write_bytes(b"{")
    assert "cannot be read" in run(*stopped, "--resume", code=2).stderr


def test_a_full_disk_keeps_finished_rows(run, stopped, tmp_path, monkeypatch):
    def full(handle):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        assert "No space left" in run(*stopped, "--resume", code=2).stderr
    run(*stopped, "--resume")
    assert [row["id"] for row in rows_in(tmp_path / "out.jsonl")] == list(range(40))


def test_job_identity_survives_json(model, put):
    source = RowSource(put("in.jsonl", many(3)), None, RowOptions())
    identity = job_identity(source.fingerprint, model, {"k": 5, "id": None})
    assert identity == json.loads(json.dumps(identity))
    assert {"input", "model", "release", "k", "id"} == set(identity)


def test_missing_extras_are_named(run, put, tmp_path, monkeypatch):
    source = put("in.jsonl", many(3))
    for module, out, extra in (("pyarrow", "out.parquet", "parquet"), ("zstandard", "out.jsonl.zst", "zstd")):
        monkeypatch.setitem(sys.modules, module, None)
        assert f"shortlist[{extra}]" in run(source, "--out", tmp_path / out, code=2).stderr
    put("in.parquet", "")
    assert "shortlist[parquet]" in run(tmp_path / "in.parquet", code=2).stderr


# Memory


# Small buffers, so that a small input shows whether memory grows with it.
PEAK_IN_KB_LAST = """
import atexit, pathlib, re, sys
from shortlist import streams
from shortlist.batch import predict as batch
streams.BLOCK, batch.CHUNK_ROWS = 1 << 16, 1000
status = pathlib.Path("/proc/self/status")
atexit.register(lambda: sys.stderr.write(re.search(r"VmHWM:\\s+(\\d+)", status.read_text())[1]))
from shortlist.cli import main
main()
"""


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="asks Linux for the peak")
@pytest.mark.parametrize("piped", [True, False])
def test_memory_does_not_grow_with_the_input(model, put, tmp_path, piped):
    line = '{"sku": 1, "text": "red hat and a few more words, to be as long as titles are"}\n'
    peaks = []
    for n in (10_000, 100_000):
        source = put(f"{n}.jsonl", line * n)
        arguments = ["--from", "jsonl"] if piped else [str(source), "--out", str(tmp_path / f"{n}.out.jsonl")]
        command = [sys.executable, "-c", PEAK_IN_KB_LAST, "predict", str(model), *arguments]
        with source.open() as stdin:
            done = subprocess.run(
                command, stdin=stdin, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=True
            )
        peaks.append(int(done.stderr.splitlines()[-1]))
    assert peaks[1] - peaks[0] < 6_000, peaks  # the texts alone take 8,000 kB, the rows five times as much


def test_resuming_what_is_complete_does_nothing(run, put, tmp_path):
    source, out = put("in.jsonl", many(3)), tmp_path / "out.jsonl"
    run(source, "--out", out, "--resume")
    before = out.stat()
    assert "already complete" in run(source, "--out", out, "--resume").stderr
    assert out.stat().st_mtime_ns == before.st_mtime_ns
    os.utime(source, ns=(0, before.st_mtime_ns + 1))  # another input since
    assert "older than the input" in run(source, "--out", out, "--resume", code=2).stderr
    run(source, "--out", out, "--resume", "--overwrite")


@pytest.mark.parametrize("what", ["mkdir", "rename", "replace"])
def test_a_disk_error_is_explained_and_leaves_nothing(put, tmp_path, monkeypatch, what):
    def fail(*_, **__):
        raise OSError(errno.EIO, "Input/output error")

    source, out = put("in.jsonl", many(3)), tmp_path / "out.jsonl"
    with monkeypatch.context() as patch:
        patch.setattr(os, what, fail)
        with pytest.raises(DataError, match="cannot be written: Input/output error"):
            job(source, out)
    assert not (what == "mkdir" and partial_folder(out).exists())
    job(source, out, resume=partial_folder(out).exists() or out.exists())
    assert len(out.read_text().splitlines()) == 3
