"""The recipe `mach` (Medini et al. 2019): labels hashed at random, several times, each time all buckets learnt.

A label's score is the mean, over the repetitions, of the probability of its bucket. Two labels that share a bucket
once hardly ever share all of them, so the mean tells them apart, and no repetition is larger than its buckets.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from shortlist.arrays import Ragged
from shortlist.data.dataset import Dataset
from shortlist.encoders.mlp_runtime import MLPRuntime
from shortlist.errors import ModelError
from shortlist.heads.runtime import HeadRuntime
from shortlist.kernels.threads import use_threads
from shortlist.kernels.top_k import best_of_row
from shortlist.model.folder import whole_number
from shortlist.model.inception import InceptionModel, JointOptions, part_of
from shortlist.odds import expit

LABELS_PER_BLOCK, TEXTS_PER_BLOCK = 8192, 512


@dataclass(frozen=True)
class HashedForm:
    """The encoder of MACH.

    word_buckets  into how many buckets words are hashed, if there are more words than that
    dropout       share of the features that is left out at random
    """

    word_buckets: int = 65_536
    dropout: float | None = 0.5


@dataclass(frozen=True)
class MachOptions(HashedForm, JointOptions):
    """How to train MACH.

    repetitions  how often labels are hashed, and a model learnt
    buckets      into how many buckets; None: 16 times the root of the number of labels
    """

    repetitions: int = 8
    buckets: int | None = None


class Repetitions:
    """All repetitions at work: word ids to labels, without torch."""

    def __init__(self, arrays: dict[str, np.ndarray], max_words: int, n_labels: int) -> None:
        self.buckets = arrays["buckets"]
        if self.buckets.ndim != 2 or self.buckets.shape[1] != n_labels or self.buckets.dtype != np.int32:
            raise ModelError(f"the buckets are {self.buckets.dtype} {self.buckets.shape} for {n_labels:,} labels")
        self.encoders, self.heads = [], []
        for repetition, buckets in enumerate(self.buckets):
            part = part_of(arrays, str(repetition))
            encoder = MLPRuntime(part_of(part, "encoder"), max_words)
            head = HeadRuntime(part_of(part, "extreme"), len(part["extreme.biases"]), encoder.n_features)
            if not 0 <= buckets.min() <= buckets.max() < len(head.biases):
                raise ModelError(f"labels are in buckets beyond the {len(head.biases):,} of repetition {repetition}")
            self.encoders.append(encoder)
            self.heads.append(head)
        n_words = {encoder.n_words for encoder in self.encoders}
        if len(n_words) != 1:
            raise ModelError(f"the repetitions know different numbers of words: {sorted(n_words)}")
        (self.n_words,) = n_words

    def rank(self, word_ids: Ragged, k: int, top: int = 0, threads: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """The k best labels of each text and their scores; `top` is for others."""
        n_texts, n_labels = len(word_ids), self.buckets.shape[1]
        k = min(k, n_labels)
        ids, scores = np.full((n_texts, k), -1, np.int32), np.full((n_texts, k), -np.inf, np.float32)
        with use_threads(threads):
            for begin in range(0, n_texts, TEXTS_PER_BLOCK):
                rows = slice(begin, min(begin + TEXTS_PER_BLOCK, n_texts))
                some = word_ids.take(np.arange(rows.start, rows.stop))
                shares = [
                    expit(head.logits(e.encode(some), threads))
                    for e, head in zip(self.encoders, self.heads, strict=True)
                ]
                for first in range(0, n_labels, LABELS_PER_BLOCK):
                    buckets = self.buckets[:, first : first + LABELS_PER_BLOCK]
                    means = sum(share[:, of] for share, of in zip(shares, buckets, strict=True)) / len(shares)
                    best_of_row(means, first, min(first, k), ids[rows], scores[rows])
        return ids, scores

    def scores(self, word_ids: Ragged, ids: np.ndarray, threads: int | None = None) -> np.ndarray:
        """The scores of these labels (texts × K)."""
        sums = np.zeros(ids.shape, np.float32)
        for encoder, head, buckets in zip(self.encoders, self.heads, self.buckets, strict=True):
            sums += expit(head.logits_of(encoder.encode(word_ids), buckets[ids], threads))
        return sums / len(self.buckets)


class MachModel(InceptionModel):
    """Hashed words through a hidden layer to buckets of labels, several times, each with other buckets."""

    recipe = "mach"
    Options = MachOptions
    encoder = "mlp"
    Runtime = MLPRuntime
    needed = ("buckets",)

    @classmethod
    def at_work(cls, arrays: dict[str, np.ndarray], options: dict[str, Any], n_labels: int) -> Repetitions:
        return Repetitions(arrays, whole_number(options["max_words"], "max_words"), n_labels)

    @classmethod
    def train(cls, dataset: Dataset, options: JointOptions) -> MachModel:
        """Train the repetitions one after the other."""
        from shortlist.model.mach_training import train_mach

        assert isinstance(options, MachOptions)
        return train_mach(dataset, options)
