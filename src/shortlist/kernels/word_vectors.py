"""Co-occurrence statistics of words, and products of a sparse matrix with a thin dense one, to learn word vectors.

Each row is computed by one thread in a fixed order, so the number of threads does not change the result. Words are
sorted by frequency, so contiguous ranges of rows would give the first thread all the work: a share of the work is
every `STRIDE`-th row instead.
"""

from __future__ import annotations

import numpy as np

from shortlist.kernels.compile import kernel
from shortlist.kernels.threads import parallel_kernel

STRIDE = 64


@kernel
def _count_contexts(row, tokens, indptr, starts, ends, contexts, skip_own, counts, touched):
    """Count the contexts of the row's tokens in `counts`; returns how many different ones were `touched`."""
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


@parallel_kernel(n_shares=STRIDE)
def positive_information(
    begin,
    end,
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
    """Positive pointwise mutual information of words and contexts, in two calls.

    `tokens[indptr[w]:indptr[w + 1]]` are the positions of word w; the contexts of token t are
    `contexts[starts[t]:ends[t]]`, without position t itself if `skip_own`. A pair that occurs n times has the
    information `log(n) - log_rows[w] - log_contexts[c]`; what is above zero is kept, times `weights[w]`.
    With empty `columns` the kernel counts: `out_indptr[w + 1]` becomes the number of pairs of word w.
    Otherwise it fills `columns` (increasing) and `information` along `out_indptr`.
    """
    is_filling = len(columns) > 0
    counts = np.zeros(len(log_contexts), np.int32)
    touched = np.empty(len(log_contexts), np.int32)
    for share in range(begin, end):
        for row in range(share, len(indptr) - 1, STRIDE):
            n_touched = _count_contexts(row, tokens, indptr, starts, ends, contexts, skip_own, counts, touched)
            if is_filling:
                touched[:n_touched].sort()
            at = out_indptr[row] if is_filling else 0
            for context in touched[:n_touched]:
                value = np.log(counts[context]) - log_rows[row] - log_contexts[context]
                counts[context] = 0
                if value > 0:
                    if is_filling:
                        columns[at] = context
                        information[at] = weights[row] * value
                    at += 1
            if not is_filling:
                out_indptr[row + 1] = at


@parallel_kernel(n_shares=STRIDE, fastmath={"contract"})
def sparse_times_dense(begin, end, indptr, columns, values, dense, out):
    """out = sparse (CSR) · dense, all float32."""
    for share in range(begin, end):
        for row in range(share, len(indptr) - 1, STRIDE):
            out[row] = 0
            for i in range(indptr[row], indptr[row + 1]):
                value, column = values[i], columns[i]
                for d in range(dense.shape[1]):
                    out[row, d] += value * dense[column, d]
