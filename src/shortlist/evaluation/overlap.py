"""How the test part relates to the training data: labels that cannot have been learnt, and texts that were.

Both decide what a score means, so every evaluation says them beside its numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from shortlist.arrays import Ragged
from shortlist.data.dataset import Dataset
from shortlist.text.same_words import same_words

Unseen = Literal["count", "ignore"]
UNKNOWN = "Leaks and unseen labels: not known without the training data. Give it with --train (train=)."
COUNTED = {
    "count": "They count: a model that learns from texts alone misses them.",
    "ignore": "They do not count. With new texts they would, so expect lower scores.",
}


def find_leaks(test: Any, train: Any) -> np.ndarray | None:
    """Whether each test text also occurs in the training data; None if one of them has no texts.

    Texts with the same words are the same, whatever their case, punctuation and spacing.

    >>> train = Dataset.from_lists(["red shoes"], [["shoes"]])
    >>> find_leaks(Dataset.from_lists(["Red shoes!", "hat"], [["shoes"], ["hats"]]), train).tolist()
    [True, False]
    """
    for part in (test, train):
        if not isinstance(part, Dataset) or part.features is not None or not part.texts.sizes.any():
            return None
    test_numbers, train_numbers = same_words(test.texts, train.texts)
    return np.isin(test_numbers, train_numbers)


@dataclass(frozen=True)
class Overlap:
    """Labels and pairs of the test part, and how many of them have no training text; texts that also occur in training.

    leaks is None if it is not known. If leaks were dropped, labels and pairs are those of the other texts.
    """

    labels: int
    unseen_labels: int
    pairs: int
    unseen_pairs: int
    texts: int
    leaks: int | None
    unseen: Unseen
    dropped: bool

    @staticmethod
    def count(
        truth: Ragged, frequencies: np.ndarray, leaks: np.ndarray | None, unseen: Unseen, dropped: bool
    ) -> Overlap:
        """Count from the true label ids of each text and the number of training texts of each label."""
        is_unseen = frequencies[truth.values] == 0
        return Overlap(
            labels=len(np.unique(truth.values)),
            unseen_labels=len(np.unique(truth.values[is_unseen])),
            pairs=len(truth.values),
            unseen_pairs=int(np.count_nonzero(is_unseen)),
            texts=len(truth) if leaks is None else len(leaks),
            leaks=None if leaks is None else int(np.count_nonzero(leaks)),
            unseen=unseen,
            dropped=dropped,
        )

    def notes(self) -> list[str]:
        """Sentences for people: unseen labels first, then leaks."""
        return [self._unseen_note(), self._leak_note()]

    def _unseen_note(self) -> str:
        if not self.unseen_labels:
            return "Unseen labels: none. All test labels occur in training."
        return (
            f"Unseen labels: {_share(self.unseen_labels, self.labels, 'test labels')} do not occur in training, in "
            f"{_share(self.unseen_pairs, self.pairs, '(text, label) pairs')}. {COUNTED[self.unseen]}"
        )

    def _leak_note(self) -> str:
        if self.leaks is None:
            return "Leaks: not known, because the texts of both parts are needed."
        if not self.leaks:
            return "Leaks: none. No test text also occurs in the training data."
        found = f"{_share(self.leaks, self.texts, 'test texts')} also occur in the training data"
        if self.dropped:
            return f"Leaks: {found}. They were left out."
        return (
            f"WARNING, leaks: {found} (the same words, ignoring case and punctuation), so the scores are too high. "
            "Leave them out with --drop-leaks (drop_leaks=True)."
        )


def _share(count: int, total: int, what: str) -> str:
    """A count and its percentage.

    >>> _share(3, 2000, "texts")
    '3 of 2,000 texts (0.1 %)'
    """
    percent = 100 * count / max(total, 1)
    return f"{count:,} of {total:,} {what} ({f'{percent:.1f}' if percent >= 0.05 else '<0.1'} %)"
