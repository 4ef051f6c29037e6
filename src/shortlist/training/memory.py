"""The memory that training needs, computed before it starts."""

from __future__ import annotations

import ctypes
import logging
from pathlib import Path

from shortlist.errors import OptionError

log = logging.getLogger("shortlist")

GB = 1e9
MENTIONED_BYTES = 0.1 * GB
# mallopt's parameters: return memory to the system above this much free, and map larger pieces on their own.
TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3

# Trainings that start at the same time in other processes and compete for the same memory.
n_parallel = 1


def free_memory() -> int:
    """Bytes that this process can still get, from the machine and within its control group."""
    import psutil

    free = int(psutil.virtual_memory().available)
    try:
        limit, used = (Path(f"/sys/fs/cgroup/memory.{name}").read_text().strip() for name in ("max", "current"))
        return free if limit == "max" else min(free, int(limit) - int(used))
    except (OSError, ValueError):
        return free  # no such limit


def require_memory(sizes: dict[str, int], advice: str) -> None:
    """Log how much memory is needed for what, and raise an error if there is less."""
    total, free = sum(sizes.values()), free_memory()
    parts = ", ".join(f"{name} {size / GB:.2f}" for name, size in sizes.items() if size >= GB / 100)
    needs = f"needs about {total / GB:.2f} GB" + (f" ({parts})" if parts else "")
    if total >= MENTIONED_BYTES:
        log.info("memory: %s; %.1f GB are free", needs, free / GB)
    if total * n_parallel > free:
        times = f", {n_parallel} times at once (parallel)" if n_parallel > 1 else ""
        raise OptionError(f"training {needs}{times}, and {free / GB:.1f} GB are free. {advice}")


def keep_freed_memory() -> None:
    """Let the C library keep freed memory for the next step: returning it took a seventh of the time."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):
        return  # not the GNU C library
    mallopt(MMAP_THRESHOLD, 32 << 20)
    mallopt(TRIM_THRESHOLD, 1 << 30)
