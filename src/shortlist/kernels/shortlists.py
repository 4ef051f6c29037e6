"""Choosing clusters by their scores, and the best labels within the chosen clusters."""

from __future__ import annotations

import math

import numpy as np
from numba import njit, prange

from shortlist.kernels.label_rows import FAST, dot, dots
from shortlist.kernels.top_labels import insert_best

ROWS_AT_ONCE, QUERIES_AT_ONCE = 256, 512
IMPOSSIBLE = -(1 << 60)  # a sum that never is, which the compiler cannot know
DIGIT = 11  # bits; three digits make a float32


@njit(cache=True, nogil=True)
def _kth_largest(keys, k, counts):
    """The k-th largest of unsigned 32-bit keys: digit by digit from the top, counting, without sorting."""
    prefix, n_wanted = np.uint32(0), k
    for shift in (32 - DIGIT, 32 - 2 * DIGIT, 0):
        width = DIGIT if shift else 32 - 2 * DIGIT
        above = shift + width
        counts[:] = 0
        for key in keys:
            if above == 32 or key >> np.uint32(above) == prefix:
                counts[(key >> np.uint32(shift)) & np.uint32((1 << width) - 1)] += 1
        digit = (1 << width) - 1
        while counts[digit] < n_wanted:
            n_wanted -= counts[digit]
            digit -= 1
        prefix = np.uint32((prefix << np.uint32(width)) | np.uint32(digit))
    return prefix


@njit(cache=True, nogil=True)
def top_of(scores, k, chosen):
    """The places of the k largest scores, in rising order; of equals the first. `chosen` takes them."""
    # Bits of floats order as whole numbers do, once those of the negative are turned round.
    bits = scores.view(np.uint32)
    keys = np.empty(len(bits), np.uint32)
    for column in range(len(bits)):
        if bits[column] <= np.uint32(0x80000000):  # and −0 is 0
            keys[column] = bits[column] | np.uint32(0x80000000)
        else:
            keys[column] = ~bits[column]
    least = _kth_largest(keys, k, np.empty(1 << DIGIT, np.int64))
    equals = k
    for key in keys:
        equals -= key > least
    filled = 0
    for column in range(len(keys)):
        if keys[column] > least or (keys[column] == least and equals > 0):
            equals -= keys[column] == least
            chosen[filled] = column
            filled += 1


@njit(cache=True, nogil=True, parallel=True)
def top_columns(scores, k, chosen):
    """For each row, the columns of the k largest scores, in rising order; of equals the first. `chosen` takes them."""
    for row in prange(len(scores)):
        top_of(scores[row], k, chosen[row])


@njit(cache=True, nogil=True)
def add_wanted(chosen, k, indptr, wanted):
    """Behind the first k of each row put what of its `wanted` is not among them yet; how many were among them."""
    found = 0
    for row in range(len(chosen)):
        filled = k
        for i in range(indptr[row], indptr[row + 1]):
            there = False
            for j in range(filled):
                if chosen[row, j] == wanted[i]:
                    there = True
                    found += j < k
                    break
            if not there:
                chosen[row, filled] = wanted[i]
                filled += 1
        chosen[row, filled:] = -1
    return found


@njit(cache=True, nogil=True)
def _log_sigmoid(z):
    return min(z, np.float32(0)) - math.log1p(math.exp(-abs(z)))


@njit(cache=True, nogil=True, parallel=True, fastmath=FAST)
def best_of_clusters(weights, scales, biases, starts, features, clusters, cluster_logits, multiplied, ids, scores):
    """For each sample the best rows of its clusters and their logits; -1 where there are fewer.

    If `multiplied`, what ranks is the product of the row's probability and its cluster's, as a logarithm.
    """
    for sample in prange(len(features)):
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


@njit(cache=True, nogil=True, parallel=True)
def best_of_row(logits, first, filled, ids, scores):
    """Put the columns of each row of `logits`, counted from `first`, into lists that hold `filled` already."""
    for row in prange(len(logits)):
        n = filled
        for column in range(logits.shape[1]):
            score = logits[row, column]
            if n < ids.shape[1] or score > scores[row, -1]:
                n = insert_best(first + column, score, ids[row], scores[row], n)


@njit(cache=True, nogil=True, parallel=True)
def join_shortlists(shortlists, rows, others, indptr, positives, joined):
    """For each of the `rows` its shortlist, the others and the positives as one list without repeats, -1 behind."""
    for i in prange(len(rows)):
        shortlist, own = shortlists[rows[i]], positives[indptr[i] : indptr[i + 1]]
        everything = np.concatenate((shortlist, others[i], own.astype(np.int32)))
        everything.sort()
        filled = 0
        for j in range(len(everything)):
            if everything[j] >= 0 and (j == 0 or everything[j] != everything[j - 1]):
                joined[i, filled] = everything[j]
                filled += 1
        joined[i, filled:] = -1


@njit(cache=True, nogil=True, parallel=True, fastmath=FAST)
def score_rows(weights, scales, biases, features, candidates, logits):
    """The logits of each sample's candidates; −∞ for those that are -1."""
    for sample in prange(len(features)):
        touched = 0
        for row in candidates[sample]:  # rows lie anywhere: now they come from memory many at a time
            touched += np.int64(weights[row, 0]) if row >= 0 else 0
        if touched == IMPOSSIBLE:
            continue
        for i in range(candidates.shape[1]):
            row = candidates[sample, i]
            if row >= 0:
                logits[sample, i] = biases[row] + scales[row] * dot(weights[row], features[sample])
            else:
                logits[sample, i] = -np.inf


@njit(cache=True, nogil=True, parallel=True, fastmath=FAST)
def score_all_rows(weights, scales, biases, features, logits):
    """The logits of all rows for each of a few samples."""
    for block in prange((len(weights) + ROWS_AT_ONCE - 1) // ROWS_AT_ONCE):
        for row in range(block * ROWS_AT_ONCE, min((block + 1) * ROWS_AT_ONCE, len(weights))):
            for sample in range(len(features)):
                logits[sample, row] = biases[row] + scales[row] * dot(weights[row], features[sample])


@njit(cache=True, nogil=True, parallel=True, fastmath=FAST)
def search_cells(queries, cells, cell_scales, starts, values, scales, n_cells, ordered, places, cosines):
    """Of the vectors in the nearest cells of each query, the places of the best and their products; -1 for none.

    If `ordered`, the best first.
    """
    for block in prange((len(queries) + QUERIES_AT_ONCE - 1) // QUERIES_AT_ONCE):
        some = slice(block * QUERIES_AT_ONCE, (block + 1) * QUERIES_AT_ONCE)
        _search_together(
            queries[some], cells, cell_scales, starts, values, scales, n_cells, ordered, places[some], cosines[some]
        )


@njit(cache=True, nogil=True, fastmath=FAST)
def _search_together(queries, cells, cell_scales, starts, values, scales, n_cells, ordered, places, cosines):
    """Queries that look into the same cell do so one after the other, while it is in the cache."""
    n_queries = len(queries)
    nearest = np.empty((n_queries, n_cells), np.int32)
    bounds = np.zeros((n_queries, n_cells + 1), np.int64)  # where the products of each cell stand
    first_visit = np.zeros(len(cells) + 1, np.int64)
    of_cells = np.empty(len(cells), np.float32)
    for query in range(n_queries):
        dots(cells, queries[query], of_cells)
        of_cells *= cell_scales
        top_of(of_cells, n_cells, nearest[query])
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
        if k:
            top_of(products[query, : bounds[query, -1]], k, chosen)
        i = 0
        for j in range(k):  # they rise, and so do the bounds
            while chosen[j] >= bounds[query, i + 1]:
                i += 1
            places[query, j] = starts[nearest[query, i]] + chosen[j] - bounds[query, i]
            cosines[query, j] = products[query, chosen[j]]
        if ordered:
            order = np.argsort(-cosines[query, :k], kind="mergesort")
            places[query, :k], cosines[query, :k] = places[query, :k][order], cosines[query, :k][order]
        places[query, k:], cosines[query, k:] = -1, -np.inf


@njit(cache=True, nogil=True)
def labels_of_centres(found, cosines, owner, has_several, ids, similarities):
    """The labels of the centres found and their largest cosines; the best, if there is no room for all; -1 for none."""
    labels, best = np.empty(found.shape[1], np.int32), np.empty(found.shape[1], np.float32)
    for query in range(len(found)):
        n = 0
        for i in range(found.shape[1]):
            if found[query, i] < 0:
                continue
            label, place = owner[found[query, i]], n
            if has_several[label]:  # only these can have been met before
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
        if k:
            top_of(best[:n], k, chosen)
        ids[query, :k], similarities[query, :k] = labels[chosen], best[chosen]
        ids[query, k:], similarities[query, k:] = -1, 0


@njit(cache=True, nogil=True, parallel=True)
def merge_neighbours(
    found, cosines, owner, texts, text_cosines, indptr, labels, share, n_labels, n_shares, ids, similarities, votes
):
    """One shortlist of labels from the nearest representatives of labels and the nearest texts.

    The texts vote for their labels, with the fourth power of their cosine, as shares of all votes. A label's
    similarity is `share` of its votes and the rest of its cosine; one that came from the texts alone has the least
    cosine that was found.
    """
    for part in prange(n_shares):
        place = np.full(n_labels, -1, np.int32)
        most = found.shape[1] + texts.shape[1] * 8
        for query in range(part, len(found), n_shares):
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
            total = np.float32(0)
            for i in range(texts.shape[1]):
                if texts[query, i] < 0 or text_cosines[query, i] <= 0:
                    continue
                weight = text_cosines[query, i] ** 4
                total += weight
                for at in range(indptr[texts[query, i]], indptr[texts[query, i] + 1]):
                    label = labels[at]
                    if place[label] < 0:
                        if n == most:
                            continue
                        place[label], names[n], cosine[n] = n, label, least
                        n += 1
                    vote[place[label]] += weight
            filled = 0
            of_label = np.empty(n, np.float32)
            for j in range(n):
                place[names[j]] = -1
                vote[j] /= max(total, np.float32(1e-9))
                of_label[j] = share * vote[j] + (1 - share) * cosine[j]
            for j in np.argsort(-of_label, kind="mergesort")[: ids.shape[1]]:
                ids[query, filled], similarities[query, filled], votes[query, filled] = names[j], cosine[j], vote[j]
                filled += 1
            ids[query, filled:] = -1
            similarities[query, filled:] = 0
            votes[query, filled:] = 0


@njit(cache=True, nogil=True)
def best_of_candidates(ids, odds, best, best_odds):
    """The candidates of each text with the largest odds, the largest first; of equals the one that stands first."""
    k = best.shape[1]
    chosen = np.empty(k, np.int32)
    for text in range(len(ids)):
        if k:
            top_of(odds[text], k, chosen)
        order = chosen[np.argsort(-odds[text][chosen], kind="mergesort")]
        best[text], best_odds[text] = ids[text][order], odds[text][order]
