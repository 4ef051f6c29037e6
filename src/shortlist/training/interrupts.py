"""Ctrl-C and SIGTERM during training: what is done is saved, and a message says how to continue."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from shortlist.data.storage import is_url
from shortlist.errors import Stopped
from shortlist.training.checkpoints import FACTS

SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def interrupt_event() -> Iterator[threading.Event]:
    """Within the block, the first signal sets the event; a second one raises KeyboardInterrupt."""
    stop = threading.Event()

    def on_signal(number: int, frame: Any) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    with _handled_by(on_signal):
        yield stop


@contextmanager
def stopping(checkpoint_dir: str) -> Iterator[None]:
    """Outside the training loop, a signal stops at once. `Stopped` says what is kept.

    Libraries in C may turn the KeyboardInterrupt into another error: NumPy, for one, into a TypeError.
    """
    stop = threading.Event()

    def on_signal(number: int, frame: Any) -> None:
        stop.set()
        raise KeyboardInterrupt

    try:
        with _handled_by(on_signal):
            yield
    except Stopped:
        raise
    except BaseException as error:
        if stop.is_set() or isinstance(error, KeyboardInterrupt):
            raise Stopped(_message(checkpoint_dir)) from None
        raise


def _message(checkpoint_dir: str) -> str:
    if not checkpoint_dir:
        return "stopped; nothing is saved, because there was no checkpoint_dir"
    if not is_url(checkpoint_dir) and next(Path(checkpoint_dir).rglob(FACTS), None) is None:
        return "stopped before anything was learnt that could be saved"
    return f"stopped; the finished epochs are saved in {checkpoint_dir}. To continue, rerun with --resume"


@contextmanager
def _handled_by(handler: Callable[[int, Any], None]) -> Iterator[None]:
    """Handle both signals. Only the main thread can; elsewhere, they stay with it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number in SIGNALS}
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, signal.SIG_DFL if previous is None else previous)
