"""One process, watched: ended with all that it started when it takes too long or too much memory.

The process leads a session of its own, and whatever it starts stays in that session: this is how all of it is found in
/proc, also what has moved to another process group. Its memory is what all of them have resident together.
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

# Looking costs some 2 ms, so at this pace less than a hundredth of a core.
SECONDS_BETWEEN_LOOKS = 0.25
# How long a process that puts its work away after Ctrl-C may take for it.
GRACE = 30.0
PROC = Path("/proc")
SESSION, RESIDENT = 3, 21  # fields of /proc/PID/stat, counted from the state


@dataclass(frozen=True)
class Outcome:
    """How it ended: by itself, or at one of the limits; the most memory that was seen."""

    end: Literal["by itself", "time", "memory"]
    code: int
    seconds: float
    peak_bytes: int


def run(
    command: Sequence[str],
    log_file: Path,
    environment: Mapping[str, str],
    seconds: float,
    memory: float,
    can_stop: bool = False,
    on_look: Callable[[float], None] = lambda seconds: None,
) -> Outcome:
    """Run a command within limits of seconds and bytes; what it prints goes to the end of a file.

    can_stop  whether it puts its work away when it gets Ctrl-C; otherwise it is ended at once
    on_look   is told now and then for how many seconds it has been running
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
    _first_to_go(process.pid)
    end: Literal["by itself", "time", "memory"] = "by itself"
    try:
        while end == "by itself":
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(SECONDS_BETWEEN_LOOKS)
                break
            resident, spent = resident_memory(process.pid), time.monotonic() - start
            peak = max(peak, resident)
            on_look(spent)
            if spent > seconds:
                end = "time"
            elif resident > memory:
                end = "memory"
    except KeyboardInterrupt:
        if can_stop:
            process.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(GRACE)
        raise
    finally:
        end_session(process)
    return Outcome(end, process.returncode, time.monotonic() - start, peak)


def end_session(process: subprocess.Popen[bytes]) -> None:
    """End a process that leads a session, and everything in the session, for good."""
    while members := session_members(process.pid):
        for pid in members:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.poll()  # a dead child is there until asked about
        time.sleep(0.01)
    if process.poll() is None:
        process.kill()
    process.wait()


def session_members(leader: int) -> dict[int, int]:
    """The living processes of a session, and the bytes each has resident."""
    page = os.sysconf("SC_PAGE_SIZE")
    members = {}
    for entry in os.scandir(PROC) if PROC.exists() else ():
        if not entry.name.isdecimal():
            continue
        try:
            # The name of the program stands in parentheses, and may hold anything, parentheses, too.
            fields = Path(entry.path, "stat").read_text(errors="replace").rpartition(")")[2].split()
        except OSError:
            continue  # it has ended meanwhile
        if fields and int(fields[SESSION]) == leader and fields[0] not in "ZX":
            members[int(entry.name)] = int(fields[RESIDENT]) * page
    return members


def resident_memory(leader: int) -> int:
    return sum(session_members(leader).values())


def _first_to_go(pid: int) -> None:
    """Should the machine run out of memory before we look again, this process is to be ended, and no other."""
    with contextlib.suppress(OSError):
        (PROC / str(pid) / "oom_score_adj").write_text("1000")
