"""One pass over the label rows that anybody in a batch wants: scores, loss, gradients and the update, row by row.

A row of weights and its gradient are touched once, while they are in cache; no matrix of logits and no dense
gradient ever exists. The rows of a cluster lie side by side, so the samples that want the
cluster are gathered once and serve all its rows.
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


@njit(cache=True, nogil=True, fastmath=FAST)
def dot(a, b):
    """The sum of products."""
    total = np.float32(0)
    for i in range(len(a)):
        total += a[i] * b[i]
    return total


@njit(cache=True, nogil=True, fastmath=FAST)
def _add_scaled(target, factor, source):
    for i in range(len(target)):
        target[i] += factor * source[i]


@njit(cache=True, nogil=True, fastmath=FAST)
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


@njit(cache=True, nogil=True)
def _loss_and_slopes(logits, slopes, scale):
    """Binary cross-entropy against "no" for all, and its slopes; the caller puts the "yes" right."""
    loss = 0.0
    for j in range(len(logits)):
        z = logits[j]
        tail = math.exp(-abs(z))
        loss += max(z, np.float32(0)) + math.log1p(tail)
        share = 1 / (1 + tail) if z >= 0 else tail / (1 + tail)
        slopes[j] = scale * share
    return loss


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
        gradient = np.empty(n_features, np.float32)
        most = 0
        for i in range(cuts[share], cuts[share + 1]):
            most = max(most, bounds[i + 1] - bounds[i])
        gathered = np.empty((most, n_features), np.float32)
        returned = np.empty((most, n_features), np.float32)
        logits = np.empty(most, np.float32)
        slopes = np.empty(most, np.float32)
        loss = 0.0
        for i in range(cuts[share], cuts[share + 1]):
            who = samples[bounds[i] : bounds[i + 1]]
            n = len(who)
            for j in range(n):
                gathered[j] = features[who[j]]
                returned[j] = 0
            begin, end = starts[wanted[i]], starts[wanted[i] + 1]
            positive = np.searchsorted(positive_rows, begin)
            for row in range(begin, end):
                for j in range(n):
                    logits[j] = biases[row] + dot(weights[row], gathered[j])
                loss += _loss_and_slopes(logits[:n], slopes[:n], scale)
                while positive < len(positive_rows) and positive_rows[positive] == row:
                    j = np.searchsorted(who, positive_samples[positive])
                    slopes[j] -= scale
                    loss -= logits[j]
                    positive += 1
                gradient[:] = 0
                bias_gradient = np.float32(0)
                for j in range(n):
                    _add_scaled(gradient, slopes[j], gathered[j])
                    _add_scaled(returned[j], slopes[j], weights[row])
                    bias_gradient += slopes[j]
                move_row(weights, biases, mean_squares, bias_squares, seen, row, gradient, bias_gradient, rate)
            for j in range(n):
                _add_scaled(gradients[share, who[j]], np.float32(1), returned[j])
        losses[share] = loss


@njit(cache=True, nogil=True, parallel=True)
def move_rows(weights, biases, mean_squares, bias_squares, seen, gradients, bias_gradients, rate):
    """`move_row` on each row of a block."""
    for row in prange(len(weights)):
        move_row(weights, biases, mean_squares, bias_squares, seen, row, gradients[row], bias_gradients[row], rate)
