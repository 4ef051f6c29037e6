"""Training on Ray: the model of one machine up to rounding, and the same bytes whatever is killed on the way."""

from __future__ import annotations

import fnmatch
import logging
import os
import signal
import threading
import time
from contextlib import ExitStack, contextmanager

import msgspec
import numpy as np
import psutil
import pytest

import shortlist
from shortlist.cluster.connection import connected
from shortlist.cluster.train import train_on_cluster
from shortlist.cluster.worker import News, TrainJob, out_of_memory
from shortlist.cluster.workers import Lag
from shortlist.data import storage
from shortlist.errors import DataError, OptionError, ShortlistError
from training_processes import OPTIONS, exit_code, files_of, noisy_topics, start_command

ray = pytest.importorskip("ray", reason="needs Ray, of the extra `ray`")
slow = pytest.mark.slow

# As many as there can be: workers ask each other every 16 steps.
MANY_CHECKPOINTS = {**OPTIONS, "batch_size": 8, "checkpoint_minutes": 0.0001}


@pytest.fixture(scope="module")
def cluster(s3):
    """Ray on this machine, reachable from this machine only; the address for other drivers."""
    with started(num_cpus=4, object_store_memory=80 << 20) as address:
        assert address.startswith("127.0.0.1:")
        yield address


@contextmanager
def started(**local):
    """Ray gives its processes 30 seconds to start, which may not be enough on a busy machine."""
    with ExitStack() as stack:
        for attempt in range(3):
            try:
                own = stack.enter_context(connected("local", **local))
                break
            except Exception as error:
                if attempt == 2 or "timed out during startup" not in str(error):
                    raise
        yield own.get_runtime_context().gcs_address


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    data = noisy_topics(250, 3)
    path = tmp_path_factory.mktemp("data") / "pairs.jsonl"
    rows = [{"text": data.texts[i], "labels": data.labels_of(i)} for i in range(len(data))]
    path.write_bytes(b"".join(msgspec.json.encode(row) + b"\n" for row in rows))
    return path


def job(pairs, folder, **options):
    options = {**MANY_CHECKPOINTS, "checkpoint_dir": f"{folder}.checkpoints", **options}
    return TrainJob(str(pairs), "astec", str(folder), options=options, bits=32)


@pytest.fixture(scope="module")
def undisturbed(cluster, pairs, tmp_path_factory):
    """The files of a model that two workers trained."""
    folder = tmp_path_factory.mktemp("undisturbed") / "model"
    train_on_cluster(job(pairs, folder), "auto", 2)
    return folder


class Killer(threading.Thread):
    """Kills a worker each time the training has written the next of these checkpoints."""

    def __init__(self, folder, *checkpoints):
        super().__init__(daemon=True)
        self.folder, self.checkpoints, self.killed, self.stopped = folder, checkpoints, [], threading.Event()

    def run(self):
        for checkpoint in self.checkpoints:
            while not any(self.folder.glob(checkpoint)) or not (workers := worker_processes()):
                if self.stopped.wait(0.01):
                    return
            victim = workers[len(self.killed) % len(workers)]
            victim.send_signal(signal.SIGKILL)
            self.killed.append(victim.pid)

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.stopped.set()
        self.join()


def worker_processes():
    """The processes of the workers, of the Ray that this test started."""
    children = psutil.Process().children(recursive=True)
    return [child for child in children if child.is_running() and "ray::Worker" in child.name() + command_of(child)]


def command_of(process):
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


@slow
def test_workers_learn_what_one_machine_learns(cluster, undisturbed, pairs, tmp_path):
    texts = list(noisy_topics(200, 9).texts)
    options = {**OPTIONS, "batch_size": 8}
    expected = shortlist.train(str(pairs), "astec", **options)
    expected_ids, expected_scores = expected.rank(texts, 5)
    ids, scores = shortlist.load(undisturbed).rank(texts, 5)
    np.testing.assert_allclose(scores, expected_scores, atol=1e-4)
    assert (ids[:, 0] == expected_ids[:, 0]).mean() > 0.99
    # One worker is one machine, bit for bit.
    folder = str(tmp_path / "checkpoints")
    alone = shortlist.train(str(pairs), "astec", cluster="auto", workers=1, checkpoint_dir=folder, **options)
    alone.save(tmp_path / "alone", 32)
    expected.save(tmp_path / "expected", 32)
    assert files_of(tmp_path / "alone") == files_of(tmp_path / "expected")


@slow
def test_inceptionxml_plus_from_the_command_line(cluster, pairs, tmp_path):
    """The meta-classifier and the label rows are sharded; the model is that of one machine."""
    options = {"n_epochs": 2, "embedding_dim": 64, "channels": 4, "batch_size": 32, "n_clusters": 7, "seed": 5}
    command = ["train", str(pairs), "--recipe", "inceptionxml+", "--threads", "1", "--bits", "32"]
    command += [f"--set={name}={value}" for name, value in options.items()]
    for name, more in (("alone", []), ("together", ["--cluster", cluster, "--workers", "2"])):
        messages = tmp_path / f"{name}.txt"
        process = start_command(tmp_path, [*command, "--out", name, *more], messages)
        assert exit_code(process, 300) == 0, messages.read_text()
    assert "epoch 2/2" in (tmp_path / "together.txt").read_text()
    assert {path.name for path in tmp_path.iterdir() if path.is_dir()} == {"alone", "together"}  # no checkpoints
    texts = list(noisy_topics(200, 9).texts)
    alone, together = (shortlist.load(tmp_path / name) for name in ("alone", "together"))
    assert (together.rank(texts, 1)[0] == alone.rank(texts, 1)[0]).mean() > 0.95  # bfloat16 rounds, where there is AMX


@slow
def test_workers_are_not_nicer_than_the_driver(cluster):
    """At Ray's default of 15, a busy machine would leave them next to nothing."""
    niceness = ray.remote(num_cpus=0)(lambda: os.nice(0))
    assert ray.get(niceness.remote()) == os.nice(0)


@slow
def test_killed_workers_are_replaced(cluster, undisturbed, pairs, tmp_path):
    """In the surrogate task, and with the label rows."""
    phases = "surrogate/worker-0/state-*", "classifier/worker-0/state-*"
    with Killer(tmp_path / "model.checkpoints", *phases) as killer:
        train_on_cluster(job(pairs, tmp_path / "model"), "auto", 2)
    assert len(set(killer.killed)) == 2
    assert files_of(tmp_path / "model") == files_of(undisturbed)


@slow
def test_a_killed_driver_is_resumed(cluster, undisturbed, pairs, tmp_path):
    options = [f"--set={name}={value}" for name, value in MANY_CHECKPOINTS.items()]
    command = ["train", str(pairs), "--recipe", "astec", "--out", "model", "--bits", "32", *options]
    command += ["--cluster", cluster, "--workers", "2"]
    driver = start_command(tmp_path, command, tmp_path / "messages.txt")
    checkpoints = tmp_path / "model.checkpoints"
    deadline = time.monotonic() + 300
    while not any(checkpoints.glob("surrogate/worker-0/state-*")) and time.monotonic() < deadline:
        assert driver.is_alive(), (tmp_path / "messages.txt").read_text()
        time.sleep(0.02)
    os.kill(driver.pid, signal.SIGKILL)
    driver.join()
    assert not (tmp_path / "model").exists()
    with pytest.raises(DataError, match="interrupted training"):
        train_on_cluster(job(pairs, tmp_path / "model"), cluster, 2)
    with pytest.raises(DataError, match="workers = 2, this one has 3"):
        train_on_cluster(job(pairs, tmp_path / "model", resume=True), cluster, 3)
    train_on_cluster(job(pairs, tmp_path / "model", resume=True), cluster, 2)
    assert files_of(tmp_path / "model") == files_of(undisturbed)


@slow
def test_data_checkpoints_and_model_in_an_object_store(cluster, s3, undisturbed, pairs, tmp_path):
    """The driver is killed and a worker, too; there is no shared folder."""
    storage.upload(pairs, "s3://bucket/data/pairs.jsonl")
    options = [f"--set={name}={value}" for name, value in MANY_CHECKPOINTS.items()]
    command = ["train", "s3://bucket/data/pairs.jsonl", "--recipe", "astec", "--out", "s3://bucket/model", *options]
    command += ["--bits", "32", "--cluster", cluster, "--workers", "2"]
    messages, environment = tmp_path / "messages.txt", f"import os; os.environ.update({s3.environment!r})"

    def wait_for(process, checkpoint):
        deadline = time.monotonic() + 300
        while not fnmatch.filter(list(s3.objects), f"bucket/model.checkpoints/{checkpoint}"):
            assert process.is_alive() and time.monotonic() < deadline, messages.read_text()
            time.sleep(0.01)

    driver = start_command(tmp_path, command, messages, environment)
    wait_for(driver, "surrogate/worker-0/state-*/facts.json")
    os.kill(driver.pid, signal.SIGKILL)
    driver.join()
    assert not any(name.startswith("bucket/model/") for name in s3.objects)
    again = start_command(tmp_path, command, messages, environment)
    assert exit_code(again, 120) == 2 and "holds an interrupted training" in messages.read_text()
    resumed = start_command(tmp_path, [*command, "--resume"], messages, environment)
    wait_for(resumed, "classifier/worker-0/state-*/facts.json")
    worker_processes()[0].send_signal(signal.SIGKILL)
    assert exit_code(resumed, 300) == 0, messages.read_text()
    objects = {name: content for name, content in s3.objects.items() if name.startswith("bucket/model")}
    assert objects == {f"bucket/model/{name}": content for name, content in files_of(undisturbed).items()}
    assert "Starting again" in messages.read_text()
    finished = start_command(tmp_path, [*command, "--resume"], messages, environment)
    assert exit_code(finished, 120) == 0 and "already complete" in messages.read_text()


@slow
def test_errors_of_workers_are_the_users(cluster, tmp_path):
    with pytest.raises(DataError, match=r"worker \d of 2 on 127.0.0.1: .*nothing-there.jsonl"):
        train_on_cluster(job(tmp_path / "nothing-there.jsonl", tmp_path / "model"), "auto", 2)
    (tmp_path / "few.jsonl").write_text('{"text": "a", "labels": ["x"]}\n' * 4)
    with pytest.raises(OptionError, match="1 clusters of labels for 2 workers: use fewer workers"):
        train_on_cluster(job(tmp_path / "few.jsonl", tmp_path / "model"), "auto", 2)
    with pytest.raises(DataError, match=r"worker \d of 2 on 127.0.0.1: s3://bucket/nothing: no such file"):
        train_on_cluster(job("s3://bucket/nothing", tmp_path / "model"), "auto", 2)
    storage.write_bytes(b"{", "s3://bucket/broken.jsonl")
    with pytest.raises(DataError, match=r"s3://bucket/broken.jsonl"):
        train_on_cluster(job("s3://bucket/broken.jsonl", tmp_path / "model"), "auto", 2)
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"recipe": "slice"}, "slice cannot be trained on a cluster. Use astec"),
        ({"vote_weight": 0.2}, "vote_weight is 0.2; on a cluster, astec takes 0.0"),
        ({"published": True}, "on a cluster, astec@published takes"),
        ({"ensemble": 2}, "ensembles and all_names are for one machine"),
        ({"all_names": True}, "ensembles and all_names are for one machine"),
        ({"checkpoint_dir": ""}, "needs checkpoint_dir: a folder that all machines see"),
        ({"data": [("a", ["x"])]}, "every worker reads the data itself: give the path"),
        ({"cluster": ""}, 'workers are for a cluster: give its address, such as cluster="auto", too'),
        ({"workers": 0}, "workers"),
    ],
)
def test_what_a_cluster_cannot_do_is_said_at_once(tmp_path, options, message):
    given = {"data": "pairs.jsonl", "recipe": "astec", "cluster": "auto", "workers": 2, "checkpoint_dir": "x"}
    with pytest.raises(OptionError, match=message):
        shortlist.train(**{**given, **options})


def test_the_slowest_worker_is_named_if_the_others_wait_for_it():
    lag = Lag()
    assert lag.slowest([News([], 0.0, "a"), News([], 0.0, "b")], 100.0) is None
    assert lag.slowest([News([], 20.0, "a"), News([], 1.0, "b")], 130.0) is None  # not every moment
    line = lag.slowest([News([], 43.0, "a"), News([], 1.0, "b")], 200.0)
    assert line is not None and "worker 1 on b is the slowest: the others waited for it 42 % of the time" in line
    assert lag.slowest([News([], 50.0, "a"), News([], 5.0, "b")], 300.0) is None  # 3 %
    assert lag.slowest([News([], 50.0, "a"), None], 400.0) is None  # it does not answer
    assert Lag().slowest([News([], 0.0, "a")], 500.0) is None


def test_a_worker_without_memory_says_where_and_what_helps():
    lines = [
        (logging.INFO, "memory: needs about 40.00 GB (label rows 30.00); 12.0 GB are free"),
        (logging.INFO, "learning the rows of 9 labels on 5 candidates per text"),
    ]
    error = out_of_memory(2, 4, "10.0.0.7", lines)
    assert isinstance(error, ShortlistError)
    for part in ("worker 2 of 4 on 10.0.0.7", "learning the rows", "label rows 30.00", "--workers", "embedding_dim"):
        assert part in str(error)
    assert "reading the data" in str(out_of_memory(0, 1, "h", []))
