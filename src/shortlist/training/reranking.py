"""Learning the re-ranker: for each label a linear classifier that tells its texts from those it is a candidate for."""

from __future__ import annotations

import numpy as np

from shortlist.arrays import Arrays, Ragged, counts_to_indptr
from shortlist.evaluation.calibration import is_relevant
from shortlist.kernels.reranker import learn_labels, texts_of_labels
from shortlist.kernels.threads import n_threads
from shortlist.lazy import sparse
from shortlist.odds import fit_logistic, log_odds
from shortlist.progress import Progress
from shortlist.stages.classifier import best_of
from shortlist.stages.pipeline import Pipeline
from shortlist.stages.reranker import Mixture, Reranker, paged_weights
from shortlist.text import LexicalFeatures
from shortlist.training.build import Build
from shortlist.training.tune import RANKS

# Weights nearer to 0 are dropped: they are most of the weights, and accuracy does not need them.
MIN_WEIGHT = 0.1
# What is learnt is first stored with room for every word that a block of labels sees: at most this many.
WORDS_PER_BLOCK = 30_000_000
# Once they have set the mixture, the re-ranker learns from the held-out texts, too, if they are this share of all.
MIN_HELD_OUT_SHARE = 0.01


def learn_reranker(pipeline: Pipeline, build: Build) -> Reranker:
    """Learn from the mistakes of the pipeline so far. Held-out texts set how much the words count."""
    data, options, n_labels = build.data, build.options, build.data.n_labels
    k, n_searched = min(options.n_reranked, n_labels), pipeline.candidates.max_searched
    candidates = build.hard_negatives
    if candidates is None:
        candidates = _padded(pipeline.first_rank(data.inputs, k, n_searched)[0], k, -1)
    features = LexicalFeatures.fit(data.texts, data.vocabulary, data.word_ids)
    rows = features.transform(data.texts, data.word_ids)
    config = {"n_candidates": candidates.shape[1], "mixture": vars(Mixture())}
    idf = {"idf": features.words_tfidf.idf, "subword_idf": features.ngrams_tfidf.idf}

    def reranker_of(weights: Arrays) -> Reranker:
        return Reranker({**weights, **idf}, config, data.vocabulary, features.ngrams)

    reranker = reranker_of(learn_word_weights(rows, data.labels, n_labels, candidates, options.C))
    if not len(data.held_out):
        return reranker
    ids, probabilities = pipeline.first_rank(data.held_out_inputs, candidates.shape[1], n_searched)
    held_out_rows = features.rows(data.held_out_texts, data.held_out_ids)
    word_scores = reranker.word_scores(held_out_rows, ids)
    hits = is_relevant(ids, data.held_out_labels, n_labels)
    reranker.mixture = fit_mixture(probabilities, word_scores, hits)
    if len(data.held_out) >= MIN_HELD_OUT_SHARE * len(data.texts):
        build.held_out_ranked = best_of(ids, reranker.mixture.log_odds(probabilities, word_scores), RANKS)
        matrix = (held_out_rows.weights, held_out_rows.values, held_out_rows.indptr)
        rows = sparse.vstack([rows, sparse.csr_array(matrix, shape=(len(ids), rows.shape[1]))], format="csr")
        labels = Ragged.concatenate([data.labels, data.held_out_labels])
        all_ids = np.concatenate([candidates, _padded(ids, candidates.shape[1], -1)])
        config["mixture"] = vars(reranker.mixture)
        reranker = reranker_of(learn_word_weights(rows, labels, n_labels, all_ids, options.C))
    return reranker


def fit_mixture(probabilities: np.ndarray, word_scores: np.ndarray, hits: np.ndarray) -> Mixture:
    """The mixture by logistic regression, on candidates of held-out texts; `hits`: whether each is right."""
    present, start = np.isfinite(word_scores), Mixture()
    columns = np.stack([log_odds(probabilities[present]), word_scores[present]], axis=1)
    return Mixture(*fit_logistic(columns, hits[present], np.array([start.first, start.words, start.bias])))


def learn_word_weights(
    features: sparse.csr_array,
    labels: Ragged,
    n_labels: int,
    candidates: np.ndarray,
    C: float = 0.5,
    min_weight: float | None = None,
    title: str = "re-ranker",
) -> Arrays:
    """Learn to tell the labels of each text from its other candidates. The arrays of a re-ranker, without idf.

    features    one row per text, one column per word
    candidates  texts × K label ids, -1 for none; labels of the text among them are no mistakes
    C           inverse regularisation
    min_weight  drop weights that are nearer to 0 (None: than `MIN_WEIGHT`)
    title       of the progress bar

    Each label is learnt on its own, so the result does not depend on the number of threads.
    """
    min_weight = MIN_WEIGHT if min_weight is None else min_weight
    features = sparse.csr_array(features, dtype=np.float32)
    if not features.has_sorted_indices:
        features = features.sorted_indices()
    arrays = (features.indptr.astype(np.int64), features.indices.astype(np.int32), features.data)
    candidates = np.ascontiguousarray(candidates, np.int32)
    starts, texts, hits = texts_of_labels(candidates, labels.indptr, labels.values, n_labels)
    words_before = np.append(0, np.cumsum(np.diff(arrays[0])[texts]))[starts]  # seen by all labels before each
    learnt: list[tuple[np.ndarray, ...]] = []
    with Progress(title, n_labels, "labels") as progress:
        begin = 0
        while begin < n_labels:
            most = words_before[begin] + WORDS_PER_BLOCK
            end = max(int(np.searchsorted(words_before, most, side="right")) - 1, begin + 1)
            cuts = np.searchsorted(words_before, np.linspace(words_before[begin], words_before[end], n_threads() + 1))
            cuts = np.clip(cuts, begin, end)
            cuts[0], cuts[-1] = begin, end
            room = words_before[begin : end + 1] - words_before[begin]
            n_found = np.zeros(end - begin, np.int64)
            words, weights = np.empty(room[-1], np.int32), np.empty(room[-1], np.float32)
            problem = (features.shape[1], starts, texts, hits, cuts, np.float32(C), np.float32(min_weight))
            biases = learn_labels(*arrays, *problem, room, n_found, words, weights)
            position = np.arange(room[-1]) - np.repeat(room[:-1], np.diff(room))
            kept = position < np.repeat(n_found, np.diff(room))
            learnt.append((n_found, words[kept], weights[kept], biases))
            progress.advance(end - begin)
            begin = end
    counts, words, weights, biases = (np.concatenate(parts) for parts in zip(*learnt, strict=True))
    return paged_weights(counts_to_indptr(counts), words, weights, biases, features.shape[1])


def _padded(values: np.ndarray, width: int, fill: float) -> np.ndarray:
    """The columns of `values`, and `fill` behind them."""
    if values.shape[1] == width:
        return values
    padded = np.full((len(values), width), fill, values.dtype)
    padded[:, : values.shape[1]] = values
    return padded
