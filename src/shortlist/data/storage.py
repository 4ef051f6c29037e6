"""Files in object stores and other file systems, by URL: s3://, gs://, abfs://, hdfs:// by pyarrow, others by fsspec.

Only work on a cluster takes URLs. Whatever reads or writes files here works on local ones: a file is copied to this
machine before it is read, and away after it was written. What is copied away appears complete or not at all.
"""

from __future__ import annotations

import os
import posixpath
import shutil
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from shortlist.data.arrow import import_pyarrow
from shortlist.errors import DataError, OptionError
from shortlist.files import PARTIAL

# Here, a file that is being written cannot be seen. Elsewhere it gets another name first.
APPEAR_COMPLETE = ("s3", "gcs")
WILDCARDS = "*?["
COPY_BYTES = 8 << 20


class Stored(NamedTuple):
    """A file: its URL, its size in bytes, and what changes with it."""

    url: str
    size: int
    version: str


def is_url(path: Any) -> bool:
    """Whether this is a URL, not the path of a local file or folder.

    >>> is_url("s3://bucket/in.jsonl"), is_url("in.jsonl")
    (True, False)
    """
    return isinstance(path, str) and "://" in path


def join(folder: str, *names: str) -> str:
    """The path or URL of a file in a folder.

    >>> join("s3://bucket/model/", "config.json")
    's3://bucket/model/config.json'
    """
    return "/".join([folder.rstrip("/"), *names])


def find_files(pattern: str) -> list[Stored]:
    """The files below a folder, the file itself, or those that a pattern such as "s3://bucket/in/*.parquet" stands for,
    in the order of their names. A wildcard does not stand for "/"."""
    if not any(wildcard in pattern for wildcard in WILDCARDS):
        return files_below(pattern)
    wanted = _parts(pattern)
    fixed = next(number for number, part in enumerate(wanted) if any(wildcard in part for wildcard in WILDCARDS))
    found = files_below(pattern.partition("://")[0] + "://" + "/".join(wanted[:fixed]))
    return [stored for stored in found if _matches(_parts(stored.url), wanted)]


def _parts(url: str) -> list[str]:
    return url.partition("://")[2].split("/")


def _matches(parts: list[str], wanted: list[str]) -> bool:
    return len(parts) == len(wanted) and all(map(fnmatchcase, parts, wanted))


def files_below(url: str) -> list[Stored]:
    """The files below a folder, or the file itself."""
    pyarrow_fs, (system, path) = _pyarrow_fs(), _system(url)
    with _explained(url):
        info = system.get_file_info(path)
        if info.type == pyarrow_fs.FileType.NotFound:
            return []
        infos = [info]
        if info.type == pyarrow_fs.FileType.Directory:
            infos = system.get_file_info(pyarrow_fs.FileSelector(path, recursive=True))
        root = url.removesuffix("/")
        files = [info for info in infos if info.type == pyarrow_fs.FileType.File]
    return sorted(
        Stored(root + info.path.removeprefix(path.rstrip("/")), info.size, f"{info.size:,} bytes, of {info.mtime}")
        for info in files
    )


def exists(url: str) -> bool:
    """Whether there is a file or folder."""
    system, path = _system(url)
    with _explained(url):
        return system.get_file_info(path).type != _pyarrow_fs().FileType.NotFound


def open_file(url: str) -> Any:
    """A file to read from at any position."""
    system, path = _system(url)
    with _explained(url):
        return system.open_input_file(path)


def read_bytes(url: str) -> bytes:
    with open_file(url) as file, _explained(url):
        return file.read()


def write_bytes(content: bytes, url: str) -> None:
    """Write a file completely or not at all."""
    with _replacing(url) as file:
        file.write(content)


def temporary_folder() -> tempfile.TemporaryDirectory[str]:
    """A folder for copies on this machine. Those that killed processes have left here are removed first."""
    here = f"shortlist-{socket.gethostname()}"
    for leftover in Path(tempfile.gettempdir()).glob(f"{here}-*-*"):
        number, _, rest = leftover.name.removeprefix(f"{here}-").partition("-")
        is_own = number.isdecimal() and "-" not in rest  # else of a machine whose name begins like that of this one
        with suppress(OSError):  # of another user
            if is_own and not psutil.pid_exists(int(number)) and leftover.stat().st_uid == os.getuid():
                shutil.rmtree(leftover, ignore_errors=True)
    return tempfile.TemporaryDirectory(prefix=f"{here}-{os.getpid()}-")


@contextmanager
def local_copy(path: str, only: str = "") -> Iterator[Path]:
    """A file or folder on this machine: the path itself, or a copy of what is at a URL until the end of the block.

    only  of a folder, copy this file alone
    """
    if not is_url(path):
        yield Path(path)
        return
    with temporary_folder() as folder:
        copy = Path(folder) / posixpath.basename(path.rstrip("/"))
        download(join(path, only) if only else path, copy / only)
        yield copy


def download(url: str, to: Path) -> None:
    """Copy a file, or a folder with all that is in it."""
    files = files_below(url)
    if not files:
        raise DataError(f"{url}: no such file or folder. Check the URL.")
    for stored in files:
        name = stored.url.removeprefix(url.rstrip("/")).lstrip("/")
        if ".." in name.split("/"):  # in an object store, this is a name like any other
            raise DataError(f"{stored.url}: a file with such a name is not copied. Rename it.")
        target = to / name if name else to
        target.parent.mkdir(parents=True, exist_ok=True)
        with open_file(stored.url) as source, target.open("wb") as file:
            shutil.copyfileobj(source, file, COPY_BYTES)


def upload(path: Path, url: str, last: str = "") -> None:
    """Copy a file, or all files of a folder; the file `last` comes last, so where it is, all are."""
    if path.is_file():
        with path.open("rb") as source, _replacing(url) as file:
            shutil.copyfileobj(source, file, COPY_BYTES)
        return
    names = [file.relative_to(path).as_posix() for file in sorted(path.rglob("*")) if file.is_file()]
    for name in sorted(names, key=lambda name: name == last):
        upload(path / name, join(url, name))


@contextmanager
def writing(path: str) -> Iterator[Path]:
    """A local path to write a file to: the path itself, or one that is copied to the URL at the end of the block."""
    if not is_url(path):
        yield Path(path)
        return
    with temporary_folder() as folder:
        local = Path(folder) / posixpath.basename(path)
        yield local
        upload(local, path)


def remove(url: str, first: str = "") -> None:
    """Remove a folder and all that is in it; the file `first` goes first."""
    system, path = _system(url)
    with _explained(url):
        if first and exists(join(url, first)):
            system.delete_file(f"{path}/{first}")
        if exists(url):
            system.delete_dir(path)


@contextmanager
def _replacing(url: str) -> Iterator[Any]:
    system, path = _system(url)
    with _explained(url):
        if system.type_name not in APPEAR_COMPLETE:
            system.create_dir(posixpath.dirname(path), recursive=True)
        written = path if system.type_name in APPEAR_COMPLETE else path + PARTIAL
        try:
            with system.open_output_stream(written) as file:
                yield file
        except BaseException:  # closing it has stored what there was
            with suppress(OSError):
                system.delete_file(written)
            raise
        if written != path:
            system.move(written, path)


@contextmanager
def _explained(url: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise DataError(f"{url}: {error}") from None


def _pyarrow_fs() -> Any:
    import_pyarrow("reading and writing URLs")
    from pyarrow import fs

    return fs


def forget() -> None:
    """Open file systems anew, for example with other credentials."""
    _system_of.cache_clear()


def _system(url: str) -> tuple[Any, str]:
    """The file system of a URL, and the path in it."""
    scheme, _, rest = url.partition("://")
    host, _, path = rest.partition("/")
    system, root = _system_of(scheme, host)
    return system, posixpath.join(root, path.rstrip("/"))


@lru_cache(maxsize=16)
def _system_of(scheme: str, host: str) -> tuple[Any, str]:
    """A file system, and the path of its bucket or root."""
    fs = _pyarrow_fs()
    try:
        return fs.FileSystem.from_uri(f"{scheme}://{host}" if host else f"{scheme}:///")
    except ValueError:  # pyarrow does not know it
        pass
    except OSError as error:
        raise DataError(f"{scheme}://{host}: {error}") from None
    try:
        from fsspec.core import url_to_fs

        system, root = url_to_fs(f"{scheme}://{host}")
    except (ImportError, ValueError) as error:
        raise OptionError(f"{scheme}://{host}: cannot be opened ({error}). Use s3://, gs:// or hdfs://.") from None
    return fs.PyFileSystem(fs.FSSpecHandler(system)), root or "/"
