"""Predictions on the levels of a hierarchy: leaves, parents with rolled-up scores, or the most specific sure label."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Literal

import numpy as np

from shortlist.errors import OptionError
from shortlist.labels.hierarchy import Hierarchy
from shortlist.model.label_lookup import LabelLookup
from shortlist.stages.allowed import AllowedLabels
from shortlist.stages.thresholds import Thresholds

Levels = Literal["leaves", "roll-up", "back-off"]

N_ROLLED_UP = 100  # the best labels of a text, whose scores are rolled up
SURE = 1 - 1e-7  # the largest score that is rolled up: the logarithm of 0 is none
TINY = 1e-30


class LabelLevels:
    """The labels of a model, numbered as there, followed by the further labels of its hierarchy."""

    def __init__(
        self, hierarchy: Hierarchy, n_labels: int, display_names: Mapping[str, str], lists: Mapping[str, Sequence[str]]
    ) -> None:
        """`hierarchy`: with the labels of the model first; `display_names` and `lists`: those of the model."""
        self.hierarchy, self.n_labels = hierarchy, n_labels
        self.display_names = {**hierarchy.names, **display_names}
        self.lookup = LabelLookup(hierarchy.labels, self.display_names, lists)

    def roll_up(self, ids: np.ndarray, scores: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The texts, labels and scores of all that is predicted (ids, texts × K, -1 for none) or above it.

        A label is right if it, or any label below it, is. The score of a leaf stays as it is. That of a parent is

            1 - (1 - some) · (1 - share)

        where `some` is the probability that at least one of the predictions at or below it is right, as if these were
        independent of each other (noisy-or), and `share` their share of the scores of all predictions of the text: if
        none of them is right, another label is, and more likely one that is near them. If texts have the parents of
        their labels as labels, too, the score of a parent is its own, or the largest below it. docs/lab-book.md has
        the calibration error of each of these. A parent's score is never below that of a child.
        """
        rows, places = np.nonzero(ids >= 0)
        above = self.hierarchy.ancestors.take(ids[rows, places])
        score = np.clip(scores[rows, places].astype(np.float64), 0, SURE)
        n_all = len(self.hierarchy.labels)
        pairs, of_pair = np.unique(np.repeat(rows, above.counts) * n_all + above.values, return_inverse=True)
        texts, labels = pairs // n_all, pairs % n_all
        below = np.repeat(score, above.counts)
        if self.hierarchy.inclusive:
            largest = np.zeros(len(pairs))
            np.maximum.at(largest, of_pair, below)
            return texts, labels, largest
        none = np.exp(np.bincount(of_pair, np.log1p(-below), len(pairs)))
        total = np.bincount(rows, score, len(ids))[texts]
        share = np.bincount(of_pair, below, len(pairs)) / np.maximum(total, TINY)
        share[self.hierarchy.is_leaf[labels]] = 0
        return texts, labels, 1 - none * (1 - np.minimum(share, 1))

    def best(
        self,
        ids: np.ndarray,
        scores: np.ndarray,
        k: int,
        thresholds: Thresholds | None,
        allowed: AllowedLabels | None,
        most_specific: bool,
    ) -> tuple[np.ndarray, np.ndarray]:
        """The k best labels on all levels (-1 for none), of predictions with these scores.

        allowed        the labels that may answer
        most_specific  leave out a label if one below it may answer, too, and passes its threshold
        """
        rows, labels, rolled = self.roll_up(ids, scores)
        passes = np.ones(len(rows), bool) if allowed is None else allowed.is_allowed[labels]
        if thresholds is not None:
            is_own = labels < self.n_labels
            passes[is_own] &= thresholds.passes(labels[is_own], rolled[is_own])
            passes[~is_own] &= rolled[~is_own] >= thresholds.min_score
        rows, labels, rolled = rows[passes], labels[passes], rolled[passes]
        if most_specific:
            keep = ~self._is_above(rows, labels)
            rows, labels, rolled = rows[keep], labels[keep], rolled[keep]
        # Of equal scores, the more specific comes first: it has more ancestors.
        order = np.lexsort((labels, -self.hierarchy.ancestors.counts[labels], -rolled, rows))
        starts = np.searchsorted(rows, np.arange(len(ids)))
        place = np.arange(len(rows)) - starts[rows]
        best_ids, best_scores = np.full((len(ids), k), -1, np.int32), np.zeros((len(ids), k), np.float32)
        first = place < k
        best_ids[rows[first], place[first]] = labels[order][first]
        best_scores[rows[first], place[first]] = rolled[order][first]
        return best_ids, best_scores

    def _is_above(self, rows: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """Which of these labels of texts are above another one of the same text."""
        n_all = len(self.hierarchy.labels)
        ancestors = self.hierarchy.ancestors.take(labels)
        above = np.repeat(rows, ancestors.counts) * n_all + ancestors.values
        itself = ancestors.indptr[:-1]  # each label is the first of its own ancestors
        return np.isin(rows * n_all + labels, np.delete(above, itself))

    def only_leaves(self, allowed: AllowedLabels | None) -> AllowedLabels | None:
        """Those of the allowed labels that have no children in the hierarchy."""
        if allowed is None:
            return self._leaves
        flags = allowed.is_allowed & self.hierarchy.is_leaf[: self.n_labels]
        if not flags.any():
            raise OptionError("allow and deny leave no label that may answer: none of the labels is a leaf")
        return AllowedLabels(flags)

    @cached_property
    def _leaves(self) -> AllowedLabels | None:
        flags = self.hierarchy.is_leaf[: self.n_labels]
        if not flags.any():
            raise OptionError("levels is 'leaves', but all labels of this model have children in its hierarchy")
        return None if flags.all() else AllowedLabels(flags)
