"""Word vectors from static embeddings: a folder with a tokenizer.json and a matrix with one row per word piece.

model2vec and wordllama store their models like this. The input embeddings of a transformer can be read, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from shortlist.errors import DataError
from shortlist.files import ArrayInfo, array_in, safetensors_header
from shortlist.lazy import sparse
from shortlist.text.word_pieces import TOKENIZER_FILE, WordPieces

# What model2vec calls a weight per piece, and the row of each piece where several share one.
WEIGHTS, ROWS = "weights", "mapping"


def load_static_embeddings(folder: Path, words: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
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
