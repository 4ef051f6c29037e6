"""Speed against PECOS XR-Linear: bulk and single predictions, the start of a process, and the server.

    python benchmarks/speed.py MODEL DATA/commit-files --peers-python .venv-peers/bin/python [--texts 2000]

MODEL was trained on the training part of the data. PECOS is trained in this run, and gets its texts as sparse rows,
which costs it nothing; ours are texts. Our predictions are measured before and after PECOS's, and the better half
counts, because other programs can only slow them down; the load of the machine is printed, too. Bulk: all test texts on
two cores. One text: on one thread, `model.predict` to label names. Start: medians of new processes; for the first
prediction with nothing cached, numba's cache is an empty folder. Server: one core, one text per request
(server_load.py).
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
from latency import measure_peer, percentiles
from shortlist.compare.splits import Splits

BULK_REPEATS, STARTS = 3, 5
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
    model, texts = shortlist.load(arguments.model), list(splits.test.texts[: arguments.texts])
    model.warm_up()
    first = predictions(model, splits, texts)
    with tempfile.TemporaryDirectory() as folder:
        peer = measure_peer("pecos", arguments.peers_python, splits, len(texts), Path(folder))
        second = predictions(model, splits, texts)
        ours = {name: (max if name == "bulk texts/s" else min)(first[name], second[name]) for name in first}
        start = starts(arguments.model, Path(folder))
        server = server_rate(arguments.model, texts, Path(folder))
    opponent = {"bulk texts/s": peer["bulk_texts_per_second"], "p50 ms": peer["ms_p50"], "p99 ms": peer["ms_p99"]}
    rows = [{"": "Shortlist", **ours}, {"": "PECOS XR-Linear", **opponent}]
    show(rows)
    show([{"": "Shortlist", **start, "server requests/s": server}])
    print(f"load of the machine: {load_before:.1f} before, {os.getloadavg()[0]:.1f} after")
    print_json(
        "speed",
        bulk=round(ours["bulk texts/s"] / opponent["bulk texts/s"], 3),
        one_text=round(ours["p50 ms"] / opponent["p50 ms"], 3),
        p99_to_p50=round(ours["p99 ms"] / ours["p50 ms"], 3),
        **{name.replace(" ", "_"): value for name, value in start.items()},
        server_requests_per_second=server,
        pecos_train_seconds=peer["train_seconds"],
        results=rows,
        load=[load_before, os.getloadavg()[0]],
    )


def predictions(model, splits, texts):
    """Texts per second in bulk, the best of a few runs, and percentiles for one text."""
    seconds = min(timed(lambda: model.rank(splits.inputs, splits.k, 2))[0] for _ in range(BULK_REPEATS))
    times = percentiles(lambda text: model.predict(text, threads=1), texts)
    return {"bulk texts/s": len(splits.inputs) / seconds, "p50 ms": times["p50 ms"], "p99 ms": times["p99 ms"]}


def starts(model, folder):
    """Seconds to import and load; and to the first prediction with nothing compiled."""
    loads, firsts = [], []
    for i in range(STARTS):
        environment = {**os.environ, "NUMBA_CACHE_DIR": str(folder / f"kernels {i}")}
        command = [sys.executable, "-c", START, str(model)]
        loaded, first = map(float, subprocess.check_output(command, env=environment, text=True).split())
        loads.append(loaded)
        firsts.append(first)
    return {"import and load s": statistics.median(loads), "first prediction s": statistics.median(firsts)}


def server_rate(model, texts, folder):
    """Requests per second of the server on one core."""
    file = folder / "texts.txt"
    file.write_text("\n".join(" ".join(text.split()) for text in texts))
    command = [sys.executable, str(Path(__file__).parent / "server_load.py"), str(model), "--texts", str(file)]
    return json.loads(subprocess.check_output(command, text=True).splitlines()[-1])["requests_per_second"]


if __name__ == "__main__":
    main()
