"""For tests of ensembles and of resuming: data on which seeds disagree, and trainings to be killed."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import numpy as np

import shortlist
from shortlist.cluster.reduce import TcpGroup

OPTIONS = {
    "n_epochs": 2,
    "n_surrogate_epochs": 2,
    "embedding_dim": 16,
    "batch_size": 32,
    "dropout": 0.25,
    "n_clusters": 7,
    "threads": 1,
    "seed": 5,
}


def noisy_topics(n_texts: int, seed: int) -> shortlist.Dataset:
    """Texts with one word of their topic among words of others; one label in five is wrong."""
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(n_texts):
        topic, other = rng.integers(20, size=2)
        words = [
            f"t{topic}w{rng.integers(4)}",
            f"t{other}w{rng.integers(4)}",
            *(f"n{i}" for i in rng.integers(40, size=2)),
        ]
        label = topic if rng.random() < 0.8 else rng.integers(20)
        rows.append((" ".join(words), [f"label {label}", f"group {label % 4}"]))
    dataset = shortlist.read(rows)
    dataset.display_names = {"label 3": "the third topic"}
    return dataset


def files_of(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


# A process of its own for each training, with torch imported already: that takes longer than the trainings here.
_PROCESSES = multiprocessing.get_context("forkserver")
_PROCESSES.set_forkserver_preload(["torch._dynamo", "shortlist.cli.train", "shortlist.training.train"])


def start_command(folder: Path, arguments: list[str], messages: Path, before: str = "") -> BaseProcess:
    """Start `shortlist` with these arguments in a folder; stderr goes to a file. `before` is code to run first."""
    messages.write_text("")
    process = _PROCESSES.Process(target=_run_command, args=(folder, arguments, messages, before))
    process.start()
    return process


def _run_command(folder: Path, arguments: list[str], messages: Path, before: str) -> None:
    os.chdir(folder)
    for path, descriptor in ((os.devnull, 1), (messages, 2)):
        os.dup2(os.open(path, os.O_WRONLY), descriptor)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.argv = ["shortlist", *arguments]
    exec(before, {})
    from shortlist.cli import main

    main()


def in_processes(size: int, work: Callable[..., Any], *arguments: Any) -> list[Any]:
    """`work(group, *arguments)` of every worker of a group, in order. Each is a process: torch's seed is global."""
    pipes = [_PROCESSES.Pipe() for _ in range(size)]
    workers = [
        _PROCESSES.Process(target=_work, args=(rank, size, pipe, work, arguments))
        for rank, (_, pipe) in enumerate(pipes)
    ]
    for worker in workers:
        worker.start()
    for _, pipe in pipes:
        pipe.close()
    try:
        own = [pipe for pipe, _ in pipes]
        addresses = [pipe.recv() for pipe in own]
        for pipe in own:
            pipe.send(addresses)
        return [pipe.recv() for pipe in own]
    finally:
        for worker in workers:
            worker.kill()


def _work(rank: int, size: int, pipe: Any, work: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    group = TcpGroup(rank, size, "127.0.0.1", b"the key of this test")
    pipe.send(group.address)
    group.connect(pipe.recv())
    pipe.send(work(group, *arguments))
    group.close()


def default_sigint() -> None:
    """For `Popen(preexec_fn=...)`: a shell starts background jobs with SIGINT ignored, and processes inherit that."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def exit_code(process: BaseProcess, seconds: float) -> int:
    """Wait for the end of a process."""
    process.join(seconds)
    assert process.exitcode is not None, "timed out"
    return process.exitcode


# Kills itself when a checkpoint, a model or the mark of a finished member is moved into place, the n-th time; or just
# after that.
_KILLED_AT_A_RENAME = """
import os, pathlib, signal
from shortlist import files
place, number, when = {moment!r}.split(":")
seen = []
def then_die(move):
    def move_and_die(path, target):
        # An exchange follows a rename that failed, for the same target.
        moved = str(target).endswith(place) and (move is not rename or not os.path.isdir(target))
        seen.append(moved)
        now = moved and sum(seen) == int(number)
        if now and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        result = move(path, target)
        if now:
            os.kill(os.getpid(), signal.SIGKILL)
        return result
    return move_and_die
rename = pathlib.Path.rename
pathlib.Path.rename, files._exchange = then_die(rename), then_die(files._exchange)
"""


def killed_at(moment: str) -> str:
    """Code for `start_command`: a process that kills itself at "end of a path:how many times:before or after"."""
    return _KILLED_AT_A_RENAME.format(moment=moment)
