"""Word vectors learnt from the training texts, for users without pretrained vectors.

Words that occur in the same texts, or with the same labels, get similar vectors. The method factorises the positive
pointwise mutual information (PPMI) of words and contexts, with smoothed context frequencies (Levy, Goldberg and Dagan
2015), by randomised subspace iteration (Halko, Martinsson and Tropp 2011). It needs a few passes over co-occurrence
statistics instead of epochs over the texts, and is deterministic.
"""

from __future__ import annotations

import numpy as np

from shortlist.arrays import Ragged, counts_to_indptr, outside
from shortlist.errors import OptionError
from shortlist.kernels.threads import use_threads
from shortlist.kernels.word_vectors import positive_information, sparse_times_dense
from shortlist.lazy import sparse
from shortlist.progress import Progress
from shortlist.text.pretrained_vectors import RANDOM_RANGE

WINDOW = 16  # words on either side; bounds the work in long texts
CONTEXT_SMOOTHING = 0.75
WORD_CONTEXT_WEIGHT = 0.25  # relative to labels, which are the better contexts
FREQUENCY_POWER = 0.25  # row weights: most words are rare, and their noise would dominate the factors
SINGULAR_VALUE_POWER = 0.5
N_PASSES = 3
EXTRA_DIMENSIONS = 16
MAX_PRODUCT_SIZE = 1 << 28  # values of a product with all contexts: bounds memory with millions of labels
# Share of each vector (by squared length) that is learnt; the rest is random. Without it, words in the same contexts
# (numbers, names, rare words) could hardly be told apart.
LEARNT_SHARE = 0.4
STANDARD_DEVIATION = RANDOM_RANGE / 3**0.5
UNSEEN_SCALE = 0.1


def learn_vectors(
    word_ids: Ragged,
    n_words: int,
    embedding_dim: int = 300,
    *,
    labels: Ragged | None = None,
    n_labels: int = 0,
    seed: int = 0,
    threads: int | None = None,
) -> np.ndarray:
    """Learn word vectors (float32, n_words × embedding_dim) from the word ids of the training texts.

    Vectors are as long as random ones from U(-0.25, 0.25): their values have a standard deviation of about 0.144.
    Words that occur in no text get random vectors of a tenth of that length.

    word_ids          word ids of each training text
    labels, n_labels  labels of each training text: brings words with the same labels together
    seed              random seed
    threads           number of threads (None: all cores); does not change the result

    >>> word_ids = Ragged.from_lists([[0, 1], [0, 1], [2, 3], [2, 3]])
    >>> learn_vectors(word_ids, n_words=4, embedding_dim=8).shape
    (4, 8)
    """
    if embedding_dim < 1:
        raise OptionError(f"embedding_dim must be at least 1, not {embedding_dim}")
    if n_words < 0:
        raise OptionError(f"n_words must not be negative: {n_words}")
    _check_ids(word_ids.values, n_words, "word")
    if labels is not None:
        _check_ids(labels.values, n_labels, "label")
        if len(labels) != len(word_ids):
            raise OptionError(f"there are {len(word_ids):,} texts, but labels for {len(labels):,}")
    rng = np.random.default_rng(seed)
    vectors = rng.random((n_words, embedding_dim), np.float32)
    vectors -= 0.5
    vectors *= 2 * RANDOM_RANGE
    vectors[np.bincount(word_ids.values, minlength=n_words) == 0] *= UNSEEN_SCALE
    with use_threads(threads):
        information = _ppmi(word_ids, n_words, word_ids, n_words)
        if labels is not None:
            information.data *= np.float32(WORD_CONTEXT_WEIGHT)
            parts = [information, _ppmi(word_ids, n_words, labels, n_labels)]
            information = sparse.csr_array(sparse.hstack(parts, "csr"))
        if information.nnz:
            factors = _factorise(information, min(embedding_dim, n_words), rng)
            _blend(factors, vectors)
    return vectors


def _check_ids(ids: np.ndarray, n: int, what: str) -> None:
    if (wrong := outside(ids, n)) is not None:
        raise OptionError(f"{what} id {wrong} is out of range ({n:,} {what}s)")


def _ppmi(words: Ragged, n_words: int, contexts: Ragged, n_contexts: int) -> sparse.csr_array:
    """Return the PPMI of words (rows) and contexts, with rows weighted by frequency.

    The contexts of a word are the words around it if `contexts is words`, else all contexts of its text.
    """
    text = words.row_ids
    indptr = contexts.indptr.astype(np.int64, copy=False)
    starts, ends = indptr[text], indptr[text + 1]
    if contexts is words:
        position = np.arange(len(text))
        starts, ends = np.maximum(starts, position - WINDOW), np.minimum(ends, position + WINDOW + 1)
        pairs_of_word = pairs_of_context = ends - starts - 1
    else:
        pairs_of_word, pairs_of_context = ends - starts, words.counts[contexts.row_ids]
    counts = np.bincount(words.values, minlength=n_words)
    with np.errstate(divide="ignore"):
        log_words = np.log(np.bincount(words.values, pairs_of_word, n_words))
        smoothed = np.bincount(contexts.values, pairs_of_context, n_contexts) ** CONTEXT_SMOOTHING
        log_contexts = np.log(smoothed / max(smoothed.sum(), 1))
    positions = np.argsort(words.values, kind="stable")  # of word 0, then of word 1, and so on
    inputs = (
        positions, counts_to_indptr(counts), starts, ends,
        contexts.values.astype(np.int32, copy=False), contexts is words,
        log_words, log_contexts, counts**FREQUENCY_POWER,
    )  # fmt: skip
    # The first call counts the values of each row, the second fills them in.
    indptr = np.zeros(n_words + 1, np.int64)
    positive_information(*inputs, indptr, np.empty(0, np.int32), np.empty(0, np.float32))
    np.cumsum(indptr, out=indptr)
    columns, values = np.empty(indptr[-1], np.int32), np.empty(indptr[-1], np.float32)
    positive_information(*inputs, indptr, columns, values)
    return sparse.csr_array((values, columns, indptr), shape=(n_words, n_contexts))


def _factorise(matrix: sparse.csr_array, rank: int, rng: np.random.Generator) -> np.ndarray:
    """Return the leading left singular vectors (rows × rank), scaled by a power of their singular values.

    Each pass orthonormalises a subspace, which starts at random, and multiplies it by matrix · matrixᵀ. The leading
    directions within the final subspace come from a small symmetric eigenvalue problem.
    """
    from scipy import linalg

    n_rows, n_columns = matrix.shape
    width = min(rank + EXTRA_DIMENSIONS, n_rows)
    block_size = max(1, MAX_PRODUCT_SIZE // n_columns)
    transposed = matrix.T.tocsr()
    image = rng.standard_normal((n_rows, width), np.float32)
    with Progress("learning word vectors", N_PASSES * width, "columns") as progress:
        for _ in range(N_PASSES):
            basis = np.ascontiguousarray(linalg.qr(image, mode="economic", check_finite=False)[0])
            for start in range(0, width, block_size):
                block = slice(start, start + block_size)
                image[:, block] = _multiply(matrix, _multiply(transposed, basis[:, block]))
                progress.advance(image[:, block].shape[1])
    squares, directions = np.linalg.eigh((basis.T @ image).astype(np.float64))
    leading = np.argsort(-squares, kind="stable")[:rank]
    scales = np.maximum(squares[leading], 0) ** (SINGULAR_VALUE_POWER / 2)
    return basis @ (directions[:, leading] * scales).astype(np.float32)


def _multiply(matrix: sparse.csr_array, dense: np.ndarray) -> np.ndarray:
    """Return matrix @ dense, on several threads."""
    out = np.empty((matrix.shape[0], dense.shape[1]), np.float32)
    indptr, indices = matrix.indptr.astype(np.int64, copy=False), matrix.indices.astype(np.int32, copy=False)
    sparse_times_dense(indptr, indices, matrix.data, np.ascontiguousarray(dense), out)
    return out


def _blend(factors: np.ndarray, vectors: np.ndarray) -> None:
    """Replace a share of each random vector by the learnt one, for the words that have one."""
    lengths = np.linalg.norm(factors, axis=1, keepdims=True)
    is_learnt = lengths[:, 0] > 1e-6 * lengths.max()
    target = STANDARD_DEVIATION * vectors.shape[1] ** 0.5 * LEARNT_SHARE**0.5
    factors *= target / np.maximum(lengths, 1e-30)
    vectors[is_learnt] *= np.float32((1 - LEARNT_SHARE) ** 0.5)
    vectors[is_learnt, : factors.shape[1]] += factors[is_learnt]
