"""Pretrained word vectors from files. Only the words of the vocabulary are kept; the file is never all in memory.

Reads GloVe text files, word2vec and fastText text files (first line: number of words and dimensions), all of them
optionally compressed; NumPy arrays (.npy) with a vocabulary file that has one word per line; and static embeddings, as
model2vec and wordllama store them: a folder with a tokenizer.json and a matrix with one row per word piece. The input
embeddings of a transformer can be read like that, too.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from hashlib import blake2b
from itertools import chain
from pathlib import Path

import numpy as np

from shortlist.errors import DataError, OptionError
from shortlist.files import ArrayInfo, array_in, safetensors_header
from shortlist.lazy import sparse
from shortlist.progress import Progress
from shortlist.streams import file_size, read_blocks
from shortlist.text.word_pieces import TOKENIZER_FILE, WordPieces

log = logging.getLogger("shortlist")

RANDOM_RANGE = 0.25
MAX_LINE_BYTES = 1 << 24
MAX_DIGITS = 18  # of the numbers in a header
BINARY_SAMPLE = 4096
CONTROL_BYTES = bytes(byte for byte in range(32) if byte not in b"\t\n\r")
VOCABULARY_SUFFIXES = (".vocab", ".txt")
# What model2vec calls a weight per piece, and the row of each piece where several share one.
WEIGHTS, ROWS = "weights", "mapping"


def load_vectors(
    path: str | Path,
    words: Sequence[str],
    *,
    vocabulary_path: str | Path | None = None,
    seed: int = 0,
) -> tuple[np.ndarray, np.ndarray]:
    """Load the vectors of the given words; returns them (float32, words × dimensions) and which words were found.

    A word is looked up as it is, then in lower case. If the file has a word twice, its first vector is used. Words
    without a vector get random ones from U(-0.25, 0.25) that depend only on the word and the seed. Only the lines of
    the given words are checked.

    path             text file, optionally compressed; .npy file; or folder of static embeddings, where a word's vector
                     is the mean of its word pieces
    words            words to look up, such as `vocabulary.words`
    vocabulary_path  words of a .npy file; by default the file beside it with suffix .vocab or .txt
    seed             random seed for words without a vector

    >>> from tempfile import NamedTemporaryFile
    >>> with NamedTemporaryFile("w", suffix=".txt") as file:
    ...     print("red 0.5 -1", file=file, flush=True)
    ...     vectors, found = load_vectors(file.name, ["red", "hat"])
    >>> vectors[0].tolist(), found.tolist()
    ([0.5, -1.0], [True, False])
    """
    path = Path(path)
    if vocabulary_path is not None and path.suffix != ".npy":
        raise OptionError(f"{path}: vocabulary_path is for .npy files; others contain their words. Leave it out.")
    if path.is_dir():
        vectors, is_found = _static_embeddings(path, words)
    else:
        forms = {_encode(form) for word in words for form in (word, word.lower())}
        if path.suffix == ".npy":
            found, dimensions = _find_in_array(path, _vocabulary_file(path, vocabulary_path), forms)
        else:
            with Progress("loading word vectors", file_size(path), "B") as progress:
                found, dimensions = _find_in_text(path, forms, progress.advance)
        matches = [found.get(_encode(word), found.get(_encode(word.lower()))) for word in words]
        is_found = np.asarray([match is not None for match in matches], bool)
        vectors = np.empty((len(words), dimensions), np.float32)
        for row in np.flatnonzero(is_found):
            vectors[row] = matches[row]
    missing = np.flatnonzero(~is_found).tolist()
    vectors[missing] = random_vectors([words[row] for row in missing], vectors.shape[1], seed)
    if len(words) and not is_found.any():
        log.warning("%s: has a vector for none of the %d words. Is it the right file?", path, len(words))
    return vectors, is_found


def load_rows(path: str | Path, n_rows: int) -> np.ndarray:
    """Load the vectors of numbered words, such as the columns of features: row i of a .npy file is that of word i."""
    path = Path(path)
    if path.suffix != ".npy":
        raise OptionError(f"{path}: the data set has features instead of words; give their vectors as a .npy file.")
    array = _open_array(path)
    if len(array) != n_rows:
        raise DataError(f"{path}: has {len(array):,} rows; expected {n_rows:,}, one per column of the features.")
    vectors = np.asarray(array, np.float32)
    bad = np.flatnonzero(~np.isfinite(vectors).all(axis=1))
    if len(bad):
        raise DataError(f"{path}, row {bad[0]} (from 0): contains NaN or infinity.")
    return vectors


def random_vectors(words: Sequence[str], embedding_dim: int, seed: int = 0) -> np.ndarray:
    """Draw a vector from U(-0.25, 0.25) for each word. It depends only on the word and the seed.

    >>> random_vectors(["red", "hat"], embedding_dim=3).shape
    (2, 3)
    """
    hashes = (blake2b(f"{seed}:".encode() + _encode(word), digest_size=8).digest() for word in words)
    states = np.fromiter((int.from_bytes(digest, "big") for digest in hashes), np.uint64, len(words))
    vectors = np.empty((len(words), embedding_dim), np.float32)
    # SplitMix64: number n follows from the state and n, so that a whole column is drawn at once.
    for column in range(embedding_dim):
        states += np.uint64(0x9E3779B97F4A7C15)
        bits = states.copy()
        bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        bits ^= bits >> np.uint64(31)
        vectors[:, column] = (bits >> np.uint64(40)) * (2 * RANDOM_RANGE / 2**24) - RANDOM_RANGE
    return vectors


def _find_in_text(
    path: Path, forms: set[bytes], on_bytes: Callable[[int], None]
) -> tuple[dict[bytes, np.ndarray], int]:
    """Return the vectors of the words in `forms` that the file has, and the number of dimensions."""
    with closing(_lines(path, on_bytes)) as lines:
        first = next(lines, None)
        if first is None:
            raise DataError(f"{path}: the file is empty; expected a word and its numbers on each line.")
        n_promised, dimensions = _read_header(path, first)
        separator = b" " if b" " in first else b"\t"
        # Some words of GloVe 840B contain spaces: a line is parsed if its first part begins a wanted word.
        first_parts = {form.split(separator, 1)[0] for form in forms}
        found: dict[bytes, np.ndarray] = {}
        numbered = enumerate(chain([first], lines) if n_promised is None else lines, start=1 + (n_promised is not None))
        number = 1
        is_confirmed = n_promised is None
        for number, line in numbered:
            if not is_confirmed and line.strip():  # before anything as large as the header says is built
                if len(line.split()) < dimensions:
                    raise DataError(
                        f"{path}: line 1 promises {dimensions:,} dimensions, but line {number} is {_show(line)}. "
                        "Correct line 1, or download the file again."
                    )
                is_confirmed = True
            if len(found) == len(forms):
                return found, dimensions
            if line.partition(separator)[0] in first_parts:
                _parse_line(path, number, line, dimensions, forms, found)
    if n_promised is not None and number - 1 < n_promised and len(found) < len(forms):
        raise DataError(
            f"{path}: line 1 promises {n_promised:,} words, but there are {number - 1:,}. "
            "The file seems truncated: download it again, or correct its first line."
        )
    if not is_confirmed and forms:
        raise DataError(f"{path}: line 1 promises {dimensions:,} dimensions, but no vector follows. Download it again.")
    return found, dimensions


def _parse_line(
    path: Path, number: int, line: bytes, dimensions: int, forms: set[bytes], found: dict[bytes, np.ndarray]
) -> None:
    """Add the word of the line and its vector if the word is wanted and new."""
    word, *numbers = line.rsplit(None, dimensions) or [b""]
    extra: list[bytes] = []
    if word not in forms and word:
        # Either a word with spaces that is not wanted, or a wanted word with too many numbers.
        word, *extra = word.split()
    if word not in forms or word in found or not all(map(_is_number, extra)):
        return
    where = f"{path}, line {number}"
    if len(numbers) < dimensions or extra:
        n_numbers = len(numbers) + len(extra)
        raise DataError(f"{where}: expected {dimensions} numbers, found {n_numbers} ({_show(line)}).")
    try:
        vector = np.array([float(field) for field in numbers], np.float32)
    except ValueError:
        bad = next(field for field in numbers if not _is_number(field))
        raise DataError(f"{where}: expected a number, found {_show(bad)} (word {_show(word)}).") from None
    if not np.isfinite(vector).all():
        raise DataError(f"{where}: the vector of {_show(word)} contains NaN or infinity.")
    found[word] = vector


def _read_header(path: Path, line: bytes) -> tuple[int | None, int]:
    """Return the number of words that line 1 promises (None if it is a word and not a header), and the dimensions."""
    fields = line.split()
    if len(fields) == 2 and all(field.isdigit() and len(field) <= MAX_DIGITS for field in fields):
        if int(fields[1]) == 0:
            raise DataError(f"{path}, line 1: the header {_show(line)} says that vectors have no dimensions.")
        return int(fields[0]), int(fields[1])
    dimensions = 0
    while dimensions < len(fields) - 1 and _is_number(fields[-1 - dimensions]):
        dimensions += 1
    if dimensions == 0:
        raise DataError(
            f"{path}, line 1: found {_show(line)}; expected a word followed by numbers, or the number of words "
            "and the dimensions. Is it a text file of word vectors?"
        )
    return None, dimensions


def _lines(path: Path, on_bytes: Callable[[int], None] = lambda size: None) -> Generator[bytes]:
    """Yield the lines of the file without line ends; holds a few blocks and one line in memory."""
    rest = b""
    for n, block in enumerate(read_blocks(path, on_bytes)):
        if n == 0:
            block = block.removeprefix(b"\xef\xbb\xbf")
            start = block[:BINARY_SAMPLE]
            if start.translate(None, CONTROL_BYTES) != start:
                raise DataError(
                    f"{path}: is a binary file; word vectors are read from text files and .npy. For a word2vec or "
                    "fastText model (.bin), use its text form (.vec), or save it as .npy with a vocabulary file."
                )
        lines = (rest + block).split(b"\n")
        rest = lines.pop()
        if len(rest) > MAX_LINE_BYTES:
            raise DataError(f"{path}: has a line of more than {MAX_LINE_BYTES:,} bytes. Is it a file of word vectors?")
        yield from lines
    if rest:
        yield rest


def _vocabulary_file(path: Path, given: str | Path | None) -> Path:
    if given is not None:
        return Path(given)
    beside = [path.with_suffix(suffix) for suffix in VOCABULARY_SUFFIXES]
    for file in beside:
        if file.is_file():
            return file
    names = " or ".join(file.name for file in beside)
    raise DataError(f"{path}: there is no {names} beside it. Give its words as vocabulary_path, one word per line.")


def _find_in_array(path: Path, vocabulary: Path, forms: set[bytes]) -> tuple[dict[bytes, np.ndarray], int]:
    """Like `_find_in_text`, for a .npy file; the rows of other words are never read."""
    array = _open_array(path)
    rows: dict[bytes, int] = {}
    n_words = 0
    for n_words, line in enumerate(_lines(vocabulary), start=1):
        word = line.rstrip(b"\r")
        if word in forms:
            rows.setdefault(word, n_words - 1)
    if n_words != len(array):
        raise DataError(f"{path}: has {len(array):,} rows, but {vocabulary} has {n_words:,} words. They do not match.")
    for row in rows.values():
        if not np.isfinite(array[row]).all():
            raise DataError(f"{path}, row {row} (from 0): contains NaN or infinity.")
    return {word: array[row] for word, row in rows.items()}, array.shape[1]


def _open_array(path: Path) -> np.ndarray:
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except FileNotFoundError:
        raise DataError(f"{path}: there is no such file. Check the path.") from None
    except Exception as error:  # noqa: BLE001 - numpy raises many kinds for a damaged header
        raise DataError(f"{path}: cannot be read as a NumPy array: {error}.") from None
    if not isinstance(array, np.ndarray) or array.ndim != 2 or array.dtype.kind not in "fiu" or 0 in array.shape[1:]:
        found = f"shape {array.shape}, {array.dtype}" if isinstance(array, np.ndarray) else "a zip of arrays"
        raise DataError(f"{path}: expected a matrix of numbers, words × dimensions; found {found}.")
    return array


def _is_number(field: bytes) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True


def _encode(word: str) -> bytes:
    return word.encode("utf-8", "surrogatepass")


def _show(text: bytes, length: int = 40) -> str:
    shown = text[:length].decode("utf-8", "replace")
    return f'"{shown}…"' if len(text) > length else f'"{shown}"'


def _static_embeddings(folder: Path, words: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """The vectors of words, and which words have one: a word is the mean of its pieces, weighted if there are weights.

    A word has no vector if all of its pieces are unknown to the tokenizer.
    """
    pieces = _read_tokenizer(folder)
    file = _only_safetensors(folder)
    arrays = _Arrays(file)
    matrix = arrays.matrix(pieces.n_ids)
    ids = pieces.encode(words, special=False)
    if pieces.unknown_id is not None:
        ids = ids.keep(ids.values != pieces.unknown_id)
    used, position = np.unique(ids.values, return_inverse=True)
    weights = arrays.vector(WEIGHTS, used)
    rows = arrays.vector(ROWS, used)
    vectors = arrays.rows(matrix, used if rows is None else rows.astype(np.int64))
    if not np.isfinite(vectors).all():
        raise DataError(f"{file}: the array {matrix!r} contains NaN or infinity.")
    if weights is not None:
        vectors *= weights.astype(np.float32)[:, None]
    shares = np.repeat(1 / np.maximum(ids.counts, 1), ids.counts).astype(np.float32)
    means = sparse.csr_array((shares, position, ids.indptr), shape=(len(words), len(used))) @ vectors
    return np.ascontiguousarray(means, np.float32), ids.counts > 0


def _read_tokenizer(folder: Path) -> WordPieces:
    file = folder / TOKENIZER_FILE
    try:
        return WordPieces(file.read_bytes(), file)
    except OSError:
        raise DataError(f"{folder}: there is no {TOKENIZER_FILE} in this folder of embeddings.") from None


def _only_safetensors(folder: Path) -> Path:
    files = sorted(folder.glob("*.safetensors"))
    if len(files) != 1:
        found = ", ".join(file.name for file in files) or "none"
        raise DataError(f"{folder}: expected one .safetensors file with the embeddings; found {found}.")
    return files[0]


class _Arrays:
    """The arrays of a safetensors file, of which only some rows are read."""

    def __init__(self, file: Path) -> None:
        try:
            self._content = np.memmap(file, np.uint8, mode="r")
            self._infos, _, self._start = safetensors_header(self._content)
        except (OSError, ValueError) as error:
            raise DataError(f"{file}: not a readable safetensors file ({error}).") from None
        self._file = file

    def matrix(self, n_pieces: int) -> str:
        """The name of the matrix with the embeddings: the only one, or the only one with a row for every piece."""
        matrices = {name: info.shape for name, info in self._infos.items() if len(info.shape) == 2}
        with_all = [name for name, shape in matrices.items() if shape[0] >= n_pieces or ROWS in self._infos]
        if len(with_all) == 1 and matrices[with_all[0]][1]:
            return with_all[0]
        found = ", ".join(f"{name} {n} × {d}" for name, (n, d) in list(matrices.items())[:3]) or "none"
        raise DataError(
            f"{self._file}: expected one matrix with a row for each of the tokenizer's {n_pieces:,} pieces; "
            f"found {found}. Are both files from the same model?"
        )

    def vector(self, name: str, ids: np.ndarray) -> np.ndarray | None:
        """The values of these pieces in an array with one value per piece; None where there is no such array."""
        if name not in self._infos:
            return None
        values = self._open(self._infos[name])
        if values.ndim != 1 or (len(ids) and ids.max() >= len(values)):
            raise DataError(f"{self._file}: the array {name!r} does not have one value per piece.")
        return values[ids]

    def rows(self, name: str, rows: np.ndarray) -> np.ndarray:
        """These rows of a matrix, as float32."""
        info = self._infos[name]
        if len(rows) and not 0 <= rows.min() <= rows.max() < info.shape[0]:
            raise DataError(f"{self._file}: row {rows.max():,} is out of range ({name!r} has {info.shape[0]:,} rows).")
        values = self._open(info)[rows]
        if info.dtype == "BF16":  # the upper half of a float32
            return (values.astype(np.uint32) << 16).view(np.float32)
        return values.astype(np.float32)

    def _open(self, info: ArrayInfo) -> np.ndarray:
        try:
            return array_in(self._content[self._start :], info)
        except (KeyError, ValueError):
            raise DataError(f"{self._file}: cannot read an array of type {info.dtype}, shape {info.shape}.") from None
