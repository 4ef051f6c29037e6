"""How many threads the kernels use: all cores by default, fewer when the caller says so."""

from __future__ import annotations

from functools import cache
from threading import Lock
from typing import Any, ClassVar

import numba
import numpy as np

from shortlist.errors import OptionError


class use_threads:
    """Run the block with this many kernel threads (None: as many as there are)."""

    def __init__(self, threads: int | None) -> None:
        if threads is not None and (isinstance(threads, bool) or not isinstance(threads, int)):
            raise OptionError(f"threads is {threads!r}; expected how many cores to use, or None for all")
        if threads is not None and threads < 1:
            raise OptionError(f"threads must be at least 1, not {threads}")
        most: int = numba.config.NUMBA_NUM_THREADS  # type: ignore[attr-defined]
        self._wanted = min(threads or most, most)

    def __enter__(self) -> int:
        self._before = numba.get_num_threads()
        if self._before != self._wanted:  # setting them takes longer than some kernels
            numba.set_num_threads(self._wanted)
        return self._wanted

    def __exit__(self, *_: object) -> None:
        if self._before != self._wanted:
            numba.set_num_threads(self._before)


class use_cores:
    """As `use_threads`, for the products of matrices, too, that numpy leaves to a library with threads of its own."""

    _lock = Lock()
    _inside = 0
    _before: ClassVar[list[int]] = []

    def __init__(self, threads: int | None) -> None:
        self._threads = threads
        self._of_kernels = use_threads(threads)

    def __enter__(self) -> int:
        if self._threads is not None:
            with self._lock:
                # The library has one number for the whole process: the first to come in puts it down, the last to
                # leave puts it back.
                libraries = _matrix_libraries()
                if not use_cores._inside:
                    use_cores._before = [library.num_threads for library in libraries]
                use_cores._inside += 1
                for library in libraries:
                    library.set_num_threads(min(self._threads, library.num_threads))
        return self._of_kernels.__enter__()

    def __exit__(self, *error: object) -> None:
        self._of_kernels.__exit__(*error)
        if self._threads is not None:
            with self._lock:
                use_cores._inside -= 1
                if not use_cores._inside:
                    for library, threads in zip(_matrix_libraries(), use_cores._before, strict=True):
                        library.set_num_threads(threads)


@cache
def _matrix_libraries() -> list[Any]:
    from threadpoolctl import ThreadpoolController

    return [library for library in ThreadpoolController().lib_controllers if library.user_api == "blas"]


@cache
def can_share_kernels() -> bool:
    """Whether several threads may call kernels at once: numba's simplest pool of threads would end the process."""
    _start_pool(np.zeros(1))
    return numba.threading_layer() != "workqueue"


@numba.njit(cache=True, parallel=True)
def _start_pool(numbers):
    """numba says which pool it has once it has started it."""
    for i in numba.prange(len(numbers)):
        numbers[i] = 0


def n_threads() -> int:
    """The number of threads in force here."""
    return int(numba.get_num_threads())
