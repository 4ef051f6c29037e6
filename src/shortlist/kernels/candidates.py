"""Candidates for texts: from an inverted index, the cells of a vector index, neighbouring texts, and in training."""

from __future__ import annotations

import numpy as np

from shortlist.kernels.native import native
from shortlist.kernels.threads import run_ranges

QUERIES_AT_ONCE = 512


def top_labels(text_ptr, words, values, word_ptr, labels, weights, n_labels, ids, scores):
    """The labels with the largest dot products of each sparse text; -1 where fewer share a word with it.

    `word_ptr`, `labels` and `weights` list the labels that have each word. `ids` and `scores` are texts × k.
    """
    index = word_ptr, labels, weights
    run_ranges(native.top_labels, len(ids), 16, text_ptr, words, values, *index, n_labels, ids, scores)


def search_cells(queries, cells, cell_scales, starts, values, scales, n_cells, places, cosines):
    """The best vectors in the nearest cells of each query: their places and dot products; -1 and -inf for none.

    `cells` and `values` are float32 or int8. The vectors found are in the order of their places.
    """
    rows = cells, cell_scales, starts, values, scales
    run_ranges(native.search_cells, len(queries), QUERIES_AT_ONCE // 2, queries, *rows, n_cells, places, cosines)


def search_codes(queries, *arguments):
    """As `search_cells`, by a first look at short codes: see c/codes.c."""
    run_ranges(native.search_codes, len(queries), QUERIES_AT_ONCE // 2, queries, *arguments)


def cosines_of_labels(queries, ids, bounds, places, values, scales, cosines):
    """The largest product of each query and the centres of each of its labels; -1 for no label, or no centre.

    The centres of label l are the rows `places[bounds[l]:bounds[l + 1]]` of the values, which are float32 or int8.
    """
    run_ranges(native.cosines_of_labels, len(ids), 16, queries, ids, bounds, places, values, scales, cosines)


def labels_of_centres(found, cosines, owner, has_several, ids, similarities):
    """The labels that own the centres found, and their largest cosines; the best if there are too many, -1 for none."""
    native.labels_of_centres(found, cosines, owner, has_several, ids, similarities)


def merge_neighbours(
    found, cosines, owner, texts, text_cosines, indptr, labels, share, as_sums, n_labels, ids, similarities, votes
):
    """One list of candidates from the nearest centres of labels and the nearest texts.

    Texts vote for their labels with the fourth power of their cosine; votes are fractions of all votes. A label that
    only texts named gets the smallest cosine found. Or, if `as_sums`: texts vote with their cosine; votes are fractions
    of the most voted label's; a label that only texts named has a cosine of 0. Labels are ranked by `share` · votes +
    (1 - `share`) · cosine.
    """
    neighbours = found, cosines, owner, texts, text_cosines, indptr, labels
    results = ids, similarities, votes
    run_ranges(native.merge_neighbours, len(found), 64, *neighbours, share, as_sums, n_labels, *results)


def add_wanted(chosen, k, indptr, wanted):
    """Append to the first k of each row those of its `wanted` that are missing; returns how many were not missing.

    -1 fills the rest of each row.
    """
    return native.add_wanted(chosen, k, indptr, wanted.astype(np.int32, copy=False))


def join_shortlists(shortlists, rows, others, indptr, positives, joined):
    """The union of each row's shortlist, other labels and positives, sorted; -1 fills the rest."""
    positives = positives.astype(np.int32, copy=False)
    run_ranges(native.join_shortlists, len(rows), 16, shortlists, rows, others, indptr, positives, joined)
