"""Shortlists from two indexes over the features: one of the labels' centres, one of the training texts."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from shortlist.arrays import Ragged, counts_to_indptr
from shortlist.kernels.candidates import labels_of_centres, merge_neighbours
from shortlist.kernels.threads import use_threads
from shortlist.shortlisters.cells import CellIndex
from shortlist.shortlisters.centres import unit
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

    centres: CellIndex
    owner: np.ndarray
    texts: NeighbourIndex | None
    text_labels: Ragged
    n_texts: int
    share: float
    n_labels: int

    def n_searched(self, k: int) -> int:
        """How many centres are looked at for k labels: some labels have several, and may be found more than once."""
        if k >= self.n_labels:
            return len(self.centres)
        return min(k + min(k, len(self.centres) - self.n_labels), len(self.centres))

    def shortlist(
        self, features: np.ndarray, k: int, n_cells: int, threads: int | None = None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The k likeliest labels of each row of features (-1: none), their cosines and their shares of the votes.

        Labels are looked for in so many cells of the centres.
        """
        k = min(k, self.n_labels)
        if self.texts is None:
            found, of_found = self.centres.search(features, self.n_searched(k), n_cells, threads, ordered=False)
            ids, cosines = np.empty((len(features), k), np.int32), np.empty((len(features), k), np.float32)
            labels_of_centres(found, of_found, self.owner, self._has_several, ids, cosines)
            return ids, cosines, np.zeros(ids.shape, np.float32)
        ids = np.empty((len(features), k), np.int32)
        cosines, votes = np.empty((2, len(features), k), np.float32)
        for begin in range(0, len(features), QUERIES_AT_ONCE):
            block = slice(begin, begin + QUERIES_AT_ONCE)
            some = features[block]
            found, of_found = self.centres.search(some, self.n_searched(k), n_cells, threads)
            texts, of_texts = self.texts.search(np.nan_to_num(some), min(self.n_texts, len(self.texts)), threads)
            with use_threads(threads):
                merge_neighbours(
                    found,
                    of_found,
                    self.owner,
                    texts,
                    of_texts,
                    self.text_labels.indptr,
                    self.text_labels.values,
                    np.float32(self.share),
                    self.n_labels,
                    ids[block],
                    cosines[block],
                    votes[block],
                )
        return ids, cosines, votes

    def similarities(
        self, features: np.ndarray, ids: np.ndarray, k: int, n_cells: int, threads: int | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """The cosines and votes of these labels (rows × K), near or not; votes as in a shortlist of k."""
        queries = unit(features)
        cosines = np.full(ids.shape, -1, np.float32)
        for column, labels in enumerate(ids.T):
            for row, label in enumerate(labels.tolist()):
                places = self._places[1][self._places[0][label] : self._places[0][label + 1]]
                cosines[row, column] = (self.centres.vectors[places] @ queries[row]).max(initial=-1)
        votes = np.zeros(ids.shape, np.float32)
        if self.texts is not None:
            found, _, of_found = self.shortlist(features, k, n_cells, threads)
            votes = np.where(ids[:, :, None] == found[:, None], of_found[:, None], 0).sum(axis=2)
        return cosines, votes

    @cached_property
    def _has_several(self) -> np.ndarray:
        """Which labels have more than one centre."""
        return np.bincount(self.owner, minlength=self.n_labels) > 1

    @cached_property
    def _places(self) -> tuple[np.ndarray, np.ndarray]:
        """Where the centres of label l stand in their index: second[first[l]:first[l + 1]]."""
        owners = self.owner[self.centres.order]
        return counts_to_indptr(np.bincount(owners, minlength=self.n_labels)), np.argsort(owners, kind="stable")
