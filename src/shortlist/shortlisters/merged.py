"""Shortlists from two indexes over the features: one of the labels' centres, one of the training texts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shortlist.kernels.shortlists import merge_neighbours
from shortlist.kernels.threads import use_threads
from shortlist.ragged import Ragged
from shortlist.shortlisters.neighbours import NeighbourIndex

QUERIES_AT_ONCE = 4096


@dataclass(frozen=True, eq=False)
class MergedShortlister:
    """Candidates for features, with their similarities.

    centres      index of the labels' representatives
    owner        the label of each
    texts        index of the training texts, or None
    text_labels  the labels of each
    n_texts      how many texts vote
    share        how much their votes count beside the labels' own similarities
    """

    centres: NeighbourIndex
    owner: np.ndarray
    texts: NeighbourIndex | None
    text_labels: Ragged
    n_texts: int
    share: float
    n_labels: int

    def n_searched(self, k: int) -> int:
        """How many centres are looked at for k labels: some labels have several, and may be found more than once."""
        if len(self.centres) == self.n_labels:
            return min(k, self.n_labels)
        return len(self.centres) if k >= self.n_labels else min(2 * k, len(self.centres))

    def shortlist(
        self, features: np.ndarray, k: int, threads: int | None = None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The k likeliest labels of each row of features (-1: none), their cosines and their shares of the votes."""
        k = min(k, self.n_labels)
        ids = np.empty((len(features), k), np.int32)
        cosines, votes = np.empty((2, len(features), k), np.float32)
        for begin in range(0, len(features), QUERIES_AT_ONCE):
            block = slice(begin, begin + QUERIES_AT_ONCE)
            some = features[block]
            found, of_found = self.centres.search(some, self.n_searched(k), threads)
            texts, of_texts = np.full((len(some), 1), -1, np.int32), np.zeros((len(some), 1), np.float32)
            if self.texts is not None:
                texts, of_texts = self.texts.search(some, min(self.n_texts, len(self.texts)), threads)
            with use_threads(threads) as n_shares:
                merge_neighbours(
                    found,
                    of_found,
                    self.owner,
                    texts,
                    of_texts,
                    self.text_labels.indptr,
                    self.text_labels.values,
                    np.float32(self.share if self.texts is not None else 0),
                    self.n_labels,
                    n_shares,
                    ids[block],
                    cosines[block],
                    votes[block],
                )
        return ids, cosines, votes
