"""Word vectors learnt from the user's own training texts, for when no file of vectors is given.

Words that stand in the same texts (and lead to the same labels) get similar vectors: the positive pointwise
mutual information of words and their contexts, with smoothed context frequencies (Levy, Goldberg and Dagan
2015), is factorised by randomised subspace iteration (Halko, Martinsson and Tropp 2011). That takes a few
passes over the texts' statistics instead of epochs over the texts, and gives the same vectors every time.
"""

from __future__ import annotations

import numpy as np

from shortlist.arrays import Ragged
from shortlist.errors import OptionError
from shortlist.kernels.threads import use_threads
from shortlist.kernels.word_vectors import positive_information, sparse_times_dense
from shortlist.lazy import sparse
from shortlist.progress import Progress
from shortlist.text.vectors import UNKNOWN_RANGE

# Short texts are shorter than this on both sides of any word; in long ones it bounds the work.
WINDOW = 16
CONTEXT_SMOOTHING = 0.75
# Labels say more about what a text is filed under than its other words do.
WORDS_BESIDE_LABELS = 0.25
# Most words are rare, and would fill the factors with their noise if all words weighed the same.
FREQUENCY_POWER = 0.25
SINGULAR_VALUE_POWER = 0.5
PASSES = 3
EXTRA_DIMENSIONS = 16
# Bounds the memory for a product with all contexts (float32) when there are millions of labels.
NUMBERS_AT_ONCE = 1 << 28
# Part of each vector that is learnt; the other part is the word's own random direction. Without it, words
# that keep the same company (numbers, names, rare words) can hardly be told apart.
LEARNT_SHARE = 0.4
COMPONENT_DEVIATION = UNKNOWN_RANGE / 3**0.5
UNSEEN_SCALE = 0.1


def learn_vectors(
    word_ids: Ragged,
    n_words: int,
    dimensions: int = 300,
    *,
    labels: Ragged | None = None,
    n_labels: int = 0,
    seed: int = 0,
    threads: int | None = None,
    show_progress: bool = True,
) -> np.ndarray:
    """Vectors (float32, n_words × dimensions) from the word ids of the training texts.

    With `labels` (a row for each text), words that lead to the same labels come near each other, too.
    The vectors are as long as those drawn from U(-0.25, 0.25): the components' standard deviation is about
    0.144. Words that occur in no text get a tenth of that, at random.

    >>> vectors = learn_vectors(vocabulary.encode(texts), len(vocabulary))  # doctest: +SKIP
    """
    _check(word_ids, n_words, dimensions, labels, n_labels)
    generator = np.random.default_rng(seed)
    vectors = generator.random((n_words, dimensions), np.float32)
    vectors -= 0.5
    vectors *= 2 * UNKNOWN_RANGE
    counts = np.bincount(word_ids.values, minlength=n_words)
    vectors[counts == 0] *= UNSEEN_SCALE
    with use_threads(threads):
        information = _all_information(word_ids, counts, labels, n_labels)
        if information.nnz:
            factors = _factorise(information, min(dimensions, n_words), generator, show_progress)
            _mix_in(factors, vectors)
    return vectors


def _check(word_ids: Ragged, n_words: int, dimensions: int, labels: Ragged | None, n_labels: int) -> None:
    if dimensions < 1:
        raise OptionError(f"dimensions must be at least 1, not {dimensions}")
    if n_words < 0:
        raise OptionError(f"n_words must not be negative: {n_words}")
    _check_ids(word_ids.values, n_words, "words")
    if labels is None:
        return
    _check_ids(labels.values, n_labels, "labels")
    if len(labels) != len(word_ids):
        raise OptionError(f"there are {len(word_ids):,} texts, but labels for {len(labels):,}")


def _check_ids(ids: np.ndarray, n: int, what: str) -> None:
    if len(ids) and not 0 <= ids.min() <= ids.max() < n:
        raise OptionError(f"ids of {what} go from {ids.min()} to {ids.max()}, but there are {n:,} {what}")


def _all_information(words: Ragged, counts: np.ndarray, labels: Ragged | None, n_labels: int) -> sparse.csr_array:
    """What each word (row) says about the words around it and, where given, about the labels of its texts."""
    places = np.argsort(words.values, kind="stable")
    around = _information(words, counts, places, words, len(counts))
    if labels is None:
        return around
    around.data *= np.float32(WORDS_BESIDE_LABELS)
    return sparse.csr_array(sparse.hstack([around, _information(words, counts, places, labels, n_labels)], "csr"))


def _information(
    words: Ragged, counts: np.ndarray, places: np.ndarray, contexts: Ragged, n_contexts: int
) -> sparse.csr_array:
    """Positive pointwise mutual information of words and contexts: the words around, or another ragged's row.

    `places` are the positions of word 0, then those of word 1, and so on. Rows are weighted by frequency.
    """
    text = words.row_ids
    starts, ends = contexts.indptr[text], contexts.indptr[text + 1]
    if contexts is words:
        position = np.arange(len(text))
        starts, ends = np.maximum(starts, position - WINDOW), np.minimum(ends, position + WINDOW + 1)
        meetings = met = ends - starts - 1
    else:
        meetings, met = ends - starts, words.counts[contexts.row_ids]
    with np.errstate(divide="ignore"):
        log_words = np.log(np.bincount(words.values, meetings, len(counts)))
        smoothed = np.bincount(contexts.values, met, n_contexts) ** CONTEXT_SMOOTHING
        log_contexts = np.log(smoothed / max(smoothed.sum(), 1))
    weights = counts**FREQUENCY_POWER
    statistics = (
        places,
        np.concatenate([[0], np.cumsum(counts)]),
        starts,
        ends,
        contexts.values,
        contexts is words,
        log_words,
        log_contexts,
        weights,
    )
    indptr = np.zeros(len(counts) + 1, np.int64)
    positive_information(*statistics, indptr, np.empty(0, np.int32), np.empty(0, np.float32))
    np.cumsum(indptr, out=indptr)
    columns, information = np.empty(indptr[-1], np.int32), np.empty(indptr[-1], np.float32)
    positive_information(*statistics, indptr, columns, information)
    return sparse.csr_array((information, columns, indptr), shape=(len(counts), n_contexts))


def _factorise(matrix: sparse.csr_array, rank: int, generator: np.random.Generator, show_progress: bool) -> np.ndarray:
    """The matrix's strongest left singular vectors (its rows × rank), scaled by their singular values' power.

    A random subspace is turned towards the strongest directions by multiplying it with matrix · matrixᵀ,
    made orthonormal before every pass; within it, a small symmetric problem is solved exactly.
    """
    n_rows, n_columns = matrix.shape
    width = min(rank + EXTRA_DIMENSIONS, n_rows)
    at_once = max(1, NUMBERS_AT_ONCE // n_columns)
    rows, transposed = _Rows(matrix), _Rows(matrix.T.tocsr())
    image = generator.standard_normal((n_rows, width), np.float32)
    from scipy import linalg

    with Progress("learning word vectors", PASSES * width, "columns", show_progress) as progress:
        for _ in range(PASSES):
            basis = np.ascontiguousarray(linalg.qr(image, mode="economic", check_finite=False)[0])
            for first in range(0, width, at_once):
                part = slice(first, first + at_once)
                image[:, part] = rows.times(transposed.times(basis[:, part]))
                progress.advance(image[:, part].shape[1])
    squares, directions = np.linalg.eigh((basis.T @ image).astype(np.float64))
    strongest = np.argsort(-squares, kind="stable")[:rank]
    scales = np.maximum(squares[strongest], 0) ** (SINGULAR_VALUE_POWER / 2)
    return basis @ (directions[:, strongest] * scales).astype(np.float32)


class _Rows:
    """A sparse matrix in the types that the kernel is compiled for."""

    def __init__(self, matrix: sparse.csr_array) -> None:
        self._indptr = matrix.indptr.astype(np.int64)
        self._columns = matrix.indices.astype(np.int32)
        self._values = matrix.data

    def times(self, dense: np.ndarray) -> np.ndarray:
        out = np.empty((len(self._indptr) - 1, dense.shape[1]), np.float32)
        sparse_times_dense(self._indptr, self._columns, self._values, np.ascontiguousarray(dense), out)
        return out


def _mix_in(factors: np.ndarray, vectors: np.ndarray) -> None:
    """Replace a share of the random vectors by the learnt ones, for words that something was learnt about."""
    lengths = np.linalg.norm(factors, axis=1, keepdims=True)
    learnt = lengths[:, 0] > 1e-6 * lengths.max()
    factors *= COMPONENT_DEVIATION * vectors.shape[1] ** 0.5 * LEARNT_SHARE**0.5 / np.maximum(lengths, 1e-30)
    vectors[learnt] *= np.float32((1 - LEARNT_SHARE) ** 0.5)
    vectors[learnt, : factors.shape[1]] += factors[learnt]
