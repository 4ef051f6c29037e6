"""The machine that a comparison runs on, and the versions of what it runs."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from shortlist import __version__
from shortlist.compare.plan import SCRIPT
from shortlist.errors import OptionError

OURS = ("numpy", "scipy", "numba", "faiss-cpu", "torch")
PEERS_ALSO = ("numpy", "scipy", "scikit-learn")


def machine_facts() -> dict[str, Any]:
    """Processor, cores, memory, system, Python and our own libraries."""
    return {
        "cpu": _processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        "system": platform.platform(),
        "python": platform.python_version(),
        "versions": {"shortlist": __version__, **installed(OURS)},
        "load": os.getloadavg()[0],
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def installed(packages: tuple[str, ...]) -> dict[str, str]:
    """Versions of those of these packages that are here."""
    found = {}
    for package in packages:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def peers_versions(python: str | None, packages: list[str]) -> dict[str, str]:
    """Versions of those of these packages that another Python has."""
    if python is None:
        return {}
    command = [python, str(SCRIPT), "--versions", *dict.fromkeys([*packages, *PEERS_ALSO])]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
        return json.loads(answer.stdout)
    except (OSError, subprocess.SubprocessError, json.JSONDecodeError):
        raise OptionError(
            f"{python} cannot run the other tools: it is not there, or no Python. `make peers` sets one up; "
            "--peers-python says where it is; --peers none leaves them out."
        ) from None


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
