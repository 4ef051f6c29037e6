"""Micro-batching without a timer: no request waits for others to arrive.

One worker thread predicts. While it is busy, arriving requests queue up and form the next batch. An idle server
predicts at once; the more requests arrive, the larger the batches become.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections import deque
from collections.abc import Callable, Hashable
from itertools import islice
from typing import Any, Protocol

from shortlist.model import Prediction

MAX_BATCH_TEXTS = 64


class Predict(Hashable, Protocol):
    """Predicts texts or features. Those of equal `Predict` objects can share a call."""

    def __call__(self, texts: list[Any]) -> list[list[Prediction]]: ...


class Job:
    """The texts of one request; a large request is predicted in several batches. Each text counts `weight` times."""

    __slots__ = ("future", "n_sent", "predict", "results", "texts", "weight")

    def __init__(
        self, texts: list[Any], predict: Predict, weight: int, future: asyncio.Future[list[list[Prediction]]]
    ) -> None:
        self.texts, self.predict, self.weight, self.future = texts, predict, weight, future
        self.n_sent = 0
        self.results: list[list[Prediction]] = []


Part = tuple[Job, list[Any]]  # the texts of a job that go into one batch
Outcome = tuple[Job, list[list[Prediction]] | Exception]


class Batcher:
    """Collects jobs on the event loop and predicts them in one worker thread."""

    def __init__(
        self, max_texts: int = MAX_BATCH_TEXTS, on_batch: Callable[[int], None] = lambda n_texts: None
    ) -> None:
        self._max_texts, self._on_batch = max_texts, on_batch
        self._waiting: deque[Job] = deque()
        self._busy = False
        self._batches: queue.SimpleQueue[list[Part] | None] = queue.SimpleQueue()
        self._loop = asyncio.get_running_loop()
        threading.Thread(target=self._work, name="predict", daemon=True).start()

    @property
    def n_waiting(self) -> int:
        """The number of requests that wait for their (next) batch."""
        return len(self._waiting)

    async def predict(self, texts: list[Any], predict: Predict, weight: int = 1) -> list[list[Prediction]]:
        if not texts:
            return []
        job = Job(texts, predict, weight, self._loop.create_future())
        self._waiting.append(job)
        if not self._busy:
            self._busy = True
            self._loop.call_soon(self._send_batch)  # not now: requests that arrive together form one batch
        return await job.future

    def close(self) -> None:
        """Stop the worker thread after its current batch."""
        self._batches.put(None)

    def _send_batch(self) -> None:
        """Give the worker its next batch. A job with texts left queues again, after smaller ones."""
        batch: list[Part] = []
        room = self._max_texts
        while room > 0 and self._waiting:
            job = self._waiting.popleft()
            if job.future.done():  # it failed, or its client disconnected
                continue
            texts = job.texts[job.n_sent : job.n_sent + max(room // job.weight, 1)]
            job.n_sent += len(texts)
            room -= len(texts) * job.weight
            batch.append((job, texts))
            if job.n_sent < len(job.texts):
                self._waiting.append(job)
        self._busy = bool(batch)
        if batch:
            self._on_batch(sum(len(texts) for _, texts in batch))
            self._batches.put(batch)

    def _work(self) -> None:
        while (batch := self._batches.get()) is not None:
            outcomes = [outcome for parts in _group(batch) for outcome in _predict(parts)]
            self._loop.call_soon_threadsafe(self._deliver, outcomes)
            del batch, outcomes  # hold no texts while waiting

    def _deliver(self, outcomes: list[Outcome]) -> None:
        self._send_batch()  # first, so that the worker continues while responses are written
        for job, outcome in outcomes:
            if job.future.done():
                continue
            if isinstance(outcome, Exception):
                job.future.set_exception(outcome)
                continue
            job.results += outcome
            if len(job.results) == len(job.texts):
                job.future.set_result(job.results)


def _group(batch: list[Part]) -> list[list[Part]]:
    """Group the parts that can share a call."""
    if len(batch) == 1:
        return [batch]
    groups: dict[Predict, list[Part]] = {}
    for job, texts in batch:
        groups.setdefault(job.predict, []).append((job, texts))
    return list(groups.values())


def _predict(parts: list[Part]) -> list[Outcome]:
    """Predict parts in one call. If it fails, predict each alone, so that one bad text fails one request."""
    try:
        rows = parts[0][0].predict([text for _, texts in parts for text in texts])
    except Exception as error:  # noqa: BLE001 - raised in the request
        if len(parts) == 1:
            return [(parts[0][0], error)]
        return [outcome for part in parts for outcome in _predict([part])]
    remaining = iter(rows)
    return [(job, list(islice(remaining, len(texts)))) for job, texts in parts]
