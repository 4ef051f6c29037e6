"""Doing the next piece of work while this one is used: pays where the work lets go of the interpreter.

Decompression and the compiled kernels do, so reading and tokenising use both cores.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Generator, Iterator
from typing import TypeVar

Item = TypeVar("Item")


def in_background(items: Iterator[Item], ahead: int = 4) -> Generator[Item]:
    """The same items, made ahead of time by a thread."""
    ready: queue.Queue[Item | BaseException | None] = queue.Queue(ahead)
    stop = threading.Event()

    def put(item: Item | BaseException | None) -> None:
        while not stop.is_set():
            try:
                return ready.put(item, timeout=0.1)
            except queue.Full:
                continue

    def work() -> None:
        try:
            for made in items:
                put(made)
                if stop.is_set():
                    return
            put(None)
        except BaseException as error:  # noqa: BLE001 - handed to the reader, who raises it
            put(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        while (item := ready.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        stop.set()
        thread.join()
