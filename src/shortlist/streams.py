"""Reading files as streams of bytes: plain or compressed (detected by content), from disk or from standard input."""

from __future__ import annotations

import io
import itertools
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, BinaryIO

from shortlist.errors import DataError, MissingExtraError

BLOCK = 1 << 20
# Input of one decompressor call. Small enough that a few bytes cannot expand to gigabytes at once, large enough
# that a background thread does not spend its time waiting for the interpreter lock.
CHUNK = 1 << 16
STANDARD_INPUT = "-"
COMPRESSED_SUFFIXES = (".gz", ".zst")
GZIP_MAGIC, ZSTD_MAGIC = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"


class DamagedFileError(DataError):
    """A compressed file is corrupt or truncated. What precedes the damage has been read."""

    def __init__(self, name: str, what: str) -> None:
        super().__init__(f"{name}: {what}. Download or create the file again.")
        self.what = what


def stream_name(path: str | Path) -> str:
    """The name of a file in messages."""
    return "standard input" if str(path) == STANDARD_INPUT else str(path)


def read_blocks(path: str | Path, on_bytes: Callable[[int], None] = lambda size: None) -> Iterator[bytes]:
    """The decompressed content of a file, or of standard input ("-"), in blocks of about one megabyte.

    If the file is damaged, everything before the damage comes first, then the error. `on_bytes` receives the number of
    bytes read from the file itself, for a progress bar.
    """
    with _open_raw(path) as file:
        raw = _raw_blocks(file, stream_name(path), on_bytes)
        first = next(raw, b"")
        if not first:
            return
        raw = itertools.chain([first], raw)
        if first.startswith(GZIP_MAGIC):
            yield from _merge_chunks(_gunzip(_split_chunks(raw), stream_name(path)))
        elif first.startswith(ZSTD_MAGIC):
            yield from _merge_chunks(_unzstd(_split_chunks(raw), stream_name(path)))
        else:
            yield from raw


def open_binary(path: str | Path) -> BinaryIO:
    """Open a file, compressed or not, as a binary stream."""
    return io.BufferedReader(_BlockReader(read_blocks(path)), BLOCK)


def file_size(path: str | Path) -> int | None:
    """Size of a file on disk; None for standard input or if unknown."""
    try:
        return Path(path).stat().st_size if str(path) != STANDARD_INPUT else None
    except OSError:
        return None


def is_compressed(path: str | Path) -> bool:
    """Whether the content of a file, whatever its name, is compressed."""
    with _open_raw(path) as file:
        return file.read(4).startswith((GZIP_MAGIC, ZSTD_MAGIC))


def import_zstandard(name: str) -> Any:
    try:
        import zstandard
    except ImportError:
        raise MissingExtraError(f"{name} is zstd-compressed: reading or writing it", "zstd") from None
    return zstandard


class _BlockReader(io.RawIOBase):
    """A file object over an iterator of blocks."""

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
        raise DataError(f"{path}: no such file. Check the path.") from None
    except IsADirectoryError:
        raise DataError(f"{path}: is a folder; expected a file.") from None
    except (OSError, ValueError) as error:  # ValueError: the name contains a NUL
        raise DataError(f"{path}: cannot be opened: {getattr(error, 'strerror', error)}.") from None
    with file:
        yield file


def _raw_blocks(file: IO[bytes], name: str, on_bytes: Callable[[int], None]) -> Iterator[bytes]:
    while True:
        try:
            block = file.read(BLOCK)
        except OSError as error:
            raise DataError(f"{name}: cannot be read: {error.strerror or error}.") from None
        if not block:
            return
        on_bytes(len(block))
        yield block


def _split_chunks(blocks: Iterator[bytes]) -> Iterator[bytes]:
    for block in blocks:
        for start in range(0, len(block), CHUNK):
            yield block[start : start + CHUNK]


def _merge_chunks(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Chunks of any size, tiny or huge, as blocks of one to two megabytes."""
    pending: list[bytes] = []
    size = 0
    try:
        for chunk in chunks:
            for start in range(0, len(chunk), BLOCK):
                pending.append(chunk[start : start + BLOCK])
                size += len(pending[-1])
                if size >= BLOCK:
                    yield b"".join(pending)
                    pending, size = [], 0
    except DamagedFileError:
        if pending:
            yield b"".join(pending)
        raise
    if pending:
        yield b"".join(pending)


# By hand instead of with `gzip.GzipFile`, which loses what it has decompressed when the file turns out to be damaged.
def _gunzip(chunks: Iterator[bytes], name: str) -> Iterator[bytes]:
    member = zlib.decompressobj(wbits=31)
    complete = False
    for data in chunks:
        while data:
            if complete:
                # Some tools write several members one after the other; some pad the end with zeros.
                data = data.lstrip(b"\0")
                if not data:
                    break
                member, complete = zlib.decompressobj(wbits=31), False
            before = member.copy()
            try:
                content = member.decompress(data, BLOCK)
            except zlib.error as error:
                yield _content_before_damage(before, data)
                raise DamagedFileError(name, f"the gzip data is damaged ({error})") from None
            if content:
                yield content
            complete = member.eof
            data = member.unused_data if complete else member.unconsumed_tail
    if not complete:
        yield member.flush()
        raise DamagedFileError(name, "the gzip data ends too early; the file is truncated")


def _content_before_damage(member: Any, data: bytes) -> bytes:
    """Repeat a failed call byte by byte, to keep what precedes the damage: the failed call itself returns nothing."""
    content = bytearray()
    with suppress(zlib.error):
        for position in range(len(data)):
            content += member.decompress(data[position : position + 1])
    return bytes(content)


def _unzstd(chunks: Iterator[bytes], name: str) -> Iterator[bytes]:
    zstandard = import_zstandard(name)
    frame = zstandard.ZstdDecompressor().decompressobj()
    for data in chunks:
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
        raise DamagedFileError(name, "the zstd data ends too early; the file is truncated")
