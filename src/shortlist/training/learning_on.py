"""A trained pipeline learns on: from new texts, some labels get other centres, rows and words. The others stay.

The encoder stays as it is, so a label can learn on its own. Each stage starts from what it has: centres are running
means, rows take further steps, and the re-ranker learns what must be added to the scores that its words give.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from shortlist.arrays import Ragged
from shortlist.kernels.candidates import join_shortlists
from shortlist.labels.centroids import label_centroids, normalize_rows, texts_by_label
from shortlist.lazy import sparse
from shortlist.stages.candidates import NearestLabels
from shortlist.stages.classifier import RowClassifier, SparseClassifier
from shortlist.stages.evidence import forget, index_names, remember_more, similar
from shortlist.stages.pipeline import Pipeline, Ranking, in_blocks
from shortlist.stages.replacing import (
    centres_of,
    replace_centres,
    replace_label_rows,
    replace_sparse,
    replace_words,
    sparse_rows_of,
    unpaged,
    words_of,
)
from shortlist.stages.reranker import Reranker
from shortlist.text import Vocabulary
from shortlist.text.features import normalize_sparse_rows
from shortlist.training.batches import DenseBatches, ShortlistBatches, epoch_batches
from shortlist.training.label_rows import LabelRows, RowOptions
from shortlist.training.word_weights import MIN_WEIGHT, learn_word_weights

# Chosen on validation texts: docs/lab-book.md.
N_EPOCHS, LEARNING_RATE, BATCH_SIZE, N_RANDOM = 3, 0.002, 64, 50
WORD_POWER = 0.5  # of the share of a label's texts that are new
N_NEAR = 100  # labels per text that are told apart, where the candidate stage finds none
N_MISTAKEN = 10  # new labels that an old text teaches not to answer for it
MIN_CHANGE = 0.02  # smaller changes of the weight of a word are dropped


@dataclass(frozen=True, eq=False)
class Lesson:
    """What is learnt from.

    inputs    new texts, or rows of features
    labels    the labels of each
    wrong     labels that a person has called wrong, of each
    counts    the number of texts that every label had before
    unlearnt  the labels that had none: they are new, or known by name only
    options   options of the model
    old       old texts and their labels, if there are any
    """

    inputs: Any
    labels: Ragged
    wrong: Ragged
    counts: np.ndarray
    unlearnt: np.ndarray
    options: dict[str, Any]
    old: tuple[Any, Ragged] | None = None

    @property
    def learning(self) -> np.ndarray:
        """The labels that learn: those of new texts, right or wrong."""
        return np.union1d(self.labels.values, self.wrong.values)

    @property
    def is_new(self) -> np.ndarray:
        """For each label that learns, whether these are its first texts."""
        return self.unlearnt[self.learning]

    @property
    def shares(self) -> np.ndarray:
        """For each label that learns, the share of its texts that are new."""
        learning, n_labels = self.learning, len(self.counts)
        n_new = np.bincount(np.append(self.labels.values, self.wrong.values), minlength=n_labels)[learning]
        return (n_new / (n_new + self.counts[learning])).astype(np.float32)

    def compact(self, ids: np.ndarray) -> np.ndarray:
        """Where these labels are among those that learn; -1 for all others."""
        learning = self.learning
        places = np.minimum(np.searchsorted(learning, ids), len(learning) - 1)
        return np.where(learning[places] == ids, places, -1).astype(np.int32)


def learn_on(pipeline: Pipeline, lesson: Lesson) -> Pipeline:
    """The pipeline after the lesson."""
    texts, words, read = pipeline._read(lesson.inputs)
    features = pipeline.encoder.encode(read)
    classifier, reranker = pipeline.classifier, pipeline.reranker
    n_best = reranker.n_candidates if reranker is not None else N_NEAR

    def candidates(block: Any) -> Ranking:
        found = pipeline.candidates.find(block, pipeline.candidates.n_searched)
        best, _ = classifier.best(block, found, n_best)
        return best if found.ids is None else found.ids, best

    near, best = in_blocks(candidates, features)
    changed = replace(pipeline)
    if isinstance(pipeline.candidates, NearestLabels):
        changed.candidates = learn_centres(pipeline.candidates, features, lesson)
    if isinstance(classifier, RowClassifier):
        changed.classifier = learn_rows(classifier, features, near, lesson)
    elif isinstance(classifier, SparseClassifier):
        changed.classifier = learn_centroids(classifier, features, lesson)
    if isinstance(reranker, Reranker):
        changed.reranker = learn_words(reranker, texts, words, best, lesson)
        if isinstance(pipeline.vocabulary, Vocabulary):
            changed.reranker = remember(changed.reranker, texts, lesson, pipeline.vocabulary)
    return changed


def sums(lesson: Lesson, features: np.ndarray) -> np.ndarray:
    """The sum of the directions of the new texts of each label that learns."""
    own = Ragged(lesson.labels.indptr, lesson.compact(lesson.labels.values))
    return texts_by_label(own, len(lesson.learning)) @ normalize_rows(features)


def learn_centres(stage: NearestLabels, features: np.ndarray, lesson: Lesson) -> NearestLabels:
    """The mean of old and new directions. The name of a new label counts as one text."""
    learning = lesson.learning
    centres = centres_of(stage, learning) * np.maximum(lesson.counts[learning], 1)[:, None]
    return replace_centres(stage, learning, centres + sums(lesson, features))


def learn_centroids(stage: SparseClassifier, features: sparse.csr_array, lesson: Lesson) -> SparseClassifier:
    """The same for sparse centroids."""
    learning, new = lesson.learning, lesson.labels
    before = sparse_rows_of(stage, learning)
    counts = np.concatenate([np.maximum(lesson.counts[learning], 1), np.ones(len(new))]).astype(np.float32)
    own = [[i] for i in range(len(learning))]
    labels = Ragged.concatenate([Ragged.from_lists(own), Ragged(new.indptr, lesson.compact(new.values))])
    weighted = Ragged(labels.indptr, labels.values, counts[labels.row_ids])
    both = sparse.vstack([before, features], format="csr")
    return replace_sparse(stage, learning, label_centroids(both, weighted, len(learning)))


def learn_rows(stage: RowClassifier, features: np.ndarray, near: np.ndarray, lesson: Lesson) -> RowClassifier:
    """Rows take further steps, on the labels of each text, its candidates, and some random labels that learn, too.

    A row moves by the share of its texts that are new: what was learnt from many texts stays nearly as it is.
    """
    learning, options = lesson.learning, lesson.options
    hidden = np.ascontiguousarray(stage.hidden(features), np.float32)
    start = np.array(stage.layer.rows[learning], np.float32)
    is_new = lesson.is_new  # they start at the mean direction of their name and their texts
    if is_new.any():
        lengths = np.linalg.norm(start[is_new], axis=1, keepdims=True)
        start[is_new] = lengths * normalize_rows(normalize_rows(start) + sums(lesson, hidden))[is_new]
    names = {name: options[name] for name in ("optimizer", "loss_reduction", "bias_init") if name in options}
    rows, biases = LabelRows.of(start.copy(), RowOptions(**names)), stage.layer.biases[learning]
    rows.biases[:] = biases
    inputs = DenseBatches(hidden, Ragged(lesson.labels.indptr, lesson.compact(lesson.labels.values)))
    near = np.concatenate([lesson.compact(near), _padded_rows(lesson)], axis=1)
    batches = ShortlistBatches(inputs, len(learning), near, min(N_RANDOM, len(learning)))
    rng = np.random.default_rng(0)
    for epoch in range(N_EPOCHS):
        for texts in epoch_batches(batches.lengths, BATCH_SIZE, 0, epoch):
            batch = batches.take(texts, rng)
            rows.step(batch.inputs, batch.candidates, batch.positives, LEARNING_RATE * (1 - epoch / N_EPOCHS))
    shares = lesson.shares
    weights = start + shares[:, None] * (rows.weights - start)
    return replace_label_rows(stage, learning, weights, biases + shares * (rows.biases - biases))


def learn_words(reranker: Reranker, texts: Any, words: Any, best: np.ndarray, lesson: Lesson) -> Reranker:
    """What must be added to the weights of words so that they tell labels of these texts from other candidates.

    The more texts a label had, the less is added. Biases stay: a few texts would only say that labels are rare. With
    old texts, new labels learn not to answer for these, and their biases, too.
    """
    learning, n_features = lesson.learning, reranker.features.n_features
    evidence = reranker.gather(texts, words, best)
    labels = Ragged(lesson.labels.indptr, lesson.compact(lesson.labels.values))
    near = np.concatenate([lesson.compact(evidence.ids), _padded_rows(lesson)], axis=1)
    rows, is_new = evidence.rows, lesson.is_new
    if lesson.old is not None and is_new.any():
        old = old_texts(reranker, rows, labels, lesson)
        rows, labels = (Ragged.concatenate(both) for both in ((rows, old[0]), (labels, old[1])))
        width = max(near.shape[1], N_MISTAKEN)
        near = np.concatenate(
            [np.pad(some, ((0, 0), (0, width - some.shape[1])), constant_values=-1) for some in (near, old[2])]
        )
    width = near.shape[1] + int(labels.counts.max(initial=0))
    candidates, nothing = np.empty((len(near), width), np.int32), np.empty((len(near), 0), np.int32)
    join_shortlists(near, np.arange(len(near)), nothing, labels.indptr, labels.values, candidates)
    candidates = candidates[:, : max(int((candidates >= 0).sum(axis=1).max(initial=0)), 1)]
    before = reranker.word_scores(rows, np.where(candidates >= 0, learning[candidates], -1))
    learnt = learn_word_weights(
        rows.to_csr(n_features),
        labels,
        len(learning),
        candidates,
        reranker.C,
        MIN_CHANGE,
        before=before,
    )
    changes = Ragged(learnt["starts"], learnt["words"], learnt["weights"])
    added = unpaged(changes, lesson.shares**WORD_POWER, n_features)
    weights = sparse.csr_array(words_of(reranker, learning) + added)
    weights.data[np.abs(weights.data) < MIN_WEIGHT] = 0
    weights.eliminate_zeros()
    biases = reranker.arrays()["biases"][learning]
    if lesson.old is not None:
        biases = biases + np.where(is_new, learnt["biases"], 0)
    counts = np.bincount(lesson.labels.values, minlength=reranker.n_labels) + lesson.counts
    frequencies = np.log1p(counts[learning]) / np.log1p(max(lesson.counts.max(initial=0), 1))
    return replace_words(reranker, learning, weights, biases, frequencies)


def old_texts(reranker: Reranker, rows: Ragged, labels: Ragged, lesson: Lesson) -> tuple[Ragged, Ragged, np.ndarray]:
    """The features of old texts, their new labels if they have any, and the new labels that they could be mistaken for.

    rows, labels  features of the new texts, and their labels, among those that learn

    The last are the labels whose new texts share most words with an old one. To look for them by words alone takes some
    microseconds per text, so there can be many.
    """
    assert lesson.old is not None
    texts, old_labels = lesson.old
    n_learning, is_new = len(lesson.learning), lesson.is_new
    old_labels = Ragged(old_labels.indptr, lesson.compact(old_labels.values))
    old = reranker.features.rows(texts)
    own = Ragged(labels.indptr, labels.values).keep(is_new[labels.values])
    sums = normalize_sparse_rows(texts_by_label(own, n_learning) @ rows.to_csr(reranker.features.n_features))
    index = tuple(index_names(sums).values())
    nothing = np.empty((len(old), 0), np.int32)
    mistaken = similar(index, old, Ragged.empty(len(old)), nothing, N_MISTAKEN)[0]
    return old, old_labels.keep((old_labels.values >= 0) & is_new[old_labels.values]), mistaken


def remember(reranker: Reranker, texts: Any, lesson: Lesson, vocabulary: Vocabulary) -> Reranker:
    """The labels of the new texts, should somebody ask for these very words; wrong ones are forgotten."""
    taught = remember_more(reranker.arrays(), texts, lesson.labels, vocabulary.tokenizer)
    if len(lesson.wrong.values):
        taught = forget(taught, texts, lesson.wrong, vocabulary.tokenizer)
    return reranker.with_arrays(taught)


def _padded_rows(lesson: Lesson) -> np.ndarray:
    """The wrong labels of each text, which are told apart even if they are no candidates; -1 behind them."""
    return Ragged(lesson.wrong.indptr, lesson.compact(lesson.wrong.values)).padded(-1)
