"""The machine of a comparison, and the versions of the libraries."""

from __future__ import annotations

import json
import platform
import re
import subprocess
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import psutil

from shortlist import __version__
from shortlist.compare.peers.run_peer import installed_versions
from shortlist.compare.plan import RUN_PEER
from shortlist.errors import OptionError
from shortlist.kernels.threads import n_cores

OUR_LIBRARIES = ["numpy", "scipy", "faiss-cpu", "torch"]
PEER_LIBRARIES = ["numpy", "scipy", "scikit-learn"]


def machine_facts() -> dict[str, Any]:
    """Processor, cores, memory, system, Python and library versions."""
    return {
        "cpu": _cpu_name(),
        "cores": n_cores(),
        "memory_bytes": psutil.virtual_memory().total,
        "system": platform.platform(),
        "python": platform.python_version(),
        "versions": {"shortlist": __version__, **installed_versions(OUR_LIBRARIES)},
        "load": psutil.getloadavg()[0],
        "started": datetime.now(timezone.utc).isoformat(timespec="seconds"),
    }


def peer_versions(python: str | None, packages: list[str]) -> dict[str, str]:
    """Versions of those of these packages that the peers' Python has."""
    if python is None:
        return {}
    command = [python, str(RUN_PEER), "--versions", *dict.fromkeys([*packages, *PEER_LIBRARIES])]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
        return json.loads(answer.stdout)
    except (OSError, subprocess.SubprocessError, json.JSONDecodeError):
        raise OptionError(
            f"{python} cannot run the other tools: it is missing or not a Python interpreter. Set one up with "
            "`make peers`, name it with --peers-python, or leave the other tools out with --peers none."
        ) from None


def _cpu_name() -> str:
    """The model name of the processor, which psutil does not know."""
    try:
        names = re.findall(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        names = []
    return names[0] if names else platform.processor() or platform.machine()
