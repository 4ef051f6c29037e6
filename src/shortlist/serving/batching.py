"""Small concurrent requests are predicted together, without any of them waiting for company.

While a batch is being predicted, in a thread of its own, whatever arrives gathers and makes the next batch. A server
with nothing to do predicts at once; the more there is to do, the larger the batches become by themselves.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections import deque
from collections.abc import Callable, Hashable
from typing import Protocol

from shortlist.model.base import Prediction

MOST_TEXTS = 64


class Predict(Hashable, Protocol):
    """A model and settings: texts with equal ones are predicted together. A text is `weight` times the usual work."""

    @property
    def weight(self) -> int: ...

    def __call__(self, texts: list[str]) -> list[list[Prediction]]: ...


class Job:
    """The texts of one request, predicted in one batch or, if they are many, in several."""

    __slots__ = ("answer", "begun", "done", "predict", "texts")

    def __init__(self, texts: list[str], predict: Predict, answer: asyncio.Future[list[list[Prediction]]]) -> None:
        self.texts, self.predict, self.answer = texts, predict, answer
        self.begun = 0
        self.done: list[list[Prediction]] = []

    def take(self, most: int) -> tuple[Job, list[str]]:
        """The next texts to predict."""
        texts = self.texts[self.begun : self.begun + max(most // self.predict.weight, 1)]
        self.begun += len(texts)
        return self, texts


Piece = tuple[Job, list[str]]
Outcome = list[list[Prediction]] | Exception


class Batcher:
    """Gathers jobs on the event loop and has them predicted in one worker thread."""

    def __init__(self, most_texts: int = MOST_TEXTS, on_batch: Callable[[int], None] = lambda texts: None) -> None:
        self._most_texts, self._on_batch = most_texts, on_batch
        self._waiting: deque[Job] = deque()
        self._busy = False
        self._batches: queue.SimpleQueue[list[Piece] | None] = queue.SimpleQueue()
        self._loop = asyncio.get_running_loop()
        threading.Thread(target=self._work, name="predict", daemon=True).start()

    @property
    def waiting(self) -> int:
        """How many requests wait for their (next) batch."""
        return len(self._waiting)

    async def predict(self, texts: list[str], predict: Predict) -> list[list[Prediction]]:
        if not texts:
            return []
        job = Job(texts, predict, self._loop.create_future())
        self._waiting.append(job)
        if not self._busy:
            self._busy = True
            self._loop.call_soon(self._send_batch)  # not at once: what has arrived together goes together
        return await job.answer

    def close(self) -> None:
        """Let the worker thread end when it has done what it was given."""
        self._batches.put(None)

    def _send_batch(self) -> None:
        """Give the worker the next texts; a job with more of them queues again, behind the small ones."""
        batch: list[Piece] = []
        room = self._most_texts
        while room > 0 and self._waiting:
            job = self._waiting.popleft()
            if job.answer.done():  # it failed, or its client was cut off
                continue
            batch.append(job.take(room))
            room -= len(batch[-1][1]) * job.predict.weight
            if job.begun < len(job.texts):
                self._waiting.append(job)
        self._busy = bool(batch)
        if batch:
            self._on_batch(sum(len(texts) for _, texts in batch))
            self._batches.put(batch)

    def _work(self) -> None:
        while (batch := self._batches.get()) is not None:
            outcomes = [_outcomes(pieces) for pieces in _that_go_together(batch)]
            self._loop.call_soon_threadsafe(self._deliver, [pair for pairs in outcomes for pair in pairs])
            del batch, outcomes  # while this thread waits, it is to hold nobody's texts

    def _deliver(self, outcomes: list[tuple[Job, Outcome]]) -> None:
        self._send_batch()  # first: the worker goes on while the answers are written
        for job, outcome in outcomes:
            if job.answer.done():
                continue
            if isinstance(outcome, Exception):
                job.answer.set_exception(outcome)
                continue
            job.done += outcome
            if len(job.done) == len(job.texts):
                job.answer.set_result(job.done)


def _that_go_together(batch: list[Piece]) -> list[list[Piece]]:
    if len(batch) == 1:
        return [batch]
    groups: dict[Predict, list[Piece]] = {}
    for piece in batch:
        groups.setdefault(piece[0].predict, []).append(piece)
    return list(groups.values())


def _outcomes(pieces: list[Piece]) -> list[tuple[Job, Outcome]]:
    """What became of pieces that go together. If together they fail, each is tried alone: one fails, not all."""
    try:
        found = pieces[0][0].predict([text for _, texts in pieces for text in texts])
    except Exception as error:  # noqa: BLE001 - it belongs to the request, which reports it
        if len(pieces) == 1:
            return [(pieces[0][0], error)]
        return [outcome for piece in pieces for outcome in _outcomes([piece])]
    outcomes: list[tuple[Job, Outcome]] = []
    at = 0
    for job, texts in pieces:
        outcomes.append((job, found[at : at + len(texts)]))
        at += len(texts)
    return outcomes
