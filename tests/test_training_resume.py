"""Trainings that are really killed, by the command line: what goes on from there ends in the same files."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

pytest.importorskip("torch")

pytestmark = pytest.mark.slow

SECONDS = 120
# The second checkpoint does not come into the place of the first, which is moved aside already: killed on the spot.
KILLED_BETWEEN_RENAMES = """
import os, pathlib, signal
rename, seen = pathlib.Path.rename, []
def counted(path, target):
    seen.append(target.name)
    if seen.count("state") == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return rename(path, target)
pathlib.Path.rename = counted
from shortlist.cli import main
main()
"""


def write_pairs(folder, seed=0):
    rng = np.random.default_rng(seed)
    folder.mkdir()
    with (folder / "pairs.jsonl").open("w") as file:
        for _ in range(400):
            topic = int(rng.integers(40))
            words = [f"t{topic}w{i}" for i in rng.integers(5, size=3)] + [f"noise{i}" for i in rng.integers(50, size=3)]
            file.write(json.dumps({"text": " ".join(words), "labels": [f"label {topic}", f"group {topic % 7}"]}) + "\n")
    return folder


SETTINGS = {
    "inceptionxml+": {"epochs": 4, "dimensions": 64, "batch_size": 16, "clusters": 8, "top": 3, "validation": 0.1},
    "astec": {"surrogate_epochs": 8, "epochs": 8, "dimensions": 64, "batch_size": 16, "clusters": 8, "shortlist": 20},
}


def start(folder, *more, program=("-m", "shortlist"), recipe="inceptionxml+"):
    """Training under way, its messages in a file; a checkpoint is due every few steps."""
    settings = {**SETTINGS[recipe], "minutes_between_checkpoints": 0.002}
    command = [*program, "train", "pairs.jsonl", "--recipe", recipe, "--out", "model", "--threads", "1"]
    options = [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
    with messages_of(folder).open("w") as messages:
        return subprocess.Popen(
            [sys.executable, *command, *options, "--seed", "3", *more],
            cwd=folder,
            env={**os.environ, "OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"},
            stdout=subprocess.DEVNULL,
            stderr=messages,
        )


def messages_of(folder):
    return folder.parent / "messages.txt"


def finished(process, folder):
    """Exit code and messages."""
    return process.wait(SECONDS), messages_of(folder).read_text()


def until(process, condition):
    """Wait, but not so long that it is over: what we wait for may come for a moment only."""
    last = time.monotonic() + SECONDS
    while process.poll() is None and not condition():
        assert time.monotonic() < last
        time.sleep(0.001)


def files_of(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def hidden_in(folder):
    return list(folder.glob("**/.*"))


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    """The files of a model that was trained in one go."""
    folder = write_pairs(tmp_path_factory.mktemp("unbroken") / "data")
    code, messages = finished(start(folder), folder)
    assert code == 0, messages
    assert sorted(path.name for path in folder.iterdir()) == ["model", "pairs.jsonl"]
    return files_of(folder / "model")


def test_killed_again_and_again_it_leaves_the_same_model(unbroken, tmp_path):
    folder = write_pairs(tmp_path / "data")
    checkpoints, chance = folder / "model.checkpoints", random.Random(0)

    assert finished(start(folder, program=("-c", KILLED_BETWEEN_RENAMES)), folder)[0] == -signal.SIGKILL
    assert not (checkpoints / "state").exists()

    kills = code = 1
    for moment in ("writing", "writing", 0.3, "writing", 0.6, 1.2):
        process = start(folder, "--resume")
        until(process, lambda: "going on at epoch" in messages_of(folder).read_text())
        if moment == "writing":
            until(process, lambda: any(checkpoints.glob(".state.*.partial")))
            time.sleep(chance.random() / 20)
        else:
            time.sleep(moment * (0.5 + chance.random()))
        process.kill()
        code, messages = finished(process, folder)
        assert "going on at epoch" in messages
        if code == 0:
            break
        assert code == -signal.SIGKILL, messages
        kills += 1
        assert len(hidden_in(folder)) <= 2  # what this one left, and not what those before it left
    assert kills >= 3
    if code != 0:
        code, messages = finished(start(folder, "--resume"), folder)
        assert code == 0, messages
    assert sorted(path.name for path in folder.iterdir() if path.name[0] != ".") == ["model", "pairs.jsonl"]
    assert files_of(folder / "model") == unbroken


def test_ctrl_c_leaves_a_checkpoint_from_which_only_the_same_training_goes_on(unbroken, tmp_path):
    folder = write_pairs(tmp_path / "data")
    process = start(folder)
    until(process, (folder / "model.checkpoints" / "state").exists)
    process.send_signal(signal.SIGINT)
    code, messages = finished(process, folder)
    assert code == 130
    assert "the training is saved in" in messages
    assert "To go on: --resume" in messages
    assert "Traceback" not in messages
    saved = files_of(folder / "model.checkpoints" / "state")

    code, messages = finished(start(folder), folder)
    assert (code, "holds an unfinished training. Go on with it (--resume" in messages) == (2, True), messages
    code, messages = finished(start(folder, "--resume", "--set", "rate=0.001"), folder)
    assert (code, "had rate = 0.004, this one has 0.001" in messages) == (2, True), messages
    pairs = (folder / "pairs.jsonl").read_bytes()
    (folder / "pairs.jsonl").write_bytes((write_pairs(tmp_path / "other", seed=1) / "pairs.jsonl").read_bytes())
    code, messages = finished(start(folder, "--resume"), folder)
    assert (code, "had data = " in messages) == (2, True), messages
    assert files_of(folder / "model.checkpoints" / "state") == saved

    (folder / "pairs.jsonl").write_bytes(pairs)
    code, messages = finished(start(folder, "--resume"), folder)
    assert code == 0, messages
    assert "going on at epoch" in messages
    assert sorted(path.name for path in folder.iterdir()) == ["model", "pairs.jsonl"]
    assert files_of(folder / "model") == unbroken


def test_every_phase_of_astec_goes_on_where_it_was_killed(tmp_path):
    whole, broken = write_pairs(tmp_path / "whole"), write_pairs(tmp_path / "broken")
    code, messages = finished(start(whole, recipe="astec"), whole)
    assert code == 0, messages
    killed = []
    for sign in ("surrogate/state", "extreme/state", "extreme/metrics.jsonl"):
        process = start(broken, *["--resume"] * bool(killed), recipe="astec")
        until(process, (broken / "model.checkpoints" / sign).exists)
        process.kill()
        killed.append(finished(process, broken)[0])
    assert killed == [-signal.SIGKILL] * 3
    code, messages = finished(start(broken, recipe="astec"), broken)
    assert (code, "holds an unfinished training" in messages) == (2, True), messages
    code, messages = finished(start(broken, "--resume", recipe="astec"), broken)
    assert code == 0, messages
    assert messages.count("going on at epoch") == 2
    assert files_of(broken / "model") == files_of(whole / "model")
    assert not (broken / "model.checkpoints").exists()
