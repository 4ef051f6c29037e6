"""The decorator that compiles every kernel: numba without the GIL, with a cache on disk wherever one can be written."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import Any

from numba import config, njit

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

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
        return _with_lock(njit(function, nogil=True, cache=True, **options))
    directory = private_cache()
    if directory is not None:
        before, config.CACHE_DIR = config.CACHE_DIR, str(directory)  # type: ignore[attr-defined]
        try:
            with suppress(RuntimeError):
                return _with_lock(njit(function, nogil=True, cache=True, **options))
        finally:
            config.CACHE_DIR = before  # type: ignore[attr-defined]
    return njit(function, nogil=True, **options)


def _with_lock(dispatcher: Any) -> Any:
    """Let one process at a time read or write the cache of a kernel.

    numba replaces its files atomically, but processes that save at the same time can choose the same file for the code
    of two signatures, and one would run the code of the other.
    """
    files = dispatcher._cache._cache_file
    load, save, path = files.load, files.save, Path(files._index_path).with_suffix(".lock")

    def locked_load(key: Any) -> Any:
        with _lock(path):
            return load(key)

    def locked_save(key: Any, data: Any) -> None:
        with _lock(path):
            save(key, data)

    files.load, files.save = locked_load, locked_save
    return dispatcher


@contextlib.contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Hold a lock on a file. Where there cannot be one, as in a cache that is only read, there is none."""
    with contextlib.ExitStack() as stack:
        if fcntl is not None:
            with suppress(OSError):
                fcntl.flock(stack.enter_context(path.open("w")), fcntl.LOCK_EX)
        yield


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
