"""Linear classifiers over words, one a label: learning them by coordinate descent, and scoring with them."""

from __future__ import annotations

import numpy as np
from numba import njit, prange

FEW = 32  # words
IMPOSSIBLE = -(1 << 60)  # a sum that never is, which the compiler cannot know
MOST_PASSES = 20
# A label is learnt well enough when no text would move its weights by more than this.
TOLERANCE = np.float32(0.1)


@njit(cache=True, nogil=True)
def texts_of_labels(candidates, labels_indptr, labels, n_labels):
    """For each label the texts it is right for or a candidate of: where they start, the texts, and whether it is right.

    Texts stand in rising order, each once, however often a label is named for it; a candidate may be -1 for none.
    """
    starts = np.zeros(n_labels + 1, np.int64)
    latest = np.full(n_labels, -1, np.int64)  # the text each label was seen with last
    for text in range(len(candidates)):
        for label in labels[labels_indptr[text] : labels_indptr[text + 1]]:
            if latest[label] != text:
                latest[label] = text
                starts[label + 1] += 1
        for label in candidates[text]:
            if label >= 0 and latest[label] != text:
                latest[label] = text
                starts[label + 1] += 1
    for label in range(n_labels):
        starts[label + 1] += starts[label]
    texts, right = np.empty(starts[-1], np.int32), np.empty(starts[-1], np.bool_)
    filled = starts[:-1].copy()
    latest[:] = -1
    for text in range(len(candidates)):
        for label in labels[labels_indptr[text] : labels_indptr[text + 1]]:
            if latest[label] != text:
                latest[label] = text
                texts[filled[label]], right[filled[label]] = text, True
                filled[label] += 1
        for label in candidates[text]:
            if label >= 0 and latest[label] != text:
                latest[label] = text
                texts[filled[label]], right[filled[label]] = text, False
                filled[label] += 1
    return starts, texts, right


@njit(cache=True, nogil=True, error_model="numpy")
def learn_label(indptr, words, values, texts, right, cost, seed, weights):
    """The weights of one label, left in `weights` (zero at first), and its bias, which is given back.

    A linear support vector machine with squared hinge loss, solved in the dual: each text in turn gets the share in
    the weights that is best while the others stay. Texts that are far on the right side are put aside until the rest
    is learnt, as they rarely come back.
    """
    n_texts = len(texts)
    shares, lengths = np.zeros(n_texts, np.float32), np.empty(n_texts, np.float32)
    for i in range(n_texts):
        lengths[i] = 1
        for p in range(indptr[texts[i]], indptr[texts[i] + 1]):
            lengths[i] += values[p] * values[p]
    own = np.float32(0.5) / cost
    order = np.arange(n_texts)
    state = np.uint64(2 * seed + 1)
    bias, n_left, aside = np.float32(0), n_texts, np.float32(np.inf)
    for _ in range(MOST_PASSES):
        _shuffle(order, n_left, state)
        state += np.uint64(2)
        least, most = np.float32(np.inf), np.float32(-np.inf)
        place = 0
        while place < n_left:
            i = order[place]
            sign = np.float32(1) if right[i] else np.float32(-1)
            begin, end = indptr[texts[i]], indptr[texts[i] + 1]
            score = bias
            for p in range(begin, end):
                score += weights[words[p]] * values[p]
            slope = sign * score - 1 + shares[i] * own
            if shares[i] == 0 and slope > aside:
                n_left -= 1
                order[place], order[n_left] = order[n_left], order[place]
                continue
            downhill = min(slope, np.float32(0)) if shares[i] == 0 else slope
            least, most = min(least, downhill), max(most, downhill)
            if downhill != 0:
                share = max(shares[i] - slope / (lengths[i] + own), np.float32(0))
                change = (share - shares[i]) * sign
                shares[i] = share
                bias += change
                for p in range(begin, end):
                    weights[words[p]] += change * values[p]
            place += 1
        if most - least > TOLERANCE:
            aside = most if most > 0 else np.float32(np.inf)
        elif n_left == n_texts:
            break
        else:
            n_left, aside = n_texts, np.float32(np.inf)
    return bias


@njit(cache=True, nogil=True)
def _shuffle(order, n, state):
    """Put the first n in a random order that depends on `state` alone."""
    for i in range(n - 1):
        # splitmix64: every number of a row of steps is as good as random.
        state += np.uint64(0x9E3779B97F4A7C15)
        z = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        j = i + np.int64((z ^ (z >> np.uint64(31))) % np.uint64(n - i))
        order[i], order[j] = order[j], order[i]


@njit(cache=True, nogil=True, parallel=True)
def learn_labels(
    indptr, words, values, n_words, starts, texts, right, cuts, cost, least, room, found, out, weights_out
):
    """Learn the labels `cuts[0]` to `cuts[-1]`, one share of them after each cut on its own.

    The words of label l with a weight of at least `least`, in rising order, go to `out` and `weights_out` from
    `room[l]` on, counted from the first of these labels, and their number to `found`. Gives the biases.
    """
    first = cuts[0]
    biases = np.zeros(cuts[-1] - first, np.float32)
    for share in prange(len(cuts) - 1):
        weights = np.zeros(n_words, np.float32)
        for label in range(cuts[share], cuts[share + 1]):
            begin, end = starts[label], starts[label + 1]
            biases[label - first] = learn_label(
                indptr, words, values, texts[begin:end], right[begin:end], cost, label, weights
            )
            filled = room[label - first]
            for text in texts[begin:end]:
                for p in range(indptr[text], indptr[text + 1]):
                    weight = weights[words[p]]
                    weights[words[p]] = 0
                    if abs(weight) >= least:
                        out[filled], weights_out[filled] = words[p], weight
                        filled += 1
            kept = slice(room[label - first], filled)
            order = np.argsort(out[kept])
            out[kept], weights_out[kept] = out[kept][order], weights_out[kept][order]
            found[label - first] = filled - room[label - first]
    return biases


@njit(cache=True, nogil=True, parallel=True)
def score_candidates(indptr, words, values, starts, n_pages, label_words, weights, scales, biases, candidates, scores):
    """Scores of each text's candidates (-1: none, scored −∞); words of texts and of labels stand in rising order.

    The words of a label stand page by page, 65,536 numbers a page, by their place on it.
    """
    for text in prange(len(candidates)):
        begin, end = indptr[text], indptr[text + 1]
        touched = 0
        for label in candidates[text]:  # they lie anywhere: now they come from memory many at a time
            first = starts[label * n_pages] if label >= 0 else len(weights)
            if first < len(weights):
                touched += np.int64(label_words[first]) + np.int64(weights[first])
        if touched == IMPOSSIBLE:
            continue
        for i in range(candidates.shape[1]):
            label = candidates[text, i]
            if label < 0:
                scores[text, i] = -np.inf
                continue
            score = np.float32(0)
            page, low, last = -1, 0, 0
            for p in range(begin, end):
                if words[p] >> 16 != page:
                    page = words[p] >> 16
                    low, last = starts[label * n_pages + page], starts[label * n_pages + page + 1]
                word, high = words[p] & 0xFFFF, last
                while high - low > FEW:
                    middle = (low + high) >> 1
                    if label_words[middle] < word:
                        low = middle + 1
                    else:
                        high = middle
                while low < high and label_words[low] < word:  # a few in a row are quicker than halving
                    low += 1
                if low < last and label_words[low] == word:
                    score += np.float32(weights[low]) * values[p]
            scores[text, i] = biases[label] + scales[label] * score
