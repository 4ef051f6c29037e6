"""Refuses requests when all of them have become slow, so that those that are accepted are answered soon.

By Little's law, requests wait for as long as it takes to finish those in flight. So for a wait of at most
`max_slowdown` times what a request takes alone, at most that many may be in flight as the server finishes in this time.
A few are always accepted, and so are short bursts: only if requests were slow for a second is their number bounded,
until there is room again.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from shortlist.serving.problems import busy

SMALL_TEXTS = 8  # larger requests take long because they are large: they are neither measured nor refused here
FEW = 2  # requests, times the slowdown, are always accepted: a batch of two costs little more than one of a single text
WINDOW_SECONDS = 1.0
IDLE_SECONDS = 0.5  # after so long without a request, an overload is over
NEWEST_WEIGHT = 0.1  # of a new measurement in the mean


class Slowdown:
    """Measures how long small requests take, and bounds their number while they take too long."""

    def __init__(self, max_slowdown: int, clock: Callable[[], float] = time.perf_counter) -> None:
        self.max_slowdown, self._clock = max_slowdown, clock
        self.limit = math.inf  # small requests in flight
        self.alone = math.inf  # seconds of a small request that shares the server with no other
        self._n_small = self._n_all = 0
        self._is_alone, self._last_done = False, -math.inf
        self._start_window()

    def enter(self, n_texts: int, may_refuse: bool = True) -> float:
        """Admit a request, or refuse it. Returns the time, for `leave`."""
        now = self._clock()
        if now > self._last_done + IDLE_SECONDS and not self._n_all:
            self.limit = math.inf
            self._start_window()
        if may_refuse and n_texts <= SMALL_TEXTS and self._n_small >= self.limit:
            self._n_refused += 1
            raise busy(
                f"The server is overloaded: requests take more than {self.max_slowdown} times as long as alone. Retry "
                "in a second."
            )
        self._is_alone = not self._n_all
        self._n_all += 1
        self._n_small += n_texts <= SMALL_TEXTS
        return now

    def leave(self, n_texts: int, entered: float, finished: bool = True) -> None:
        """Call this when a request that was admitted is predicted, or has failed or lost its client."""
        now = self._last_done = self._clock()
        self._n_all -= 1
        self._n_small -= n_texts <= SMALL_TEXTS
        if n_texts > SMALL_TEXTS or not finished:
            return
        self._measure(now - entered, self._is_alone and not self._n_all)
        if now >= self._window_start + WINDOW_SECONDS:
            self._set_limit(now - self._window_start)
            self._start_window()

    def _measure(self, seconds: float, is_alone: bool) -> None:
        self._n_done += 1
        self._seconds += seconds
        if self.alone == math.inf:
            self.alone = seconds
        elif is_alone or seconds < self.alone:  # among others, it would not have been slower alone
            self.alone += NEWEST_WEIGHT * (seconds - self.alone)

    def _set_limit(self, elapsed: float) -> None:
        """Bound the number of requests if they were slow, or some had to be refused, in the window that ends."""
        wanted = self.max_slowdown * self.alone
        if self._n_refused or self._seconds > wanted * self._n_done:
            self.limit = max(FEW * self.max_slowdown, int(self._n_done * wanted / elapsed))
        else:
            self.limit = math.inf

    def _start_window(self) -> None:
        self._window_start = self._clock()
        self._n_done = self._n_refused = 0
        self._seconds = 0.0
