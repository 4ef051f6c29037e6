"""Scoring labels with their rows of weights, in float32 or in 8 bits with one scale per row."""

from __future__ import annotations

from shortlist.kernels.native import native
from shortlist.kernels.threads import run_ranges


def best_of_clusters(weights, scales, biases, starts, features, clusters, cluster_logits, multiplied, ids, scores):
    """The best rows of each sample's clusters and their logits; -1 where there are fewer.

    If `multiplied`, rows are ranked by the log of the product of their probability and their cluster's.
    """
    rows, factors = (weights, scales, biases, starts), (clusters, cluster_logits, multiplied)
    run_ranges(native.best_of_clusters, len(features), 4, *rows, features, *factors, ids, scores)


def score_rows(weights, scales, biases, features, candidates, logits):
    """The logits of each sample's candidates; -inf where a candidate is -1."""
    run_ranges(native.score_rows, len(features), 8, weights, scales, biases, features, candidates, logits)


def score_all_rows(weights, scales, biases, features, logits):
    """The logits of all rows for each of a few samples."""
    run_ranges(native.score_all_rows, len(weights), 2048, weights, scales, biases, features, logits)


def blend_odds(logits, cosines, votes, of_logit, of_cosine, of_votes, bias, least_votes, odds):
    """A weighted sum of logits, cosines and log votes; -inf where the logit is, because there is no candidate."""
    native.blend_odds(logits, cosines, votes, of_logit, of_cosine, of_votes, bias, least_votes, odds)


def calibrated(scores, total, known, weights, curves, places, surest, min_others, probabilities):
    """The mean of several calibrations (see `Calibration`); `total` is the sum of each text's best scores."""
    native.calibrated(scores, total, known, weights, curves, places, surest, min_others, probabilities)
