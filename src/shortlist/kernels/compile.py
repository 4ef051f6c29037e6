"""The decorator that compiles every kernel: numba without the GIL, with a cache on disk wherever one can be written."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import Any

from numba import config, njit

# Sums may be reordered and fused, which lets the compiler use SIMD instructions; NaN and infinity keep their meaning.
FAST = {"reassoc", "contract", "arcp", "nsz"}


def kernel(function: Callable | None = None, **options: Any) -> Any:
    """Compile a function with `numba.njit(nogil=True, cache=True, **options)`.

    numba refuses to cache where neither the installation nor the home directory is writable. Then the cache is a
    private directory for temporary files, or, if that fails too, the function is compiled in every process.
    """
    if function is None:
        return partial(kernel, **options)
    with suppress(RuntimeError):
        return njit(function, nogil=True, cache=True, **options)
    directory = private_cache()
    if directory is not None:
        before, config.CACHE_DIR = config.CACHE_DIR, str(directory)  # type: ignore[attr-defined]
        try:
            with suppress(RuntimeError):
                return njit(function, nogil=True, cache=True, **options)
        finally:
            config.CACHE_DIR = before  # type: ignore[attr-defined]
    return njit(function, nogil=True, **options)


@cache
def private_cache() -> Path | None:
    """A directory under the system's temporary directory that nobody else can write to; None if there is none.

    numba runs what it finds in its cache, so a directory that another user made or could change is not used.
    """
    try:
        directory = Path(tempfile.gettempdir()) / f"shortlist-kernels-{os.getuid()}"
        with suppress(FileExistsError):
            directory.mkdir(mode=0o700)
        status = directory.lstat()
    except (OSError, AttributeError):  # Windows has no user ids
        return None
    is_private = stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o077
    return directory if is_private else None
