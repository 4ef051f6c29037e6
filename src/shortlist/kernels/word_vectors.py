"""Co-occurrence statistics of words, and products of a sparse matrix with a thin dense one, to learn word vectors.

Each row is computed by one thread in a fixed order, so the number of threads does not change the result. Words are
sorted by frequency, so contiguous ranges of rows would give the first thread all the work: a share of the work is
every `STRIDE`-th row instead.
"""

from __future__ import annotations

import numpy as np

from shortlist.kernels.native import native
from shortlist.kernels.threads import run_ranges

STRIDE = 64  # as in c/labels.c


def positive_information(
    tokens: np.ndarray,
    indptr: np.ndarray,
    starts: np.ndarray,
    ends: np.ndarray,
    contexts: np.ndarray,
    skip_own: bool,
    log_rows: np.ndarray,
    log_contexts: np.ndarray,
    weights: np.ndarray,
    out_indptr: np.ndarray,
    columns: np.ndarray,
    information: np.ndarray,
) -> None:
    """Positive pointwise mutual information of words and contexts, in two calls.

    `tokens[indptr[w]:indptr[w + 1]]` are the positions of word w; the contexts of token t are
    `contexts[starts[t]:ends[t]]`, without position t itself if `skip_own`. A pair that occurs n times has the
    information `log(n) - log_rows[w] - log_contexts[c]`; what is above zero is kept, times `weights[w]`.
    With empty `columns` the kernel counts: `out_indptr[w + 1]` becomes the number of pairs of word w.
    Otherwise it fills `columns` (increasing) and `information` along `out_indptr`.
    """
    run_ranges(
        native.positive_information, STRIDE, 1, tokens, indptr, starts, ends, contexts, skip_own, log_rows,
        log_contexts, weights, out_indptr, columns, information,
    )  # fmt: skip


def sparse_times_dense(
    indptr: np.ndarray, columns: np.ndarray, values: np.ndarray, dense: np.ndarray, out: np.ndarray
) -> None:
    """out = sparse (CSR) · dense, all float32."""
    run_ranges(native.sparse_times_dense, STRIDE, 1, indptr, columns, values, dense, out)
