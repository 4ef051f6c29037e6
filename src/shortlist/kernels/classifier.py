"""Scoring labels with their rows of weights, in float32 or in 8 bits with one scale per row."""

from __future__ import annotations

import math

import numpy as np

from shortlist.kernels.compile import FAST, kernel
from shortlist.kernels.threads import parallel_kernel
from shortlist.kernels.top_k import insert_best

IMPOSSIBLE = -(1 << 60)  # a sum that never occurs, which the compiler cannot know


# Always inlined: numba may otherwise keep two copies that round differently, and which one runs would be chance.
@kernel(fastmath=FAST, forceinline=True)
def dot(a, b):
    """The dot product; `a` may be in 8 bits."""
    total = np.float32(0)
    for i in range(len(a)):
        total += np.float32(a[i]) * b[i]
    return total


@kernel(fastmath=FAST, forceinline=True)
def dots(rows, vector, out):
    """The dot product of each row with the vector; four rows at a time, so that the vector is read once for four."""
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


@kernel
def _log_sigmoid(z):
    return min(z, np.float32(0)) - math.log1p(math.exp(-abs(z)))


@parallel_kernel(rows="features", minimum=4, fastmath=FAST)
def best_of_clusters(
    begin, end, weights, scales, biases, starts, features, clusters, cluster_logits, multiplied, ids, scores
):
    """The best rows of each sample's clusters and their logits; -1 where there are fewer.

    If `multiplied`, rows are ranked by the log of the product of their probability and their cluster's.
    """
    for sample in range(begin, end):
        filled = 0
        for i in range(clusters.shape[1]):
            cluster = clusters[sample, i]
            if cluster < 0:
                continue
            for row in range(starts[cluster], starts[cluster + 1]):
                score = biases[row] + scales[row] * dot(weights[row], features[sample])
                if multiplied:
                    score = np.float32(_log_sigmoid(score) + _log_sigmoid(cluster_logits[sample, cluster]))
                filled = insert_best(row, score, ids[sample], scores[sample], filled)
        ids[sample, filled:] = -1
        scores[sample, filled:] = -np.inf


@parallel_kernel(rows="features", minimum=8, fastmath=FAST)
def score_rows(begin, end, weights, scales, biases, features, candidates, logits):
    """The logits of each sample's candidates; -inf where a candidate is -1."""
    for sample in range(begin, end):
        touched = 0
        for row in candidates[sample]:  # the rows lie anywhere: this loop lets the processor fetch many at a time
            touched += np.int64(weights[row, 0]) if row >= 0 else 0
        if touched == IMPOSSIBLE:
            continue
        for i in range(candidates.shape[1]):
            row = candidates[sample, i]
            if row >= 0:
                logits[sample, i] = biases[row] + scales[row] * dot(weights[row], features[sample])
            else:
                logits[sample, i] = -np.inf


@parallel_kernel(rows="weights", minimum=2048, fastmath=FAST)
def score_all_rows(begin, end, weights, scales, biases, features, logits):
    """The logits of all rows for each of a few samples."""
    for row in range(begin, end):
        for sample in range(len(features)):
            logits[sample, row] = biases[row] + scales[row] * dot(weights[row], features[sample])


@kernel
def blend_odds(logits, cosines, votes, of_logit, of_cosine, of_votes, bias, least_votes, odds):
    """A weighted sum of logits, cosines and log votes; -inf where the logit is, because there is no candidate."""
    for i in range(len(logits)):
        if np.isfinite(logits[i]):  # a weight may be zero or negative, which would change the sign of -inf
            vote = math.log(max(votes[i], least_votes))
            odds[i] = of_logit * logits[i] + of_cosine * cosines[i] + of_votes * vote + bias
        else:
            odds[i] = -np.inf


@kernel
def calibrated(scores, total, known, weights, curves, places, surest, min_others, probabilities):
    """The mean of several calibrations (see `Calibration`); `total` is the sum of each text's best scores."""
    last = len(places) - 1
    for text in range(len(scores)):
        for i in range(scores.shape[1]):
            score = min(max(scores[text, i], surest), 1 - surest)
            odds = math.log(score / (1 - score))
            others = math.log(max(total[text] - min(max(scores[text, i], 0), 1), min_others))
            sum_ = 0.0
            for j in range(len(weights)):
                z = weights[j, 0] * odds + weights[j, 1] * others + weights[j, 2] * (known[text] - 1) + weights[j, 3]
                guess = 1 / (1 + math.exp(-min(max(z, -30.0), 30.0)))
                if guess <= places[0]:
                    sum_ += curves[j, 0]
                elif guess >= places[last]:
                    sum_ += curves[j, last]
                else:
                    after = np.searchsorted(places, guess)
                    share = (guess - places[after - 1]) / (places[after] - places[after - 1])
                    sum_ += curves[j, after - 1] + share * (curves[j, after] - curves[j, after - 1])
            probabilities[text, i] = sum_ / len(weights)
