"""Candidates for texts: from an inverted index, the cells of a vector index, neighbouring texts, and in training."""

from __future__ import annotations

import numpy as np

from shortlist.kernels.classifier import dots
from shortlist.kernels.compile import FAST, kernel, native
from shortlist.kernels.threads import parallel_kernel, run_ranges
from shortlist.kernels.top_k import insert_best, top_k, top_k_sorted

QUERIES_AT_ONCE = 512


@parallel_kernel(rows="ids", minimum=16)
def top_labels(begin, end, text_ptr, words, values, word_ptr, labels, weights, n_labels, ids, scores):
    """The labels with the largest dot products of each sparse text; -1 where fewer share a word with it.

    `word_ptr`, `labels` and `weights` list the labels that have each word. `ids` and `scores` are texts × k.
    """
    sums = np.zeros(n_labels, np.float32)
    touched = np.empty(n_labels, np.int32)
    last_text = np.full(n_labels, -1, np.int64)  # a sum of zero does not tell whether the label was touched
    for text in range(begin, end):
        n_touched = 0
        for i in range(text_ptr[text], text_ptr[text + 1]):
            word, value = words[i], values[i]
            for j in range(word_ptr[word], word_ptr[word + 1]):
                label = labels[j]
                if last_text[label] != text:
                    last_text[label] = text
                    touched[n_touched] = label
                    n_touched += 1
                sums[label] += value * weights[j]
        filled = 0
        for i in range(n_touched):
            label = touched[i]
            filled = insert_best(label, sums[label], ids[text], scores[text], filled)
            sums[label] = 0
        ids[text, filled:] = -1
        scores[text, filled:] = 0


@parallel_kernel(rows="queries", minimum=QUERIES_AT_ONCE // 2)
def search_cells(begin, end, queries, cells, cell_scales, starts, values, scales, n_cells, places, cosines):
    """The best vectors in the nearest cells of each query: their places and dot products; -1 and -inf for none."""
    for first in range(begin, end, QUERIES_AT_ONCE):
        some = slice(first, min(first + QUERIES_AT_ONCE, end))
        _search_together(
            queries[some], cells, cell_scales, starts, values, scales, n_cells, places[some], cosines[some]
        )


def search_codes(queries, *arguments):
    """As `search_cells`, by a first look at short codes (C only: see native/search.c)."""
    run_ranges(native.search_codes, len(queries), QUERIES_AT_ONCE // 2, queries, *arguments)


@kernel(fastmath=FAST)
def _search_together(queries, cells, cell_scales, starts, values, scales, n_cells, places, cosines):
    """Search cell by cell, so that a cell stays in the cache for all queries that visit it."""
    n_queries = len(queries)
    nearest = np.empty((n_queries, n_cells), np.int32)
    bounds = np.zeros((n_queries, n_cells + 1), np.int64)  # of the products with each cell
    first_visit = np.zeros(len(cells) + 1, np.int64)
    of_cells = np.empty(len(cells), np.float32)
    for query in range(n_queries):
        dots(cells, queries[query], of_cells)
        of_cells *= cell_scales
        top_k(of_cells, n_cells, nearest[query])
        for i in range(n_cells):
            cell = nearest[query, i]
            bounds[query, i + 1] = bounds[query, i] + starts[cell + 1] - starts[cell]
            first_visit[cell + 1] += 1
    first_visit = np.cumsum(first_visit)
    visits = np.empty(n_queries * n_cells, np.int64)
    filled = first_visit[:-1].copy()
    for query in range(n_queries):
        for i in range(n_cells):
            visits[filled[nearest[query, i]]] = query * n_cells + i
            filled[nearest[query, i]] += 1
    products = np.empty((n_queries, bounds[:, -1].max()), np.float32)
    for cell in range(len(cells)):
        begin, end = starts[cell], starts[cell + 1]
        for visit in visits[first_visit[cell] : first_visit[cell + 1]]:
            query, i = visit // n_cells, visit % n_cells
            found = products[query, bounds[query, i] : bounds[query, i + 1]]
            dots(values[begin:end], queries[query], found)
            found *= scales[begin:end]
    for query in range(n_queries):
        k = min(bounds[query, -1], places.shape[1])
        chosen = np.empty(k, np.int32)
        top_k(products[query, : bounds[query, -1]], k, chosen)
        i = 0
        for j in range(k):  # both `chosen` and the bounds increase
            while chosen[j] >= bounds[query, i + 1]:
                i += 1
            places[query, j] = starts[nearest[query, i]] + chosen[j] - bounds[query, i]
            cosines[query, j] = products[query, chosen[j]]
        places[query, k:], cosines[query, k:] = -1, -np.inf


@parallel_kernel(rows="ids", minimum=16, fastmath=FAST)
def cosines_of_labels(begin, end, queries, ids, bounds, places, values, scales, cosines):
    """The largest product of each query and the centres of each of its labels; -1 for no label, or no centre.

    The centres of label l are the rows `places[bounds[l]:bounds[l + 1]]` of the values.
    """
    for query in range(begin, end):
        for i in range(ids.shape[1]):
            cosines[query, i] = -1
            label = ids[query, i]
            if label >= 0:
                for place in places[bounds[label] : bounds[label + 1]]:
                    product = np.float32(0)
                    for j in range(queries.shape[1]):
                        product += queries[query, j] * np.float32(values[place, j])
                    cosines[query, i] = max(cosines[query, i], product * scales[place])


@kernel
def labels_of_centres(found, cosines, owner, has_several, ids, similarities):
    """The labels that own the centres found, and their largest cosines; the best if there are too many, -1 for none."""
    labels, best = np.empty(found.shape[1], np.int32), np.empty(found.shape[1], np.float32)
    for query in range(len(found)):
        n = 0
        for i in range(found.shape[1]):
            if found[query, i] < 0:
                continue
            label, place = owner[found[query, i]], n
            if has_several[label]:  # only such a label can have been found before
                for j in range(n):
                    if labels[j] == label:
                        place = j
                        break
            if place == n:
                labels[n], best[n] = label, cosines[query, i]
                n += 1
            else:
                best[place] = max(best[place], cosines[query, i])
        k = min(n, ids.shape[1])
        chosen = np.empty(k, np.int32)
        top_k(best[:n], k, chosen)
        ids[query, :k], similarities[query, :k] = labels[chosen], best[chosen]
        ids[query, k:], similarities[query, k:] = -1, 0


@parallel_kernel(rows="found", minimum=64)
def merge_neighbours(
    begin, end, found, cosines, owner, texts, text_cosines, indptr, labels, share, as_sums, n_labels, ids, similarities,
    votes,
):  # fmt: skip
    """One list of candidates from the nearest centres of labels and the nearest texts.

    Texts vote for their labels with the fourth power of their cosine; votes are fractions of all votes. A label that
    only texts named gets the smallest cosine found. Or, if `as_sums`: texts vote with their cosine; votes are fractions
    of the most voted label's; a label that only texts named has a cosine of 0. Labels are ranked by `share` · votes +
    (1 - `share`) · cosine.
    """
    place = np.full(n_labels, -1, np.int32)
    for query in range(begin, end):
        most = found.shape[1]
        for text in texts[query]:
            most += indptr[text + 1] - indptr[text] if text >= 0 else 0
        names, cosine, vote = np.empty(most, np.int32), np.empty(most, np.float32), np.zeros(most, np.float32)
        n, least = 0, np.float32(1)
        for i in range(found.shape[1]):
            if found[query, i] < 0:
                continue
            label = owner[found[query, i]]
            least = min(least, cosines[query, i])
            if place[label] < 0:
                place[label], names[n], cosine[n] = n, label, cosines[query, i]
                n += 1
        if as_sums:
            least = np.float32(0)
        total = np.float32(0)
        for i in range(texts.shape[1]):
            if texts[query, i] < 0 or text_cosines[query, i] <= 0:
                continue
            weight = text_cosines[query, i] if as_sums else text_cosines[query, i] ** 4
            total += weight
            for at in range(indptr[texts[query, i]], indptr[texts[query, i] + 1]):
                label = labels[at]
                if place[label] < 0:
                    place[label], names[n], cosine[n] = n, label, least
                    n += 1
                vote[place[label]] += weight
        if as_sums and n > 0:
            total = vote[:n].max()
        merged = np.empty(n, np.float32)
        for j in range(n):
            place[names[j]] = -1
            vote[j] /= max(total, np.float32(1e-9))
            merged[j] = share * vote[j] + (1 - share) * cosine[j]
        k = min(n, ids.shape[1])
        best = top_k_sorted(merged, k)
        ids[query, :k], similarities[query, :k], votes[query, :k] = names[best], cosine[best], vote[best]
        ids[query, k:], similarities[query, k:], votes[query, k:] = -1, 0, 0


@kernel
def add_wanted(chosen, k, indptr, wanted):
    """Append to the first k of each row those of its `wanted` that are missing; returns how many were not missing."""
    n_found = 0
    for row in range(len(chosen)):
        filled = k
        for i in range(indptr[row], indptr[row + 1]):
            is_there = False
            for j in range(filled):
                if chosen[row, j] == wanted[i]:
                    is_there = True
                    n_found += j < k
                    break
            if not is_there:
                chosen[row, filled] = wanted[i]
                filled += 1
        chosen[row, filled:] = -1
    return n_found


@parallel_kernel(rows="rows", minimum=16)
def join_shortlists(begin, end, shortlists, rows, others, indptr, positives, joined):
    """The union of each row's shortlist, other labels and positives, sorted; -1 fills the rest."""
    for i in range(begin, end):
        shortlist, own = shortlists[rows[i]], positives[indptr[i] : indptr[i + 1]]
        everything = np.concatenate((shortlist, others[i], own.astype(np.int32)))
        everything.sort()
        filled = 0
        for j in range(len(everything)):
            if everything[j] >= 0 and (j == 0 or everything[j] != everything[j - 1]):
                joined[i, filled] = everything[j]
                filled += 1
        joined[i, filled:] = -1
