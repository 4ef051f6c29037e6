"""Runs one process within limits of time and memory, and ends it together with everything that it started.

The process leads its own session, and its descendants stay in that session even if their parent dies or they change
their process group. Memory is the sum of their resident memory.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import psutil

# One check takes about 2.5 ms, so about 1 % of a core.
SECONDS_BETWEEN_CHECKS = 0.25
# Time for a process to save its work after Ctrl-C.
GRACE_SECONDS = 30.0


@dataclass(frozen=True)
class Outcome:
    """How a process ended, and the most memory that was seen."""

    end: Literal["exit", "time", "memory"]
    code: int
    peak_bytes: int


def run(
    command: Sequence[str],
    log_file: Path,
    environment: Mapping[str, str],
    seconds: float,
    memory: float,
    can_stop: bool = False,
    on_check: Callable[[float], None] = lambda seconds: None,
) -> Outcome:
    """Run a command within limits of seconds and bytes, and append its output to a file.

    can_stop  whether the process saves its work on Ctrl-C; otherwise it is killed at once
    on_check  called regularly with the seconds since the start
    """
    start, peak = time.monotonic(), 0
    with log_file.open("ab") as log:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**os.environ, **environment},
            start_new_session=True,
        )
    with contextlib.suppress(OSError):  # if the machine runs out of memory, Linux should kill this process first
        Path(f"/proc/{process.pid}/oom_score_adj").write_text("1000")
    end: Literal["exit", "time", "memory"] = "exit"
    try:
        while end == "exit":
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(SECONDS_BETWEEN_CHECKS)
                break
            resident, elapsed = resident_memory(process.pid), time.monotonic() - start
            peak = max(peak, resident)
            on_check(elapsed)
            if elapsed > seconds:
                end = "time"
            elif resident > memory:
                end = "memory"
    except KeyboardInterrupt:
        if can_stop:
            process.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(GRACE_SECONDS)
        raise
    finally:
        _kill_session(process)
    return Outcome(end, process.returncode, peak)


def _kill_session(process: subprocess.Popen[bytes]) -> None:
    while members := session_members(process.pid):
        for pid in members:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.poll()  # removes the zombie
        time.sleep(0.01)
    process.kill()
    process.wait()


def session_members(leader: int) -> dict[int, int]:
    """The living processes of a session, and the resident bytes of each."""
    members = {}
    for pid in psutil.pids():
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied, OSError):
            if os.getsid(pid) == leader:
                process = psutil.Process(pid)
                if process.status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD):
                    members[pid] = process.memory_info().rss
    return members


def resident_memory(leader: int) -> int:
    return sum(session_members(leader).values())
