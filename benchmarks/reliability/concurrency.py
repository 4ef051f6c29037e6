"""Many at once: threads, processes, an event loop, a reload under load, and two writers to everything that is written.

    python benchmarks/reliability/concurrency.py [--seconds 10]

Each line repeats one thing for the given time. Every answer must be that of the old or of the new model, every file
must be that of one writer, and what is refused must be refused with a `ShortlistError`.
"""

from __future__ import annotations

import asyncio
import http.client
import itertools
import json
import multiprocessing
import os
import random
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

sys.path.append(str(Path(__file__).parent.parent))
from small import TEXTS, serve, small_model

import shortlist
from common import make_parser, print_json, show
from shortlist.batch.output import ResumableOutput
from shortlist.batch.predict import JsonLines, PredictedRow
from shortlist.data.rows import Row
from shortlist.errors import ShortlistError
from shortlist.training.checkpoints import lock_checkpoints

N_WORKERS = 4


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--seconds", type=float, default=10.0)
    options = parser.parse_args()
    results = []
    with tempfile.TemporaryDirectory() as temporary:
        for name, check in CHECKS.items():
            place = Path(temporary) / name
            place.mkdir()
            n_done, n_wrong = check(place, time.monotonic() + options.seconds)
            results.append({"what": name, "done": n_done, "wrong": n_wrong})
    show(results)
    wrong = sum(result["wrong"] for result in results)
    print_json("reliability/concurrency", done=sum(result["done"] for result in results), wrong=wrong)
    sys.exit(bool(wrong))


def answers(folder: Path) -> list:
    return shortlist.load(folder).predict(TEXTS, k=3)


def in_threads(place: Path, end: float) -> tuple[int, int]:
    """One model, several threads, and more lists of allowed labels than it keeps."""
    model = small_model()
    lists = [None, *itertools.combinations(model.label_names, 2)]
    expected = [model.predict(TEXTS, k=3, allow=allow) for allow in lists]

    def work(number: int) -> list[bool]:
        rng, right = random.Random(number), []
        while time.monotonic() < end or not right:
            i = rng.randrange(len(lists))
            right.append(model.predict(TEXTS, k=3, allow=lists[i]) == expected[i])
        return right

    with ThreadPoolExecutor(N_WORKERS) as pool:
        right = list(itertools.chain.from_iterable(pool.map(work, range(N_WORKERS))))
    return len(right), right.count(False)


def in_processes(method: str) -> Callable[[Path, float], tuple[int, int]]:
    """Several processes with the same model, started after it was used."""

    def check(place: Path, end: float) -> tuple[int, int]:
        small_model().save(place / "model")
        expected, right = answers(place / "model"), []
        with ProcessPoolExecutor(2, multiprocessing.get_context(method)) as pool:
            while time.monotonic() < end or not right:
                right += [found == expected for found in pool.map(answers, [place / "model"] * 8)]
        return len(right), right.count(False)

    return check


def in_event_loop(place: Path, end: float) -> tuple[int, int]:
    """An event loop that predicts in threads."""
    model = small_model()
    expected = model.predict(TEXTS, k=3)

    async def work() -> list[bool]:
        right: list[bool] = []
        while time.monotonic() < end or not right:
            found = await asyncio.gather(*(asyncio.to_thread(model.predict, TEXTS, k=3) for _ in range(8)))
            right += [one == expected for one in found]
        return right

    right = asyncio.run(work())
    return len(right), right.count(False)


def reload_under_load(place: Path, end: float) -> tuple[int, int]:
    """A server whose model is replaced again and again while clients ask."""
    models = [small_model(), small_model("new")]
    models[0].save(place / "model")
    wrong, done = [], []

    def ask(port: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        while time.monotonic() < end or not done:
            body = json.dumps({"texts": ["red hat"], "k": 3})
            connection.request("POST", "/v1/predict", body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            content = response.read()
            done.append(response.status)
            if response.status != 200:
                wrong.append(content)
        connection.close()

    with serve(place / "model", "--watch") as port:
        clients = [threading.Thread(target=ask, args=(port,)) for _ in range(N_WORKERS)]
        for client in clients:
            client.start()
        turn = 0
        while time.monotonic() < end or not done:
            turn += 1
            models[turn % 2].save(place / "model")
            time.sleep(0.2)
        for client in clients:
            client.join()
    return len(done), len(wrong)


def run_writers(write: Callable[[int, float], None], end: float) -> list[multiprocessing.Process]:
    """Start two processes that write until the end; each ends with 0 unless something went wrong."""
    writers = [multiprocessing.get_context("fork").Process(target=write, args=(i, end)) for i in range(2)]
    for writer in writers:
        writer.start()
    return writers


def count_wrong(writers: list[multiprocessing.Process]) -> int:
    for writer in writers:
        writer.join()
    return sum(writer.exitcode != 0 for writer in writers)


def two_writers_of_a_model(place: Path, end: float) -> tuple[int, int]:
    """Two processes save different models to one folder while this one loads it."""
    models, folder = [small_model("one"), small_model("two")], place / "model"
    expected = [model.quantized().predict(TEXTS, k=3) for model in models]
    models[0].save(folder)

    def write(which: int, end: float) -> None:
        while time.monotonic() < end:
            models[which].save(folder)

    writers, right = run_writers(write, end), []
    while time.monotonic() < end or not right:
        right.append(answers(folder) in expected)
    return len(right), right.count(False) + count_wrong(writers)


def two_writers_of_data(place: Path, end: float) -> tuple[int, int]:
    """Two processes write one file while this one reads it."""
    data = [shortlist.read([(text, [label]) for text in TEXTS]) for label in ("one", "two")]
    path = place / "data.jsonl.gz"
    data[0].write(path)

    def write(which: int, end: float) -> None:
        while time.monotonic() < end:
            data[which].write(path)

    writers, right = run_writers(write, end), []
    while time.monotonic() < end or not right:
        right.append(shortlist.read(path, show_progress=False).label_names in (["one"], ["two"]))
    return len(right), right.count(False) + count_wrong(writers)


def two_writers_of_predictions(place: Path, end: float) -> tuple[int, int]:
    """Two jobs write predictions to one file: one is refused, and the file is that of the other."""
    path = place / "out.jsonl"

    def write(which: int, end: float) -> None:
        while time.monotonic() < end:
            try:
                with ResumableOutput(path, JsonLines("line", False, True), {}, overwrite=True) as output:
                    for number in range(5):
                        output.write([PredictedRow(Row(number, f"writer {which}"), [], [])])
                    output.finish()
            except ShortlistError:
                pass

    writers, right = run_writers(write, end), []
    while time.monotonic() < end or not right:
        if path.exists():
            lines = path.read_text().splitlines()
            right.append(len(lines) == 5 and len(set(lines)) == 1)
    return len(right), right.count(False) + count_wrong(writers)


def two_trainings(place: Path, end: float) -> tuple[int, int]:
    """Two trainings use one folder of checkpoints: never both at the same time."""
    inside = place / "inside"

    def write(which: int, end: float) -> None:
        while time.monotonic() < end:
            try:
                with lock_checkpoints(str(place / "checkpoints")):
                    os.close(os.open(inside, os.O_CREAT | os.O_EXCL))  # fails if the other one is inside, too
                    with (place / "done").open("a") as file:
                        file.write("x")
                    inside.unlink()
            except ShortlistError:
                pass

    wrong = count_wrong(run_writers(write, end))
    return len((place / "done").read_text()), wrong


CHECKS = {
    "threads": in_threads,
    "processes (fork)": in_processes("fork"),
    "processes (spawn)": in_processes("spawn"),
    "an event loop": in_event_loop,
    "reload under load": reload_under_load,
    "two writers of a model": two_writers_of_a_model,
    "two writers of data": two_writers_of_data,
    "two writers of predictions": two_writers_of_predictions,
    "two trainings": two_trainings,
}

if __name__ == "__main__":
    main()
