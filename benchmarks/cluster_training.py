"""Training with sharded labels against one process: accuracy on Ray; time per phase, bytes sent and memory per worker.

    python benchmarks/cluster_training.py equal DATA/cooking-se [--texts 5000] [--workers 1,2,4] [--recipe astec]
    python benchmarks/cluster_training.py speed DATA/commit-files [--texts 20000] [--workers 2]
    python benchmarks/cluster_training.py speed --labels 100000 --texts 20000 --words 50000

`equal` trains on Ray on this machine, and compares metrics and bytes with a training without Ray.
`speed` compares N workers with one thread each with one process of N threads, on the same cores. Workers are processes
that are connected as Ray's are, without Ray. Memory is compared with `shortlist plan`. With --labels, data is random.
"""

from __future__ import annotations

import hashlib
import logging
import multiprocessing
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import msgspec

import shortlist
from common import add_recipe_options, make_parser, parse_recipe_options, peak_gb, print_json, show, timed
from shortlist.cluster.connection import connected
from shortlist.cluster.plan import Sizes, make_plan
from shortlist.cluster.reduce import TcpGroup
from shortlist.cluster.train import train_on_cluster
from shortlist.cluster.worker import TrainJob
from shortlist.training import train as training
from shortlist.training.build import Build
from shortlist.training.group import ALONE
from shortlist.training.phases import Phase
from synthetic import random_dataset

METRICS = ("P@1", "P@5", "PSP@1", "PSP@5")


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("what", choices=["equal", "speed"])
    parser.add_argument("data", nargs="?", type=Path, help="a folder with train and test")
    parser.add_argument("--texts", type=int, help="only so many training texts")
    parser.add_argument("--test-texts", type=int, default=3000)
    parser.add_argument("--workers", default="", help="numbers of workers (default: 1,2,4 or 2)")
    parser.add_argument("--recipe", default="astec")
    parser.add_argument("--labels", type=int, help="random data with so many labels")
    parser.add_argument("--words", type=int, default=50_000, help="vocabulary of random data")
    add_recipe_options(parser, "an option of the recipe")
    arguments = parser.parse_args()
    logging.basicConfig(format="%(asctime)s %(message)s", level=logging.INFO, stream=sys.stderr)
    options = parse_recipe_options(arguments.options)
    results = (equal if arguments.what == "equal" else speed)(arguments, options)
    show(results)
    print_json(f"cluster_training {arguments.what}", **vars(arguments) | {"data": str(arguments.data)}, results=results)


def equal(arguments: Any, options: dict[str, Any]) -> list[dict[str, Any]]:
    """P@1 … of one machine and of 1, 2 and 4 workers, and whether all files are the same."""
    sizes = [int(size) for size in (arguments.workers or "1,2,4").split(",")]
    test = shortlist.read(arguments.data, "test").take(range(arguments.test_texts))
    results = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        train = cut(arguments, folder / "train.jsonl")
        options = {"threads": 1, **options}
        seconds, model = timed(lambda: shortlist.train(train, arguments.recipe, **options))
        model.save(folder / "one", 8)
        results.append({"workers": "one process", **measure(folder / "one", train, test), "s": seconds})
        with connected("local", num_cpus=max(sizes), object_store_memory=100 << 20):
            for size in sizes:
                out = folder / f"{size}"
                given = {**options, "checkpoint_dir": f"{out}.checkpoints"}
                job = TrainJob(str(folder / "train.jsonl"), arguments.recipe, str(out), options=given, bits=8)
                seconds, _ = timed(lambda job=job, size=size: train_on_cluster(job, "auto", size))
                results.append({"workers": size, **measure(out, train, test), "s": seconds})
    for result in results:
        result["largest difference"] = max(abs(result[name] - results[0][name]) for name in METRICS)
        result["same bytes"] = result["digest"] == results[0]["digest"]
    return results


def cut(arguments: Any, path: Path) -> shortlist.Dataset:
    """The training texts, also as a file."""
    train = shortlist.read(arguments.data, "train")
    train = train.take(range(min(arguments.texts or len(train), len(train))))
    rows = ({"text": train.texts[i], "labels": train.labels_of(i)} for i in range(len(train)))
    path.write_bytes(b"".join(msgspec.json.encode(row) + b"\n" for row in rows))
    return shortlist.read(path)


def measure(folder: Path, train: shortlist.Dataset, test: shortlist.Dataset) -> dict[str, Any]:
    model = shortlist.load(folder)
    found = shortlist.evaluate(model.predict_dataset(test), test, train=train, unseen="ignore")
    content = b"".join(path.name.encode() + path.read_bytes() for path in sorted(folder.iterdir()))
    digest = hashlib.sha256(content).hexdigest()[:12]
    return {**{name: round(found[name], 3) for name in METRICS}, "digest": digest}


def speed(arguments: Any, options: dict[str, Any]) -> list[dict[str, Any]]:
    """Per phase: texts per second of workers and of one process with as many threads; bytes sent per step; memory."""
    size = int(arguments.workers or 2)
    ((alone, _),) = run_in_processes(1, arguments, {**options, "threads": size})
    together = run_in_processes(size, arguments, {**options, "threads": 1})
    workers, peaks = [phases for phases, _ in together], [facts["peak GB"] for _, facts in together]
    results = []
    for phase, one in alone.items():
        seconds = max(worker[phase]["s"] for worker in workers)
        first = workers[0][phase]
        result: dict[str, Any] = {"phase": phase, "one process s": one["s"], f"{size} workers s": seconds}
        result |= {"rate": one["s"] / max(seconds, 1e-9), "peak GB of one": one["peak GB"]}
        result |= {"peak GB of a worker": max(worker[phase]["peak GB"] for worker in workers)}
        result |= {"texts / s": first["texts"] / seconds if first["steps"] else None}
        result |= {"sent per step, kB": first["sent"] / first["steps"] / 1e3 if first["steps"] else None}
        results.append(result)
    facts = together[0][1]
    sizes = {"n_words": facts["words"], "words_per_text": facts["words per text"]}
    sizes["labels_per_text"] = facts["labels per text"]
    for number, peak in ((1, alone["all"]["peak GB"]), (size, max(peaks))):
        plan = make_plan(Sizes(facts["texts"], facts["labels"], number, **sizes), recipe=arguments.recipe, **options)
        step = [(row["phase"], row["step_kb"]) for row in plan.rows if row["step_kb"]]
        print(f"{number} workers: peak {peak:.2f} GB, planned {plan.peak_gb:.2f}; sent per step, kB, planned: {step}")
    return results


def run_in_processes(size: int, arguments: Any, options: dict[str, Any]) -> list[Any]:
    """What each worker of a training measured."""
    context = multiprocessing.get_context("spawn")
    pipes = [context.Pipe() for _ in range(size)]
    workers = [
        context.Process(target=work, args=(rank, size, theirs, arguments, options))
        for rank, (_, theirs) in enumerate(pipes)
    ]
    for worker in workers:
        worker.start()
    addresses = [pipe.recv() for pipe, _ in pipes]
    for pipe, _ in pipes:
        pipe.send(addresses)
    measured = [pipe.recv() for pipe, _ in pipes]
    for worker in workers:
        worker.join()
    return measured


def work(rank: int, size: int, pipe: Any, arguments: Any, options: dict[str, Any]) -> None:
    logging.basicConfig(format="%(asctime)s %(message)s", level=logging.INFO if rank == 0 else logging.ERROR)
    group = ALONE if size == 1 else TcpGroup(rank, size, "127.0.0.1", b"the key of this benchmark")
    watch = Watch(group)
    data = watch.time("read", read)(arguments)
    pipe.send(getattr(group, "address", None))
    addresses = pipe.recv()
    if isinstance(group, TcpGroup):
        group.connect(addresses)
    named, reranker, tune, fit = training.phase_named, training.reranker_named, training.tune, Build.fit
    training.phase_named = lambda name: Phase(watch.time(name, named(name).run), named(name).memory)
    training.reranker_named = lambda name: watch.time("re-ranker", reranker(name))
    training.tune = watch.time("calibration", tune)
    Build.fit = lambda build, phase, *a, **k: watch.time(f"{phase}: steps", fit, build)(build, phase, *a, **k)
    recipe = training.recipe_of(arguments.recipe, False)
    resolved = training.resolve_for(recipe, data, options)
    train = watch.time("all", lambda: training.train_one(recipe, data, resolved, group))
    model = train()
    words = model.pipelines[0].vocabulary
    facts = {"texts": len(data), "labels": data.n_labels, "words": 0 if words is None else len(words)}
    facts |= {"words per text": sum(len(text.split()) for text in data.texts) / len(data), "peak GB": peak_gb()}
    pipe.send((watch.phases, {**facts, "labels per text": len(data.labels.values) / len(data)}))


def read(arguments: Any) -> shortlist.Dataset:
    if arguments.labels:
        return random_dataset(arguments.texts or 20_000, arguments.labels, arguments.words)
    data = shortlist.read(arguments.data, "train", show_progress=False)
    return data.take(range(min(arguments.texts or len(data), len(data))))


class Watch:
    """Measures phases: seconds, bytes sent to other workers, steps, peak memory so far."""

    def __init__(self, group: Any) -> None:
        self._group, self.phases = group, {}

    def time(self, name: str, run: Any, build: Any = None) -> Any:
        def watched(*arguments: Any, **options: Any) -> Any:
            start, before = time.perf_counter(), getattr(self._group, "bytes_sent", 0)
            result = run(*arguments, **options)
            sent = getattr(self._group, "bytes_sent", 0) - before
            of_phase = {"s": time.perf_counter() - start, "sent": sent, "steps": 0, "peak GB": peak_gb()}
            if build is not None:
                n_texts, n_epochs = build.records[-1]["texts"], build.records[-1]["epoch"]
                per_epoch = -(-n_texts // n_epochs // build.options.batch_size)
                of_phase |= {"texts": n_texts, "steps": n_epochs * per_epoch}
            self.phases[name] = of_phase
            return result

        return watched


if __name__ == "__main__":
    main()
