"""Batch prediction on Ray: the same rows as on one machine, whatever is killed on the way."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pyarrow
import pyarrow.parquet
import pytest
from click.testing import CliRunner

import shortlist as library
from ray_cluster import STORE_BYTES, two_nodes
from shortlist.cli import shortlist
from shortlist.cluster.connection import reraise
from shortlist.cluster.predict import PartPredictor, PredictJob, read_parts
from shortlist.data import storage
from shortlist.data.rows import RowOptions
from shortlist.errors import DataError, ShortlistError
from shortlist.files import partial_folder

pytest.importorskip("ray", reason="needs Ray: pip install 'shortlist[ray]'")
pytestmark = pytest.mark.slow

PAIRS = [("red shoes", ["shoes", "red"]), ("blue hat", ["hat", "blue"]), ("red hat", ["hat", "red"])]
N_FILES, N_ROWS, PART = 3, 1000, 40


@pytest.fixture(scope="module")
def cluster(s3):
    with two_nodes() as cluster:
        yield cluster


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model; rows as JSON lines, with a broken one, as CSV and as Parquet."""
    folder = tmp_path_factory.mktemp("cluster")
    library.train(PAIRS, "centroid").save(folder / "model")
    for file in range(N_FILES):
        texts = [f"{('red', 'blue')[i % 2]} {('hat', 'shoes')[i // 2 % 2]} {i}" for i in range(N_ROWS)]
        rows = list(enumerate(texts, 1000 * file))
        lines = [json.dumps({"id": i, "text": text}) if i != 17 else "{" for i, text in rows]
        (folder / f"in{file}.jsonl").write_text("\n".join(lines) + "\n")
        (folder / f"in{file}.csv").write_text("id,text\n" + "".join(f"{i},{text}\n" for i, text in rows))
        table = pyarrow.table({"id": [i for i, _ in rows], "text": texts})
        pyarrow.parquet.write_table(table, folder / f"in{file}.parquet")
    return folder


def arguments(folder, *more):
    return ["predict", str(folder / "model"), "--id", "id", "--rows-per-part", str(PART), *map(str, more)]


def run(folder, *more, code=0):
    done = CliRunner().invoke(shortlist, arguments(folder, *more))
    assert done.exit_code == code, done.output + repr(done.exception)
    return done


def contents(out):
    return {path.name: path.read_bytes() for path in out.iterdir()}


def on_one_machine(folder, name, suffix):
    """What `shortlist predict` writes for each file, one after the other."""
    out = folder / f"one-{name}{suffix}"
    command = ["predict", str(folder / "model"), str(folder / name), "--id", "id", "--out", str(out), "--overwrite"]
    assert CliRunner().invoke(shortlist, command).exit_code == 0
    return out


@pytest.fixture(scope="module")
def undisturbed(cluster, folder):
    """The output of a run that nothing disturbed."""
    out = folder / "undisturbed"
    done = run(folder, folder / "in*.jsonl", "--out", out, "--cluster", "auto")
    assert f"{N_FILES * N_ROWS:,} rows, 1 of them bad" in done.output
    assert "in0.jsonl, line 18: not valid JSON" in done.output
    return contents(out)


def test_same_rows_in_the_same_order_as_on_one_machine(folder, undisturbed):
    expected = b"".join(on_one_machine(folder, f"in{i}.jsonl", ".jsonl").read_bytes() for i in range(N_FILES))
    parts = [content for name, content in sorted(undisturbed.items()) if name.startswith("part-")]
    assert len(parts) == N_FILES * N_ROWS / PART
    assert b"".join(parts) == expected


def test_resuming_a_complete_job_does_nothing(folder, undisturbed):
    out = folder / "undisturbed"
    before = {path: path.stat().st_mtime_ns for path in out.iterdir()}
    done = run(folder, folder / "in*.jsonl", "--out", out, "--cluster", "auto", "--resume")
    assert f"{N_FILES * N_ROWS:,} rows, 1 of them bad" in done.output
    assert before == {path: path.stat().st_mtime_ns for path in out.iterdir()}
    other = run(folder, folder / "in0.jsonl", "--out", out, "--cluster", "auto", "--resume", code=2)
    assert "different input" in other.output


def test_csv_to_parquet_without_ray(folder, tmp_path):
    """Readers and predictors are plain functions of Arrow tables."""
    files = [str(folder / f"in{i}.csv") for i in range(2)]
    reading = RowOptions(id="id")
    job = PredictJob(str(folder / "model"), files, str(tmp_path), "parquet", reading, {"threads": 1}, rows_per_part=300)
    predict = PartPredictor(job, "line", ["str"])
    for file in range(2):
        items = {"file": [file], "bytes": [1000], "done": [["part-00001-00000.parquet"]]}
        for part in read_parts(pyarrow.table(items), job):
            predict(part)
    found = pyarrow.parquet.read_table(tmp_path)
    ids = [str(1000 * file + i) for file in range(2) for i in range(N_ROWS)]
    assert found["id"].to_pylist() == ids[:N_ROWS] + ids[N_ROWS + 300 :]  # one part was said to be done
    assert found["labels"].to_pylist()[0][0] in ("hat", "red")


def test_killed_driver_is_resumed(cluster, folder, undisturbed):
    out = folder / "resumed"
    command = arguments(folder, folder / "in*.jsonl", "--out", out, "--cluster")
    process = subprocess.Popen([sys.executable, "-m", "shortlist", *command, cluster.address])
    try:
        wait_for_parts(out, 5, lambda: process.poll() is None)
    finally:
        process.kill()
        process.wait()
    assert not out.exists() and 5 <= n_parts(out) < len(undisturbed) - 1
    refused = run(folder, folder / "in*.jsonl", "--out", out, "--cluster", "auto", code=2)
    assert "--resume" in refused.output
    other = run(folder, folder / "in*.jsonl", "--out", out, "--cluster", "auto", "--resume", "-k", 1, code=2)
    assert "different k" in other.output
    before = {path: path.stat().st_mtime_ns for path in partial_folder(out).glob("part-*")}
    run(folder, folder / "in*.jsonl", "--out", out, "--cluster", "auto", "--resume")
    assert contents(out) == undisturbed
    kept = [path for path, time in before.items() if (out / path.name).stat().st_mtime_ns == time]
    assert len(kept) >= 5  # not predicted again


def test_lost_workers_and_nodes_change_nothing(cluster, folder):
    out = folder / "disturbed"
    extra = cluster.add_node(num_cpus=1, object_store_memory=STORE_BYTES, node_ip_address="127.0.0.1")
    more = folder / "in*.parquet", "--out", out, "--cluster", "auto"
    thread = threading.Thread(target=run, args=(folder, *more), daemon=True)
    thread.start()
    wait_for_parts(out, 3, thread.is_alive)
    assert kill_predictors()
    wait_for_parts(out, 10, thread.is_alive)
    cluster.remove_node(extra, allow_graceful=False)
    thread.join(600)
    assert not thread.is_alive()
    expected = [
        pyarrow.parquet.read_table(on_one_machine(folder, f"in{i}.parquet", ".parquet")) for i in range(N_FILES)
    ]
    found = pyarrow.parquet.read_table(out)
    assert found.equals(pyarrow.concat_tables(expected))
    assert found["id"].type == pyarrow.int64()


def objects_at(s3, place):
    """The objects there, by name."""
    return {name.removeprefix(f"{place}/"): content for name, content in s3.objects.items() if name.startswith(place)}


def test_from_and_to_an_object_store(cluster, s3, folder, undisturbed):
    """Input, model and output are at URLs; a job that was interrupted goes on; a part is never half there."""
    for i in range(N_FILES):
        storage.upload(folder / f"in{i}.jsonl", f"s3://bucket/in/in{i}.jsonl")
    storage.upload(folder / "model", "s3://bucket/model")
    command = arguments(folder, "s3://bucket/in/*.jsonl", "--out", "s3://bucket/out", "--cluster", "auto")
    command[1] = "s3://bucket/model"
    done = CliRunner().invoke(shortlist, command)
    assert done.exit_code == 0, done.output + repr(done.exception)
    assert "s3://bucket/in/in0.jsonl, line 18: not valid JSON" in done.output
    first = objects_at(s3, "bucket/out")
    parts = {name: content for name, content in first.items() if name.startswith("part-")}
    assert parts == {name: content for name, content in undisturbed.items() if name.startswith("part-")}
    assert set(first) - set(parts) == {"_job.json", "_SUCCESS"}
    assert "already exists" in CliRunner().invoke(shortlist, command).output
    # As if it had been killed on the way.
    for name in ("_SUCCESS", "part-00001-00003.jsonl", "part-00002-00000.jsonl"):
        del s3.objects[f"bucket/out/{name}"]
    assert "--resume" in CliRunner().invoke(shortlist, command).output
    s3.objects["bucket/out/part-00000-00000.jsonl"] = b"not to be written again"
    assert CliRunner().invoke(shortlist, [*command, "--resume"]).exit_code == 0
    again = objects_at(s3, "bucket/out")
    assert again.pop("part-00000-00000.jsonl") == b"not to be written again"
    assert again == {name: content for name, content in first.items() if name != "part-00000-00000.jsonl"}
    assert CliRunner().invoke(shortlist, [*command, "--overwrite"]).exit_code == 0
    assert objects_at(s3, "bucket/out") == first


def test_parquet_of_an_object_store(cluster, s3, folder):
    """The type of ids is read from the end of the file; output may be a folder."""
    storage.upload(folder / "in0.parquet", "s3://bucket/parquet/in0.parquet")
    out = folder / "from-s3"
    run(folder, "s3://bucket/parquet", "--out", out, "--cluster", "auto")
    expected = pyarrow.parquet.read_table(on_one_machine(folder, "in0.parquet", ".parquet"))
    assert pyarrow.parquet.read_table(out).equals(expected)
    missing = run(folder, "s3://bucket/nothing/*.parquet", "--out", out, "--cluster", "auto", code=2)
    assert "s3://bucket/nothing/*.parquet: no such file" in missing.output


def test_what_cannot_be_written_or_read_is_refused_before_work(cluster, folder, tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("years of work")
    out = "--out", tmp_path / "full", "--cluster", "auto"
    assert "already exists" in run(folder, folder / "in0.jsonl", *out, "--overwrite", code=2).output
    assert "no such file" in run(folder, folder / "nothing*.jsonl", *out, code=2).output
    assert "add --out" in run(folder, folder / "in0.jsonl", "--cluster", "auto", code=2).output
    assert "--cluster auto" in run(folder, folder / "in0.jsonl", "--out", tmp_path / "a.jsonl", code=2).output
    assert [path.name for path in tmp_path.iterdir()] == ["full"]


def test_an_error_on_a_worker_is_one_clear_message(cluster):
    import ray

    @ray.remote
    def fail():
        raise DataError("in.jsonl: no such file. Check the path.")

    with pytest.raises(ShortlistError, match=r"^on a worker: in.jsonl: no such file. Check the path.$"), reraise(ray):
        ray.get(fail.remote())


def n_parts(out):
    return sum(1 for _ in partial_folder(out).glob("part-*"))


def wait_for_parts(out: Path, n: int, is_running) -> None:
    while n_parts(out) < n:
        assert is_running() or n_parts(out) >= n, "it ended too soon"
        time.sleep(0.01)


def kill_predictors() -> int:
    """Kill the processes with a model, which are descendants of this one."""
    killed = 0
    for process in psutil.Process().children(recursive=True):
        try:
            if "MapWorker" in " ".join(process.cmdline()):
                os.kill(process.pid, signal.SIGKILL)
                killed += 1
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return killed
