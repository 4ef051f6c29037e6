"""Speed against PECOS XR-Linear: training, bulk and single predictions, the start of a process, and the server.

    python benchmarks/speed.py MODEL DATA/commit-files --peers-python .venv-peers/bin/python [--texts 2000]

MODEL was trained on the training part of the data. If there is no such folder, `astec` is trained in this run and saved
there; only then is there a ratio of training times. PECOS is trained in this run, and gets its texts as sparse rows,
which costs it nothing; ours are texts. Our predictions are measured before and after PECOS's, and the better half
counts, because other programs can only slow them down; the load of the machine is printed, too. Bulk: all test texts on
two cores. One text: on one thread, `model.predict` to label names. Start: medians of new processes. Server: one core,
one text per request (server_load.py). Busy: how much longer bulk takes while two other processes keep both cores busy.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import shortlist
from common import make_parser, print_json, show, timed
from latency import measure_peer, percentiles, precision_at_1
from shortlist.compare.splits import Splits

BULK_REPEATS, STARTS = 3, 5
# Ratio, its goal, and whether more is better. Training goals are for tibkat-sid, the others for commit-files.
GOALS = {
    "training time / PECOS's": (8, False),
    "bulk texts/s / PECOS's": (1.5, True),
    "one text, p50 / PECOS's": (0.6, False),
    "one text, p99 / p50": (1.5, False),
    "import and load s": (0.35, False),
    "first prediction s": (3, False),
    "bulk time when busy / alone": (2.2, False),
    "server requests/s": (3000, True),
}
START = """
import sys, time
start = time.perf_counter()
import shortlist
model = shortlist.load(sys.argv[1])
loaded = time.perf_counter()
model.predict("one short text", threads=1)
print(loaded - start, time.perf_counter() - start)
"""


def main():
    parser = make_parser(__doc__)
    parser.add_argument("model", type=Path, help="a saved model")
    parser.add_argument("data", type=Path, help="folder with a train and a test part")
    parser.add_argument("--peers-python", required=True, help="Python that has PECOS")
    parser.add_argument("--texts", type=int, default=2000, help="number of texts that are predicted one at a time")
    arguments = parser.parse_args()
    load_before = os.getloadavg()[0]
    splits = Splits.read(str(arguments.data), seed=0)
    train_seconds = None
    if not arguments.model.exists():
        train_seconds, model = timed(lambda: shortlist.train(splits.train, "astec", threads=2))
        model.save(arguments.model)
    model, texts = shortlist.load(arguments.model), list(splits.test.texts[: arguments.texts])
    model.warm_up()
    first = predictions(model, splits, texts)
    with tempfile.TemporaryDirectory() as folder:
        peer = measure_peer("pecos", arguments.peers_python, splits, len(texts), Path(folder))
        second = predictions(model, splits, texts)
        ours = {name: (max if name == "bulk texts/s" else min)(first[name], second[name]) for name in first}
        start = starts(arguments.model)
        server = server_rate(arguments.model, texts, Path(folder))
    busy = len(splits.inputs) / bulk_seconds_when_busy(model, splits)
    opponent = {"bulk texts/s": peer["bulk_texts_per_second"], "p50 ms": peer["ms_p50"], "p99 ms": peer["ms_p99"]}
    rows = [{"": "Shortlist", **ours}, {"": "PECOS XR-Linear", **opponent}]
    show(rows)
    ratios = {
        "training time / PECOS's": None if train_seconds is None else train_seconds / peer["train_seconds"],
        "bulk texts/s / PECOS's": ours["bulk texts/s"] / opponent["bulk texts/s"],
        "one text, p50 / PECOS's": ours["p50 ms"] / opponent["p50 ms"],
        "one text, p99 / p50": ours["p99 ms"] / ours["p50 ms"],
        **start,
        "bulk time when busy / alone": ours["bulk texts/s"] / busy,
        "server requests/s": server,
    }
    show([{"": name, "measured": value, "goal": GOALS[name][0]} for name, value in ratios.items()])
    precision = precision_at_1(model, splits.test_as_given, 1.0)
    load = [load_before, os.getloadavg()[0]]
    print(f"P@1 {precision:.2f}; load of the machine: {load[0]:.1f} before, {load[1]:.1f} after")
    print_json(
        "speed",
        **{name: None if value is None else round(value, 3) for name, value in ratios.items()},
        reached=[name for name, value in ratios.items() if value is not None and reaches(name, value)],
        train_seconds=train_seconds,
        pecos_train_seconds=peer["train_seconds"],
        precision_at_1=round(float(precision), 2),
        results=rows,
        load=load,
    )


def reaches(name, value):
    goal, more_is_better = GOALS[name]
    return value >= goal if more_is_better else value <= goal


def bulk_seconds_when_busy(model, splits):
    """The seconds of a bulk prediction on two cores while two other processes use them, too."""
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
    try:
        return min(timed(lambda: model.rank(splits.inputs, splits.k, 2))[0] for _ in range(BULK_REPEATS))
    finally:
        for process in others:
            process.kill()
            process.wait()


def predictions(model, splits, texts):
    """Texts per second in bulk, the best of a few runs, and percentiles for one text."""
    seconds = min(timed(lambda: model.rank(splits.inputs, splits.k, 2))[0] for _ in range(BULK_REPEATS))
    times = percentiles(lambda text: model.predict(text, threads=1), texts)
    return {"bulk texts/s": len(splits.inputs) / seconds, "p50 ms": times["p50 ms"], "p99 ms": times["p99 ms"]}


def starts(model):
    """Seconds to import and load; and to the first prediction, of processes that find bytecode, as pip leaves it."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    command = [sys.executable, "-c", START, str(model)]
    with tempfile.TemporaryDirectory() as bytecode:
        environment["PYTHONPYCACHEPREFIX"] = bytecode
        runs = [subprocess.check_output(command, text=True, env=environment) for _ in range(1 + STARTS)]
    loads, firsts = zip(*(map(float, run.split()) for run in runs[1:]), strict=True)
    return {"import and load s": statistics.median(loads), "first prediction s": statistics.median(firsts)}


def server_rate(model, texts, folder):
    """Requests per second of the server on one core."""
    file = folder / "texts.txt"
    file.write_text("\n".join(" ".join(text.split()) for text in texts))
    command = [sys.executable, str(Path(__file__).parent / "server_load.py"), str(model), "--texts", str(file)]
    return json.loads(subprocess.check_output(command, text=True).splitlines()[-1])["requests_per_second"]


if __name__ == "__main__":
    main()
