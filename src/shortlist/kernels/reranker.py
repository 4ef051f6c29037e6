"""The re-ranker's linear classifiers over words, one per label: learning them by coordinate descent, and scoring."""

from __future__ import annotations

import numpy as np

from shortlist.kernels.classifier import IMPOSSIBLE
from shortlist.kernels.compile import kernel
from shortlist.kernels.random import INCREMENT, mix
from shortlist.kernels.threads import parallel_kernel

FEW = 32  # words
MOST_PASSES = 20
# A label is learnt when no text would move its weights by more than this.
TOLERANCE = np.float32(0.1)


@kernel
def texts_of_labels(candidates, labels_indptr, labels, n_labels):
    """The texts that have each label or have it as a candidate: bounds, texts, and whether the text has the label.

    The texts of a label are in increasing order and distinct, even if a text names it twice; a candidate may be -1.
    """
    starts = np.zeros(n_labels + 1, np.int64)
    texts, right = np.empty(0, np.int32), np.empty(0, np.bool_)
    filled = starts[:-1]
    for is_filling in (False, True):  # the first pass counts
        if is_filling:
            starts = np.append(0, np.cumsum(filled))
            texts, right = np.empty(starts[-1], np.int32), np.empty(starts[-1], np.bool_)
            filled = starts[:-1].copy()
        last_text = np.full(n_labels, -1, np.int64)
        for text in range(len(candidates)):
            own = labels[labels_indptr[text] : labels_indptr[text + 1]]
            for i in range(len(own) + candidates.shape[1]):
                label = own[i] if i < len(own) else candidates[text, i - len(own)]
                if label < 0 or last_text[label] == text:
                    continue
                last_text[label] = text
                if is_filling:
                    texts[filled[label]], right[filled[label]] = text, i < len(own)
                filled[label] += 1
    return starts, texts, right


@kernel(error_model="numpy")
def learn_label(indptr, words, values, texts, right, before, counts, cost, seed, weights):
    """Learn one label: adds its weights to `weights` (zero at first) and returns its bias.

    `before` are the scores that the texts have already, if any: then only what must be added to them is learnt.
    `counts`, if any, are how much each text counts.

    A linear support vector machine with squared hinge loss, solved in the dual by coordinate descent with shrinking,
    as in LIBLINEAR: texts far on the right side are set aside until the others have converged.
    """
    n_texts = len(texts)
    alphas, squares = np.zeros(n_texts, np.float32), np.empty(n_texts, np.float32)
    for i in range(n_texts):
        squares[i] = 1
        for p in range(indptr[texts[i]], indptr[texts[i] + 1]):
            squares[i] += values[p] * values[p]
    common = np.float32(0.5) / cost
    order = np.arange(n_texts)
    state = np.uint64(2 * seed + 1)
    bias, n_active, aside = np.float32(0), n_texts, np.float32(np.inf)
    for _ in range(MOST_PASSES):
        _shuffle(order, n_active, state)
        state += np.uint64(2)
        least, most = np.float32(np.inf), np.float32(-np.inf)
        place = 0
        while place < n_active:
            i = order[place]
            sign = np.float32(1) if right[i] else np.float32(-1)
            begin, end = indptr[texts[i]], indptr[texts[i] + 1]
            score = bias + before[i] if len(before) else bias
            for p in range(begin, end):
                score += weights[words[p]] * values[p]
            diagonal = common / counts[i] if len(counts) else common
            slope = sign * score - 1 + alphas[i] * diagonal
            if alphas[i] == 0 and slope > aside:
                n_active -= 1
                order[place], order[n_active] = order[n_active], order[place]
                continue
            projected = min(slope, np.float32(0)) if alphas[i] == 0 else slope
            least, most = min(least, projected), max(most, projected)
            if projected != 0:
                alpha = max(alphas[i] - slope / (squares[i] + diagonal), np.float32(0))
                change = (alpha - alphas[i]) * sign
                alphas[i] = alpha
                bias += change
                for p in range(begin, end):
                    weights[words[p]] += change * values[p]
            place += 1
        if most - least > TOLERANCE:
            aside = most if most > 0 else np.float32(np.inf)
        elif n_active == n_texts:
            break
        else:
            n_active, aside = n_texts, np.float32(np.inf)
    return bias


@kernel
def _shuffle(order, n, state):
    """Shuffle the first n, depending on `state` only."""
    for i in range(n - 1):
        j = i + np.int64(mix(state) % np.uint64(n - i))
        state += INCREMENT
        order[i], order[j] = order[j], order[i]


def learn_labels(
    indptr, words, values, n_words, starts, texts, right, before, counts, cuts, cost, least, room, found, out,
    weights_out,
):  # fmt: skip
    """Learn the labels `cuts[0]` to `cuts[-1]`, each share between two cuts on its own; returns the biases.

    The words of a label with a weight of at least `least` in absolute value go to `out` and `weights_out` in
    increasing order, from `room[label - cuts[0]]` on; their number goes to `found`.
    """
    biases = np.zeros(cuts[-1] - cuts[0], np.float32)
    _learn_shares(
        indptr, words, values, n_words, starts, texts, right, before, counts, cuts, cost, least, room, found, out,
        weights_out, biases,
    )  # fmt: skip
    return biases


@parallel_kernel(bounds="cuts")
def _learn_shares(
    begin,
    end,
    indptr,
    words,
    values,
    n_words,
    starts,
    texts,
    right,
    before,
    counts,
    cuts,
    cost,
    least,
    room,
    found,
    out,
    weights_out,
    biases,
):
    weights = np.zeros(n_words, np.float32)
    for label in range(cuts[begin], cuts[end]):
        own, at = slice(starts[label], starts[label + 1]), label - cuts[0]
        examples = texts[own], right[own], before[own], counts[own]
        biases[at] = learn_label(indptr, words, values, *examples, cost, label, weights)
        filled = room[at]
        for text in texts[own]:
            for p in range(indptr[text], indptr[text + 1]):
                weight = weights[words[p]]
                weights[words[p]] = 0
                if abs(weight) >= least:
                    out[filled], weights_out[filled] = words[p], weight
                    filled += 1
        kept = slice(room[at], filled)
        order = np.argsort(out[kept])
        out[kept], weights_out[kept] = out[kept][order], weights_out[kept][order]
        found[at] = filled - room[at]


@parallel_kernel(rows="candidates", minimum=16)
def score_candidates(
    begin, end, indptr, words, values, starts, n_pages, label_words, weights, scales, biases, candidates, scores
):
    """The scores of each text's candidates; -inf where a candidate is -1. Words of texts and labels are sorted.

    The words of a label are stored in pages of 65,536 words, as 16-bit positions within their page.
    """
    for text in range(begin, end):
        first_word, last_word = indptr[text], indptr[text + 1]
        touched = 0
        for label in candidates[text]:  # labels lie anywhere: this loop lets the processor fetch many at a time
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
            for p in range(first_word, last_word):
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
                while low < high and label_words[low] < word:  # for a few words this is faster than halving
                    low += 1
                if low < last and label_words[low] == word:
                    score += np.float32(weights[low]) * values[p]
            scores[text, i] = biases[label] + scales[label] * score
