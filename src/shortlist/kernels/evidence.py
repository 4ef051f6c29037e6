"""What the re-ranker knows about a candidate beside its scores: its name, its frequency, texts with the same words."""

from __future__ import annotations

import math

import numpy as np

from shortlist.kernels.compile import kernel
from shortlist.kernels.random import mix
from shortlist.kernels.strings import hash_bytes
from shortlist.kernels.threads import parallel_kernel
from shortlist.kernels.top_k import insert_best

# Words that more names have say too little to be worth the time.
MAX_NAMES_PER_WORD = 1000
# Log-odds of labels of a training text with the same words, at least (88 %), and of all other labels then, at most.
KNOWN_ABOVE, OTHERS_BELOW = 2.0, 1.9
NAME_SCALE = np.float32(1 / 255)


@kernel
def hash_bags(words, word_ends, word_counts, hashes):
    """A hash of the words of each text, whatever their order; 0 for a text without words."""
    word, start = 0, 0
    for text in range(len(word_counts)):
        bag = np.uint64(0)
        for _ in range(word_counts[text]):
            bag += mix(hash_bytes(words, start, word_ends[word]))
            start = word_ends[word]
            word += 1
        hashes[text] = bag


@kernel(inline="always")
def _slot(keys, label):
    """Where the label is in a table of open addressing, or where it would be."""
    mask = len(keys) - 1
    slot = np.int64(mix(np.uint64(label)) & np.uint64(mask))
    while keys[slot] != -1 and keys[slot] != label:
        slot = (slot + 1) & mask
    return slot


@parallel_kernel(rows="ids", minimum=16)
def gather_evidence(
    begin, end, indptr, words, values, name_ptr, name_labels, name_weights, known_ptr, known_labels, n_given,
    ids, names, known,
):  # fmt: skip
    """Find further candidates by name, and say what is known about all of them.

    `ids` is texts × K: `n_given` candidates, and room for further ones: labels of texts with the same words first, then
    those with the most similar names. `names` gets the similarity of each candidate's name and the text, `known`
    whether the candidate is in the text's list of known labels.
    """
    room = ids.shape[1] - n_given
    best = np.empty(room, np.float32)
    for text in range(begin, end):
        size = known_ptr[text + 1] - known_ptr[text] + ids.shape[1]
        for p in range(indptr[text], indptr[text + 1]):
            n_names = name_ptr[words[p] + 1] - name_ptr[words[p]]
            if n_names <= MAX_NAMES_PER_WORD:
                size += n_names
        n_slots = 64
        while n_slots < 2 * size:
            n_slots *= 2
        keys, sums = np.full(n_slots, -1, np.int32), np.zeros(n_slots, np.float32)
        is_known, is_given = np.zeros(n_slots, np.bool_), np.zeros(n_slots, np.bool_)
        for p in range(indptr[text], indptr[text + 1]):
            first, last = name_ptr[words[p]], name_ptr[words[p] + 1]
            if last - first > MAX_NAMES_PER_WORD:
                continue
            for i in range(first, last):
                slot = _slot(keys, name_labels[i])
                keys[slot] = name_labels[i]
                sums[slot] += values[p] * np.float32(name_weights[i]) * NAME_SCALE
        for i in range(known_ptr[text], known_ptr[text + 1]):
            slot = _slot(keys, known_labels[i])
            keys[slot], is_known[slot] = known_labels[i], True
        for i in range(n_given):
            if ids[text, i] >= 0:
                slot = _slot(keys, ids[text, i])
                is_given[slot] = keys[slot] >= 0
        n_new = 0
        if room > 0:
            for slot in range(n_slots):
                if keys[slot] >= 0 and not is_given[slot]:
                    score = sums[slot] + (2 if is_known[slot] else 0)  # a cosine is at most 1
                    n_new = insert_best(keys[slot], score, ids[text, n_given:], best, n_new)
        ids[text, n_given + n_new :] = -1
        for i in range(ids.shape[1]):
            names[text, i], known[text, i] = 0, False
            if ids[text, i] >= 0:
                slot = _slot(keys, ids[text, i])
                names[text, i], known[text, i] = sums[slot], is_known[slot]


@kernel(inline="always")
def _softplus(x):
    """log(1 + e^x): x where it is large, and never below 0."""
    return max(x, 0) + math.log1p(math.exp(-abs(x)))


@kernel
def evidence_odds(ids, probabilities, word_scores, names, known, is_known, frequencies, weights, surest, odds):
    """The weighted sum of all evidence for each candidate (see `Mixture`); −∞ where there is none.

    Labels of a text with the same words always come first: they stay above a bound, and all others below it. Far from
    the bound nothing changes, so that scores remain probabilities.
    """
    first, words, name, same_name, frequency, first_rare, words_rare, own, other, bias = weights
    for text in range(len(ids)):
        for i in range(ids.shape[1]):
            if ids[text, i] < 0:
                odds[text, i] = -np.inf
                continue
            common = frequencies[ids[text, i]]
            probability = min(max(probabilities[text, i], surest), 1 - surest)
            sum_ = (first + first_rare * common) * math.log(probability / (1 - probability)) + bias
            sum_ += (words + words_rare * common) * word_scores[text, i] + frequency * common
            sum_ += name * names[text, i] + same_name * names[text, i] ** 4
            if is_known[text] and known[text, i]:
                sum_ = KNOWN_ABOVE + _softplus(sum_ + own - KNOWN_ABOVE)
            elif is_known[text]:
                sum_ = OTHERS_BELOW - _softplus(OTHERS_BELOW - sum_ - other)
            odds[text, i] = sum_
