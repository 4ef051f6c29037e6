"""Random kills: training, updates of models and batch prediction end in the same bytes as if nothing had happened.

    python benchmarks/reliability/kill.py [--kills 500] [--minutes 600] [--jobs astec,predict] [--seed 0]

A job is a command in a forked process. It gets SIGKILL or SIGTERM at a random moment of its time, up to three times,
and continues with --resume. At the end its files must equal those of an undisturbed run, byte for byte. The second
table says what a job had reported last when it was killed, so that you see whether every phase had its turn.

Files are written to memory (/dev/shm) where there is such a folder: these faults do not depend on the disk.
"""

from __future__ import annotations

import json
import os
import random
import re
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
from small import fast_folder

import shortlist
from common import make_parser, print_json, show
from shortlist.batch import predict as batch
from shortlist.cli import shortlist as command

MAX_KILLS = 3
STOPPED = 130  # training ends in an orderly way after SIGTERM
TRAIN = "train data.jsonl --out out --overwrite --threads 1 --set checkpoint_minutes=0 --recipe"
EPOCHS = "--set n_epochs=2"
SURROGATE = f"{EPOCHS} --set n_surrogate_epochs=2"
JOBS = {
    "popular": f"{TRAIN} popular",
    "centroid": f"{TRAIN} centroid",
    "astec": f"{TRAIN} astec {SURROGATE}",
    "ensemble": f"{TRAIN} astec {SURROGATE} --ensemble 2",
    "inceptionxml": f"{TRAIN} inceptionxml {EPOCHS}",
    "inceptionxml+": f"{TRAIN} inceptionxml+ {EPOCHS}",
    "inceptionxml-deepxml": f"{TRAIN} inceptionxml-deepxml {SURROGATE}",
    "xml-cnn": f"{TRAIN} xml-cnn {EPOCHS}",
    "deepxml-cnn": f"{TRAIN} deepxml-cnn {SURROGATE}",
    "attentionxml": f"{TRAIN} attentionxml {EPOCHS}",
    "mach": f"{TRAIN} mach {EPOCHS}",
    "slice": f"{TRAIN} slice {EPOCHS}",
    "deepxml-mlp": f"{TRAIN} deepxml-mlp {SURROGATE}",
    "deepxml-features": f"{TRAIN.replace('data.jsonl', 'data.txt')} deepxml-features {SURROGATE}",
    "lightxml": f"{TRAIN} lightxml {EPOCHS} --set transformer=transformer",
    "deepxml-transformer": f"{TRAIN} deepxml-transformer {SURROGATE} --set transformer=transformer",
    "update": "update model more.jsonl --replay data.jsonl --out out --threads 1",
    "labels add": "labels add model --name new a-new-label --out out",
    "predict": "predict model data.jsonl --out out.jsonl --threads 1",
    "predict to gzip": "predict model data.jsonl --out out.jsonl.gz --threads 1",
    "predict to CSV": "predict model data.jsonl --out out.csv --threads 1",
    "predict to Parquet": "predict model data.jsonl --out out.parquet --threads 1",
}


class Failure(Exception):
    """A job that did not end as it should."""


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
    moments: Counter[tuple[str, str]] = Counter()
    findings: dict[str, list[str]] = {name: [] for name in chosen}
    with tempfile.TemporaryDirectory(dir=fast_folder()) as temporary:
        place = Path(temporary)
        os.chdir(place)
        write_data(place, with_transformer=any("transformer=" in JOBS[name] for name in chosen))
        expected, seconds = {}, {}
        for name in chosen:
            remove_outputs(place)
            run_here(JOBS[name].split())  # imports what it needs; the forked processes have it then
            expected[name] = outputs(place)
            remove_outputs(place)
            begin = time.perf_counter()
            run(name, [], rng)
            seconds[name] = time.perf_counter() - begin
            if outputs(place) != expected[name]:
                findings[name].append("a forked process gives other bytes")
        while sum(n_kills.values()) < options.kills and time.perf_counter() - start < 60 * options.minutes:
            name = chosen[sum(n_runs.values()) % len(chosen)]
            remove_outputs(place)
            delays = [rng.uniform(0, seconds[name]) for _ in range(rng.randint(1, MAX_KILLS))]
            n_runs[name] += 1
            try:
                killed_at = run(name, delays, rng)
            except Failure as failure:
                findings[name].append(f"after {delays}: {failure}")
                continue
            n_kills[name] += len(killed_at)
            moments.update((name, moment) for moment in killed_at)
            if outputs(place) != expected[name]:
                findings[name].append(f"other bytes after kills at {killed_at}")
        os.chdir("/")
    show([{"job": name, "runs": n_runs[name], "kills": n_kills[name], "different": len(findings[name])}
          for name in chosen])  # fmt: skip
    show([{"job": name, "reported last": moment, "kills": n} for (name, moment), n in sorted(moments.items())])
    print(*(f"{name}: {finding}" for name in chosen for finding in findings[name][:5]), sep="\n")
    different = sum(map(len, findings.values()))
    seconds_in_all = round(time.perf_counter() - start, 1)
    print_json("reliability/kill", kills=sum(n_kills.values()), different=different, seconds=seconds_in_all)
    sys.exit(bool(different))


def write_data(place: Path, with_transformer: bool) -> None:
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
    more = [row | {"labels": [*row["labels"], "a new label"]} for row in rows[:40]]
    (place / "more.jsonl").write_text("".join(json.dumps(row) + "\n" for row in more))
    lines = [f"{i % 20} " + " ".join(f"{j}:{value:.3f}" for j, value in enumerate(rng.normal(size=8))) + "\n"
             for i in range(400)]  # fmt: skip
    (place / "data.txt").write_text("400 8 20\n" + "".join(lines))
    shortlist.train(shortlist.read(place / "data.jsonl", show_progress=False), recipe="centroid").save(place / "model")
    if with_transformer:
        sys.path.append(str(Path(__file__).parents[2] / "tests"))
        from tiny_transformers import tiny_transformer

        tiny_transformer(place / "transformer", [row["text"] for row in rows])


def run_here(arguments: list[str]) -> None:
    """Run a command in this process."""
    try:
        command(arguments)
    except SystemExit as stop:
        if stop.code:
            raise


def run(name: str, delays: list[float], rng: random.Random) -> list[str]:
    """Run a job to its end, with kills after these delays. Returns what it had reported when it was killed."""
    killed_at: list[str] = []
    arguments = JOBS[name].split()
    for delay in [*delays, None]:
        can_resume = arguments[0] in ("train", "predict")
        if killed_at and not can_resume and Path("out").exists():
            break  # the model was in place before the kill; `main` looks whether it is whole
        child = start([*arguments, "--resume"] if killed_at and can_resume else arguments)
        if delay is not None:
            time.sleep(delay)
            os.kill(child, rng.choice([signal.SIGKILL, signal.SIGTERM]))
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        messages = Path("messages").read_text(errors="replace")
        if code == 0:
            break
        if delay is None or (code != STOPPED and code >= 0):
            raise Failure(f"{' '.join(arguments)} ended with {code}: {messages}")
        killed_at.append(moment(messages))
    return killed_at


def moment(messages: str) -> str:
    """The last line of what a process has reported, without numbers."""
    lines = [line for line in messages.splitlines() if not line.startswith(("shortlist:", "no checkpoint in "))]
    return re.sub(r"[\d.,]+", "…", lines[-1].partition(":")[0])[:50] if lines else "nothing"


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
