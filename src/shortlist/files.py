"""Opening and writing files: compression found by content, damage reported, writes all or nothing."""

from __future__ import annotations

import gzip
import io
import os
import shutil
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, BinaryIO

import msgspec

from shortlist.errors import DataError, MissingExtraError

BLOCK = 1 << 20
# What a decompressor is given at a time: little enough that a few bytes which stand for gigabytes do not
# unfold all at once, enough that the thread doing it does not spend its time waiting for its turn.
PIECE = 1 << 16
STANDARD_INPUT = "-"
PACKED = (".gz", ".zst")
GZIP_MAGIC, ZSTD_MAGIC = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"


class ArrayFacts(msgspec.Struct):
    """What the header of a safetensors file says about an array."""

    dtype: str
    shape: list[int]
    data_offsets: tuple[int, int]


def safetensors_header(content: Any) -> tuple[dict[str, ArrayFacts], dict[str, Any], int]:
    """Of the bytes of a safetensors file: its arrays, what else the header holds, and where the arrays begin.

    A ValueError unless the arrays lie one after the other and fill the file to its end. That is what safetensors' own
    reader looks for, too, but it opens the file by its name, which by then may be that of another file.
    """
    content = memoryview(content).cast("B")
    start = 8 + int.from_bytes(content[:8], "little")
    if len(content) < 8 or start > len(content):
        raise ValueError("the header is longer than the file")
    try:
        header = msgspec.json.decode(content[8:start], type=dict[str, Any])
        more = header.pop("__metadata__", None) or {}
        arrays = msgspec.convert(header, dict[str, ArrayFacts])
        more = msgspec.convert(more, dict[str, Any])
    except RecursionError as error:
        raise ValueError(str(error)) from None
    size = len(content) - start
    filled = 0
    for name, facts in sorted(arrays.items(), key=lambda item: item[1].data_offsets):
        begin, end = facts.data_offsets
        # A long axis needs no bytes where another axis is 0, but whatever is made for each of its places would.
        if begin != filled or end < begin or not all(0 <= length <= len(content) for length in facts.shape):
            raise ValueError(f"the array {name!r:.60} is not where and what the header says")
        filled = end
    if filled != size:
        raise ValueError(f"the arrays have {filled:,} bytes by the header, and {size:,} in the file")
    return arrays, more, start


class DamagedFileError(DataError):
    """A compressed file is broken or cut off; what came before the damage could be read."""

    def __init__(self, name: str, what: str) -> None:
        super().__init__(f"{name}: {what}. Fetch or write it again.")
        self.what = what


def blocks_of(path: str | Path, on_bytes: Callable[[int], None] = lambda size: None) -> Iterator[bytes]:
    """The decompressed content of a file, or of standard input ("-"), in blocks of about a megabyte.

    Everything that can still be read from a damaged file comes before the error that says so.
    `on_bytes` is told how many bytes of the file itself were read, for a progress bar.
    """
    name = "standard input" if str(path) == STANDARD_INPUT else str(path)
    with _open_raw(path) as file:
        raw = _raw_blocks(file, name, on_bytes)
        first = next(raw, b"")
        raw = _chain(first, raw)
        if first.startswith(GZIP_MAGIC):
            yield from _in_blocks(_gunzip(_pieces(raw), name))
        elif first.startswith(ZSTD_MAGIC):
            yield from _in_blocks(_unzstd(_pieces(raw), name))
        else:
            yield from raw


def open_binary(path: str | Path) -> BinaryIO:
    """A file, compressed or not, as a stream of bytes."""
    return io.BufferedReader(_BlockReader(blocks_of(path)), BLOCK)


def stored_size(path: str | Path) -> int | None:
    """Size of the file on disk, if it has one."""
    try:
        return Path(path).stat().st_size if str(path) != STANDARD_INPUT else None
    except OSError:
        return None


def is_packed(path: str | Path) -> bool:
    """Whether the content of a file, whatever its name, is compressed."""
    with _open_raw(path) as file:
        return file.read(4).startswith((GZIP_MAGIC, ZSTD_MAGIC))


class _BlockReader(io.RawIOBase):
    def __init__(self, blocks: Iterator[bytes]) -> None:
        self._blocks = blocks
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, target: Any) -> int:
        while not self._rest:
            block = next(self._blocks, None)
            if block is None:
                return 0
            self._rest = memoryview(block)
        size = min(len(target), len(self._rest))
        target[:size] = self._rest[:size]
        self._rest = self._rest[size:]
        return size

    def close(self) -> None:
        if hasattr(self._blocks, "close"):
            self._blocks.close()
        super().close()


@contextmanager
def _open_raw(path: str | Path) -> Iterator[IO[bytes]]:
    if str(path) == STANDARD_INPUT:
        yield sys.stdin.buffer
        return
    try:
        file = Path(path).open("rb")  # noqa: SIM115 - closed below, outside this try
    except FileNotFoundError:
        raise DataError(f"{path}: there is no such file. Check the path.") from None
    except IsADirectoryError:
        raise DataError(f"{path}: is a folder; a file was expected.") from None
    except (OSError, ValueError) as error:  # a ValueError is a NUL in the name
        raise DataError(f"{path}: cannot be opened: {getattr(error, 'strerror', error)}.") from None
    with file:
        yield file


def _raw_blocks(file: IO[bytes], name: str, on_bytes: Callable[[int], None]) -> Iterator[bytes]:
    while block := _next_block(file, name):
        on_bytes(len(block))
        yield block


def _next_block(file: IO[bytes], name: str) -> bytes:
    try:
        return file.read(BLOCK)
    except OSError as error:
        raise DataError(f"{name}: cannot be read: {error.strerror or error}.") from None


def _chain(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    if first:
        yield first
    yield from rest


def _pieces(blocks: Iterator[bytes]) -> Iterator[bytes]:
    for block in blocks:
        for start in range(0, len(block), PIECE):
            yield block[start : start + PIECE]


def _in_blocks(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Pieces of any size, small or monstrous, as blocks of one to two megabytes."""
    waiting: list[bytes] = []
    size = 0
    try:
        for piece in pieces:
            for start in range(0, len(piece), BLOCK):
                waiting.append(piece[start : start + BLOCK])
                size += len(waiting[-1])
                if size >= BLOCK:
                    yield b"".join(waiting)
                    waiting, size = [], 0
    except DamagedFileError:
        if waiting:
            yield b"".join(waiting)
        raise
    if waiting:
        yield b"".join(waiting)


def _gunzip(pieces: Iterator[bytes], name: str) -> Iterator[bytes]:
    member = zlib.decompressobj(wbits=31)
    complete = False
    for data in pieces:
        while data:
            if complete:
                # Some tools write several members one after the other, some pad the end with zeros.
                data = data.lstrip(b"\0")
                if not data:
                    break
                member, complete = zlib.decompressobj(wbits=31), False
            before = member.copy()
            try:
                content = member.decompress(data, BLOCK)
            except zlib.error as error:
                yield _until_the_damage(before, data)
                raise DamagedFileError(name, f"the gzip data is damaged ({error})") from None
            if content:
                yield content
            complete = member.eof
            data = member.unused_data if complete else member.unconsumed_tail
    if not complete:
        yield member.flush()
        raise DamagedFileError(name, "the gzip data ends too early; the file is cut off")


def _until_the_damage(member: Any, data: bytes) -> bytes:
    """A failed call gives nothing at all: go there again byte by byte, and keep what comes before."""
    content = bytearray()
    with suppress(zlib.error):
        for at in range(len(data)):
            content += member.decompress(data[at : at + 1])
    return bytes(content)


def _unzstd(pieces: Iterator[bytes], name: str) -> Iterator[bytes]:
    zstandard = _import_zstandard(name)
    frame = zstandard.ZstdDecompressor().decompressobj()
    for data in pieces:
        while data:
            if frame.eof:
                frame = zstandard.ZstdDecompressor().decompressobj()
            try:
                content = frame.decompress(data)
            except zstandard.ZstdError as error:
                raise DamagedFileError(name, f"the zstd data is damaged ({error})") from None
            if content:
                yield content
            data = frame.unused_data if frame.eof else b""
    if not frame.eof:
        raise DamagedFileError(name, "the zstd data ends too early; the file is cut off")


def _import_zstandard(name: str) -> Any:
    try:
        import zstandard
    except ImportError:
        raise MissingExtraError(f"{name} is zstd-compressed: reading or writing it", "zstd") from None
    return zstandard


@contextmanager
def write_atomically(path: str | Path) -> Iterator[BinaryIO]:
    """Write a whole file or none: into a neighbour first, synced, then renamed over the target.

    The content is compressed when the name ends in .gz or .zst. A pipe or a device is written into as it is.
    """
    path = Path(path)
    try:
        if path.is_dir():
            raise DataError(f"{path}: is a folder; a file was to be written there.")
        in_place = path.exists() and not path.is_file()
        # A link stays one: what it leads to is replaced.
        with path.open("wb") if in_place else _put_in_place(path.resolve()) as file, _packed(file, path) as packed:
            yield packed
    except OSError as error:
        raise DataError(f"{path}: cannot be written: {error.strerror or error}.") from None


@contextmanager
def _put_in_place(path: Path) -> Iterator[BinaryIO]:
    """A new file beside the path, which takes its place when everything has been written."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.partial")
    path.parent.mkdir(parents=True, exist_ok=True)
    file = beside.open("wb")
    try:
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
        sync_folder(path.parent)
    finally:
        beside.unlink(missing_ok=True)


@contextmanager
def _packed(file: BinaryIO, path: Path) -> Iterator[BinaryIO]:
    if path.suffix == ".gz":
        # No time stamp and no name inside: the same data gives the same bytes.
        with gzip.GzipFile(filename="", fileobj=file, mode="wb", compresslevel=6, mtime=0) as packed:
            yield packed  # type: ignore[misc]
    elif path.suffix == ".zst":
        with _import_zstandard(str(path)).ZstdCompressor().stream_writer(file, closefd=False) as packed:
            yield packed
    else:
        yield file


def packer_of(path: str | Path) -> Callable[[bytes], bytes]:
    """How to compress content for a file of this name, piece by piece: pieces end to end are a whole file."""
    suffix = Path(path).suffix
    if suffix == ".gz":
        return lambda content: gzip.compress(content, compresslevel=6, mtime=0)
    if suffix == ".zst":
        compressor = _import_zstandard(str(path)).ZstdCompressor()
        return lambda content: compressor.compress(content)
    return lambda content: content


@contextmanager
def write_folder_atomically(folder: str | Path) -> Iterator[Path]:
    """Fill a new folder beside the target, then put it in the target's place in one rename.

    An existing target is replaced; whether that is wanted is for the caller to check first.
    """
    folder = Path(folder).resolve()  # "." has no name to put another beside
    beside = folder.with_name(f".{folder.name}.{os.getpid()}.partial")
    old = folder.with_name(f".{folder.name}.{os.getpid()}.old")
    shutil.rmtree(beside, ignore_errors=True)
    try:
        beside.mkdir(parents=True)
    except OSError as error:
        raise DataError(f"{folder}: cannot be written: {error.strerror}.") from None
    try:
        yield beside
        for file in beside.rglob("*"):
            if file.is_file():
                with file.open("rb") as opened:
                    os.fsync(opened.fileno())
        if folder.exists():
            folder.rename(old)
        try:
            beside.rename(folder)
        except OSError:
            if old.exists():
                old.rename(folder)
            raise
        sync_folder(folder.parent)
        shutil.rmtree(old, ignore_errors=True)
    except OSError as error:
        raise DataError(f"{folder}: cannot be written: {error.strerror or error}.") from None
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def sync_folder(folder: Path) -> None:
    """Make a rename last through a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_safetensors(path: Path, arrays: dict[str, Any]) -> None:
    """Write arrays to a safetensors file with the permissions that the umask allows."""
    from safetensors.numpy import save_file

    save_file(arrays, path)  # leaves mode 0600
    umask = os.umask(0)
    os.umask(umask)
    path.chmod(0o666 & ~umask)
