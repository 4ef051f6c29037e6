"""Random kills on a Ray cluster of two nodes: training and batch prediction end in the same bytes as if undisturbed.

    python benchmarks/reliability/cluster_kills.py [--kills 10] [--jobs astec,inceptionxml+,predict] [--seed 0]

At a random moment of a job, one of its processes gets SIGKILL, a node is lost and replaced, or the driver gets SIGKILL
and the command is run again with --resume. A job gets up to three of these. At the end, its files must equal those of
an undisturbed run. The second table says what was killed, and what the job had reported last.

Everything runs on 127.0.0.1, files are in memory (/dev/shm) where there is such a folder.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import psutil

BENCHMARKS = Path(__file__).parent.parent
sys.path += [str(BENCHMARKS), str(BENCHMARKS.parent / "tests")]
from kill import TRAIN, moment, write_data  # noqa: E402
from small import fast_folder  # noqa: E402

from common import make_parser, print_json, show  # noqa: E402
from ray_cluster import STORE_BYTES, two_nodes  # noqa: E402
from shortlist.files import partial_folder  # noqa: E402

MAX_KILLS = 3
MAX_STARTS = 3
GIVE_UP_SECONDS = 600
SHORT = "--set n_epochs=3 --set batch_size=16 --set checkpoint_minutes=0.0001 --set embedding_dim=64 --set n_clusters=7"
ON_RAY = "--workers 2 --bits 32"
JOBS = {
    "astec": f"{TRAIN} astec {SHORT} --set n_surrogate_epochs=3 {ON_RAY}",
    "inceptionxml+": f"{TRAIN} inceptionxml+ {SHORT} --set channels=4 {ON_RAY}",
    "predict": "predict model data*.jsonl --out out --rows-per-part 20 --threads 1",
}
WORKERS = "ray::Worker", "MapWorker"  # names of processes: of training, of batch prediction


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--jobs", default=",".join(JOBS))
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    rng, start = random.Random(arguments.seed), time.perf_counter()
    n_runs: Counter[str] = Counter()
    moments: Counter[tuple[str, str, str]] = Counter()
    different: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(dir=fast_folder()) as name, two_nodes(num_cpus=2) as cluster:
        os.chdir(name)
        write_data(Path(), with_transformer=False)
        for i in range(4):
            Path(f"data{i}.jsonl").write_bytes(Path("data.jsonl").read_bytes())
        for job in arguments.jobs.split(","):
            run = Run(cluster, job, rng)
            run.to_the_end([])
            expected, seconds = outputs(), run.seconds
            print(f"{job}: {seconds:.1f} s undisturbed, {len(expected)} files", flush=True)
            n_kills = 0
            while n_kills < arguments.kills:
                remove_outputs()
                delays = [rng.uniform(0, seconds) for _ in range(rng.randint(1, MAX_KILLS))]
                killed = run.to_the_end(delays)
                n_runs[job], n_kills = n_runs[job] + 1, n_kills + len(killed)
                moments.update((job, *of_kill) for of_kill in killed)
                if outputs() != expected:
                    different[job] += 1
                    print(f"{job}: other bytes after {killed}", flush=True)
            remove_outputs()
        os.chdir("/")
    kills = Counter(job for job, _, _ in moments.elements())
    show([{"job": job, "runs": n_runs[job], "kills": kills[job], "different": different[job]} for job in n_runs])
    show([{"job": job, "killed": what, "reported last": last, "times": n}
          for (job, what, last), n in sorted(moments.items())])  # fmt: skip
    n_different, seconds_in_all = sum(different.values()), round(time.perf_counter() - start, 1)
    print_json("reliability/cluster_kills", kills=sum(kills.values()), different=n_different, seconds=seconds_in_all)
    sys.exit(bool(n_different))


class Run:
    """A job on a cluster, and what is done to it."""

    def __init__(self, cluster: Any, job: str, rng: random.Random) -> None:
        self._cluster, self._rng = cluster, rng
        self._arguments = [*JOBS[job].replace("data*", "data[0-9]").split(), "--cluster", cluster.address]
        self.seconds = 0.0

    def to_the_end(self, delays: list[float]) -> list[tuple[str, str]]:
        """Run it, with a kill after each of these delays; what was killed, and what was reported before."""
        start, killed, waiting = time.perf_counter(), [], list(delays)
        driver = self._start([])
        since = time.perf_counter()
        while (code := os.waitpid(driver, os.WNOHANG)) == (0, 0):
            if time.perf_counter() - start > GIVE_UP_SECONDS:
                os.kill(driver, signal.SIGKILL)
                raise SystemExit(f"no end after {GIVE_UP_SECONDS} s: {messages()}")
            if waiting and time.perf_counter() - since > waiting[0]:
                before = moment(reports())
                what = self._rng.choice(["worker", "worker", "node", "driver"])
                if what == "driver":
                    os.kill(driver, signal.SIGKILL)
                    os.waitpid(driver, 0)
                    driver = self._start(["--resume"])
                elif what == "node":
                    self._lose_node()
                elif not self._kill_worker():
                    what = ""
                if what:  # there may be no worker yet, or no longer
                    killed.append((what, before))
                    waiting.pop(0)
                since = time.perf_counter()
            time.sleep(0.01)
        if os.waitstatus_to_exitcode(code[1]):
            raise SystemExit(f"{' '.join(self._arguments)} failed after {killed}: {messages()}")
        self.seconds = time.perf_counter() - start
        return killed

    def _start(self, more: list[str]) -> int:
        if child := os.fork():
            return child
        log = os.open("messages", os.O_WRONLY | os.O_CREAT | os.O_APPEND * bool(more) | os.O_TRUNC * (not more))
        os.dup2(log, 1)
        os.dup2(log, 2)
        command = [sys.executable, "-m", "shortlist", *(a for a in self._arguments if a != "--overwrite"), *more]
        os.execv(sys.executable, command)

    def _kill_worker(self) -> bool:
        workers = []
        for process in psutil.Process().children(recursive=True):
            try:
                if any(name in process.name() + " ".join(process.cmdline()) for name in WORKERS):
                    workers.append(process.pid)
            except psutil.Error:
                continue
        if workers:
            os.kill(self._rng.choice(workers), signal.SIGKILL)
        return bool(workers)

    def _lose_node(self) -> None:
        node = self._rng.choice(list(self._cluster.worker_nodes))
        self._cluster.remove_node(node, allow_graceful=False)
        for attempt in range(MAX_STARTS):
            try:
                self._cluster.add_node(num_cpus=2, object_store_memory=STORE_BYTES, node_ip_address="127.0.0.1")
                break
            except Exception as error:  # Ray gives it 30 seconds, which may not be enough on a busy machine
                if attempt + 1 == MAX_STARTS or "timed out during startup" not in str(error):
                    raise


def messages() -> str:
    return Path("messages").read_text(errors="replace")


def reports() -> str:
    """What the job itself has reported; Ray's own lines begin with a time, a colour or an indentation."""
    return "\n".join(line for line in messages().splitlines() if line[:1].isalpha())


def outputs() -> dict[str, bytes]:
    """The files of the output."""
    return {path.name: path.read_bytes() for path in Path("out").iterdir()}


def remove_outputs() -> None:
    for folder in (Path("out"), Path("out.checkpoints"), partial_folder(Path("out").absolute())):
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
