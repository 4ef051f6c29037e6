"""Learning word weights: for each label a linear classifier, on its texts and those that it is a candidate for."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from shortlist.arrays import Arrays, Ragged, counts_to_indptr
from shortlist.kernels.reranker import learn_labels, texts_of_labels
from shortlist.kernels.threads import SHARES_PER_THREAD, n_threads
from shortlist.labels.centroids import texts_by_label
from shortlist.lazy import sparse
from shortlist.progress import Progress
from shortlist.stages.pages import paged_weights
from shortlist.training.group import Shard

# Weights nearer to 0 are dropped: they are most of the weights, and accuracy does not need them.
MIN_WEIGHT = 0.1
# What is learnt is first stored with room for every word that a block of labels sees: at most this many.
WORDS_PER_BLOCK = 30_000_000


def with_new(weights: Arrays, new: Arrays, is_new: np.ndarray) -> Arrays:
    """The arrays of `paged_weights`, with those of some labels replaced."""
    n_rows = len(weights["starts"]) - 1
    of_both = [Ragged(arrays["starts"], arrays["words"], arrays["weights"]) for arrays in (weights, new)]
    rows = np.arange(n_rows) + n_rows * np.repeat(is_new, n_rows // max(len(is_new), 1))
    pages = Ragged.concatenate(of_both).take(rows)
    assert pages.weights is not None
    biases = np.where(is_new, new["biases"], weights["biases"])
    return {**weights, "starts": pages.indptr, "words": pages.values, "weights": pages.weights, "biases": biases}


def learn_weights_together(
    features: sparse.csr_array, labels: Ragged, n_labels: int, candidates: np.ndarray, C: float, shard: Shard | None
) -> Arrays:
    """`learn_word_weights`; of several workers, each learns its own labels, and all get those of the others."""
    if shard is None:
        return learn_word_weights(features, labels, n_labels, candidates, C)
    is_own = shard.owner == shard.group.rank
    candidates = np.where((candidates >= 0) & is_own[candidates], candidates, -1)
    own = learn_word_weights(features, labels.keep(is_own[labels.values]), n_labels, candidates, C)
    gathered = {name: shard.group.gather(array) for name, array in sorted(own.items())}
    weights = {name: parts[0] for name, parts in gathered.items()}
    for worker in range(1, shard.group.size):
        weights = with_new(weights, {name: parts[worker] for name, parts in gathered.items()}, shard.owner == worker)
    return weights


def no_words(n_labels: int, n_features: int) -> Arrays:
    """The arrays of a re-ranker whose labels have no words."""
    nothing = np.zeros(0, np.int32), np.zeros(0, np.float32), np.zeros(n_labels, np.float32)
    return paged_weights(np.zeros(n_labels + 1, np.int64), *nothing, n_features)


def learn_word_weights(
    features: sparse.csr_array,
    labels: Ragged,
    n_labels: int,
    candidates: np.ndarray,
    C: float = 0.5,
    min_weight: float | None = None,
    title: str = "re-ranker",
    before: np.ndarray | None = None,
) -> Arrays:
    """Learn to tell the labels of each text from its other candidates. The arrays of a re-ranker, without idf.

    features    one row per text, one column per word
    candidates  texts × K label ids, -1 for none; labels of the text among them are no mistakes
    C           inverse regularisation
    min_weight  drop weights that are nearer to 0 (None: than `MIN_WEIGHT`)
    title       of the progress bar
    before      scores that the candidates have already: only what must be added to them is learnt. The labels of each
                text must then be among its candidates, and none may occur twice

    A label with a weight counts as much as that, in comparison with 1.
    Each label is learnt on its own, so the result does not depend on the number of threads.
    """
    min_weight = MIN_WEIGHT if min_weight is None else min_weight
    features = sparse.csr_array(features, dtype=np.float32)
    if not features.has_sorted_indices:
        features = features.sorted_indices()
    arrays = (features.indptr.astype(np.int64), features.indices.astype(np.int32), features.data)
    candidates = np.ascontiguousarray(candidates, np.int32)
    starts, texts, hits = texts_of_labels(candidates, labels.indptr, labels.values, n_labels)
    scores = np.zeros(0, np.float32)
    if before is not None:  # in the order of `texts`
        there = candidates >= 0
        scores = before[there][np.argsort(candidates[there], kind="stable")]
    counts = np.zeros(0, np.float32)
    if labels.weights is not None:  # in the same order: by label, then by text
        counts = np.ones(len(texts), np.float32)
        counts[hits] = texts_by_label(labels, n_labels).sorted_indices().data
    words_before = np.append(0, np.cumsum(np.diff(arrays[0])[texts]))[starts]  # seen by all labels before each
    learnt: list[tuple[np.ndarray, ...]] = []
    with Progress(title, n_labels, "labels") as progress:
        for cuts in label_blocks(words_before):
            begin, end = cuts[0], cuts[-1]
            room = words_before[begin : end + 1] - words_before[begin]
            n_found = np.zeros(end - begin, np.int64)
            words, weights = np.empty(room[-1], np.int32), np.empty(room[-1], np.float32)
            examples, least = (starts, texts, hits, scores, counts, cuts), np.float32(min_weight)
            problem = (features.shape[1], *examples, np.float32(C), least)
            biases = learn_labels(*arrays, *problem, room, n_found, words, weights)
            found = [slice(first, first + n) for first, n in zip(room.tolist(), n_found.tolist(), strict=False)]
            words, weights = (np.concatenate([array[own] for own in found]) for array in (words, weights))
            learnt.append((n_found, words, weights, biases))
            progress.advance(end - begin)
    n_words, words, weights, biases = (np.concatenate(parts) for parts in zip(*learnt, strict=True))
    return paged_weights(counts_to_indptr(n_words), words, weights, biases, features.shape[1])


def label_blocks(words_before: np.ndarray) -> Iterator[np.ndarray]:
    """Blocks of labels with a bounded number of words; of each, the bounds of the shares that threads take.

    words_before  the words that all labels before each label see; last, those of all labels
    """
    begin, n_labels = 0, len(words_before) - 1
    while begin < n_labels:
        most = words_before[begin] + WORDS_PER_BLOCK
        end = max(int(np.searchsorted(words_before, most, side="right")) - 1, begin + 1)
        n_shares = SHARES_PER_THREAD * n_threads()  # frequent labels take longer than their words say
        even = np.linspace(words_before[begin], words_before[end], n_shares + 1)
        cuts = np.clip(np.searchsorted(words_before, even), begin, end)
        cuts[0], cuts[-1] = begin, end
        yield cuts
        begin = end
