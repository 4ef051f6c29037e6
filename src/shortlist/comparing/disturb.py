"""Test texts made harder, the same for everybody: words in another order, words left out, words misspelt.

The first is the test of InceptionXML's Table 4; searches and titles typed by people look like the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from shortlist.data.texts import Texts
from shortlist.kernels.strings import unpack
from shortlist.ragged import bounds_of
from shortlist.text import Tokenizer

# Of the words, so many are left out, or misspelt; a text keeps one word at least.
SHARE = 0.25
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def disturbed(texts: Sequence[str], how: str, seed: int) -> Texts:
    """The texts, each made harder in one of the ways of `WAYS`; the same seed gives the same texts.

    >>> list(disturbed(["red shoes", "hat"], "misspelt", seed=0))
    ['rred shoes', 'aht']
    """
    rng = np.random.default_rng([seed, list(WAYS).index(how)])
    words, ends, counts = Tokenizer().split_texts(Texts.from_strings(texts))
    all_words, bounds, way = unpack(words, np.append(0, ends)), bounds_of(counts).tolist(), WAYS[how]
    changed = []
    for text, begin, end in zip(texts, bounds[:-1], bounds[1:], strict=True):
        changed.append(" ".join(way(all_words[begin:end], rng)) if end > begin else text)
    return Texts.from_strings(changed)


def _shuffled(words: list[str], rng: np.random.Generator) -> list[str]:
    return [words[i] for i in rng.permutation(len(words))]


def _dropped(words: list[str], rng: np.random.Generator) -> list[str]:
    kept = rng.random(len(words)) >= SHARE
    kept[rng.integers(len(words))] = True
    return [word for word, keep in zip(words, kept, strict=True) if keep]


def _misspelt(words: list[str], rng: np.random.Generator) -> list[str]:
    chosen = rng.random(len(words)) < SHARE
    return [_typo(word, rng) if wrong else word for word, wrong in zip(words, chosen, strict=True)]


def _typo(word: str, rng: np.random.Generator) -> str:
    """One slip of the fingers: two letters swapped, one left out, doubled, or another in its place."""
    if len(word) < 2:
        return word
    at, kind = int(rng.integers(len(word) - 1)), int(rng.integers(4))
    if kind == 0:
        return word[:at] + word[at + 1] + word[at] + word[at + 2 :]
    if kind == 1:
        return word[:at] + word[at + 1 :]
    if kind == 2:
        return word[:at] + word[at] + word[at:]
    return word[:at] + LETTERS[int(rng.integers(len(LETTERS)))] + word[at + 1 :]


WAYS: dict[str, Callable[[list[str], np.random.Generator], list[str]]] = {
    "shuffled": _shuffled,
    "dropped": _dropped,
    "misspelt": _misspelt,
}
