"""One pass over the label rows that anybody in a batch wants: scores, loss, gradients and the update, row by row.

A row of weights and its gradient are touched once, while they are in cache; no matrix of logits and no dense
gradient ever exists. The rows of a cluster lie side by side, so they are scored and moved together.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit, prange

# Sums may be reordered and fused, which is what makes them fast; NaN and infinity keep their meaning.
FAST = {"reassoc", "contract", "arcp", "nsz"}

# As in Adam: squares are averaged over about 1,000 steps, and no root is smaller than this.
MEMORY = 1000
EPSILON = np.float32(1e-8)

RUN = 256  # numbers that stay in the cache between two loops
LOG2_E = np.float32(1 / math.log(2))
SMALLEST = np.float32(-126)
# 2^f for f from -1/2 to 1/2, and 2·atanh(u) for u to 1/3: good to six digits.
EXP2 = tuple(np.float32(math.log(2) ** k / math.factorial(k)) for k in range(7))
LOG = tuple(np.float32(2 / (2 * k + 1)) for k in range(6))


@njit(cache=True, nogil=True)
def samples_by_cluster(clusters, n_clusters):
    """Turn "the clusters of each sample" round: (clusters wanted, bounds, samples in rising order)."""
    n_samples, n_each = clusters.shape
    counts = np.zeros(n_clusters + 1, np.int64)
    for sample in range(n_samples):
        for i in range(n_each):
            if clusters[sample, i] >= 0:
                counts[clusters[sample, i] + 1] += 1
    n_wanted = 0
    for cluster in range(n_clusters):
        if counts[cluster + 1] > 0:
            n_wanted += 1
        counts[cluster + 1] += counts[cluster]
    samples = np.empty(counts[n_clusters], np.int32)
    filled = counts[:-1].copy()
    for sample in range(n_samples):
        for i in range(n_each):
            cluster = clusters[sample, i]
            if cluster >= 0:
                samples[filled[cluster]] = sample
                filled[cluster] += 1
    wanted = np.empty(n_wanted, np.int32)
    bounds = np.zeros(n_wanted + 1, np.int64)
    n_wanted = 0
    for cluster in range(n_clusters):
        if counts[cluster + 1] > counts[cluster]:
            wanted[n_wanted] = cluster
            bounds[n_wanted + 1] = counts[cluster + 1]
            n_wanted += 1
    return wanted, bounds, samples


@njit(cache=True, nogil=True)
def even_shares(wanted, bounds, starts, n_shares):
    """Cut the wanted clusters into runs of about equal work (rows read, and samples times rows)."""
    work = np.empty(len(wanted) + 1, np.float64)
    work[0] = 0.0
    for i in range(len(wanted)):
        rows = starts[wanted[i] + 1] - starts[wanted[i]]
        # Reading and writing a row with its moments costs about as much as four samples' arithmetic on it.
        work[i + 1] = work[i] + rows * (4 + bounds[i + 1] - bounds[i])
    cuts = np.empty(n_shares + 1, np.int64)
    for share in range(n_shares + 1):
        cuts[share] = np.searchsorted(work, work[-1] * share / n_shares)
    cuts[0], cuts[n_shares] = 0, len(wanted)
    return cuts


@njit(cache=True, nogil=True, fastmath=FAST, forceinline=True)
def dot(a, b):
    """The sum of products; `a` may be in 8 bits."""
    total = np.float32(0)
    for i in range(len(a)):
        total += np.float32(a[i]) * b[i]
    return total


@njit(cache=True, nogil=True, fastmath=FAST, forceinline=True)
def dots(rows, vector, out):
    """The dot product of each row with the vector; four at a time, so that the vector is read once for four."""
    n, last = len(rows), len(rows) - len(rows) % 4
    for r in range(0, last, 4):
        a, b, c, d = rows[r], rows[r + 1], rows[r + 2], rows[r + 3]
        sum_a, sum_b, sum_c, sum_d = np.float32(0), np.float32(0), np.float32(0), np.float32(0)
        for i in range(len(vector)):
            sum_a += np.float32(a[i]) * vector[i]
            sum_b += np.float32(b[i]) * vector[i]
            sum_c += np.float32(c[i]) * vector[i]
            sum_d += np.float32(d[i]) * vector[i]
        out[r], out[r + 1], out[r + 2], out[r + 3] = sum_a, sum_b, sum_c, sum_d
    for r in range(last, n):
        out[r] = dot(rows[r], vector)


@njit(cache=True, nogil=True, fastmath=FAST, forceinline=True)
def _add_rows(target, factors, rows, which):
    """target += the sum of factors[j] · rows[which[j]]; four at a time, so that the target is read once for four."""
    n, last = len(which), len(which) - len(which) % 4
    for j in range(0, last, 4):
        a, b, c, d = rows[which[j]], rows[which[j + 1]], rows[which[j + 2]], rows[which[j + 3]]
        fa, fb, fc, fd = factors[j], factors[j + 1], factors[j + 2], factors[j + 3]
        for i in range(len(target)):
            target[i] += fa * a[i] + fb * b[i] + fc * c[i] + fd * d[i]
    for j in range(last, n):
        row, factor = rows[which[j]], factors[j]
        for i in range(len(target)):
            target[i] += factor * row[i]


# Inlined: of two copies it would be chance which one runs, and they may round in different ways.
@njit(cache=True, nogil=True, fastmath=FAST, error_model="numpy", forceinline=True)
def move_row(weights, biases, mean_squares, bias_squares, seen, row, gradient, bias_gradient, rate):
    """Move a row and its bias against their gradients, each measured by the root of its mean square so far.

    The mean is over all steps that saw the row, and over the last `MEMORY` of them or so once there were more.
    """
    seen[row] += 1
    share = np.float32(max(1 / MEMORY, 1 / seen[row]))
    square = np.float32(0)
    for i in range(len(gradient)):
        square += gradient[i] * gradient[i]
    mean_squares[row] += share * (square / np.float32(len(gradient)) - mean_squares[row])
    bias_squares[row] += share * (bias_gradient * bias_gradient - bias_squares[row])
    factor = rate / (math.sqrt(mean_squares[row]) + EPSILON)
    for i in range(len(gradient)):
        weights[row, i] -= factor * gradient[i]
    biases[row] -= rate * bias_gradient / (math.sqrt(bias_squares[row]) + EPSILON)


@njit(cache=True, nogil=True, fastmath=FAST, error_model="numpy", forceinline=True)
def entropy_row(logits, slopes, scale):
    """Binary cross-entropy of logits against "no" for all, and its slopes; the caller puts the "yes" right.

    `math.exp` and `math.log1p` are called number by number; what stands here becomes SIMD code. e^-|z| is 2^n · 2^f,
    with f in a polynomial and n in the exponent's bits; log(1 + t) is the series of 2·atanh(t / (2 + t)).
    """
    powers = np.empty(RUN, np.int32)
    factors = powers.view(np.float32)
    total = np.float32(0)
    for begin in range(0, len(logits), RUN):
        n = min(RUN, len(logits) - begin)
        z, out = logits[begin : begin + n], slopes[begin : begin + n]
        for i in range(n):
            x = abs(z[i]) * -LOG2_E
            x = x if x > SMALLEST else SMALLEST
            whole = np.float32(math.floor(x + np.float32(0.5)))
            f = x - whole
            powers[i] = (np.int32(whole) + np.int32(127)) << np.int32(23)
            out[i] = EXP2[0] + f * (
                EXP2[1] + f * (EXP2[2] + f * (EXP2[3] + f * (EXP2[4] + f * (EXP2[5] + f * EXP2[6]))))
            )
        for i in range(n):
            t = out[i] * factors[i]
            u = t / (np.float32(2) + t)
            s = u * u
            log = u * (LOG[0] + s * (LOG[1] + s * (LOG[2] + s * (LOG[3] + s * (LOG[4] + s * LOG[5])))))
            total += log + max(z[i], np.float32(0))
            out[i] = scale * (np.float32(1) if z[i] >= 0 else t) / (np.float32(1) + t)
    return total


@njit(cache=True, nogil=True, parallel=True)
def entropy(logits, biases, scale, slopes, losses):
    """Add the biases to the logits (samples × labels); slopes of all and the loss of each sample, as `entropy_row`."""
    for sample in prange(len(logits)):
        for i in range(len(biases)):
            logits[sample, i] += biases[i]
        losses[sample] += entropy_row(logits[sample], slopes[sample], scale)


@njit(cache=True, nogil=True, parallel=True, fastmath=FAST)
def cluster_step(
    weights,
    biases,
    mean_squares,
    bias_squares,
    seen,
    features,
    starts,
    wanted,
    bounds,
    samples,
    positive_rows,
    positive_samples,
    cuts,
    rate,
    scale,
    gradients,
    losses,
):
    """A training step on the rows of the wanted clusters.

    `positive_rows` (rising) and `positive_samples` are the pairs that are "yes"; the sample of each must be
    among those that want the row's cluster. `gradients` (shares × samples × features, zero) and `losses` take
    one result for each share of the work, so that the sums come out the same whatever thread did what.
    """
    n_features = features.shape[1]
    for share in prange(len(cuts) - 1):
        most_samples, most_rows = 0, 0
        for i in range(cuts[share], cuts[share + 1]):
            most_samples = max(most_samples, bounds[i + 1] - bounds[i])
            most_rows = max(most_rows, starts[wanted[i] + 1] - starts[wanted[i]])
        gradient = np.empty(n_features, np.float32)
        logits = np.empty((most_samples, most_rows), np.float32)
        slopes = np.empty((most_samples, most_rows), np.float32)
        of_row = np.empty(most_samples, np.float32)
        every_row = np.arange(most_rows)
        loss = 0.0
        for i in range(cuts[share], cuts[share + 1]):
            who = samples[bounds[i] : bounds[i + 1]]
            begin, end = starts[wanted[i]], starts[wanted[i] + 1]
            n, n_rows = len(who), end - begin
            cluster = weights[begin:end]
            for j in range(n):
                dots(cluster, features[who[j]], logits[j])
                for r in range(n_rows):
                    logits[j, r] += biases[begin + r]
                loss += entropy_row(logits[j, :n_rows], slopes[j, :n_rows], scale)
            positive = np.searchsorted(positive_rows, begin)
            while positive < len(positive_rows) and positive_rows[positive] < end:
                j, r = np.searchsorted(who, positive_samples[positive]), positive_rows[positive] - begin
                slopes[j, r] -= scale
                loss -= logits[j, r]
                positive += 1
            for j in range(n):
                _add_rows(gradients[share, who[j]], slopes[j], cluster, every_row[:n_rows])
            for r in range(n_rows):
                gradient[:] = 0
                bias_gradient = np.float32(0)
                for j in range(n):
                    of_row[j] = slopes[j, r]
                    bias_gradient += slopes[j, r]
                _add_rows(gradient, of_row, features, who)
                move_row(weights, biases, mean_squares, bias_squares, seen, begin + r, gradient, bias_gradient, rate)
        losses[share] = loss


@njit(cache=True, nogil=True, parallel=True, fastmath=FAST)
def label_step(
    weights,
    biases,
    mean_squares,
    bias_squares,
    seen,
    features,
    wanted,
    bounds,
    samples,
    positive_rows,
    positive_samples,
    cuts,
    rate,
    scale,
    gradients,
    losses,
):
    """`cluster_step` where each wanted row stands alone: what is taken together are its samples, not its neighbours."""
    n_features = features.shape[1]
    for share in prange(len(cuts) - 1):
        most = 0
        for i in range(cuts[share], cuts[share + 1]):
            most = max(most, bounds[i + 1] - bounds[i])
        gradient = np.empty(n_features, np.float32)
        logits, slopes = np.empty(most, np.float32), np.empty(most, np.float32)
        loss = 0.0
        for i in range(cuts[share], cuts[share + 1]):
            row, who = wanted[i], samples[bounds[i] : bounds[i + 1]]
            n = len(who)
            for j in range(n):
                logits[j] = biases[row] + dot(features[who[j]], weights[row])
            loss += entropy_row(logits[:n], slopes[:n], scale)
            positive = np.searchsorted(positive_rows, row)
            while positive < len(positive_rows) and positive_rows[positive] == row:
                j = np.searchsorted(who, positive_samples[positive])
                slopes[j] -= scale
                loss -= logits[j]
                positive += 1
            gradient[:] = 0
            bias_gradient = np.float32(0)
            for j in range(n):
                bias_gradient += slopes[j]
                _add_scaled(gradients[share, who[j]], slopes[j], weights[row])
            _add_rows(gradient, slopes[:n], features, who)
            move_row(weights, biases, mean_squares, bias_squares, seen, row, gradient, bias_gradient, rate)
        losses[share] = loss


@njit(cache=True, nogil=True, fastmath=FAST, forceinline=True)
def _add_scaled(target, factor, row):
    for i in range(len(target)):
        target[i] += factor * row[i]


@njit(cache=True, nogil=True, parallel=True)
def move_rows(weights, biases, mean_squares, bias_squares, seen, gradients, bias_gradients, rate):
    """`move_row` on each row of a block."""
    for row in prange(len(weights)):
        move_row(weights, biases, mean_squares, bias_squares, seen, row, gradients[row], bias_gradients[row], rate)
