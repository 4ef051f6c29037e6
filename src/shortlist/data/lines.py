"""Complete lines of a file in large blocks, with line numbers."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator
from pathlib import Path

from shortlist.background import in_background
from shortlist.data.options import ReadOptions
from shortlist.data.records import ReadReport
from shortlist.errors import DataError
from shortlist.progress import Progress
from shortlist.streams import BLOCK, DamagedFileError, file_size, read_blocks, stream_name

LONGEST_LINE = 16 << 20
BAD_BYTES = "shortlist-bad-bytes"
DAMAGE_ADVICE = (
    "Download or create the file again, or keep the lines before the damage with on_error='skip' (--on-error skip)."
)


def line_blocks(
    path: str | Path, report: ReadReport | None, options: ReadOptions, progress: Progress | None = None
) -> Iterator[tuple[bytes, int]]:
    """Pairs of (lines, number of the first line). Every block ends with a newline, including the last one.

    The lines are UTF-8, whatever the encoding of the file; invalid bytes stay invalid. A damaged file is reported after
    its complete lines; without a report, it is an error. A line of more than 16 MiB is always an error: it would
    have to be held in memory, and the file is hardly one of short texts.
    """
    name = stream_name(path)
    size = file_size(path)
    with progress or Progress(f"reading {Path(name).name}", size, "B", options.show_progress) as progress:
        blocks = _to_utf8(read_blocks(path, progress.advance), options.encoding, name)
        if size is not None and size > BLOCK:  # not for a pipe: Ctrl-C cannot stop a thread that waits for input
            blocks = in_background(blocks)
        yield from _complete_lines(blocks, name, report)


def numbered_lines(path: Path, report: ReadReport, options: ReadOptions) -> Iterator[tuple[int, bytes]]:
    """The number and the content of each line."""
    for lines, first in line_blocks(path, report, options):
        yield from enumerate(lines.split(b"\n")[:-1], first)


def decoded_lines(blocks: Iterable[tuple[bytes, int]]) -> Iterator[tuple[int, str]]:
    """The number and the text of each line. Invalid bytes become lone surrogates, so that the line can be reported."""
    for lines, first in blocks:
        yield from enumerate(lines.decode(errors="surrogateescape").split("\n")[:-1], first)


def first_line(path: Path) -> bytes:
    """The first line of a file, whatever its encoding; empty for an empty file."""
    # "utf-8-sig" instead of "utf-8", which refuses UTF-16.
    options = ReadOptions(encoding="utf-8-sig", show_progress=False)
    return next(numbered_lines(path, ReadReport("skip"), options), (1, b""))[1]


def _to_utf8(blocks: Iterator[bytes], encoding: str, name: str) -> Iterator[bytes]:
    if codecs.lookup(encoding).name in ("utf-8", "ascii"):
        first = next(blocks, b"")
        if first.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):  # one error instead of one in every line
            raise DataError(f"{name}: looks like UTF-16. Set encoding='utf-16' (--encoding utf-16).")
        yield first
        yield from blocks
        return
    # Undecodable bytes become lone surrogates, and these become invalid UTF-8, so that their line is reported.
    codecs.register_error(BAD_BYTES, lambda error: ("\udcff", error.end))  # type: ignore[attr-defined]
    decoder = codecs.getincrementaldecoder(encoding)(BAD_BYTES)
    try:
        for block in blocks:
            yield decoder.decode(block).encode(errors="surrogatepass")
        yield decoder.decode(b"", final=True).encode(errors="surrogatepass")
    except UnicodeError as error:
        raise DataError(f"{name}: is not {encoding} ({error}). Set another encoding= (--encoding).") from None


def _complete_lines(blocks: Iterator[bytes], name: str, report: ReadReport | None) -> Iterator[tuple[bytes, int]]:
    rest: list[bytes] = []  # the start of a line whose end has not been read
    number = 1
    try:
        for block in blocks:
            if number == 1 and not rest:
                block = block.removeprefix(codecs.BOM_UTF8)
            cut = block.rfind(b"\n") + 1
            if cut:
                lines = b"".join([*rest, block[:cut]])
                yield lines, number
                number += lines.count(b"\n")
                rest = []
            rest.append(block[cut:])
            if sum(map(len, rest)) > LONGEST_LINE:
                what = f"the line is longer than {LONGEST_LINE >> 20} MiB"
                raise DataError(
                    f"{name}, line {number:,}: {what}; expected one short text per line. Is it a text file?"
                )
    except DamagedFileError as error:
        if report is None:
            raise
        # The last line may be incomplete and is dropped.
        report.add(name, number, error.what, "a complete file", advice=DAMAGE_ADVICE)
        return
    if any(rest):
        yield b"".join([*rest, b"\n"]), number
