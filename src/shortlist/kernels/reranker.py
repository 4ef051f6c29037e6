"""The re-ranker's linear classifiers over words, one per label: learning them by coordinate descent, and scoring."""

from __future__ import annotations

import numpy as np

from shortlist.kernels.native import native
from shortlist.kernels.threads import run_ranges


def texts_of_labels(candidates, labels_indptr, labels, n_labels):
    """The texts that have each label or have it as a candidate: bounds, texts, and whether the text has the label.

    The texts of a label are in increasing order and distinct, even if a text names it twice; a candidate may be -1.
    """
    counts, texts, right = np.zeros(n_labels, np.int64), np.empty(0, np.int32), np.empty(0, np.bool_)
    native.texts_of_labels(candidates, labels_indptr, labels, counts, texts, right)  # without room: counts only
    starts = np.append(0, np.cumsum(counts))
    texts, right = np.empty(starts[-1], np.int32), np.empty(starts[-1], np.bool_)
    native.texts_of_labels(candidates, labels_indptr, labels, starts[:-1].copy(), texts, right)
    return starts, texts, right


def learn_labels(
    indptr, words, values, n_words, starts, texts, right, before, counts, cuts, cost, least, room, found, out,
    weights_out,
):  # fmt: skip
    """Learn the labels `cuts[0]` to `cuts[-1]`, each share between two cuts on its own; returns the biases.

    A label is a linear support vector machine with squared hinge loss, solved in the dual by coordinate descent with
    shrinking, as in LIBLINEAR: texts far on the right side are set aside until the others have converged. `before` are
    the scores that the texts of labels have already, if any: then only what must be added to them is learnt. `counts`,
    if any, are how much each text counts.

    The words of a label with a weight of at least `least` in absolute value go to `out` and `weights_out` in
    increasing order, from `room[label - cuts[0]]` on; their number goes to `found`.
    """
    biases = np.zeros(cuts[-1] - cuts[0], np.float32)
    problem = starts, texts, right, before, counts, cuts, cost, least
    results = room, found, out, weights_out, biases
    run_ranges(native.learn_labels, len(cuts) - 1, 1, indptr, words, values, n_words, *problem, *results)
    return biases


def score_candidates(indptr, words, values, starts, n_pages, label_words, weights, scales, biases, candidates, scores):
    """The scores of each text's candidates; -inf where a candidate is -1. Words of texts and labels are sorted.

    The words of a label are stored in pages of 65,536 words, as 16-bit positions within their page. Their weights are
    float32 or int8.
    """
    labels = starts, n_pages, label_words, weights, scales, biases
    run_ranges(native.score_candidates, len(candidates), 16, indptr, words, values, *labels, candidates, scores)


def score_parts(indptr, parts, values, starts, n_pages, label_parts, weights, candidates, scores):
    """The same for parts of names, whose weights are in 127ths; 0 where a candidate is -1."""
    labels = starts, n_pages, label_parts, weights
    run_ranges(native.score_parts, len(candidates), 16, indptr, parts, values, *labels, candidates, scores)
