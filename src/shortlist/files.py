"""Writing files and folders completely or not at all, and the safetensors files among them."""

from __future__ import annotations

import errno
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import numpy as np

from shortlist.errors import DataError
from shortlist.streams import import_zstandard

DTYPES = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2",
    "I64": "<i8", "I32": "<i4", "U16": "<u2", "U8": "u1", "I8": "i1",
}  # fmt: skip
PARTIAL, OLD = ".partial", ".old"
# A folder that another process has just created may not be locked yet.
LEFTOVER_SECONDS = 60
AT_FDCWD, RENAME_EXCHANGE = -100, 2


@contextmanager
def write_atomically(path: str | Path) -> Iterator[BinaryIO]:
    """Write a file completely or not at all: to a temporary file beside it, synced, then renamed.

    The content is compressed if the name ends in .gz or .zst. Pipes and devices are written to directly.
    """
    path = _valid(path)
    with explain_os_errors(path):
        if path.is_dir():
            raise DataError(f"{path}: is a folder; cannot write a file there.")
        is_special = path.exists() and not path.is_file()
        # A symbolic link stays a link: its target is replaced.
        with path.open("wb") if is_special else _replace(path.resolve()) as file, _compressed(file, path) as stream:
            yield stream


@contextmanager
def explain_os_errors(path: Path) -> Iterator[None]:
    """Turn a full disk or a missing permission into a `DataError`."""
    try:
        yield
    except OSError as error:
        raise DataError(f"{path}: cannot be written: {error.strerror or error}.") from None


@contextmanager
def _replace(path: Path) -> Iterator[BinaryIO]:
    """A temporary file beside the path. It replaces the path when everything has been written."""
    temporary = _temporary_name(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    file = temporary.open("xb")  # never through a link, nor into a file of somebody else
    try:
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        sync_folder(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def _compressed(file: BinaryIO, path: Path) -> Iterator[BinaryIO]:
    if path.suffix == ".gz":
        import gzip

        # No time stamp and no name inside: the same data gives the same bytes.
        with gzip.GzipFile(filename="", fileobj=file, mode="wb", compresslevel=6, mtime=0) as stream:
            yield stream  # type: ignore[misc]
    elif path.suffix == ".zst":
        with import_zstandard(str(path)).ZstdCompressor().stream_writer(file, closefd=False) as stream:
            yield stream
    else:
        yield file


def compressor_for(path: str | Path) -> Callable[[bytes], bytes]:
    """A function that compresses chunks for a file of this name. The chunks can be concatenated."""
    suffix = Path(path).suffix
    if suffix == ".gz":
        import gzip

        return lambda content: gzip.compress(content, compresslevel=6, mtime=0)
    if suffix == ".zst":
        return import_zstandard(str(path)).ZstdCompressor().compress
    return lambda content: content


@contextmanager
def write_folder_atomically(folder: str | Path) -> Iterator[Path]:
    """Fill a temporary folder beside the target, then put it in the target's place.

    An existing target is replaced. The caller decides beforehand whether that is allowed.
    """
    folder = _valid(folder).resolve()  # "." has no name to put another beside
    temporary = _temporary_name(folder)
    try:
        with explain_os_errors(folder):
            recover_folder(folder)
            _remove_leftovers(folder)
            temporary.mkdir(parents=True)
            with lock_folder(temporary):
                yield temporary
                _sync_tree(temporary)
                _put_in_place(temporary, folder)
                sync_folder(folder.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def recover_folder(folder: Path) -> Path:
    """Bring back a folder that was moved aside by a process that was killed before it put the new one in its place.

    Returns the folder, or the one that was moved aside if it cannot be moved back.
    """
    if folder.exists():
        return folder
    for aside in _siblings(folder, OLD):
        try:
            aside.rename(folder)
        except OSError:
            return aside
    return folder


def _put_in_place(temporary: Path, folder: Path) -> None:
    """Give a folder its final name. What has that name gets the temporary one; at no moment is there nothing."""
    aside = temporary.with_suffix(OLD)
    try:
        while not _rename_to_free_name(temporary, folder):
            if _exchange(temporary, folder):
                return
            folder.rename(aside)  # a reader that finds nothing may move it back: then once more
    except OSError:
        with suppress(OSError):
            aside.rename(folder)
        raise
    with suppress(OSError):  # the new folder is in place, whatever becomes of the old one
        aside.rename(temporary)


def _rename_to_free_name(temporary: Path, folder: Path) -> bool:
    try:
        temporary.rename(folder)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        return False
    return True


def _exchange(first: Path, second: Path) -> bool:
    """Exchange two folders in one step. False if the system or the file system cannot do that."""
    import ctypes

    try:
        rename = ctypes.CDLL(None).renameat2
    except (AttributeError, OSError, TypeError):  # not Linux, or an old libc
        return False
    return rename(AT_FDCWD, os.fsencode(first), AT_FDCWD, os.fsencode(second), RENAME_EXCHANGE) == 0


def _remove_leftovers(folder: Path) -> None:
    """Remove the temporary folders that killed processes left beside a folder. Those in use are locked."""
    for leftover in _siblings(folder, PARTIAL):
        with suppress(OSError, DataError):
            if leftover.is_dir() and time.time() - leftover.stat().st_mtime > LEFTOVER_SECONDS:
                with lock_folder(leftover):
                    shutil.rmtree(leftover)


def _siblings(path: Path, suffix: str) -> list[Path]:
    """The files or folders beside a path that were its temporary ones."""
    if not path.parent.is_dir():
        return []
    return [
        other for other in path.parent.iterdir() if other.name.startswith(f".{path.name}.") and other.suffix == suffix
    ]


def _temporary_name(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.urandom(4).hex()}{PARTIAL}")


def _valid(path: str | Path) -> Path:
    if "\0" in str(path):
        raise DataError(f"{str(path)!r}: the name of a file cannot contain a NUL character.")
    return Path(path)


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Hold a lock on a folder, which ends with the process, however that ends. If another process has it: an error.

    Where the file system has no locks, there is none.
    """
    try:
        import fcntl
    except ImportError:  # Windows
        yield
        return
    handle = -1
    try:
        while handle < 0:
            try:
                handle = os.open(folder, os.O_RDONLY)
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise DataError(f"{folder}: another process is writing there. Wait for it or stop it.") from None
            except FileNotFoundError:
                raise DataError(f"{folder}: another process has just removed it. Start again.") from None
            except OSError:
                pass
            if not _is_at(handle, folder):
                os.close(handle)  # it was replaced before it was locked
                handle = -1
        yield
    finally:
        if handle >= 0:
            os.close(handle)


def _is_at(handle: int, folder: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), folder.stat())
    except FileNotFoundError:
        return False


def link_target(path: str | Path) -> Path:
    """Links are kept: the file that a link points to is replaced."""
    path = Path(path)
    return path.resolve() if path.is_symlink() else path


def partial_folder(path: str | Path) -> Path:
    """The folder of an unfinished output."""
    target = link_target(path)
    return target.with_name(f"{target.name}.partial")


def is_complete(path: str | Path, inputs: Iterable[str | Path]) -> bool:
    """Whether a job that is to be resumed has nothing left to do: its output is in place and newer than its inputs."""
    path = Path(path)
    if not path.is_file() or partial_folder(path).exists():
        return False
    written = path.stat().st_mtime_ns
    return all(Path(source).exists() and Path(source).stat().st_mtime_ns <= written for source in inputs)


def remove_folder(folder: Path) -> None:
    """Remove a folder if it exists. It is renamed first: what a kill leaves of it does not look like the folder."""
    aside = folder.with_name(f".{folder.name}.removed")
    shutil.rmtree(aside, ignore_errors=True)
    if folder.exists():
        folder.rename(aside)
        shutil.rmtree(aside, ignore_errors=True)


def _sync_tree(folder: Path) -> None:
    """Bring a folder and everything in it to disk."""
    for path in (*folder.rglob("*"), folder):
        if path.is_dir():
            sync_folder(path)
        else:
            with path.open("rb") as file:
                os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Make a rename survive a power failure."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_safetensors(path: str | Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Save arrays with the permissions of any new file. The safetensors library by itself writes files as 0600."""
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    path = Path(path)
    path.open("wb").close()
    mode = path.stat().st_mode
    try:
        save_file({name: np.ascontiguousarray(array) for name, array in arrays.items()}, path)
    except SafetensorError as error:  # a full disk, for example
        raise OSError(str(error)) from None
    path.chmod(mode)


class ArrayInfo(msgspec.Struct):
    """The header entry of one array in a safetensors file."""

    dtype: str
    shape: list[int]
    data_offsets: tuple[int, int]


def array_in(data: np.ndarray, info: ArrayInfo) -> np.ndarray:
    """One array of a safetensors file, not copied; `data` are the bytes behind the header. BF16 comes as uint16."""
    begin, end = info.data_offsets
    return data[begin:end].view(DTYPES[info.dtype]).reshape(info.shape)


def safetensors_header(content: Any) -> tuple[dict[str, ArrayInfo], dict[str, Any], int]:
    """Parse the bytes of a safetensors file: its arrays, the header's metadata, and the offset of the first array.

    Raises ValueError unless the arrays are contiguous and fill the file. The safetensors library checks this too, but
    it opens the file by name, and by then the name may belong to another file.
    """
    content = memoryview(content).cast("B")
    start = 8 + int.from_bytes(content[:8], "little")
    if len(content) < 8 or start > len(content):
        raise ValueError("the header is longer than the file")
    try:
        header = msgspec.json.decode(content[8:start], type=dict[str, Any])
        metadata = msgspec.convert(header.pop("__metadata__", None) or {}, dict[str, Any])
        arrays = msgspec.convert(header, dict[str, ArrayInfo])
    except RecursionError as error:
        raise ValueError(str(error)) from None
    size = len(content) - start
    filled = 0
    for name, info in sorted(arrays.items(), key=lambda item: item[1].data_offsets):
        begin, end = info.data_offsets
        # A long axis takes no bytes if another axis is 0, but whatever is allocated per element of it would.
        if begin != filled or end < begin or not all(0 <= length <= len(content) for length in info.shape):
            raise ValueError(f"the array {name!r:.60} does not match its header entry")
        filled = end
    if filled != size:
        raise ValueError(f"the arrays have {filled:,} bytes according to the header, but {size:,} in the file")
    return arrays, metadata, start
