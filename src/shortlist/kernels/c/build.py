"""Compiles the kernels into `_native.abi3.so`, for all versions of Python from 3.11 on, or for Python 3.10 alone.

    python src/shortlist/kernels/c/build.py

Building a wheel or an editable installation does this, too (hatch_build.py). For x86 there is a second library that
uses AVX2; where the processor has it, it is the one that is loaded. Without a C compiler of its own, a machine takes
Zig's, which is a package on PyPI.
"""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

FOLDER = Path(__file__).parent
# Sums may be reordered and fused, which lets the compiler use SIMD; NaN and infinity keep their meaning.
FLAGS = (
    "-O3 -std=c11 -fPIC -fno-math-errno -fno-trapping-math -fno-signed-zeros -fassociative-math -freciprocal-math "
    "-ffp-contract=fast"
)
LINK = "-shared -undefined dynamic_lookup" if sys.platform == "darwin" else "-shared"
ZIG = "ziglang>=0.13"
# The stable ABI of Python 3.10 lacks what the kernels need.
SUFFIX = ".abi3.so" if sys.version_info >= (3, 11) else sysconfig.get_config_var("EXT_SUFFIX")


def compiler() -> list[str]:
    if os.environ.get("CC"):
        return shlex.split(os.environ["CC"])
    for name in ("cc", "gcc", "clang"):
        if shutil.which(name):
            return [name]
    return [sys.executable, "-m", "ziglang", "cc"]


def needs_zig() -> bool:
    return "ziglang" in compiler()


def build() -> list[str]:
    """Compile, or raise an error with what the compiler said. Returns the names of the libraries."""
    variants = {"_native": ""}
    if platform.machine() in ("x86_64", "AMD64"):
        variants = {"_native": "-mno-avx", "_native_avx2": "-mavx2 -mfma"}
    for name, more in variants.items():
        library = FOLDER.parent / f"{name}{SUFFIX}"
        new = library.with_suffix(".new")
        command = [*compiler(), *FLAGS.split(), *more.split(), *LINK.split(), f"-I{sysconfig.get_paths()['include']}"]
        command += [*map(str, sorted(FOLDER.glob("*.c"))), "-o", str(new), "-lm"]
        result = subprocess.run(command, capture_output=True, text=True)
        if result.returncode:
            raise RuntimeError(f"the kernels in C do not compile ({shlex.join(command[:1])}):\n{result.stderr}")
        new.replace(library)
    return [f"{name}{SUFFIX}" for name in variants]


if __name__ == "__main__":
    build()
