"""Batches: texts of about equal length, so that short texts carry little padding; or dense features."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from shortlist.arrays import Ragged
from shortlist.kernels.candidates import join_shortlists
from shortlist.recipes.options import Options
from shortlist.training.data import TrainingData
from shortlist.training.group import Shard

# Texts are shuffled, then sorted by length within runs of this many batches, so that batches stay random enough.
BATCHES_PER_RUN = 50


class Batch(NamedTuple):
    """What a network takes, the labels of each text, and its candidates (None: the learner chooses).

    weights  those of the words, where these come with weights
    """

    inputs: np.ndarray
    positives: Ragged
    candidates: np.ndarray | None = None
    weights: np.ndarray | None = None


class Batches(Protocol):
    """Where the training loop gets its batches from."""

    lengths: np.ndarray

    def take(self, rows: np.ndarray, rng: np.random.Generator) -> Batch: ...


class WordBatches:
    """Texts as the ids of their first `max_words` words, in a new order every time if `shuffle`.

    group  whether the texts of a batch are of about equal length
    """

    def __init__(
        self,
        word_ids: Ragged,
        labels: Ragged,
        max_words: int = 32,
        padding: int = -1,
        shuffle: bool = False,
        group: bool = True,
    ) -> None:
        self.word_ids, self.labels, self.shuffle = word_ids, labels, shuffle
        self.max_words, self.padding = max_words, padding
        self.lengths = np.minimum(word_ids.counts, max_words if group else 0)

    def take(self, rows: np.ndarray, rng: np.random.Generator) -> Batch:
        words, weights = padded(self.word_ids, rows, self.max_words, self.padding), self.word_ids.weights
        if weights is not None:  # a bag without an order
            weights = padded(Ragged(self.word_ids.indptr, weights), rows, self.max_words, 0)
        elif self.shuffle:
            words = rng.permuted(words, axis=1)
        return Batch(words, self.labels.take(rows), weights=weights)


class DenseBatches:
    """Dense features that an encoder learns from."""

    def __init__(self, features: Any, labels: Ragged) -> None:
        """`features`: a matrix, or what gives some of its rows when they are asked for."""
        self.features, self.labels = features, labels
        self.lengths = np.ones(len(features), np.int64)

    def take(self, rows: np.ndarray, rng: np.random.Generator) -> Batch:
        return Batch(self.features[rows], self.labels.take(rows))


def input_batches(data: TrainingData, labels: Ragged, options: Options) -> Batches:
    """Batches of what the encoder takes, with these labels."""
    if not isinstance(data.inputs, Ragged):
        return DenseBatches(data.inputs, labels)
    shuffle, group = options.get("shuffle_words", False), options.group_by_length
    return WordBatches(data.inputs, labels, options.max_words, data.padding, shuffle, group)


@dataclass
class ShortlistBatches:
    """Batches in which each text sees its own labels, its candidates, and `n_random` labels drawn at random.

    batches     what the network takes, and labels
    candidates  texts × K labels, -1 for none
    shard       the labels of this worker. Labels and candidates are then its rows, and candidates are ragged
    """

    batches: Batches
    n_labels: int
    candidates: np.ndarray | Ragged
    n_random: int = 0
    shard: Shard | None = None

    @property
    def lengths(self) -> np.ndarray:
        return self.batches.lengths

    def take(self, rows: np.ndarray, rng: np.random.Generator) -> Batch:
        batch = self.batches.take(rows, rng)
        positives = batch.positives
        others = rng.integers(self.n_labels, size=(len(rows), self.n_random), dtype=np.int32)
        shortlists = self.candidates
        if isinstance(shortlists, Ragged):
            shortlists, rows = shortlists.take(rows).padded(-1), np.arange(len(rows))
        if self.shard is not None:
            others = self.shard.row_of_label[others]
        width = shortlists.shape[1] + self.n_random + int(positives.counts.max(initial=0))
        candidates = np.empty((len(rows), width), np.int32)
        join_shortlists(shortlists, rows, others, positives.indptr, positives.values, candidates)
        return batch._replace(candidates=candidates)


def epoch_batches(lengths: np.ndarray, batch_size: int, seed: int, epoch: int) -> Iterator[np.ndarray]:
    """The rows of each batch of one epoch. The same seed and epoch give the same batches."""
    rng = np.random.default_rng([seed, epoch])
    order = rng.permutation(len(lengths))
    run = batch_size * BATCHES_PER_RUN
    batches = []
    for start in range(0, len(order), run):
        rows = order[start : start + run]
        rows = rows[np.argsort(lengths[rows], kind="stable")]
        batches += [rows[i : i + batch_size] for i in range(0, len(rows), batch_size)]
    for index in rng.permutation(len(batches)):
        yield batches[index]


def padded(word_ids: Ragged, rows: np.ndarray, max_words: int, padding: int) -> np.ndarray:
    """The first `max_words` word ids (or weights of words) of each row, padded to the longest of them."""
    matrix = word_ids.take(rows).padded(padding, max_words)
    return matrix if matrix.dtype == np.float32 else matrix.astype(np.int64)
