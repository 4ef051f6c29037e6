"""Prefetching in a thread, for work that releases the interpreter lock: decompression and the compiled kernels."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterator
from typing import Any, TypeVar

Item = TypeVar("Item")


def in_background(items: Iterator[Item], ahead: int = 4) -> Generator[Item]:
    """The same items, produced by a thread that runs up to `ahead` items ahead."""
    from concurrent.futures import ThreadPoolExecutor

    end: Any = object()
    pool = ThreadPoolExecutor(1)
    try:
        coming = deque(pool.submit(next, items, end) for _ in range(ahead))
        while (item := coming.popleft().result()) is not end:
            coming.append(pool.submit(next, items, end))
            yield item
    finally:
        # Without waiting: the garbage collector may be what ends this, in a thread that is just starting and holds a
        # lock that the end of our thread needs.
        pool.shutdown(wait=False, cancel_futures=True)
