"""Reading files as streams of bytes: plain or compressed (detected by content), from disk or from standard input."""

from __future__ import annotations

import io
import itertools
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Any

from shortlist.errors import DataError, import_extra

# Large enough that a background thread does not spend its time waiting for the interpreter lock.
BLOCK = 1 << 20
STANDARD_INPUT = "-"
COMPRESSED_SUFFIXES = (".gz", ".zst")
# A block of zstd has at least 4 bytes and at most 128 KiB of content: these become at most 8 MiB.
ZSTD_PIECE = 1 << 8
GZIP_MAGIC, ZSTD_MAGIC = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"


class DamagedFileError(DataError):
    """A compressed file is truncated or corrupt. The blocks before the damage have been read."""

    def __init__(self, name: str, what: str) -> None:
        super().__init__(name, what)  # its arguments, so that it can be pickled
        self.name, self.what = name, what

    def __str__(self) -> str:
        return f"{self.name}: {self.what}. Download or create the file again."


def stream_name(path: str | Path) -> str:
    """The name of a file in messages."""
    return "standard input" if str(path) == STANDARD_INPUT else str(path)


def read_blocks(path: str | Path, on_bytes: Callable[[int], None] = lambda size: None) -> Iterator[bytes]:
    """The decompressed content of a file, or of standard input ("-"), in blocks of at most one megabyte.

    If the file is damaged, the blocks before the damage come first, then the error. `on_bytes` receives the number of
    bytes read from the file itself, for a progress bar.
    """
    with _open_raw(path) as file:
        raw = _raw_blocks(file, stream_name(path), on_bytes)
        first = next(raw, b"")
        raw = itertools.chain([first], raw)
        if first.startswith((GZIP_MAGIC, ZSTD_MAGIC)):
            kind = "gzip" if first.startswith(GZIP_MAGIC) else "zstd"
            yield from _merged(_decompress(raw, kind, stream_name(path)))
        elif first:
            yield from raw


def read_whole(path: str | Path, max_bytes: int) -> bytes:
    """The decompressed content of a file that must be held in memory. More than `max_bytes` are an error."""
    content = bytearray()
    for block in read_blocks(path):
        content += block
        if len(content) > max_bytes:
            raise DataError(
                f"{stream_name(path)}: has more than {max_bytes >> 20:,} MiB of content. Is it the right file?"
            )
    return bytes(content)


def decode_utf8(content: bytes, path: str | Path, what: str) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: byte {error.start + 1} is not valid UTF-8; {what} must be UTF-8.") from None


def column_rows(text: str, path: str | Path) -> Iterator[tuple[int, list[str]]]:
    """The rows of columns, which tabs or commas separate, each with its line number. Blank lines are left out."""
    import csv

    separator = "\t" if "\t" in text.partition("\n")[0] else ","
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    try:
        for row in filter(None, rows):
            yield rows.line_num, row
    except csv.Error as error:
        raise DataError(f"{path}, line {rows.line_num}: not valid CSV ({error}).") from None


def file_size(path: str | Path) -> int | None:
    """Size of a file on disk; None for standard input or if unknown."""
    try:
        return Path(path).stat().st_size if str(path) != STANDARD_INPUT else None
    except (OSError, ValueError):  # ValueError: the name contains a NUL
        return None


def import_zstandard(name: str) -> Any:
    return import_extra("zstandard", f"{name} is zstd-compressed: reading or writing it", "zstd")


@contextmanager
def _open_raw(path: str | Path) -> Iterator[IO[bytes]]:
    if str(path) == STANDARD_INPUT:
        if sys.stdin is None:
            raise DataError("standard input is closed. Give a file, or pipe the input in.")
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
    try:
        while block := file.read(BLOCK):
            on_bytes(len(block))
            yield block
    except OSError as error:
        raise DataError(f"{name}: cannot be read: {error.strerror or error}.") from None


def _decompress(blocks: Iterator[bytes], kind: str, name: str) -> Iterator[bytes]:
    """By hand, because `gzip.GzipFile` loses what precedes the damage, and zstandard's reader ignores truncation.

    Whatever the compression ratio, little of the content is in memory at a time.
    """
    new_member: Callable[[], Any] = partial(zlib.decompressobj, wbits=31)
    error_type, max_length = zlib.error, [BLOCK]
    if kind == "zstd":
        zstandard = import_zstandard(name)
        new_member, error_type, max_length = zstandard.ZstdDecompressor().decompressobj, zstandard.ZstdError, []
        blocks = (block[start : start + ZSTD_PIECE] for block in blocks for start in range(0, len(block), ZSTD_PIECE))
    member = new_member()
    for data in blocks:
        while data:
            if member.eof:
                # Some tools write several members one after the other; some pad the end with zeros.
                data = data.lstrip(b"\0")
                if not data:
                    break
                member = new_member()
            try:
                content = member.decompress(data, *max_length)
            except error_type as error:
                raise DamagedFileError(name, f"the {kind} data is damaged ({error})") from None
            for start in range(0, len(content), BLOCK):
                yield content[start : start + BLOCK]
            data = member.unused_data if member.eof else member.unconsumed_tail
    if not member.eof:
        yield member.flush()
        raise DamagedFileError(name, f"the {kind} data ends too early; the file is truncated")


def _merged(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """The same content in fewer blocks."""
    waiting: list[bytes] = []
    size = 0
    try:
        for block in blocks:
            if size + len(block) > BLOCK:
                yield b"".join(waiting)
                waiting, size = [], 0
            waiting.append(block)
            size += len(block)
    except DamagedFileError:
        yield b"".join(waiting)
        raise
    if size:
        yield b"".join(waiting)
