"""Prefetching in a thread, for work that releases the interpreter lock: decompression and the compiled kernels."""

from __future__ import annotations

import queue
import threading
from collections.abc import Generator, Iterator
from typing import TypeVar

Item = TypeVar("Item")


def in_background(items: Iterator[Item], ahead: int = 4) -> Generator[Item]:
    """The same items, produced by a thread that runs up to `ahead` items ahead."""
    ready: queue.Queue[Item | BaseException | None] = queue.Queue(ahead)
    stop = threading.Event()

    def put(item: Item | BaseException | None) -> None:
        while not stop.is_set():
            try:
                return ready.put(item, timeout=0.1)
            except queue.Full:
                continue

    def produce() -> None:
        try:
            for item in items:
                put(item)
                if stop.is_set():
                    return
            put(None)
        except BaseException as error:  # noqa: BLE001 - raised again in the consumer
            put(error)

    thread = threading.Thread(target=produce, daemon=True)
    thread.start()
    try:
        while (item := ready.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        stop.set()
        thread.join()
