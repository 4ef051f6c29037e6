"""Kernels: compiled by numba when first called, without the GIL and with a cache on disk wherever one can be written.

The kernels that predictions need are also there in C (the folder `native`), compiled when the package is built:
importing numba takes a third of a second, and compiling those kernels 20 seconds. Two kernels are there in C only:
`code_vectors` and `search_codes`.
"""

from __future__ import annotations

import contextlib
import logging
import os
import stat
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache, partial, update_wrapper
from pathlib import Path
from types import FunctionType
from typing import Any

from shortlist.messages import show_messages

try:
    from shortlist.kernels import _native as native  # type: ignore[attr-defined]
except ImportError:  # not built, or for another processor
    native = None

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

log = logging.getLogger("shortlist")

# Sums may be reordered and fused, which lets the compiler use SIMD instructions; NaN and infinity keep their meaning.
FAST = {"reassoc", "contract", "arcp", "nsz"}


_compiling = threading.RLock()


class Kernel:
    """A function that is compiled when it is first called, or when another kernel that calls it is.

    native  the same in C; None: there is none. It gives NotImplemented for arrays that it has no code for
    """

    def __init__(self, function: Callable, options: dict[str, Any]) -> None:
        update_wrapper(self, function)
        self._function, self._options, self._compiled = function, options, None
        self.native = getattr(native, function.__name__, None)

    def __call__(self, *arguments: Any) -> Any:
        if self.native is not None:
            result = self.native(*arguments)
            if result is not NotImplemented:
                return result
        return self.compiled(*arguments)

    @property
    def compiled(self) -> Any:
        """The same by numba."""
        if self._compiled is None:
            with _compiling:
                self._compiled = self._compiled or _compile(self._function, self._options)
        return self._compiled


def kernel(function: Callable | None = None, **options: Any) -> Any:
    """Make a kernel of a function. The options are those of `numba.njit`."""
    return partial(Kernel, options=options) if function is None else Kernel(function, options)


def _compile(function: Any, options: dict[str, Any]) -> Any:
    """Compile a function with `numba.njit(nogil=True, cache=True, **options)`.

    numba refuses to cache where neither the installation nor the home directory is writable. Then the cache is a
    private directory for temporary files, or, if that fails too, the function is compiled in every process.
    """
    from numba import config, njit

    # numba must see compiled functions where this one calls kernels.
    called = {name: function.__globals__.get(name) for name in function.__code__.co_names}
    compiled = {name: other.compiled for name, other in called.items() if isinstance(other, Kernel)}
    own = FunctionType(function.__code__, function.__globals__ | compiled, function.__name__, function.__defaults__)
    function = update_wrapper(own, function)
    del function.__wrapped__
    options = {"nogil": True, **options}
    with suppress(RuntimeError):
        return _with_lock(njit(function, cache=True, **options))
    directory = private_cache()
    if directory is not None:
        before, config.CACHE_DIR = config.CACHE_DIR, str(directory)  # type: ignore[attr-defined]
        try:
            with suppress(RuntimeError):
                return _with_lock(njit(function, cache=True, **options))
        finally:
            config.CACHE_DIR = before  # type: ignore[attr-defined]
    return njit(function, **options)


def _with_lock(dispatcher: Any) -> Any:
    """Let one process at a time read or write the cache of a kernel.

    numba replaces its files atomically, but processes that save at the same time can choose the same file for the code
    of two signatures, and one would run the code of the other.
    """
    files = dispatcher._cache._cache_file
    load, save, path = files.load, files.save, Path(files._index_path).with_suffix(".lock")

    def locked_load(key: Any) -> Any:
        with _lock(path):
            try:
                found = load(key)
            except Exception:  # noqa: BLE001 - whatever unpickling a truncated file raises, after a full disk for example
                Path(files._index_path).unlink(missing_ok=True)
                found = None
        if found is None:
            _say_that_it_compiles()
        return found

    def locked_save(key: Any, data: Any) -> None:
        with _lock(path):
            save(key, data)

    files.load, files.save = locked_load, locked_save
    return dispatcher


@cache
def _say_that_it_compiles() -> None:
    """Once per process."""
    show_messages()
    log.info("compiling the inner loops for this machine: half a minute or more, once")


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
