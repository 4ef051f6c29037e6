"""Random kills: training, updates of labels and batch prediction end in the same bytes as if nothing had happened.

    python benchmarks/reliability/kill.py [--kills 500] [--minutes 600] [--jobs astec,predict] [--seed 0]

A job is a command in a forked process. It gets SIGKILL or SIGTERM at a random moment of its time, up to three times,
and continues with --resume. At the end its files must equal those of an undisturbed run, byte for byte.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).parent.parent))
import shortlist
from common import make_parser, print_json, show
from shortlist.batch import predict as batch
from shortlist.cli import shortlist as command

MAX_KILLS = 3
STOPPED = 130  # training ends in an orderly way after SIGTERM
TRAIN = "train data.jsonl --out out --overwrite --threads 1 --set checkpoint_minutes=0 --set embedding_dim=16 --recipe"
JOBS = {
    "astec": f"{TRAIN} astec --set n_epochs=3",
    "mach": f"{TRAIN} mach --set n_epochs=3",
    "slice": f"{TRAIN} slice",
    "deepxml-mlp": f"{TRAIN} deepxml-mlp",
    "ensemble": f"{TRAIN} astec --set n_epochs=2 --ensemble 2",
    "labels add": "labels add model --name new a-new-label --out out",
    "predict": "predict model data.jsonl --out out.jsonl --threads 1",
    "predict to Parquet": "predict model data.jsonl --out out.parquet --threads 1",
}


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--kills", type=int, default=500)
    parser.add_argument("--minutes", type=float, default=600.0, help="stop after this time, at the latest")
    parser.add_argument("--jobs", help="names, separated by commas; all by default")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    chosen = options.jobs.split(",") if options.jobs else list(JOBS)
    rng, start = random.Random(options.seed), time.perf_counter()
    batch.CHUNK_ROWS = 16
    n_kills: Counter[str] = Counter()
    n_runs: Counter[str] = Counter()
    n_different: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary)
        os.chdir(place)
        write_data(place)
        expected, seconds = {}, {}
        for name in chosen:
            run(name, [])  # loads what it needs
            remove_outputs(place)
            begin = time.perf_counter()
            run(name, [])
            expected[name], seconds[name] = outputs(place), time.perf_counter() - begin
        while sum(n_kills.values()) < options.kills and time.perf_counter() - start < 60 * options.minutes:
            name = chosen[sum(n_runs.values()) % len(chosen)]
            remove_outputs(place)
            delays = [rng.uniform(0, seconds[name]) for _ in range(rng.randint(1, MAX_KILLS))]
            n_kills[name] += run(name, delays, rng)
            n_runs[name] += 1
            n_different[name] += outputs(place) != expected[name]
    show(
        [{"job": name, "runs": n_runs[name], "kills": n_kills[name], "different": n_different[name]} for name in chosen]
    )
    different = sum(n_different.values())
    seconds_in_all = round(time.perf_counter() - start, 1)
    print_json("reliability/kill", kills=sum(n_kills.values()), different=different, seconds=seconds_in_all)
    sys.exit(bool(different))


def write_data(place: Path) -> None:
    rng = np.random.default_rng(0)
    rows = []
    for _ in range(400):
        topic, other = rng.integers(20, size=2)
        words = [
            f"t{topic}w{rng.integers(4)}",
            f"t{other}w{rng.integers(4)}",
            *(f"n{i}" for i in rng.integers(40, size=2)),
        ]
        rows.append({"text": " ".join(words), "labels": [f"label {topic}", f"group {topic % 4}"]})
    (place / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    shortlist.train(shortlist.read(place / "data.jsonl", show_progress=False), recipe="centroid").save(place / "model")


def run(name: str, delays: list[float], rng: random.Random | None = None) -> int:
    """Run a job to its end, with kills after these delays. Returns how many were in time."""
    n_kills, arguments = 0, JOBS[name].split()
    for delay in [*delays, None]:
        if n_kills and arguments[0] != "labels":
            arguments = [*JOBS[name].split(), "--resume"]
        child = start(arguments)
        if delay is None:
            break
        time.sleep(delay)
        os.kill(child, rng.choice([signal.SIGKILL, signal.SIGTERM]) if rng else signal.SIGKILL)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert code in (0, STOPPED) or code < 0, f"{' '.join(arguments)} ended with {code}"
        if code == 0:
            return n_kills
        n_kills += 1
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code == 0, f"{' '.join(arguments)} ended with {code}: {Path('messages').read_text()}"
    return n_kills


def start(arguments: list[str]) -> int:
    """Fork a process that runs the command."""
    if child := os.fork():
        return child
    messages = os.open("messages", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(messages, 1)
    os.dup2(messages, 2)
    sys.argv = ["shortlist", *arguments]
    try:
        command(arguments)
    except SystemExit as stop:
        sys.stdout.flush()
        os._exit(stop.code if isinstance(stop.code, int) else 1)
    except BaseException:  # noqa: BLE001 - reported by the exit code
        traceback.print_exc()
    sys.stderr.flush()
    os._exit(70)


def outputs(place: Path) -> dict[str, bytes]:
    """All files that a job has left."""
    files = [path for out in place.glob("out*") for path in (out, *out.rglob("*")) if path.is_file()]
    return {str(path.relative_to(place)): path.read_bytes() for path in files}


def remove_outputs(place: Path) -> None:
    for pattern in ("out*", ".out*"):
        for path in place.glob(pattern):
            shutil.rmtree(path) if path.is_dir() else path.unlink()


if __name__ == "__main__":
    main()
