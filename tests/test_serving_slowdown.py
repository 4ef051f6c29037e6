"""Small requests are refused while all of them are slow, and accepted again when there is room."""

from __future__ import annotations

import math

import pytest
from starlette.exceptions import HTTPException

from shortlist.serving.slowdown import FEW, SMALL_TEXTS, Slowdown


class Queue:
    """A server that needs 10 ms for a request, and answers one every `interval`; an answered client asks again."""

    def __init__(self, interval: float = 0.001) -> None:
        self.now, self.interval = 0.0, interval
        self.slowdown = Slowdown(4, lambda: self.now)

    def ask_alone(self, n: int = 20) -> None:
        for _ in range(n):
            entered = self.slowdown.enter(1)
            self.now += 0.01
            self.slowdown.leave(1, entered)
            self.now += 0.01

    def load(self, n_clients: int, seconds: float) -> tuple[list[float], int]:
        """The latencies of the accepted requests of so many clients, and how many were refused."""
        waiting, latencies, n_refused, end = [], [], 0, self.now + seconds
        while self.now < end:
            for _ in range(n_clients - len(waiting)):
                try:
                    waiting.append(self.slowdown.enter(1))
                except HTTPException as error:
                    assert error.status_code == 503 and error.headers == {"retry-after": "1"}
                    n_refused += 1
            self.now += self.interval
            if self.now >= waiting[0] + 0.01:
                latencies.append(self.now - waiting[0])
                self.slowdown.leave(1, waiting.pop(0))
        for entered in waiting:
            self.slowdown.leave(1, entered, finished=False)
        return latencies, n_refused


@pytest.mark.parametrize("n_clients", [60, pytest.param(200, marks=pytest.mark.slow)])
def test_accepted_requests_wait_for_a_few_others_only(n_clients):
    queue = Queue()
    queue.ask_alone()
    assert queue.slowdown.alone == pytest.approx(0.01)
    queue.load(n_clients, seconds=3)
    latencies, n_refused = queue.load(n_clients, seconds=30)
    assert max(latencies[n_clients:]) < 0.051 and n_refused  # at most five times as long as alone
    assert len(latencies) == pytest.approx(30_000, rel=0.01)  # the server is as busy as without a limit


@pytest.mark.slow
def test_a_server_that_is_never_at_rest():
    queue = Queue()
    latencies, n_refused = queue.load(200, seconds=30)
    assert n_refused and max(latencies[-100:]) < 0.051


def test_bursts_and_a_bearable_load_are_not_refused():
    queue = Queue()
    queue.ask_alone()
    for _ in range(5):
        assert queue.load(200, seconds=0.5)[1] == 0
        queue.now += 1
    assert queue.load(35, seconds=30)[1] == 0


def test_a_few_requests_are_always_accepted():
    queue = Queue(interval=0.01)  # one after the other
    queue.ask_alone()
    few = FEW * queue.slowdown.max_slowdown
    assert queue.load(few, seconds=30)[1] == 0
    latencies, n_refused = queue.load(few + 1, seconds=30)
    assert n_refused and len(latencies) == pytest.approx(3000, rel=0.01)


def test_after_an_overload_all_are_accepted_again():
    queue = Queue()
    queue.ask_alone()
    queue.load(200, seconds=5)
    assert queue.slowdown.limit == pytest.approx(40, abs=2)
    queue.load(30, seconds=3)
    assert queue.slowdown.limit == math.inf
    queue.load(200, seconds=5)
    queue.now += 60
    assert queue.load(200, seconds=0.5)[1] == 0


def test_large_requests_are_not_measured_and_not_refused():
    queue = Queue()
    queue.ask_alone()
    queue.load(200, seconds=5)
    entered = [queue.slowdown.enter(SMALL_TEXTS + 1) for _ in range(50)]
    queue.now += 100
    for one in entered:
        queue.slowdown.leave(SMALL_TEXTS + 1, one)
    assert queue.slowdown.alone == pytest.approx(0.01)
    queue.ask_alone(3)


def test_nothing_is_refused_while_a_model_is_loaded():
    queue = Queue()
    queue.ask_alone()
    queue.load(200, seconds=5)
    assert all(queue.slowdown.enter(1, may_refuse=False) >= 0 for _ in range(80))
