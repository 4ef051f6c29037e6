"""How many threads the kernels use: all cores by default, fewer when the caller says so."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numba

from shortlist.errors import OptionError


@contextmanager
def use_threads(threads: int | None) -> Iterator[int]:
    """Run the block with this many kernel threads (None: as many as there are)."""
    most: int = numba.config.NUMBA_NUM_THREADS  # type: ignore[attr-defined]
    if threads is not None and threads < 1:
        raise OptionError(f"threads must be at least 1, not {threads}")
    before = numba.get_num_threads()
    numba.set_num_threads(min(threads or most, most))
    try:
        yield numba.get_num_threads()
    finally:
        numba.set_num_threads(before)
