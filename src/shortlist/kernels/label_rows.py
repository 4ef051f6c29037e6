"""A training step on the rows of the labels that a batch needs: scores, loss, gradients and update in one pass.

A row of weights and its gradient are touched once, while they are in cache; there is no tensor of logits and no dense
gradient. The rows of a cluster are contiguous, so they are scored and updated together.

The state of an optimiser is a tuple of arrays. Three are those of row-adam, which divides the gradient of a row, and
that of its bias, by the root of its mean square: the mean squares of rows and of biases, and the number of steps that
saw each row. The mean is over all these steps; after `MEMORY` of them it is an exponential moving average. Four are
those of Adam with both moments for every weight: the means and mean squares of the weights, then the means and the mean
squares of the biases. The caller corrects `rates` for the number of steps.

`rates` are the learning rate, that of the biases (0: they stay), and epsilon.
"""

from __future__ import annotations

import numpy as np

from shortlist.kernels.native import native
from shortlist.kernels.threads import run_ranges

# As in Adam: gradients are averaged over about 10 steps, their squares over about 1,000; epsilon is added to the root.
# The first two are in c/rows.c, too.
MOMENTUM = 10
MEMORY = 1000
EPSILON = np.float32(1e-8)


def samples_by_cluster(clusters, n_clusters):
    """Invert the clusters of each sample (-1: none): the clusters wanted, and the samples that want each of them.

    Samples of the i-th wanted cluster are `samples[bounds[i]:bounds[i + 1]]`, in increasing order.
    """
    filled = np.zeros(n_clusters + 1, np.int64)
    native.count_samples(clusters, filled[1:])
    wanted = np.flatnonzero(filled[1:]).astype(np.int32)
    np.cumsum(filled, out=filled)
    bounds, samples = np.append(filled[wanted], filled[-1]), np.empty(filled[-1], np.int32)
    native.place_samples(clusters, filled, samples)
    return wanted, bounds, samples


def even_shares(wanted, bounds, starts, n_shares):
    """Cut the wanted clusters into contiguous shares of about equal work: the bounds of the shares."""
    rows = starts[wanted + 1] - starts[wanted]
    work = np.zeros(len(wanted) + 1)
    # Reading and writing a row with its moments costs about as much as the arithmetic for four samples.
    np.cumsum(rows * (4 + np.diff(bounds)), out=work[1:])
    cuts = np.searchsorted(work, work[-1] * np.arange(n_shares + 1) / n_shares)
    cuts[0], cuts[-1] = 0, len(wanted)
    return cuts


def entropy(logits, biases, scale, slopes, losses):
    """Add the biases to the logits (samples × labels), then the binary cross-entropies of each sample to its loss.

    Losses, and the slopes times `scale`, are those if all labels are negative; the caller corrects positives.
    """
    run_ranges(native.entropy, len(logits), 32, logits, biases, scale, slopes, losses)


def cluster_step(
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
    least,
    gradients,
    losses,
):
    """A training step on the rows of the wanted clusters, which may be single rows.

    wanted, bounds, samples           from `samples_by_cluster`
    positive_rows, positive_samples   the positive pairs by increasing row; each sample must want its row's cluster
    targets                           the probability that each of them should have; usually 1
    cuts                              shares of the work, from `even_shares`
    scale                             the weight of a text's loss in the gradient
    least                             slopes of the loss that are smaller than this count as 0
    gradients, losses                 the gradient for the features (shares × samples × features, zero at first) and
                                      the loss, one per share: their sums do not depend on which thread did what
    """
    rows = weights, biases, state, features, starts
    pairs = positive_rows, positive_samples, targets
    batch = wanted, bounds, samples, *pairs, cuts, rates, scale, least, gradients, losses
    run_ranges(native.cluster_step, len(losses), 1, *rows, *batch)


def move_rows(weights, biases, state, gradients, bias_gradients, rates):
    """Move each row of a block, and its bias, along its gradient."""
    run_ranges(native.move_rows, len(weights), 512, weights, biases, state, gradients, bias_gradients, rates)


def move_some_rows(weights, biases, state, rows, bounds, which, factors, gradients, rates):
    """Move each of `rows` along its gradient: the sum of factors[j] · gradients[which[j]] within its bounds."""
    terms = rows, bounds, which, factors, gradients, rates
    run_ranges(native.move_some_rows, len(rows), 64, weights, biases, state, *terms)
