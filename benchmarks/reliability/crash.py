"""Every write can be the last: what is left of a model, a checkpoint or an output after a fault at any point.

    python benchmarks/reliability/crash.py [--points 300] [--seed 0]

A library that is preloaded (faults.c, compiled on the fly) counts every write, truncation, sync, rename, new and
removed file of an operation. The operation is then repeated in a forked process for each point and each fault:

    fail     that change fails (disk full, I/O error), the following ones do not
    full     that change and all that follow fail
    torn     half of the write happens, then the process is killed
    kill     the change happens, then the process is killed
    power    as kill, and everything that was written and not synced is lost

Afterwards the old or the new state must be there, whole; a failure must be a `ShortlistError` and leave nothing behind;
an interrupted output must be resumed to the same bytes. Linux only.
"""

from __future__ import annotations

import ctypes
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).parent.parent))
from small import fast_folder

import shortlist
from common import make_parser, print_json, show
from shortlist.batch import predict as batch
from shortlist.batch.output import ResumableOutput
from shortlist.data.rows import RowOptions, RowSource
from shortlist.errors import ShortlistError
from shortlist.training.checkpoints import Checkpoints

COUNT, FAULTS = 1, {"fail": 2, "full": 3, "torn": 4, "kill": 5, "power": 6}
LIBRARY = "shortlist-faults.so"
DONE, REFUSED, BUG = 0, 2, 70
CHUNK_ROWS = 4


@dataclass
class Scenario:
    """An operation on a folder; `check` says what is wrong with what is there afterwards, or ""."""

    name: str
    prepare: Callable[[Path], None]
    run: Callable[[Path], None]
    check: Callable[[Path], str]
    without_exchange: bool = False


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--points", type=int, help="how many faults to try, drawn at random; all by default")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if LIBRARY not in os.environ.get("LD_PRELOAD", ""):
        preload()
    faults = ctypes.CDLL(None)
    faults.faults_seen.restype = ctypes.c_long
    start = time.perf_counter()
    with tempfile.TemporaryDirectory(dir=fast_folder()) as temporary:
        place = Path(temporary)
        known = scenarios(place)
        plan = [
            (scenario, fault, point)
            for scenario in known
            for point in range(1, count_points(faults, scenario, place) + 1)
            for fault in FAULTS
        ]
        if options.points is not None:
            plan = random.Random(options.seed).sample(plan, min(options.points, len(plan)))
        problems: list[str] = []
        n_points: Counter[str] = Counter()
        n_problems: Counter[str] = Counter()
        for scenario, fault, point in plan:
            problem = try_point(faults, scenario, fault, point, place)
            n_points[scenario.name] += 1
            if problem:
                n_problems[scenario.name] += 1
                problems.append(f"{scenario.name}, {fault} at {point}: {problem}")
    show([{"operation": name, "points": n, "losses": n_problems[name]} for name, n in n_points.items()])
    print(*problems[:20], sep="\n")
    seconds = round(time.perf_counter() - start, 1)
    print_json("reliability/crash", points=len(plan), losses=len(problems), seconds=seconds)
    sys.exit(bool(problems))


def preload() -> None:
    """Start this program again with the library."""
    folder = Path(tempfile.mkdtemp())
    source = Path(__file__).with_name("faults.c")
    subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", folder / LIBRARY, source, "-ldl", "-lpthread"], check=True)
    code = subprocess.call([sys.executable, *sys.argv], env={**os.environ, "LD_PRELOAD": str(folder / LIBRARY)})
    shutil.rmtree(folder)
    sys.exit(code)


def count_points(faults: ctypes.CDLL, scenario: Scenario, place: Path) -> int:
    """How many changes the operation makes."""
    folder = fresh(scenario, place)
    reader, writer = os.pipe()
    if not (child := os.fork()):
        faults.faults_arm(COUNT, 0, scenario.without_exchange)
        scenario.run(folder)
        os.write(writer, str(faults.faults_seen()).encode())
        os._exit(DONE)
    os.waitpid(child, 0)
    os.close(writer)
    with os.fdopen(reader) as counted:
        return int(counted.read())


def try_point(faults: ctypes.CDLL, scenario: Scenario, fault: str, point: int, place: Path) -> str:
    """Let one change go wrong. Returns what was lost, or ""."""
    folder = fresh(scenario, place)
    if not (child := os.fork()):
        faults.faults_arm(FAULTS[fault], point, scenario.without_exchange)
        try:
            scenario.run(folder)
        except ShortlistError:
            os._exit(REFUSED)
        except BaseException:  # noqa: BLE001 - reported by the exit code
            traceback.print_exc()
            os._exit(BUG)
        os._exit(DONE)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code not in (DONE, REFUSED, -signal.SIGKILL):
        return f"ended with {code}"
    if code == REFUSED and fault in ("fail", "full") and scenario.name != "predict to a file":
        left = [path.name for path in folder.iterdir() if path.name.endswith(".partial")]
        if left:
            return f"left {left[0]} behind"
    try:
        return scenario.check(folder)
    except Exception as error:  # noqa: BLE001 - whatever it is, the state is not whole
        return f"{type(error).__name__}: {error}"


def fresh(scenario: Scenario, place: Path) -> Path:
    folder, template = place / "now", place / f"{scenario.name} {scenario.without_exchange}"
    if not template.exists():
        template.mkdir()
        scenario.prepare(template)
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(template, folder)
    return folder


def scenarios(place: Path) -> list[Scenario]:
    texts = [f"{colour} {thing} {i}" for i in range(4) for colour in ("red", "blue") for thing in ("hat", "shoe")]
    old = shortlist.train([(text, text.split()[:2]) for text in texts], recipe="centroid")
    new = shortlist.train([(text, [*text.split()[:2], "new"]) for text in texts], recipe="centroid")
    more = old.add_labels({"scarf": "a warm scarf"})
    further = shortlist.read([(text.replace("hat", "cap"), ["cap"]) for text in texts])
    learnt = old.update(further, threads=1)
    new.store_list("colours", ["red", "blue"])
    states = [np.arange(1000.0), np.ones((30, 30), np.float32)]

    def save(model: shortlist.Model) -> Callable[[Path], None]:
        return lambda folder: model.save(folder / "model")

    def is_old_or(*models: shortlist.Model) -> Callable[[Path], str]:
        def check(folder: Path) -> str:
            found = shortlist.load(folder / "model")
            answers = [model.predict(texts, k=3, min_score=0) for model in (found, old, *models)]
            return "" if answers[0] in answers[1:] else "another model"

        return check

    def checkpoint(state: np.ndarray, epoch: int) -> Callable[[Path], None]:
        def run(folder: Path) -> None:
            checkpoints = Checkpoints(folder / "checkpoints", {"recipe": "x"})
            checkpoints.save({"weights": state, "more": state + 1}, {"epoch": epoch})
            checkpoints.save_best({"weights": state})
            checkpoints.write_metrics([{"epoch": epoch}])

        return run

    def check_checkpoint(folder: Path) -> str:
        arrays, facts = Checkpoints(folder / "checkpoints", {"recipe": "x"}).load() or ({}, {})
        if not arrays:
            return "no checkpoint"
        expected = states[facts["epoch"]]
        best = Checkpoints(folder / "checkpoints", {"recipe": "x"}).load_best()["weights"]
        whole = np.array_equal(arrays["weights"], expected) and np.array_equal(arrays["more"], expected + 1)
        return "" if whole and any(np.array_equal(best, state) for state in states) else "another state"

    batch.CHUNK_ROWS = CHUNK_ROWS
    source = place / "in.jsonl"
    source.write_text("".join(f'{{"text": "{text}"}}\n' for text in texts))

    def predict(name: str, resume: bool = False) -> Callable[[Path], None]:
        def run(folder: Path) -> None:
            rows = RowSource(source, None, RowOptions())
            encode = batch.JsonLines(rows.unit, False, True)
            with ResumableOutput(folder / name, encode, {"input": rows.fingerprint}, resume, not resume) as output:
                if not output.finished:
                    batch.predict_rows(old, rows, output, k=2, threads=1)
                output.finish()

        return run

    whole = dict.fromkeys(("out.jsonl", "out.jsonl.gz", "out.parquet"), b"")
    for name in whole:
        predict(name)(place)
        whole[name] = (place / name).read_bytes()

    def check_output(name: str) -> Callable[[Path], str]:
        def check(folder: Path) -> str:
            before = (folder / name).read_bytes() if (folder / name).exists() else b"old"
            if before not in (b"old", whole[name]):
                return "half an output is in place"
            if (folder / f"{name}.partial").exists():
                if before == b"old":
                    (folder / name).unlink(missing_ok=True)  # what --overwrite allowed
                predict(name, resume=True)(folder)
            elif before == b"old":
                predict(name)(folder)
            return "" if (folder / name).read_bytes() == whole[name] else "resuming gives other bytes"

        return check

    pairs = [shortlist.read([(text, [label]) for text in texts]) for label in ("one", "two")]

    def check_data(folder: Path) -> str:
        return "" if shortlist.read(folder / "data.jsonl.gz").label_names in (["one"], ["two"]) else "other data"

    known = []
    for without_exchange in (False, True):
        known += [
            Scenario(name, save(old), run, is_old_or(model), without_exchange)
            for name, run, model in [
                ("save a model", save(new), new),
                ("add labels", lambda folder: shortlist.load(folder / "model").add_labels(
                    {"scarf": "a warm scarf"}).save(folder / "model"), more),
                ("update a model", lambda folder: shortlist.load(folder / "model").update(further, threads=1).save(
                    folder / "model", bits=32), learnt),
                ("save in 32 bits", lambda folder: new.save(folder / "model", bits=32), new),
            ]
        ]  # fmt: skip
        first, second = checkpoint(states[0], 0), checkpoint(states[1], 1)
        known.append(Scenario("write a checkpoint", first, second, check_checkpoint, without_exchange))
    known += [
        Scenario("predict to a file", lambda folder, name=name: (folder / name).write_bytes(b"old"),
                 predict(name), check_output(name))
        for name in whole
    ]  # fmt: skip
    known.append(
        Scenario("write data", lambda folder: pairs[0].write(folder / "data.jsonl.gz"),
                 lambda folder: pairs[1].write(folder / "data.jsonl.gz"), check_data)
    )  # fmt: skip
    return known


if __name__ == "__main__":
    main()
