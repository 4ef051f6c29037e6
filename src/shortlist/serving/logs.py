"""Structured logs: one JSON object a line, on standard error, written by a thread so that nobody waits for a disk.

Lines about requests say what was asked and how it went, never the texts unless the server was told to.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec

SECONDS_BETWEEN_WRITES = 0.2
MOST_WAITING = 10_000
MOST_OF_PATH = 100


class Log:
    """Lines to write. If whoever reads them stops reading, new ones are dropped and counted; nothing stands still."""

    def __init__(self, write: Callable[[bytes], None] | None = None) -> None:
        self._write = write or _to_standard_error
        self._waiting: deque[dict[str, Any]] = deque()
        self._dropped = 0
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._work, name="log", daemon=True)
        self._thread.start()

    def event(self, event: str, level: str = "info", **facts: Any) -> None:
        if len(self._waiting) >= MOST_WAITING:
            self._dropped += 1
            return
        self._waiting.append({"time": time.time(), "level": level, "event": event, **facts})

    def request(self, method: str, path: str, status: int, ms: float, texts: int, content: list[str] | None) -> None:
        level = "error" if status == 500 else "info"
        facts: dict[str, Any] = {"method": method, "path": path[:MOST_OF_PATH], "status": status, "ms": round(ms, 2)}
        if texts:
            facts["n_texts"] = texts
        if content:
            facts["texts"] = content
        self.event("request", level, **facts)

    def close(self) -> None:
        """Write what is left, within a second or so."""
        self._closing.set()
        self._thread.join(timeout=1.0)

    def _work(self) -> None:
        closing = False
        while not closing:
            closing = self._closing.wait(SECONDS_BETWEEN_WRITES)
            lines = [self._waiting.popleft() for _ in range(len(self._waiting))]
            if self._dropped:
                dropped, self._dropped = self._dropped, 0
                lines.append({"time": time.time(), "level": "warning", "event": "log lines dropped", "n": dropped})
            if lines:
                self._write(b"".join(map(_line, lines)))


def _to_standard_error(data: bytes) -> None:
    """Past Python's buffers: a thread that waits in them for a reader that has stopped would spoil an orderly exit."""
    with suppress(OSError):  # whoever read it has gone
        while data:
            data = data[os.write(2, data) :]


def _line(facts: dict[str, Any]) -> bytes:
    seconds = facts["time"]
    day = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
    return msgspec.json.encode({**facts, "time": f"{day}.{int(seconds % 1 * 1000):03d}Z"}) + b"\n"


class LogHandler(logging.Handler):
    """Brings what libraries log through Python's `logging` into the same lines."""

    def __init__(self, log: Log) -> None:
        super().__init__(logging.WARNING)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        facts = {"from": record.name}
        if record.exc_info:
            facts["traceback"] = logging.Formatter().formatException(record.exc_info)
        self._log.event(record.getMessage(), record.levelname.lower(), **facts)
