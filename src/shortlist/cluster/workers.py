"""Workers as Ray actors: start them, run a training on them, and see how it ended."""

from __future__ import annotations

import logging
import secrets
import time
from typing import Any, NamedTuple

from shortlist.cluster.worker import Outcome, TrainJob, Worker, out_of_memory
from shortlist.errors import ShortlistError

log = logging.getLogger("shortlist")

POLL_SECONDS = 0.5
# After a worker is lost, the others may still say why: an error counts more than that they miss it.
SECONDS_TO_EXPLAIN = 10.0
SECONDS_BETWEEN_WARNINGS = 60.0


class Lost(NamedTuple):
    """Workers that ended before the training did."""

    reason: str


def run_workers(ray: Any, job: TrainJob, n_workers: int, n_threads: int) -> Lost | None:
    """One attempt: start workers, train, and end them. An error that restarting would not cure is raised."""
    key = secrets.token_bytes(32)
    # Two calls at a time: a worker can be asked for news while it trains.
    actor = ray.remote(num_cpus=n_threads, max_restarts=0, max_concurrency=2, scheduling_strategy="SPREAD")(Worker)
    workers = [actor.remote(rank, n_workers, key) for rank in range(n_workers)]
    try:
        addresses = wait_for_start(ray, [worker.address.remote() for worker in workers], n_threads)
        if isinstance(addresses, Lost):
            return addresses
        return watch(ray, workers, [worker.train.remote(addresses, job) for worker in workers])
    finally:
        for worker in workers:
            ray.kill(worker, no_restart=True)


def wait_for_start(ray: Any, waiting: list[Any], n_threads: int) -> list[Any] | Lost:
    """The addresses of all workers, once the cluster has room for them."""
    addresses = waiting
    while waiting:
        _, waiting = ray.wait(waiting, num_returns=len(waiting), timeout=SECONDS_BETWEEN_WARNINGS)
        if waiting:
            n_cores = ray.cluster_resources().get("CPU", 0)
            log.warning(
                "waiting for room for %d of %d workers with %d cores each; the cluster has %d cores",
                len(waiting),
                len(addresses),
                n_threads,
                n_cores,
            )
    try:
        return ray.get(addresses)
    except ray.exceptions.RayError as error:
        return Lost(first_line(error))


def watch(ray: Any, workers: list[Any], results: list[Any]) -> Lost | None:
    """Wait until all workers have ended, and show what worker 0 says."""
    said: list[list[tuple[int, str]]] = [[] for _ in workers]
    lost: str = ""
    waiting, deadline = list(results), float("inf")
    while waiting and time.monotonic() < deadline:
        done, waiting = ray.wait(waiting, timeout=POLL_SECONDS)
        for rank, worker in enumerate(workers):
            new = news(ray, worker, len(said[rank]))
            said[rank] += new
            for level, line in new if rank == 0 else ():
                log.log(level, "%s", line)
        for result in done:
            rank = results.index(result)
            try:
                outcome: Outcome = ray.get(result)
            except ray.exceptions.RayError as error:
                if was_killed_for_memory(error):
                    raise out_of_memory(rank, len(workers), "its machine", said[rank]) from None
                if isinstance(error, ray.exceptions.RayTaskError):
                    raise ShortlistError(f"worker {rank} of {len(workers)} failed: {error}") from None
                outcome = Outcome(lost=f"worker {rank} of {len(workers)} ended: {first_line(error)}")
            if outcome.error is not None:
                raise outcome.error
            if outcome.lost and not lost:
                lost, deadline = outcome.lost, time.monotonic() + SECONDS_TO_EXPLAIN
    return Lost(lost) if lost else None


def news(ray: Any, worker: Any, n_seen: int) -> list[tuple[int, str]]:
    """What a worker has said since; nothing if it does not answer."""
    try:
        return ray.get(worker.news.remote(n_seen), timeout=POLL_SECONDS)
    except ray.exceptions.RayError:
        return []


def was_killed_for_memory(error: Exception) -> bool:
    return "OutOfMemory" in type(error).__name__ or "due to memory pressure" in str(error)


def first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)
