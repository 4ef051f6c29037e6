"""A training step on the rows of the labels that a batch needs: scores, loss, gradients and update in one pass.

A row of weights and its gradient are touched once, while they are in cache; there is no tensor of logits and no dense
gradient. The rows of a cluster are contiguous, so they are scored and updated together.
"""

from __future__ import annotations

import math

import numpy as np

from shortlist.kernels.classifier import dots
from shortlist.kernels.compile import FAST, kernel
from shortlist.kernels.threads import parallel_kernel

# As in Adam: gradients are averaged over about 10 steps, their squares over about 1,000; epsilon is added to the root.
MOMENTUM = 10
MEMORY = 1000
EPSILON = np.float32(1e-8)

LOG2_E = np.float32(1 / math.log(2))
SMALLEST = np.float32(-126)
# Coefficients of 2^f for |f| up to 1/2 and of 2·atanh(u) for u up to 1/3, accurate to six digits.
EXP2 = tuple(np.float32(math.log(2) ** k / math.factorial(k)) for k in range(7))
LOG = tuple(np.float32(2 / (2 * k + 1)) for k in range(6))


@kernel
def samples_by_cluster(clusters, n_clusters):
    """Invert the clusters of each sample (-1: none): the clusters wanted, and the samples that want each of them.

    Samples of the i-th wanted cluster are `samples[bounds[i]:bounds[i + 1]]`, in increasing order.
    """
    counts = np.zeros(n_clusters + 1, np.int64)
    for cluster in clusters.flat:
        if cluster >= 0:
            counts[cluster + 1] += 1
    wanted = np.flatnonzero(counts[1:]).astype(np.int32)
    filled = np.cumsum(counts)
    bounds = np.append(filled[wanted], filled[-1])
    samples = np.empty(filled[-1], np.int32)
    for sample in range(len(clusters)):
        for cluster in clusters[sample]:
            if cluster >= 0:
                samples[filled[cluster]] = sample
                filled[cluster] += 1
    return wanted, bounds, samples


@kernel
def even_shares(wanted, bounds, starts, n_shares):
    """Cut the wanted clusters into contiguous shares of about equal work: the bounds of the shares."""
    work = np.empty(len(wanted) + 1, np.float64)
    work[0] = 0.0
    for i in range(len(wanted)):
        rows = starts[wanted[i] + 1] - starts[wanted[i]]
        # Reading and writing a row with its moments costs about as much as the arithmetic for four samples.
        work[i + 1] = work[i] + rows * (4 + bounds[i + 1] - bounds[i])
    cuts = np.empty(n_shares + 1, np.int64)
    for share in range(n_shares + 1):
        cuts[share] = np.searchsorted(work, work[-1] * share / n_shares)
    cuts[0], cuts[n_shares] = 0, len(wanted)
    return cuts


@kernel(fastmath=FAST, forceinline=True)
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


# Inlined for the same reason as `dot`.
@kernel(fastmath=FAST, error_model="numpy", forceinline=True)
def move_row(weights, biases, state, row, gradient, bias_gradient, rates):
    """Update a row and its bias. The length of `state` says how, when this is compiled.

    state  of three arrays: `row_adam`; of four: `adam`
    rates  the learning rate, that of the bias (0: it stays), and epsilon
    """
    if len(state) == 3:
        row_adam(weights, biases, state[0], state[1], state[2], row, gradient, bias_gradient, rates)
    else:
        adam(weights, biases, state[0], state[1], state[2], state[3], row, gradient, bias_gradient, rates)


@kernel(fastmath=FAST, error_model="numpy", forceinline=True)
def row_adam(weights, biases, mean_squares, bias_squares, seen, row, gradient, bias_gradient, rates):
    """Divide the gradient of a row, and that of its bias, by the root of its mean square.

    The mean is over all steps that saw the row; after `MEMORY` steps it is an exponential moving average.
    """
    rate, bias_rate, epsilon = rates
    seen[row] += 1
    share = np.float32(max(1 / MEMORY, 1 / seen[row]))
    square = np.float32(0)
    for i in range(len(gradient)):
        square += gradient[i] * gradient[i]
    mean_squares[row] += share * (square / np.float32(len(gradient)) - mean_squares[row])
    bias_squares[row] += share * (bias_gradient * bias_gradient - bias_squares[row])
    factor = rate / (math.sqrt(mean_squares[row]) + epsilon)
    for i in range(len(gradient)):
        weights[row, i] -= factor * gradient[i]
    biases[row] -= bias_rate * bias_gradient / (math.sqrt(bias_squares[row]) + epsilon)


@kernel(fastmath=FAST, error_model="numpy", forceinline=True)
def adam(weights, biases, means, mean_squares, bias_means, bias_squares, row, gradient, bias_gradient, rates):
    """Adam with both moments for every weight; the caller corrects `rates` for the number of steps."""
    rate, bias_rate, epsilon = rates
    new, new_square = np.float32(1 / MOMENTUM), np.float32(1 / MEMORY)
    for i in range(len(gradient)):
        means[row, i] += new * (gradient[i] - means[row, i])
        mean_squares[row, i] += new_square * (gradient[i] * gradient[i] - mean_squares[row, i])
        weights[row, i] -= rate * means[row, i] / (math.sqrt(mean_squares[row, i]) + epsilon)
    bias_means[row] += new * (bias_gradient - bias_means[row])
    bias_squares[row] += new_square * (bias_gradient * bias_gradient - bias_squares[row])
    biases[row] -= bias_rate * bias_means[row] / (math.sqrt(bias_squares[row]) + epsilon)


@kernel(fastmath=FAST, error_model="numpy", forceinline=True)
def entropy_row(logits, slopes, scale):
    """The sum of binary cross-entropies if all labels are negative, and their slopes; the caller corrects positives.

    `math.exp` and `math.log1p` would be called number by number; this code becomes SIMD instructions. e^-|z| is
    2^n · 2^f, with a polynomial for f and n in the exponent's bits; log(1 + t) is the series of 2·atanh(t / (2 + t)).
    """
    total = np.float32(0)
    for i in range(len(logits)):
        z = logits[i]
        x = abs(z) * -LOG2_E
        x = x if x > SMALLEST else SMALLEST
        whole = np.float32(math.floor(x + np.float32(0.5)))
        f = x - whole
        power = np.int32((np.int32(whole) + np.int32(127)) << np.int32(23)).view(np.float32)
        t = EXP2[0] + f * (EXP2[1] + f * (EXP2[2] + f * (EXP2[3] + f * (EXP2[4] + f * (EXP2[5] + f * EXP2[6])))))
        t *= power
        u = t / (np.float32(2) + t)
        s = u * u
        log = u * (LOG[0] + s * (LOG[1] + s * (LOG[2] + s * (LOG[3] + s * (LOG[4] + s * LOG[5])))))
        total += log + max(z, np.float32(0))
        slopes[i] = scale * (np.float32(1) if z >= 0 else t) / (np.float32(1) + t)
    return total


@parallel_kernel(rows="logits", minimum=32)
def entropy(begin, end, logits, biases, scale, slopes, losses):
    """Add the biases to the logits (samples × labels), then `entropy_row` of each sample."""
    for sample in range(begin, end):
        for i in range(len(biases)):
            logits[sample, i] += biases[i]
        losses[sample] += entropy_row(logits[sample], slopes[sample], scale)


@parallel_kernel(rows="losses", fastmath=FAST)
def cluster_step(
    begin,
    end,
    weights,
    biases,
    state,
    features,
    starts,
    wanted,
    bounds,
    samples,
    positive_rows,
    positive_samples,
    targets,
    cuts,
    rates,
    scale,
    gradients,
    losses,
):
    """A training step on the rows of the wanted clusters, which may be single rows.

    wanted, bounds, samples           from `samples_by_cluster`
    positive_rows, positive_samples   the positive pairs by increasing row; each sample must want its row's cluster
    targets                           the probability that each of them should have; usually 1
    state, rates                      see `move_row`
    cuts                              shares of the work, from `even_shares`
    scale                             the weight of a text's loss in the gradient
    gradients, losses                 the gradient for the features (shares × samples × features, zero at first) and
                                      the loss, one per share: their sums do not depend on which thread did what
    """
    gradient = np.empty(features.shape[1], np.float32)
    for share in range(begin, end):
        most_samples, most_rows, most_logits = 0, 0, 0
        for i in range(cuts[share], cuts[share + 1]):
            n, n_rows = bounds[i + 1] - bounds[i], starts[wanted[i] + 1] - starts[wanted[i]]
            most_samples, most_rows = max(most_samples, n), max(most_rows, n_rows)
            most_logits = max(most_logits, n * n_rows)
        logits, slopes = np.empty(most_logits, np.float32), np.empty(most_logits, np.float32)  # sample by sample
        of_row = np.empty(most_samples, np.float32)
        every_row = np.arange(most_rows)
        loss = 0.0
        for i in range(cuts[share], cuts[share + 1]):
            who = samples[bounds[i] : bounds[i + 1]]
            first, last = starts[wanted[i]], starts[wanted[i] + 1]
            n, n_rows = len(who), last - first
            cluster = weights[first:last]
            for j in range(n):
                own = logits[j * n_rows : (j + 1) * n_rows]
                dots(cluster, features[who[j]], own)
                for r in range(n_rows):
                    own[r] += biases[first + r]
            loss += entropy_row(logits[: n * n_rows], slopes[: n * n_rows], scale)
            positive = np.searchsorted(positive_rows, first)
            while positive < len(positive_rows) and positive_rows[positive] < last:
                at = np.searchsorted(who, positive_samples[positive]) * n_rows + positive_rows[positive] - first
                slopes[at] -= targets[positive] * scale
                loss -= targets[positive] * logits[at]
                positive += 1
            for j in range(n):
                own = slopes[j * n_rows : (j + 1) * n_rows]
                _add_rows(gradients[share, who[j]], own, cluster, every_row[:n_rows])
            for r in range(n_rows):
                gradient[:] = 0
                bias_gradient = np.float32(0)
                for j in range(n):
                    of_row[j] = slopes[j * n_rows + r]
                    bias_gradient += of_row[j]
                _add_rows(gradient, of_row, features, who)
                move_row(weights, biases, state, first + r, gradient, bias_gradient, rates)
        losses[share] = loss


@parallel_kernel(rows="weights", minimum=512)
def move_rows(begin, end, weights, biases, state, gradients, bias_gradients, rates):
    """`move_row` on each row of a block."""
    for row in range(begin, end):
        move_row(weights, biases, state, row, gradients[row], bias_gradients[row], rates)


@parallel_kernel(rows="rows", minimum=64, fastmath=FAST)
def move_some_rows(begin, end, weights, biases, state, rows, bounds, which, factors, gradients, rates):
    """`move_row` on each of `rows`, whose gradient is the sum of factors[j] · gradients[which[j]] within its bounds."""
    gradient = np.empty(weights.shape[1], np.float32)
    for i in range(begin, end):
        gradient[:] = 0
        terms = slice(bounds[i], bounds[i + 1])
        _add_rows(gradient, factors[terms], gradients, which[terms])
        move_row(weights, biases, state, rows[i], gradient, np.float32(0), rates)
