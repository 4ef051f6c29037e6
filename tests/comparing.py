"""Helpers for the tests of comparisons: a small data set, and fake peers that fail in every possible way."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import psutil

from shortlist.cli.train import option_value
from shortlist.compare import Settings
from shortlist.compare.plan import EntryPlan, Peer, plan

WORDS = ["red", "blue", "green", "small", "large", "old", "new", "round"]
THINGS = ["hat", "shoe", "lamp", "chair", "table", "cup"]

# Does what its name says. Appends a line to `runs` next to the script each time it runs.
FAKE_PEER = """
import json, os, subprocess, sys, time
from pathlib import Path
import numpy as np

name, job = sys.argv[1], json.loads(Path(sys.argv[2]).read_text())
folder, data = Path(job["folder"]), Path(job["peer_data"])
with (Path(__file__).parent / "runs").open("a") as file:
    file.write(f"{name} {os.getpid()}\\n")
print(f"this is {name}", flush=True)
if name == "hangs":
    # Its child must be ended as well, although it has left the process group.
    child = subprocess.Popen([sys.executable, "-c", "import os, time; os.setpgid(0, 0); time.sleep(600)"])
    with (Path(__file__).parent / "runs").open("a") as file:
        file.write(f"child {child.pid}\\n")
    time.sleep(600)
if name == "dies":
    print("something is wrong", flush=True)
    sys.exit(1)
if name == "crashes":
    os.abort()
if name == "cannot":
    print("not on this data", flush=True)
    sys.exit(3)
if name == "eats-memory":
    eaten = []
    while True:
        eaten.append(np.ones(1_000_000))
        time.sleep(0.001)
if name == "no-result":
    sys.exit(0)
with np.load(data / "test.npz") as rows:
    n_texts = int(rows["shape"][0])
with np.load(data / "train.labels.npz") as labels:
    n_labels, values = int(labels["n_labels"]), labels["values"]
k = job["k"]
best = np.argsort(-np.bincount(values, minlength=n_labels), kind="stable")[:k]
ids, scores = np.full((n_texts, k), -1, np.int32), np.zeros((n_texts, k), np.float32)
ids[:, : len(best)] = best
if name == "unknown-labels":
    ids[0, 0] = n_labels
if name == "nan-scores":
    scores[:] = np.nan
if name == "missing-texts":
    ids, scores = ids[1:], scores[1:]
arrays = {"ids": ids, "scores": scores}
for kind in job["perturbations"]:
    arrays.update({f"{kind}.ids": ids, f"{kind}.scores": scores})
np.savez(folder / "predictions.npz", **arrays)
if name == "invalid-npz":
    (folder / "predictions.npz").write_bytes(b"not an npz file")
measured = {"train_seconds": 1.5, "model_bytes": 10, "ms_p50": 0.1, "options": {"fake": True}}
(folder / "measured.json").write_text("[1, 2" if name == "invalid-json" else json.dumps(measured))
"""
INVALID = ["unknown-labels", "nan-scores", "missing-texts", "invalid-npz", "invalid-json"]
BAD = ["dies", "crashes", "no-result", *INVALID]


def is_alive(pid: int) -> bool:
    """Whether the process exists and is not a zombie."""
    try:
        return psutil.Process(pid).status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    except psutil.NoSuchProcess:
        return False


def write_data(folder: Path, n_train: int = 240, n_test: int = 60, seed: int = 0) -> Path:
    """Write a train and a test part; the labels of a text are its last word and often its first."""
    rng = np.random.default_rng(seed)
    folder.mkdir(parents=True, exist_ok=True)
    for part, count in (("train", n_train), ("test", n_test)):
        lines = []
        for number in range(count):
            thing, words = THINGS[min(rng.geometric(0.35), 6) - 1], rng.choice(WORDS, 3, replace=False).tolist()
            labels = [thing, *(words[:1] if rng.random() < 0.5 else [])]
            if part == "test" and number == 0:
                labels = ["never seen"]
            lines.append(json.dumps({"text": f"{' '.join(words)} {thing} {number % 7}", "labels": labels}) + "\n")
        (folder / f"{part}.jsonl").write_text("".join(lines))
    return folder


def fake_entries(folder: Path, *names: str) -> list[EntryPlan]:
    """Entries of fake peers that do what their names say."""
    script = folder / "fake_peer.py"
    if not script.exists():
        folder.mkdir(parents=True, exist_ok=True)
        script.write_text(FAKE_PEER)
    return [EntryPlan(name, "peer", name, peer=Peer(name, name, "numpy", script)) for name in names]


def settings_of(data: Path, out: Path, entries: list[EntryPlan] | str, **options) -> Settings:
    entries = plan(entries, "none", option_value) if isinstance(entries, str) else entries
    given = {"peers_python": sys.executable, "threads": 1, "latency_texts": 5} | options
    return Settings(source=str(data), out=str(out), entries=entries, **given)
