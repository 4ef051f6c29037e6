"""What the tests of comparisons share: a small data set, and peers that behave in every way a peer can."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np

from shortlist.cli.models import option_value
from shortlist.compare import Settings
from shortlist.compare.plan import Peer, RowPlan, plan

WORDS = ["red", "blue", "green", "small", "large", "old", "new", "round"]
THINGS = ["hat", "shoe", "lamp", "chair", "table", "cup"]

# Does what its name says. Leaves a line in `runs` beside the script each time.
FAKE_PEER = """
import json, os, subprocess, sys, time
from pathlib import Path
import numpy as np

name, job = sys.argv[1], json.loads(Path(sys.argv[2]).read_text())
folder, data = Path(job["folder"]), Path(job["data"])
with (Path(__file__).parent / "runs").open("a") as file:
    file.write(f"{name} {os.getpid()}\\n")
print(f"this is {name}", flush=True)
if name == "hangs":
    # Also what it starts must be ended, though it has left the process group.
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
if name == "eats":
    eaten = []
    while True:
        eaten.append(np.ones(1_000_000))
        time.sleep(0.001)
if name == "leaves-nothing":
    sys.exit(0)
with np.load(data / "test.npz") as rows:
    n_texts = int(rows["shape"][0])
with np.load(data / "train.labels.npz") as labels:
    n_labels, values = int(labels["n_labels"]), labels["values"]
k = job["places"]
best = np.argsort(-np.bincount(values, minlength=n_labels), kind="stable")[:k]
ids, scores = np.full((n_texts, k), -1, np.int32), np.zeros((n_texts, k), np.float32)
ids[:, : len(best)] = best
if name == "other-labels":
    ids[0, 0] = n_labels
if name == "not-numbers":
    scores[:] = np.nan
if name == "too-few":
    ids, scores = ids[1:], scores[1:]
more = {f"{way}.{part}": array for way in job["ways"] for part, array in (("ids", ids), ("scores", scores))}
np.savez(folder / "predictions.npz", ids=ids, scores=scores, **more)
if name == "no-arrays":
    (folder / "predictions.npz").write_bytes(b"these are no arrays")
measured = {"train_seconds": 1.5, "model_bytes": 10, "ms_p50": 0.1, "options": {"fake": True}}
(folder / "measured.json").write_text("[1, 2" if name == "no-json" else json.dumps(measured))
"""
BAD = ["dies", "crashes", "leaves-nothing", "other-labels", "not-numbers", "too-few", "no-arrays", "no-json"]


def is_alive(pid: int) -> bool:
    """Whether there is such a process; a dead one that nobody has asked about yet does not count."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def write_data(folder: Path, n_train: int = 240, n_test: int = 60, seed: int = 0) -> Path:
    """A folder with train and test; the label of a text is its thing, and often its first word."""
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


def fake_rows(folder: Path, *names: str) -> list[RowPlan]:
    """Rows of peers that behave as their names say."""
    script = folder / "fake_peer.py"
    if not script.exists():
        folder.mkdir(parents=True, exist_ok=True)
        script.write_text(FAKE_PEER)
    return [RowPlan(name, "peer", name, peer=Peer(name, name, "numpy", script)) for name in names]


def settings_of(data: Path, out: Path, rows: list[RowPlan] | str, **options) -> Settings:
    rows = plan(rows, "none", option_value) if isinstance(rows, str) else rows
    given = {"peers_python": sys.executable, "threads": 1, "latency_texts": 5} | options
    return Settings(source=str(data), out=str(out), rows=rows, **given)
