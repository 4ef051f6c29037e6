"""What the programs of this folder share: a small model, and a server of it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import shortlist

COLOURS, THINGS = ("red", "blue", "green"), ("shoe", "hat", "coat", "scarf")
TEXTS = [f"{colour} {thing} {i}" for i in range(5) for colour in COLOURS for thing in THINGS]
START_SECONDS = 300


def fast_folder() -> str | None:
    """A folder for temporary files in memory, for faults that do not depend on the disk; None if there is none."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def small_model(label: str = "") -> shortlist.Model:
    """Trained in a moment; with a label, another model."""
    rows = [(text, [*text.split()[:2], *([label] if label else [])]) for text in TEXTS]
    return shortlist.train(rows, recipe="centroid")


@contextmanager
def serve(folder: Path, *options: str) -> Iterator[int]:
    """Serve a small model from this folder in a process of its own; gives its port. `serve.process` is the process."""
    if not folder.exists():
        small_model().save(folder)
    with tempfile.TemporaryFile() as log:
        command = [sys.executable, "-m", "shortlist", "serve", str(folder), "--port", "0", *options]
        process = subprocess.Popen(command, stderr=log)
        try:
            yield _port(process, log)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)


def _port(process: subprocess.Popen, log) -> int:
    """Wait until the server is ready."""
    give_up = time.monotonic() + START_SECONDS
    while time.monotonic() < give_up and process.poll() is None:
        lines = os.pread(log.fileno(), 1 << 16, 0).decode().splitlines()
        events = {line["event"]: line for line in map(json.loads, filter(lambda line: line.endswith("}"), lines))}
        if "model loaded" in events:
            return int(events["listening"]["url"].rpartition(":")[2])
        time.sleep(0.05)
    raise RuntimeError(f"the server did not start: {os.pread(log.fileno(), 1 << 16, 0).decode()}")
