"""Threads for kernels. Kernels are serial and release the GIL; plain Python threads share out their rows.

The process has one pool of threads. It starts when first needed, sleeps when idle, and does not survive a fork: a child
process starts its own.
"""

from __future__ import annotations

import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from shortlist.errors import OptionError

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

# More shares than threads: where other programs slow a thread down, the others take more of the work.
SHARES_PER_THREAD = 4


class _Local(threading.local):
    """What belongs to a thread: the number that `use_threads` set, and whether it works on a share."""

    n_threads: int | None = None  # None: one per core
    in_share = False

    def limit(self) -> int:
        if self.in_share:
            return 1
        return n_cores() if self.n_threads is None else self.n_threads


class _Process:
    """What all threads of the process share."""

    lock = threading.Lock()
    pool: ThreadPoolExecutor | None = None
    n_blas_users = 0
    blas: Sequence[tuple[Any, int]] = ()  # each library, with its number of threads before the first user
    blas_limit = 0


_local = _Local()


def n_cores() -> int:
    """The number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def n_threads() -> int:
    """The number of threads that kernels use here."""
    return _local.limit()


class use_threads:
    """Run the kernels in the block with this many threads, at most one per core (None: one per core)."""

    def __init__(self, threads: int | None) -> None:
        if threads is not None and (isinstance(threads, bool) or not isinstance(threads, int)):
            raise OptionError(f"threads is {threads!r}; expected a number of threads, or None for one per core")
        if threads is not None and threads < 1:
            raise OptionError(f"threads must be at least 1, not {threads}")
        self._threads = threads

    def __enter__(self) -> int:
        self._before = _local.n_threads
        if self._threads == 1 or _local.in_share:
            _local.n_threads = 1
        else:
            _local.n_threads = n_cores() if self._threads is None else min(self._threads, n_cores())
        return _local.n_threads

    def __exit__(self, *_: object) -> None:
        _local.n_threads = self._before


class use_cores(use_threads):
    """As `use_threads`, and limit the threads of numpy's matrix products (BLAS) too.

    scipy.linalg brings a BLAS of its own. It is limited if it is loaded when the first user begins.
    """

    def __enter__(self) -> int:
        if self._threads is not None:
            # BLAS has one number of threads for the process: the first user sets it, the last one restores it.
            with _Process.lock:
                if not _Process.n_blas_users:
                    libraries = _blas_libraries("scipy.linalg" in sys.modules)
                    _Process.blas = [(library, library.num_threads) for library in libraries]
                    _Process.blas_limit = max((before for _, before in _Process.blas), default=1)
                _Process.n_blas_users += 1
                if self._threads < _Process.blas_limit:
                    _set_blas_threads(self._threads)
        return super().__enter__()

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        if self._threads is not None:
            with _Process.lock:
                _Process.n_blas_users -= 1
                most = max((before for _, before in _Process.blas), default=1)
                if not _Process.n_blas_users and _Process.blas_limit < most:
                    _set_blas_threads(most)


@cache
def _blas_libraries(with_scipy: bool) -> list[Any]:
    from threadpoolctl import ThreadpoolController

    return [library for library in ThreadpoolController().lib_controllers if library.user_api == "blas"]


def _set_blas_threads(most: int) -> None:
    """Let each library use the threads that it had before the first user, but at most this many."""
    _Process.blas_limit = most
    for library, before in _Process.blas:
        # Recent versions of threadpoolctl ignore all threads but the first that sets a number; we have our own lock.
        if hasattr(library, "clear_controlling_thread"):
            library.clear_controlling_thread(force=True)
        library.set_num_threads(min(most, before))


def run_shares(work: Callable[[int], Any], n_shares: int) -> None:
    """Call `work(0)` to `work(n_shares - 1)` on as many threads as `use_threads` allows, the caller's among them.

    Inside `work`, kernels use one thread. After an error no further share starts, and the caller gets the error.
    """
    n_threads = min(_local.limit(), n_shares)
    if n_threads <= 1:
        for share in range(n_shares):
            work(share)
        return
    waiting = deque(range(n_shares))

    def next_share() -> int | None:
        try:
            return waiting.popleft()
        except IndexError:
            return None

    def work_through() -> None:
        _local.in_share = True
        try:
            for share in iter(next_share, None):
                work(share)
        except BaseException:
            waiting.clear()
            raise
        finally:
            _local.in_share = False

    with _Process.lock:
        if _Process.pool is None:
            from concurrent.futures import ThreadPoolExecutor

            _Process.pool = ThreadPoolExecutor(n_cores(), "shortlist")
        pool = _Process.pool
    helpers = [pool.submit(work_through) for _ in range(n_threads - 1)]
    try:
        work_through()
    finally:
        # A helper that has not started, because the pool is busy, has nothing left to do.
        errors = [helper.exception() for helper in helpers if not helper.cancel()]
    for error in filter(None, errors):
        raise error


def run_ranges(serial: Callable, n: int, minimum: int, *arguments: Any) -> None:
    """Call `serial(begin, end, *arguments)` on ranges that make up 0 to n, none of them shorter than `minimum`."""
    n_threads = _local.limit()
    n_shares = min(n // minimum, SHARES_PER_THREAD * n_threads)
    if n_threads == 1 or n_shares <= 1:
        serial(0, n, *arguments)
    else:
        run_shares(lambda i: serial(i * n // n_shares, (i + 1) * n // n_shares, *arguments), n_shares)


def _forget_threads() -> None:
    _Process.lock, _Process.pool = threading.Lock(), None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_threads)
