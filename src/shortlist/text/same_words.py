"""Which texts are the same to a model of words: the same words in the same order.

Case, punctuation and spacing make no difference. A test text that has a twin in the training data is no test.
"""

from __future__ import annotations

import numpy as np

from shortlist.arrays import Ragged
from shortlist.kernels.strings import StringTable
from shortlist.text.texts import Texts
from shortlist.text.tokenizer import Tokenizer
from shortlist.text.vocabulary import number_words


def number_sequences(texts: Texts, words: StringTable, sequences: StringTable) -> tuple[Ragged, np.ndarray]:
    """The words of each text, and one number per text, equal for equal sequences of words; tables may be shared."""
    ids = number_words(texts, Tokenizer(), words)
    return ids, sequences.add(ids.values.view(np.uint8), ids.indptr * ids.values.itemsize)


def same_words(*parts: Texts) -> list[np.ndarray]:
    """One number per text of each part, equal for texts with the same words.

    Texts without any word are equal if all their characters are.

    >>> same_words(Texts.from_strings(["Red shoes", "a hat"]), Texts.from_strings(["red  shoes!", "?", "!"]))
    [array([0, 1]), array([ 0, -1, -2])]
    """
    words, sequences, wordless = StringTable(), StringTable(), StringTable()
    numbers = []
    for texts in parts:
        ids, found = number_sequences(texts, words, sequences)
        found = found.astype(np.int64)
        rows = np.flatnonzero(ids.counts == 0)
        without = texts.take(rows)
        found[rows] = -1 - wordless.add(without.buffer, without.offsets).astype(np.int64)
        numbers.append(found)
    return numbers
