"""Compiles the kernels in C into `_native.abi3.so`, for all versions of Python from 3.11 on.

    python src/shortlist/kernels/native/build.py

Building a wheel or an editable installation does this, too (hatch_build.py). Without a C compiler nothing breaks:
numba compiles its version of each kernel at the first prediction.
"""

from __future__ import annotations

import os
import platform
import shlex
import subprocess
import sys
import sysconfig
from pathlib import Path

FOLDER = Path(__file__).parent
LIBRARY = FOLDER.parent / "_native.abi3.so"
# Sums may be reordered and fused, but NaN and infinity keep their meaning: see FAST in kernels/compile.py.
FLAGS = (
    "-O3 -std=c11 -fPIC -fno-math-errno -fno-trapping-math -fno-signed-zeros -fassociative-math -freciprocal-math "
    "-ffp-contract=fast"
)
LINK = "-shared -undefined dynamic_lookup" if sys.platform == "darwin" else "-shared"


def build() -> str:
    """Compile; returns what went wrong, or nothing."""
    flags = FLAGS + (" -mavx2 -mfma" if platform.machine() in ("x86_64", "AMD64") else "")
    include = f"-I{sysconfig.get_paths()['include']}"
    new = LIBRARY.with_suffix(".new")
    command = [*shlex.split(os.environ.get("CC", "cc")), *flags.split(), *LINK.split(), include]
    command += [*map(str, sorted(FOLDER.glob("*.c"))), "-o", str(new), "-lm"]
    try:
        result = subprocess.run(command, capture_output=True, text=True)
    except OSError as error:
        return str(error)
    if result.returncode:
        return result.stderr
    new.replace(LIBRARY)
    return ""


if __name__ == "__main__":
    sys.exit(build() or 0)
