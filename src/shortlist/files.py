"""Writing files and folders completely or not at all, and the safetensors files among them."""

from __future__ import annotations

import gzip
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
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


@contextmanager
def write_atomically(path: str | Path) -> Iterator[BinaryIO]:
    """Write a file completely or not at all: to a temporary file beside it, synced, then renamed.

    The content is compressed if the name ends in .gz or .zst. Pipes and devices are written to directly.
    """
    path = Path(path)
    try:
        if path.is_dir():
            raise DataError(f"{path}: is a folder; cannot write a file there.")
        is_special = path.exists() and not path.is_file()
        # A symbolic link stays a link: its target is replaced.
        with path.open("wb") if is_special else _replace(path.resolve()) as file, _compressed(file, path) as stream:
            yield stream
    except OSError as error:
        raise DataError(f"{path}: cannot be written: {error.strerror or error}.") from None


@contextmanager
def _replace(path: Path) -> Iterator[BinaryIO]:
    """A temporary file beside the path. It replaces the path when everything has been written."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.partial")
    path.parent.mkdir(parents=True, exist_ok=True)
    file = temporary.open("wb")
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
        return lambda content: gzip.compress(content, compresslevel=6, mtime=0)
    if suffix == ".zst":
        return import_zstandard(str(path)).ZstdCompressor().compress
    return lambda content: content


@contextmanager
def write_folder_atomically(folder: str | Path) -> Iterator[Path]:
    """Fill a temporary folder beside the target, then rename it.

    An existing target is replaced. The caller decides beforehand whether that is allowed.
    """
    folder = Path(folder).resolve()  # "." has no name to put another beside
    temporary = folder.with_name(f".{folder.name}.{os.getpid()}.partial")
    old = folder.with_name(f".{folder.name}.{os.getpid()}.old")
    try:
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
        yield temporary
        for path in temporary.rglob("*"):
            if path.is_file():
                with path.open("rb") as file:
                    os.fsync(file.fileno())
        if folder.exists():
            folder.rename(old)
        try:
            temporary.rename(folder)
        except OSError:
            if old.exists():
                old.rename(folder)
            raise
        sync_folder(folder.parent)
        shutil.rmtree(old, ignore_errors=True)
    except OSError as error:
        raise DataError(f"{folder}: cannot be written: {error.strerror or error}.") from None
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def remove_folder(folder: Path) -> None:
    """Remove a folder if it exists. It is renamed first: what a kill leaves of it does not look like the folder."""
    aside = folder.with_name(f".{folder.name}.old")
    shutil.rmtree(aside, ignore_errors=True)
    if folder.exists():
        folder.rename(aside)
        shutil.rmtree(aside, ignore_errors=True)


def sync_folder(folder: Path) -> None:
    """Make a rename survive a power failure."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_safetensors(path: str | Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Save arrays with the permissions of any new file. The safetensors library by itself writes files as 0600."""
    from safetensors.numpy import save_file

    path = Path(path)
    path.open("wb").close()
    mode = path.stat().st_mode
    save_file({name: np.ascontiguousarray(array) for name, array in arrays.items()}, path)
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
