"""Names of labels as texts to learn from: often the best there is to know about a rare label."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shortlist.arrays import Ragged
from shortlist.data.dataset import Dataset
from shortlist.data.texts import Texts
from shortlist.text import Vocabulary

# A name counts as so many texts; see docs/lab-book.md.
TIMES = 2


@dataclass(frozen=True, eq=False)
class LabelTexts:
    """Texts, and the label that each is about."""

    texts: Texts
    labels: Ragged

    @staticmethod
    def of(dataset: Dataset, vocabulary: Vocabulary) -> LabelTexts:
        """The names of those labels whose names are words and not codes.

        A name that was given beside the label is. A label that is its own name is, if more than half of its words are
        known from the texts; if most labels are such, all are.
        """
        names = [dataset.display_name(label) for label in dataset.label_names]
        given = np.asarray([label in dataset.display_names for label in dataset.label_names], bool)
        n_words = Vocabulary.build_and_encode(names, vocabulary.tokenizer)[1].counts
        speaks = 2 * vocabulary.encode(names).counts > n_words
        if 2 * np.count_nonzero(speaks[~given]) > np.count_nonzero(~given):
            speaks[:] = True
        labels = np.tile(np.flatnonzero((speaks | given) & (n_words > 0)), TIMES)
        of_labels = Ragged(np.arange(len(labels) + 1), labels.astype(dataset.labels.values.dtype))
        return LabelTexts(Texts.from_strings([names[label] for label in labels]), of_labels)

    @staticmethod
    def none() -> LabelTexts:
        return LabelTexts(Texts.from_strings([]), Ragged.from_lists([]))

    def __len__(self) -> int:
        return len(self.texts)
