"""Threads for kernels. Kernels are serial and release the GIL; plain Python threads share out their rows.

There is one pool of threads for the process. It starts when first needed, sleeps when idle, and does not survive a
fork: a child process starts its own.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache, wraps
from inspect import signature
from typing import Any

from shortlist.errors import OptionError
from shortlist.kernels.compile import kernel

# More shares than threads, so that a thread that is slowed down by other programs leaves work to the others.
SHARES_PER_THREAD = 4


class _ThreadState(threading.local):
    n_threads: int | None = None  # what `use_threads` set; None: one for each core
    is_worker = False


class _Pool:
    executor: ThreadPoolExecutor | None = None
    lock = threading.Lock()


_state = _ThreadState()


def n_cores() -> int:
    """The number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@contextmanager
def use_threads(threads: int | None) -> Iterator[int]:
    """Run the kernels in the block with this many threads, at most one for each core (None: all cores)."""
    if threads is not None and (isinstance(threads, bool) or not isinstance(threads, int)):
        raise OptionError(f"threads is {threads!r}; expected a number of threads, or None for one per core")
    if threads is not None and threads < 1:
        raise OptionError(f"threads must be at least 1, not {threads}")
    n_threads = 1 if threads == 1 or _state.is_worker else min(threads or n_cores(), n_cores())
    before, _state.n_threads = _state.n_threads, n_threads
    try:
        yield n_threads
    finally:
        _state.n_threads = before


class _BlasLimit:
    """The BLAS library has one number of threads for the process: the first user sets it, the last one restores it."""

    lock = threading.Lock()
    n_users = 0
    before: tuple[int, ...] = ()


@contextmanager
def use_cores(threads: int | None) -> Iterator[int]:
    """As `use_threads`, and limit the threads of numpy's matrix products too."""
    with use_threads(threads) as n_threads:
        if threads is None:
            yield n_threads
            return
        libraries = _blas_libraries()
        with _BlasLimit.lock:
            if not _BlasLimit.n_users:
                _BlasLimit.before = tuple(library.num_threads for library in libraries)
            _BlasLimit.n_users += 1
            for library in libraries:
                library.set_num_threads(min(threads, library.num_threads))
        try:
            yield n_threads
        finally:
            with _BlasLimit.lock:
                _BlasLimit.n_users -= 1
                if not _BlasLimit.n_users:
                    for library, before in zip(libraries, _BlasLimit.before, strict=True):
                        library.set_num_threads(before)


@cache
def _blas_libraries() -> list[Any]:
    from threadpoolctl import ThreadpoolController

    return [library for library in ThreadpoolController().lib_controllers if library.user_api == "blas"]


def run_shares(work: Callable[[int], Any], n_shares: int) -> None:
    """Call `work(0)` to `work(n_shares - 1)` on the threads that `use_threads` allows, the caller's among them.

    Inside `work` there is one thread. An error reaches the caller once no share is running any more.
    """
    n_threads = min(_thread_limit(), n_shares)
    if n_threads <= 1:
        for share in range(n_shares):
            work(share)
        return
    waiting = deque(range(n_shares))

    def work_until_done() -> None:
        with use_threads(1):
            while waiting:
                try:
                    share = waiting.popleft()
                except IndexError:  # another thread took the last one
                    return
                try:
                    work(share)
                except BaseException:
                    waiting.clear()
                    raise

    executor = _executor()
    helpers = [executor.submit(work_until_done) for _ in range(n_threads - 1)]
    try:
        work_until_done()
    finally:
        # A helper that has not started, because the pool is busy, has nothing left to do.
        errors = [helper.exception() for helper in helpers if not helper.cancel()]
    for error in errors:
        if error is not None:
            raise error


def run_ranges(serial: Callable, n: int, minimum: int, *arguments: Any) -> None:
    """Call `serial(begin, end, *arguments)` on ranges that make up 0 to n, none much shorter than `minimum`."""
    n_shares = min(n // minimum, SHARES_PER_THREAD * _thread_limit())
    if n_shares <= 1 or _thread_limit() == 1:
        serial(0, n, *arguments)
        return
    run_shares(lambda share: serial(share * n // n_shares, (share + 1) * n // n_shares, *arguments), n_shares)


def parallel_kernel(rows: str = "", bounds: str = "", shares: int = 0, minimum: int = 1, **options: Any) -> Any:
    """Compile a function of `begin`, `end` and more as a kernel, and share its range out over threads.

    The result takes the parameters after `begin` and `end`. Its range is the length of the parameter named by `rows`,
    the number of intervals in the one named by `bounds`, or `shares`. A range shorter than twice the `minimum` is not
    worth a second thread.
    """

    def decorate(function: Callable) -> Callable:
        serial = kernel(function, **options)
        parameters = list(signature(function).parameters.values())[2:]
        names = [parameter.name for parameter in parameters]
        place = 0 if shares else names.index(rows or bounds)

        @wraps(function)
        def parallel(*arguments: Any) -> None:
            n = shares or len(arguments[place]) - bool(bounds)
            run_ranges(serial, n, minimum, *arguments)

        parallel.__signature__ = signature(function).replace(parameters=parameters)  # type: ignore[attr-defined]
        return parallel

    return decorate


def _thread_limit() -> int:
    if _state.is_worker:
        return 1
    return n_cores() if _state.n_threads is None else _state.n_threads


def _executor() -> ThreadPoolExecutor:
    with _Pool.lock:
        if _Pool.executor is None:
            _Pool.executor = ThreadPoolExecutor(n_cores(), "shortlist", _become_worker)
        return _Pool.executor


def _become_worker() -> None:
    _state.is_worker = True


def _forget_threads() -> None:
    _Pool.executor, _Pool.lock, _BlasLimit.lock = None, threading.Lock(), threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_threads)
