"""Trainings by the command line that are really killed: resumed, they end in the same files."""

from __future__ import annotations

import json
import os
import random
import signal
import time

import numpy as np
import pytest

from training_processes import exit_code, files_of, killed_at, start_command

pytest.importorskip("torch")

pytestmark = pytest.mark.slow

SECONDS = 120
SMALL = {"embedding_dim": 64, "batch_size": 16, "n_clusters": 8, "checkpoint_minutes": 0.002}
OPTIONS = {
    "inceptionxml+": {**SMALL, "n_epochs": 4, "channels": 8, "n_clusters_searched": 3, "validation_fraction": 0.1},
    "astec": {**SMALL, "n_surrogate_epochs": 8, "n_epochs": 8, "n_candidates": 20},
}


def write_pairs(folder, seed=0):
    rng = np.random.default_rng(seed)
    folder.mkdir()
    with (folder / "pairs.jsonl").open("w") as file:
        for _ in range(400):
            topic = int(rng.integers(40))
            words = [f"t{topic}w{i}" for i in rng.integers(5, size=3)] + [f"noise{i}" for i in rng.integers(50, size=3)]
            file.write(json.dumps({"text": " ".join(words), "labels": [f"label {topic}", f"group {topic % 7}"]}) + "\n")
    return folder


def start(folder, *more, before="", recipe="inceptionxml+"):
    """Start a training that writes its messages to a file, and a checkpoint every few steps."""
    command = ["train", "pairs.jsonl", "--recipe", recipe, "--out", "model", "--threads", "1", "--seed", "3"]
    settings = [part for name, value in OPTIONS[recipe].items() for part in ("--set", f"{name}={value}")]
    return start_command(folder, [*command, *settings, *more], messages_of(folder), before)


def messages_of(folder):
    return folder.parent / "messages.txt"


def finished(process, folder):
    """Exit code and messages."""
    return exit_code(process, SECONDS), messages_of(folder).read_text()


def wait_until(process, condition):
    """Wait for a condition, which may be true for a moment only, or for the end of the process."""
    last = time.monotonic() + SECONDS
    while process.exitcode is None and not condition():
        assert time.monotonic() < last
        time.sleep(0.001)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    """The files of a model that was trained in one go."""
    folder = write_pairs(tmp_path_factory.mktemp("uninterrupted") / "data")
    code, messages = finished(start(folder), folder)
    assert code == 0, messages
    assert sorted(path.name for path in folder.iterdir()) == ["model", "pairs.jsonl"]
    return files_of(folder / "model")


def test_killed_again_and_again_it_leaves_the_same_model(uninterrupted, tmp_path):
    folder = write_pairs(tmp_path / "data")
    checkpoints, rng = folder / "model.checkpoints" / "joint", random.Random(0)

    # When the second checkpoint should be moved into place: the first one is still there.
    killed = start(folder, before=killed_at("state:2:before"))
    assert finished(killed, folder)[0] == -signal.SIGKILL
    assert (checkpoints / "state").exists()

    kills = code = 1
    for moment in ("writing", 0.3, "writing", 0.6):
        process = start(folder, "--resume")
        wait_until(process, lambda: "resuming at epoch" in messages_of(folder).read_text())
        if moment == "writing":
            wait_until(process, lambda: any(checkpoints.glob(".state.*.partial")))
            time.sleep(rng.random() / 20)
        else:
            time.sleep(moment * (0.5 + rng.random()))
        process.kill()
        code, messages = finished(process, folder)
        assert "resuming at epoch" in messages
        if code == 0:
            break
        assert code == -signal.SIGKILL, messages
        kills += 1
        assert len(list(folder.glob("**/.*"))) <= 2  # leftovers of this one, not of those before it
    assert kills >= 3
    if code != 0:
        code, messages = finished(start(folder, "--resume"), folder)
        assert code == 0, messages
    assert sorted(path.name for path in folder.iterdir() if path.name[0] != ".") == ["model", "pairs.jsonl"]
    assert files_of(folder / "model") == uninterrupted


def test_ctrl_c_leaves_a_checkpoint_that_only_the_same_training_resumes(uninterrupted, tmp_path):
    folder = write_pairs(tmp_path / "data")
    state = folder / "model.checkpoints" / "joint" / "state"
    process = start(folder)
    wait_until(process, state.exists)
    os.kill(process.pid, signal.SIGINT)
    code, messages = finished(process, folder)
    assert code == 130
    assert "the training is saved in" in messages
    assert "To continue, rerun with --resume" in messages
    assert "Traceback" not in messages
    saved = files_of(state)

    code, messages = finished(start(folder), folder)
    assert (code, "holds an interrupted training. Continue it (--resume" in messages) == (2, True), messages
    code, messages = finished(start(folder, "--resume", "--set", "learning_rate=0.001"), folder)
    assert (code, "had learning_rate = 0.004, this one has 0.001" in messages) == (2, True), messages
    pairs = (folder / "pairs.jsonl").read_bytes()
    (folder / "pairs.jsonl").write_bytes((write_pairs(tmp_path / "other", seed=1) / "pairs.jsonl").read_bytes())
    code, messages = finished(start(folder, "--resume"), folder)
    assert (code, "had data = " in messages) == (2, True), messages
    assert files_of(state) == saved

    (folder / "pairs.jsonl").write_bytes(pairs)
    code, messages = finished(start(folder, "--resume"), folder)
    assert code == 0, messages
    assert "resuming at epoch" in messages
    assert sorted(path.name for path in folder.iterdir()) == ["model", "pairs.jsonl"]
    assert files_of(folder / "model") == uninterrupted


def test_every_phase_of_astec_resumes_where_it_was_killed(tmp_path):
    whole, killed = write_pairs(tmp_path / "whole"), write_pairs(tmp_path / "killed")
    code, messages = finished(start(whole, recipe="astec"), whole)
    assert code == 0, messages
    codes = []
    for sign in ("surrogate/state", "classifier/state", "classifier/metrics.jsonl"):
        process = start(killed, *["--resume"] * bool(codes), recipe="astec")
        wait_until(process, (killed / "model.checkpoints" / sign).exists)
        process.kill()
        codes.append(finished(process, killed)[0])
    assert codes == [-signal.SIGKILL] * 3
    code, messages = finished(start(killed, recipe="astec"), killed)
    assert (code, "holds an interrupted training" in messages) == (2, True), messages
    code, messages = finished(start(killed, "--resume", recipe="astec"), killed)
    assert code == 0, messages
    assert messages.count("resuming at epoch") == 2
    assert files_of(killed / "model") == files_of(whole / "model")
    assert not (killed / "model.checkpoints").exists()
