"""Complete lines of a file in large blocks, with their line numbers; a monstrous line is reported, not held."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from pathlib import Path

from shortlist.background import in_background
from shortlist.data.options import ReadOptions
from shortlist.data.report import Report
from shortlist.errors import DataError
from shortlist.files import STANDARD_INPUT, DamagedFileError, blocks_of, stored_size
from shortlist.progress import Progress

LONGEST_LINE = 16 << 20
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
BAD_BYTES = "shortlist-bad-bytes"
COMPLETE_FILE = "a complete file"
FETCH_AGAIN = "Fetch or write it again, or keep the lines before the damage with on_error='skip' (--on-error skip)."


def name_of(path: str | Path) -> str:
    return "standard input" if str(path) == STANDARD_INPUT else str(path)


def line_blocks(path: str | Path, report: Report, options: ReadOptions) -> Iterator[tuple[bytes, int]]:
    """Pairs of (lines, number of the first): each block ends in a newline, the last one included.

    Whatever the file's encoding, the lines are UTF-8; bytes that are not valid stay invalid in them.

    A line of more than 16 MiB is a problem in the report, and an empty line in its place keeps the count.
    So is a file that breaks off: what came before is kept.
    """
    with Progress(f"reading {Path(name_of(path)).name}", stored_size(path), "B", options.show_progress) as progress:
        blocks = _as_utf8(blocks_of(path, progress.advance), options.encoding, name_of(path))
        if str(path) != STANDARD_INPUT:  # a thread that waits for somebody to type cannot be stopped by Ctrl-C
            blocks = in_background(blocks)
        yield from _whole_lines(blocks, name_of(path), report)


def _as_utf8(blocks: Iterator[bytes], encoding: str, name: str) -> Iterator[bytes]:
    if codecs.lookup(encoding).name in ("utf-8", "ascii"):
        return _without_utf16(blocks, name)
    # A lone surrogate in the text becomes bytes that are not valid UTF-8, so that the line can be named.
    codecs.register_error(BAD_BYTES, lambda error: ("\udcff", error.end))  # type: ignore[attr-defined]
    return _recoded(blocks, codecs.getincrementaldecoder(encoding)(BAD_BYTES))


def _without_utf16(blocks: Iterator[bytes], name: str) -> Iterator[bytes]:
    """The same blocks; but a file that begins as no UTF-8 does is one mistake, not one in every line."""
    first = next(blocks, b"")
    if first.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise DataError(f"{name}: looks like UTF-16: say encoding='utf-16' (--encoding utf-16).")
    yield first
    yield from blocks


def _recoded(blocks: Iterator[bytes], decoder: codecs.IncrementalDecoder) -> Iterator[bytes]:
    for block in blocks:
        yield decoder.decode(block).encode(errors="surrogatepass")
    yield decoder.decode(b"", final=True).encode(errors="surrogatepass")


def _whole_lines(blocks: Iterator[bytes], name: str, report: Report) -> Iterator[tuple[bytes, int]]:
    rest: list[bytes] = []  # the beginning of a line whose end has not come yet
    rest_size = 0
    number = 1
    first = True
    try:
        for block in blocks:
            if first:
                block, first = block.removeprefix(BYTE_ORDER_MARK), False
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
                rest.clear()  # its size is remembered, its content is not
    except DamagedFileError as error:
        # The last line may be cut in the middle: it is given up together with what never came.
        report.add(name, number, error.what, COMPLETE_FILE, advice=FETCH_AGAIN)
        return
    if rest_size > LONGEST_LINE:
        _report_long_line(report, name, number)
    elif rest_size:
        yield b"".join([*rest, b"\n"]), number


def _report_long_line(report: Report, name: str, number: int) -> None:
    report.add(name, number, f"the line is longer than {LONGEST_LINE >> 20} MiB", "one short text a line")
