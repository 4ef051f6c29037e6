"""Workers as Ray actors: start them, run a training on them, and see how it ended."""

from __future__ import annotations

import logging
import secrets
import time
from typing import Any, NamedTuple

from shortlist.cluster.worker import News, Outcome, TrainJob, Worker, out_of_memory
from shortlist.errors import ShortlistError

log = logging.getLogger("shortlist")

POLL_SECONDS = 0.5
# After a worker is lost, the others may still say why: an error counts more than that they miss it.
SECONDS_TO_EXPLAIN = 10.0
SECONDS_BETWEEN_WARNINGS = 60.0
# Workers that are as fast as each other wait for the network, and a little by chance.
SECONDS_BETWEEN_LAGS, MUCH_LAG = 60.0, 0.2


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
    lag = Lag()
    while waiting and time.monotonic() < deadline:
        done, waiting = ray.wait(waiting, timeout=POLL_SECONDS)
        every = [news(ray, worker, len(lines)) for worker, lines in zip(workers, said, strict=True)]
        for lines, new in zip(said, every, strict=True):
            lines += [] if new is None else new.lines
        for level, line in every[0].lines if every[0] is not None else ():
            log.log(level, "%s", line)
        if (slowest := lag.slowest(every, time.monotonic())) is not None:
            log.info("%s", slowest)
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


class Lag:
    """Finds the worker that the others wait for. All take every step together, so the slowest one waits least."""

    def __init__(self) -> None:
        self._before: list[News] = []
        self._since = 0.0

    def slowest(self, every: list[News | None], now: float) -> str | None:
        """A line about it, at most once a minute, and only if the others lose much time."""
        answers = [new for new in every if new is not None]
        if len(answers) < max(len(every), 2):
            return None
        if self._before and now - self._since < SECONDS_BETWEEN_LAGS:
            return None
        before, since = self._before, self._since
        self._before, self._since = answers, now
        if not before:
            return None
        waited = [new.seconds_waited - old.seconds_waited for new, old in zip(answers, before, strict=True)]
        rank = waited.index(min(waited))
        lost = (sorted(waited)[len(waited) // 2] - waited[rank]) / (now - since)
        if lost < MUCH_LAG:
            return None
        return (
            f"worker {rank} on {answers[rank].host} is the slowest: the others waited for it {100 * lost:.0f} % of the "
            "time. Is its machine busy?"
        )


def news(ray: Any, worker: Any, n_seen: int) -> News | None:
    """What a worker has said since; None if it does not answer."""
    try:
        return ray.get(worker.news.remote(n_seen), timeout=POLL_SECONDS)
    except ray.exceptions.RayError:
        return None


def was_killed_for_memory(error: Exception) -> bool:
    return "OutOfMemory" in type(error).__name__ or "due to memory pressure" in str(error)


def first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)
