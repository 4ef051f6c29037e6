"""What a training will need, counted before it starts."""

from __future__ import annotations

import ctypes
import logging
import os
from pathlib import Path

from shortlist.errors import OptionError

log = logging.getLogger("shortlist")

GB = 1e9
# mallopt's numbers for "give memory back when so much is free" and "ask the system for pieces of this size".
TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3

# Trainings that begin side by side, each in a process of its own, and will want the same memory.
side_by_side = 1


def free_memory() -> int:
    """Bytes that can still be had: of the machine, and of the group of processes where it has a limit."""
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                free = int(line.split()[1]) * 1024
        limit, used = (Path(f"/sys/fs/cgroup/memory.{name}").read_text().strip() for name in ("max", "current"))
        if limit != "max":
            free = min(free, int(limit) - int(used))
    except (OSError, ValueError, IndexError):
        pass  # not Linux, or no such limit
    return free


def need_memory(sizes: dict[str, int], what_helps: str) -> None:
    """Tell how much memory will be needed for what, and refuse if there is less."""
    total, free = sum(sizes.values()), free_memory()
    parts = ", ".join(f"{name} {size / GB:.2f}" for name, size in sizes.items() if size >= GB / 100)
    needs = f"needs about {total / GB:.2f} GB" + (f" ({parts})" if parts else "")
    log.info("memory: %s; %.1f GB are free", needs, free / GB)
    if total * side_by_side > free:
        times = f", {side_by_side} times at once (parallel)" if side_by_side > 1 else ""
        raise OptionError(f"training {needs}{times}, and {free / GB:.1f} GB are free. {what_helps}")


def keep_freed_memory() -> None:
    """Let the C library keep what training frees in every step, for the next one; a seventh of the time went there."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):
        return  # another C library than GNU's
    mallopt(MMAP_THRESHOLD, 32 << 20)
    mallopt(TRIM_THRESHOLD, 1 << 30)
