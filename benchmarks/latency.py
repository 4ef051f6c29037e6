"""Latency: from one text to label names, one at a time on one thread; and where the time goes.

    python benchmarks/latency.py MODEL --data DATA/commit-files [--texts 2000] [--peers-python .venv-peers/bin/python]
    python benchmarks/latency.py MODEL --data DATA/commit-files --search-effort 1 0.5 0.25
    python benchmarks/latency.py --synthetic 670000

Texts are the first ones of the test part. Each search effort gets a row, with P@1 on the test part (labels that the
model does not know are ignored). With --peers-python, other tools are trained and predict the same texts in the same
run. --synthetic makes an `astec` model of random numbers with the given number of labels, and saves, loads and measures
it. Bulk: all texts at once on all cores. The ratio is the fastest tool's median over ours.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import shortlist
from common import make_parser, print_json, show, timed
from shortlist.compare.plan import RUN_PEER
from shortlist.compare.splits import Splits, write_peer_data
from shortlist.evaluation.calibration import is_relevant
from synthetic import astec_model

# The stages of a pipeline, and the methods of each that do the work.
STAGES = {
    "vocabulary": ["encode"],
    "encoder": ["encode"],
    "candidates": ["find"],
    "classifier": ["best", "scores"],
    "reranker": ["gather", "best"],
}
PEERS = ("omikuji-parabel", "omikuji-bonsai", "pecos")
N_STARTS, N_BULK, WARM_UP = 5, 20_000, 20


def main():
    parser = make_parser(__doc__)
    parser.add_argument("model", nargs="?", help="a saved model")
    parser.add_argument("--data", type=Path, help="folder with a test part, and a train part for the other tools")
    parser.add_argument("--texts", type=int, default=2000, help="number of texts")
    parser.add_argument("--search-effort", type=float, nargs="+", default=[1.0])
    parser.add_argument("--synthetic", type=int, help="number of labels of a synthetic model")
    parser.add_argument("--peers-python", help="Python that has the other tools")
    arguments = parser.parse_args()
    if not arguments.synthetic and not (arguments.model and arguments.data):
        parser.error("give a MODEL and --data, or --synthetic")
    with tempfile.TemporaryDirectory() as name:
        folder, test = Path(name), None
        if arguments.synthetic:
            arguments.model = folder / "model"
            texts = astec_model(arguments.synthetic, arguments.model, arguments.texts)
        else:
            test = shortlist.read(arguments.data, "test")
            texts = [test.texts[i] for i in range(min(arguments.texts, len(test)))]
        start = measure_start(arguments.model)
        show([start])
        model = shortlist.load(arguments.model)
        results = []
        for effort in arguments.search_effort:
            precision = None if test is None else round(precision_at_1(model, test, effort), 2)
            times = percentiles(lambda text, effort=effort: predict(model, text, effort), texts)
            results.append({"": f"Shortlist, search effort {effort:g}", "P@1": precision, **times})
        if arguments.peers_python:
            results += run_peers(arguments.peers_python, arguments.data, len(texts), folder)
    show(results)
    effort = arguments.search_effort[0]
    texts_per_second = measure_bulk(model, texts, effort)
    stages = measure_stages(model, texts, effort)
    show([{"stage": stage, "µs per text": round(microseconds)} for stage, microseconds in stages.items()])
    print(f"bulk, all cores: {texts_per_second:,.0f} texts/s")
    opponents = [result["p50 ms"] for result in results if not result[""].startswith("Shortlist")]
    print_json(
        "latency",
        ratio=round(min(opponents) / results[0]["p50 ms"], 3) if opponents else None,
        results=results,
        start=start,
        stages_us=stages,
        bulk_texts_per_second=texts_per_second,
    )


def measure_start(folder):
    """The time of a new process to import, load and predict once, and its memory after that."""
    code = (
        "import time; start = time.perf_counter()\n"
        "import shortlist, sys; model = shortlist.load(sys.argv[1]); loaded = time.perf_counter()\n"
        "model.predict('one text', threads=1); first = time.perf_counter()\n"
        "import psutil; memory = psutil.Process().memory_info()\n"
        "print(loaded - start, first - loaded, memory.rss, memory.rss - memory.shared)\n"
    )
    runs = [
        subprocess.run([sys.executable, "-c", code, str(folder)], capture_output=True, text=True, check=True)
        for _ in range(N_STARTS)
    ]
    medians = np.median([[float(value) for value in run.stdout.split()] for run in runs], axis=0)
    return {
        "model MB": round(sum(path.stat().st_size for path in Path(folder).iterdir()) / 1e6, 1),
        "import and load s": round(medians[0], 3),
        "first prediction ms": round(1e3 * medians[1], 1),
        "resident MB": round(medians[2] / 1e6),
        "of it private MB": round(medians[3] / 1e6),
    }


def predict(model, text, search_effort):
    return model.predict(text, threads=1, search_effort=search_effort)


def precision_at_1(model, test, search_effort):
    known = test.relabelled(model.label_names)
    first = model.rank(test.texts, 1, search_effort=search_effort)[0]
    return 100 * is_relevant(first, known.labels, model.n_labels)[known.labels.counts > 0].mean()


def percentiles(predict_one, texts):
    """Percentiles of the milliseconds for one text."""
    for text in texts[:WARM_UP]:
        predict_one(text)
    times = [1e3 * timed(lambda text=text: predict_one(text))[0] for text in texts]
    return {f"p{p} ms": round(float(np.percentile(times, p)), 3) for p in (50, 90, 99)}


def run_peers(python, data, n_texts, folder):
    """Train other tools and measure them, as `shortlist compare` does."""
    splits = Splits.read(str(data), seed=0)
    measured = {name: measure_peer(name, python, splits, n_texts, folder) for name in PEERS}
    return [
        {"": name, "p50 ms": round(m["ms_p50"], 3), "p99 ms": round(m["ms_p99"], 3)} for name, m in measured.items()
    ]


def measure_peer(name, python, splits, n_texts, folder):
    """Train another tool in a process of its own and measure it, as `shortlist compare` does."""
    write_peer_data(folder / "data", splits, (), n_texts, 0)
    work = folder / name
    work.mkdir()
    job = {"folder": str(work), "peer_data": str(folder / "data"), "k": splits.k, "threads": 2, "seed": 0}
    (work / "job.json").write_text(json.dumps(job | {"perturbations": [], "options": {}}))
    subprocess.run([python, str(RUN_PEER), name, str(work / "job.json")], check=True, stdout=sys.stderr)
    return json.loads((work / "measured.json").read_text())


def measure_bulk(model, texts, search_effort):
    many = (texts * (1 + N_BULK // len(texts)))[:N_BULK]
    model.rank(many[:2000], search_effort=search_effort)
    seconds, _ = timed(lambda: model.rank(many, search_effort=search_effort))
    return round(len(many) / seconds)


def measure_stages(model, texts, search_effort):
    """Mean microseconds in each stage, measured by wrapping its method, which makes the total a little slower."""
    spent = {}
    for pipeline in model.pipelines:
        for name, methods in STAGES.items():
            stage = getattr(pipeline, name)
            for method in methods if stage is not None else ():
                _add_clock(stage, method, name, spent)
    total, _ = timed(lambda: [predict(model, text, search_effort) for text in texts])
    spent["everything else"] = total - sum(spent.values())
    return {stage: 1e6 * seconds / len(texts) for stage, seconds in {**spent, "total": total}.items()}


def _add_clock(stage, method, name, spent):
    inner = getattr(stage, method)

    def with_clock(*arguments, **options):
        start = time.perf_counter()
        try:
            return inner(*arguments, **options)
        finally:
            spent[name] = spent.get(name, 0.0) + time.perf_counter() - start

    setattr(stage, method, with_clock)


if __name__ == "__main__":
    main()
