"""Texts made harder: words in another order (InceptionXML's Table 4), words left out, words misspelt.

Only that changes: case, punctuation and what else stands between words stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from shortlist.data.texts import Texts
from shortlist.errors import OptionError
from shortlist.text.tokenizer import Tokenizer

# Of the words, so many are left out, or misspelt; a text keeps one word at least.
SHARE = 0.25
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def disturbed(texts: Iterable[str], how: str, seed: int = 0, tokenizer: Tokenizer | None = None) -> Texts:
    """The texts, each made harder in one of the ways of `WAYS`; the same seed gives the same texts.

    >>> list(disturbed(["red shoes", "hat"], "shuffled", seed=3))
    ['shoes red', 'hat']
    """
    if how not in WAYS:
        raise OptionError(f"texts can be {', '.join(WAYS)}, not {how!r}")
    rng = np.random.default_rng([seed, list(WAYS).index(how)])
    tokenizer, change = tokenizer or Tokenizer(), WAYS[how]
    harder = []
    for text in texts:
        spans = tokenizer.spans(text)
        words = change([text[start:end] for start, end in spans], rng) if spans else []
        pieces, done = [], 0
        for (start, end), word in zip(spans, words, strict=True):
            pieces += [text[done:start], word]
            done = end
        harder.append("".join([*pieces, text[done:]]))
    return Texts.from_strings(harder)


def _shuffled(words: list[str], rng: np.random.Generator) -> list[str]:
    return [words[i] for i in rng.permutation(len(words))]


def _dropped(words: list[str], rng: np.random.Generator) -> list[str]:
    kept = rng.random(len(words)) >= SHARE
    kept[rng.integers(len(words))] = True
    return [word if keep else "" for word, keep in zip(words, kept, strict=True)]


def _misspelt(words: list[str], rng: np.random.Generator) -> list[str]:
    chosen = rng.random(len(words)) < SHARE
    return [_slip(word, rng) if wrong else word for word, wrong in zip(words, chosen, strict=True)]


def _slip(word: str, rng: np.random.Generator) -> str:
    """Two letters swapped, one left out, one doubled, or another in its place."""
    if len(word) < 2:
        return word
    at, other = int(rng.integers(len(word) - 1)), LETTERS[int(rng.integers(len(LETTERS)))]
    before, letter, following, after = word[:at], word[at], word[at + 1], word[at + 2 :]
    slips = (following + letter, following, letter + letter + following, other + following)
    return before + slips[int(rng.integers(len(slips)))] + after


WAYS: dict[str, Callable[[list[str], np.random.Generator], list[str]]] = {
    "shuffled": _shuffled,
    "dropped": _dropped,
    "misspelt": _misspelt,
}
