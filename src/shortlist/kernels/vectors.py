"""Co-occurrence statistics of words, and products of a sparse matrix with a thin dense one.

Both run over rows, and each row is computed by one thread in a fixed order, so that the number of threads
does not change a bit of the result. Word ids are usually sorted by frequency, which would give the first
thread all the work; rows are therefore dealt out in turns.
"""

from __future__ import annotations

import numpy as np
from numba import njit, prange

TURNS = 64


@njit(cache=True, nogil=True)
def _row_information(row, tokens, indptr, starts, ends, contexts, skip_own, counts, touched):
    """Add up what stands around the row's tokens; returns how many different contexts were touched."""
    n_touched = 0
    for t in range(indptr[row], indptr[row + 1]):
        token = tokens[t]
        for position in range(starts[token], ends[token]):
            if skip_own and position == token:
                continue
            context = contexts[position]
            if counts[context] == 0:
                touched[n_touched] = context
                n_touched += 1
            counts[context] += 1
    return n_touched


@njit(cache=True, nogil=True, parallel=True)
def positive_information(
    tokens,
    indptr,
    starts,
    ends,
    contexts,
    skip_own,
    log_rows,
    log_contexts,
    weights,
    out_indptr,
    columns,
    information,
):
    """Positive pointwise mutual information of rows (words) and contexts, in two calls.

    `tokens[indptr[w]:indptr[w + 1]]` are the places where word w stands; around token t it meets
    `contexts[starts[t]:ends[t]]`, without position t itself if `skip_own`. A pair met n times has
    the information `log(n) - log_rows[w] - log_contexts[c]`; what is above zero is kept, times `weights[w]`.
    With empty `columns` the kernel counts: `out_indptr[w + 1]` becomes the number of pairs of word w.
    Otherwise it fills `columns` (ascending) and `information` along `out_indptr`.
    """
    n_rows = len(indptr) - 1
    filling = len(columns) > 0
    for turn in prange(TURNS):
        counts = np.zeros(len(log_contexts), np.int32)
        touched = np.empty(len(log_contexts), np.int32)
        for row in range(turn, n_rows, TURNS):
            n_touched = _row_information(row, tokens, indptr, starts, ends, contexts, skip_own, counts, touched)
            if filling:
                met = np.sort(touched[:n_touched])
            else:
                met = touched[:n_touched]
            at = out_indptr[row] if filling else 0
            for i in range(n_touched):
                context = met[i]
                value = np.log(counts[context]) - log_rows[row] - log_contexts[context]
                counts[context] = 0
                if value > 0:
                    if filling:
                        columns[at] = context
                        information[at] = weights[row] * value
                    at += 1
            if not filling:
                out_indptr[row + 1] = at


@njit(cache=True, nogil=True, parallel=True, fastmath={"contract"})
def sparse_times_dense(indptr, columns, values, dense, out):
    """out = sparse (CSR) · dense, all float32."""
    n_rows = len(indptr) - 1
    width = dense.shape[1]
    for turn in prange(TURNS):
        for row in range(turn, n_rows, TURNS):
            for d in range(width):
                out[row, d] = 0
            for i in range(indptr[row], indptr[row + 1]):
                value = values[i]
                column = columns[i]
                for d in range(width):
                    out[row, d] += value * dense[column, d]
