"""Word vectors from files: only the words that are needed, without reading the file into memory.

Understood are GloVe's text files, the text files of word2vec and fastText (a first line "words dimensions"),
each also compressed, and a NumPy array (.npy) beside a vocabulary with one word a line.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from hashlib import blake2b
from pathlib import Path

import numpy as np

from shortlist.errors import DataError, OptionError
from shortlist.progress import Progress
from shortlist.streams import file_size, read_blocks

log = logging.getLogger("shortlist")

UNKNOWN_RANGE = 0.25
LONGEST_LINE = 1 << 24
BINARY_SAMPLE = 4096
CONTROL_BYTES = bytes(byte for byte in range(32) if byte not in b"\t\n\r")
VOCABULARY_SUFFIXES = (".vocab", ".txt")
NOT_FOUND, FOUND_IN_LOWER_CASE, FOUND = 0, 1, 2


def load_vectors(
    path: str | Path,
    words: Sequence[str],
    *,
    vocabulary_path: str | Path | None = None,
    seed: int = 0,
    show_progress: bool = True,
) -> tuple[np.ndarray, np.ndarray]:
    """The vectors of the given words (float32, words × dimensions), and which of them the file has.

    A word is looked up as it is, and in lower case if the file has only that. If a file has a word twice,
    the first one counts. Words without a vector get numbers from U(-0.25, 0.25), which depend on
    nothing but the word and the seed. Only the lines of words that are needed are checked.

    >>> vectors, found = load_vectors("glove.6B.300d.txt.gz", vocabulary.words)  # doctest: +SKIP
    """
    path = Path(path)
    wanted = _Wanted(words)
    if path.suffix == ".npy":
        vectors = _load_array(path, _vocabulary_beside(path, vocabulary_path), wanted)
    elif vocabulary_path is not None:
        raise OptionError(
            f"{path}: a vocabulary file goes with a .npy file; a text file holds its words itself. Leave it out."
        )
    else:
        with Progress("loading word vectors", file_size(path), "B", show_progress) as progress:
            vectors = _load_text(path, wanted, progress.advance)
    found = wanted.state != NOT_FOUND
    missing = np.flatnonzero(~found).tolist()
    vectors[missing] = random_vectors([words[row] for row in missing], vectors.shape[1], seed)
    if len(words) and not found.any():
        log.warning("%s: has a vector for none of the %d words. Is it the right file?", path, len(words))
    return vectors, found


def random_vectors(words: Sequence[str], dimensions: int, seed: int = 0) -> np.ndarray:
    """U(-0.25, 0.25) for each word, from the word and the seed alone: neither order nor company matters."""
    states = np.fromiter(
        (int.from_bytes(blake2b(f"{seed}:".encode() + _bytes_of(word), digest_size=8).digest()) for word in words),
        np.uint64,
        len(words),
    )
    vectors = np.empty((len(words), dimensions), np.float32)
    # SplitMix64: the n-th number follows from the state and n, so a whole column is drawn at once.
    for column in range(dimensions):
        states += np.uint64(0x9E3779B97F4A7C15)
        bits = states.copy()
        bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        bits ^= bits >> np.uint64(31)
        vectors[:, column] = (bits >> np.uint64(40)) * (2 * UNKNOWN_RANGE / 2**24) - UNKNOWN_RANGE
    return vectors


class _Wanted:
    """Which rows wait for which word of the file, and what each row has got so far."""

    def __init__(self, words: Sequence[str]) -> None:
        self.state = np.zeros(len(words), np.uint8)
        self.exact: dict[bytes, list[int]] = {}
        self.lower: dict[bytes, list[int]] = {}
        for row, word in enumerate(words):
            self.exact.setdefault(_bytes_of(word), []).append(row)
            if (lower := word.lower()) != word:
                self.lower.setdefault(_bytes_of(lower), []).append(row)
        self.words = self.exact.keys() | self.lower.keys()
        self._exact_left = len(self.exact)

    def rows_for(self, word: bytes) -> list[int]:
        """The rows this word's vector goes to, marked as found; empty if nobody waits for it (any more)."""
        rows = self.exact.get(word, [])
        if rows and self.state[rows[0]] != FOUND:
            self.state[rows] = FOUND
            self._exact_left -= 1
        else:
            rows = []
        lowered = [row for row in self.lower.get(word, []) if self.state[row] == NOT_FOUND]
        self.state[lowered] = FOUND_IN_LOWER_CASE
        return rows + lowered

    @property
    def complete(self) -> bool:
        return self._exact_left == 0


def _load_text(path: Path, wanted: _Wanted, on_bytes: Callable[[int], None]) -> np.ndarray:
    with closing(_lines(path, on_bytes)) as lines:
        first = next(lines, None)
        if first is None:
            raise DataError(f"{path}: the file is empty; a word and its numbers a line were expected.")
        promised, dimensions = _read_header(path, first)
        vectors = np.zeros((len(wanted.state), dimensions), np.float32)
        separator = b" " if b" " in first else b"\t"
        number = 1
        if promised is None:
            _take_line(path, number, first, wanted, vectors)
        if wanted.complete:
            return vectors
        # Some words of GloVe 840B have blanks inside: what stands before the first one calls for a closer look.
        first_parts = {word.split(separator, 1)[0] for word in wanted.words}
        for number, line in enumerate(lines, start=2):
            end = line.find(separator)
            if (line[:end] if end >= 0 else line) in first_parts:
                _take_line(path, number, line, wanted, vectors)
                if wanted.complete:
                    return vectors
    if promised is not None and number - 1 < promised:
        raise DataError(
            f"{path}: line 1 promises {promised:,} words, but there are {number - 1:,}. "
            "The file seems cut off: fetch it again, or correct its first line."
        )
    return vectors


def _take_line(path: Path, number: int, line: bytes, wanted: _Wanted, vectors: np.ndarray) -> None:
    """Put the line's vector where it is wanted."""
    dimensions = vectors.shape[1]
    fields = line.rsplit(None, dimensions)
    if not fields:
        return
    if len(fields) <= dimensions:
        raise _wrong_count(path, number, line, len(fields) - 1, dimensions)
    word = fields[0]
    if word not in wanted.words:
        # Either a word with a blank inside that nobody needs, or a needed word with too many numbers.
        parts = word.split()
        if all(_is_number(part) for part in parts[1:]) and parts[0] in wanted.words:
            raise _wrong_count(path, number, line, dimensions + len(parts) - 1, dimensions)
        return
    rows = wanted.rows_for(word)
    if not rows:
        return
    try:
        vector = np.array([float(field) for field in fields[1:]], np.float32)
    except ValueError:
        bad = next(field for field in fields[1:] if not _is_number(field))
        raise DataError(
            f"{path}, line {number}: {_show(bad)} stands where a number was expected (word {_show(word)})."
        ) from None
    if not np.isfinite(vector).all():
        raise DataError(f"{path}, line {number}: a number of word {_show(word)} is not finite.")
    vectors[rows] = vector


def _read_header(path: Path, line: bytes) -> tuple[int | None, int]:
    """How many words the first line promises (None: it is no header but a word already), and the dimensions."""
    fields = line.split()
    if len(fields) == 2 and fields[0].isdigit() and fields[1].isdigit():
        if int(fields[1]) == 0:
            raise DataError(f"{path}, line 1: the header says {_show(line)}: vectors of no dimensions.")
        return int(fields[0]), int(fields[1])
    dimensions = 0
    for field in reversed(fields[1:]):
        if not _is_number(field):
            break
        dimensions += 1
    if dimensions == 0:
        raise DataError(
            f"{path}, line 1: found {_show(line)}; expected a word followed by numbers, or the number of words "
            "and the dimensions. Is it a file of word vectors in text form?"
        )
    return None, dimensions


def _lines(path: Path, on_bytes: Callable[[int], None] = lambda size: None) -> Generator[bytes]:
    """The file's lines without their ends; never more than a few blocks and a line in memory."""
    rest = b""
    for n, block in enumerate(read_blocks(path, on_bytes)):
        if n == 0:
            block = block.removeprefix(b"\xef\xbb\xbf")
            _refuse_binary(path, block[:BINARY_SAMPLE])
        lines = (rest + block).split(b"\n")
        rest = lines.pop()
        if len(rest) > LONGEST_LINE:
            raise DataError(f"{path}: has a line of more than {LONGEST_LINE:,} bytes; word vectors have shorter ones.")
        yield from lines
    if rest:
        yield rest


def _refuse_binary(path: Path, start: bytes) -> None:
    if start.translate(None, CONTROL_BYTES) != start:
        raise DataError(
            f"{path}: is binary; word vectors are read from text files and from .npy. For a word2vec or fastText "
            "model (.bin) use its text form (.vec), or save it as .npy with a vocabulary beside it."
        )


def _vocabulary_beside(path: Path, given: str | Path | None) -> Path:
    if given is not None:
        return Path(given)
    candidates = [path.with_suffix(suffix) for suffix in VOCABULARY_SUFFIXES]
    for candidate in candidates:
        if candidate.is_file():
            return candidate
    names = " or ".join(candidate.name for candidate in candidates)
    raise DataError(f"{path}: there is no {names} beside it. Give the file that holds its words, one a line.")


def _load_array(path: Path, vocabulary: Path, wanted: _Wanted) -> np.ndarray:
    """The needed rows of a .npy file; the rest of it is never read."""
    array = _open_array(path)
    source = np.full(len(wanted.state), -1, np.int64)
    n_words = 0
    for n_words, line in enumerate(_lines(vocabulary), start=1):
        word = line.rstrip(b"\r")
        if word in wanted.words:
            source[wanted.rows_for(word)] = n_words - 1
    if n_words != len(array):
        raise DataError(
            f"{path}: has {len(array):,} rows, but {vocabulary} has {n_words:,} words. They do not belong together."
        )
    vectors = np.zeros((len(source), array.shape[1]), np.float32)
    rows = np.flatnonzero(source >= 0)
    vectors[rows] = array[source[rows]]
    broken = rows[~np.isfinite(vectors[rows]).all(axis=1)]
    if len(broken):
        raise DataError(f"{path}, row {source[broken[0]]} (from 0): has a number that is not finite.")
    return vectors


def _open_array(path: Path) -> np.ndarray:
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except FileNotFoundError:
        raise DataError(f"{path}: there is no such file. Check the path.") from None
    except (OSError, ValueError, EOFError) as error:
        raise DataError(f"{path}: cannot be read as a NumPy array: {error}.") from None
    if not isinstance(array, np.ndarray) or array.ndim != 2 or array.dtype.kind not in "fiu" or 0 in array.shape[1:]:
        found = f"shape {array.shape}, {array.dtype}" if isinstance(array, np.ndarray) else "a zip of arrays"
        raise DataError(f"{path}: a table of numbers, words × dimensions, was expected; found {found}.")
    return array


def _wrong_count(path: Path, number: int, line: bytes, found: int, expected: int) -> DataError:
    return DataError(f"{path}, line {number}: {found} numbers found, {expected} expected ({_show(line)}).")


def _is_number(field: bytes) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True


def _bytes_of(word: str) -> bytes:
    return word.encode("utf-8", "surrogatepass")


def _show(text: bytes, length: int = 40) -> str:
    shown = text[:length].decode("utf-8", "replace")
    return f'"{shown}…"' if len(text) > length else f'"{shown}"'
