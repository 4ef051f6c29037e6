"""JSON logs on standard error: one object per line, written by a thread so that no request waits for a disk or a pipe.

Log lines never contain texts unless the server is told so.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from logging.handlers import QueueHandler, QueueListener

import msgspec

MAX_WAITING_LINES = 10_000
LOGGERS = ("shortlist.serving", "uvicorn.error")


class JsonFormatter(logging.Formatter):
    """Formats a record as JSON. `extra={"fields": {...}}` of a log call adds fields."""

    def format(self, record: logging.LogRecord) -> str:
        line = {"time": datetime.fromtimestamp(record.created, UTC), "level": record.levelname.lower()}
        line |= {"event": record.getMessage(), **getattr(record, "fields", {})}
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line).decode()


class DroppingQueueHandler(QueueHandler):
    """Queues records. If nobody reads the log and the queue is full, drops them; the next line says how many."""

    queue: queue.SimpleQueue[logging.LogRecord]
    dropped = 0

    def prepare(self, record: logging.LogRecord) -> logging.LogRecord:
        return record  # the listener runs in this process: no need to make the record picklable

    def enqueue(self, record: logging.LogRecord) -> None:
        if self.queue.qsize() >= MAX_WAITING_LINES:
            self.dropped += 1
            return
        if self.dropped:
            record.fields = {**getattr(record, "fields", {}), "dropped": self.dropped}
            self.dropped = 0
        self.queue.put_nowait(record)


class StderrHandler(logging.Handler):
    """Writes to standard error without Python's buffers and locks: a thread stuck in them would block the exit."""

    def createLock(self) -> None:
        self.lock = None

    def emit(self, record: logging.LogRecord) -> None:
        data = self.format(record).encode() + b"\n"
        with suppress(OSError):  # the reader is gone
            while data:
                data = data[os.write(2, data) :]


@contextmanager
def json_logs() -> Iterator[None]:
    """Write the logs of the server and of uvicorn to standard error."""
    records: queue.SimpleQueue[logging.LogRecord] = queue.SimpleQueue()
    handler, stderr = DroppingQueueHandler(records), StderrHandler()
    stderr.setFormatter(JsonFormatter())
    listener = QueueListener(records, stderr)
    for name in LOGGERS:
        logging.getLogger(name).addHandler(handler)
        logging.getLogger(name).propagate = False
    listener.start()
    try:
        yield
    finally:
        for name in LOGGERS:
            logging.getLogger(name).removeHandler(handler)
            logging.getLogger(name).propagate = True
        stop = threading.Thread(target=listener.stop, daemon=True)  # never returns if nobody reads the log
        stop.start()
        stop.join(timeout=1.0)
