"""Complete lines of a file in large blocks, with line numbers. Overlong lines are reported and never held in memory."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from pathlib import Path

from shortlist.background import in_background
from shortlist.data.options import ReadOptions
from shortlist.data.read_report import ReadReport
from shortlist.errors import DataError
from shortlist.progress import Progress
from shortlist.streams import STANDARD_INPUT, DamagedFileError, file_size, read_blocks, stream_name

LONGEST_LINE = 16 << 20
BAD_BYTES = "shortlist-bad-bytes"
COMPLETE_FILE = "a complete file"
DAMAGE_ADVICE = (
    "Download or create the file again, or keep the lines before the damage with on_error='skip' (--on-error skip)."
)


def line_blocks(path: str | Path, report: ReadReport, options: ReadOptions) -> Iterator[tuple[bytes, int]]:
    """Pairs of (lines, number of the first line). Every block ends with a newline, including the last one.

    The lines are UTF-8, whatever the encoding of the file; invalid bytes stay invalid. A line of more than 16 MiB is
    reported and replaced by an empty line, so that line numbers stay right. A truncated file is reported after its
    complete lines.
    """
    name = stream_name(path)
    with Progress(f"reading {Path(name).name}", file_size(path), "B", options.show_progress) as progress:
        blocks = _to_utf8(read_blocks(path, progress.advance), options.encoding, name)
        if str(path) != STANDARD_INPUT:  # Ctrl-C cannot stop a thread that waits for input
            blocks = in_background(blocks)
        yield from _complete_lines(blocks, name, report)


def first_line(path: Path) -> bytes:
    """The first line of a file, whatever its encoding; empty for an empty file."""
    # "utf-8-sig" instead of "utf-8", which refuses UTF-16.
    blocks = line_blocks(path, ReadReport("skip"), ReadOptions(encoding="utf-8-sig", show_progress=False))
    return next(blocks, (b"", 0))[0].partition(b"\n")[0]


def _to_utf8(blocks: Iterator[bytes], encoding: str, name: str) -> Iterator[bytes]:
    if codecs.lookup(encoding).name in ("utf-8", "ascii"):
        return _refuse_utf16(blocks, name)
    # Undecodable bytes become lone surrogates, and these become invalid UTF-8, so that their line is reported.
    codecs.register_error(BAD_BYTES, lambda error: ("\udcff", error.end))  # type: ignore[attr-defined]
    return _recode(blocks, codecs.getincrementaldecoder(encoding)(BAD_BYTES))


def _refuse_utf16(blocks: Iterator[bytes], name: str) -> Iterator[bytes]:
    """The same blocks. UTF-16 is one error here instead of an error in every line."""
    first = next(blocks, b"")
    if first.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise DataError(f"{name}: looks like UTF-16. Set encoding='utf-16' (--encoding utf-16).")
    yield first
    yield from blocks


def _recode(blocks: Iterator[bytes], decoder: codecs.IncrementalDecoder) -> Iterator[bytes]:
    for block in blocks:
        yield decoder.decode(block).encode(errors="surrogatepass")
    yield decoder.decode(b"", final=True).encode(errors="surrogatepass")


def _complete_lines(blocks: Iterator[bytes], name: str, report: ReadReport) -> Iterator[tuple[bytes, int]]:
    rest: list[bytes] = []  # the start of a line whose end has not been read
    rest_size = 0
    number = 1
    try:
        for block in blocks:
            if number == 1 and not rest:
                block = block.removeprefix(codecs.BOM_UTF8)
            cut = block.rfind(b"\n") + 1
            if cut:
                head_end = block.find(b"\n") + 1
                if rest_size + head_end > LONGEST_LINE:
                    _report_long_line(report, name, number)
                    lines = block[head_end - 1 : cut]
                else:
                    lines = b"".join([*rest, block[:cut]])
                yield lines, number
                number += lines.count(b"\n")
                rest, rest_size = [], 0
            rest.append(block[cut:])
            rest_size += len(block) - cut
            if rest_size > LONGEST_LINE:
                rest.clear()  # keep the size, drop the content
    except DamagedFileError as error:
        # The last line may be incomplete and is dropped.
        report.add(name, number, error.what, COMPLETE_FILE, advice=DAMAGE_ADVICE)
        return
    if rest_size > LONGEST_LINE:
        _report_long_line(report, name, number)
    elif rest_size:
        yield b"".join([*rest, b"\n"]), number


def _report_long_line(report: ReadReport, name: str, number: int) -> None:
    report.add(name, number, f"the line is longer than {LONGEST_LINE >> 20} MiB", "one short text per line")
