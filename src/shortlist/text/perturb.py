"""Perturbed texts for measuring robustness: words shuffled (InceptionXML, Table 4), dropped, or misspelt.

Everything between the words stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from shortlist.errors import OptionError
from shortlist.text.texts import Texts
from shortlist.text.tokenizer import Tokenizer

# Share of the words that are dropped or misspelt. At least one word per text is never dropped.
PERTURBED_SHARE = 0.25
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def perturb(texts: Iterable[str], how: str, seed: int = 0, tokenizer: Tokenizer | None = None) -> Texts:
    """Return a perturbed copy of every text.

    how        one of `PERTURBATIONS`: "shuffled", "dropped" or "misspelt"
    seed       random seed
    tokenizer  finds the words; the default tokenizer if None

    >>> list(perturb(["red shoes", "hat"], "shuffled", seed=3))
    ['shoes red', 'hat']
    """
    if how not in PERTURBATIONS:
        raise OptionError(f"texts can be {', '.join(PERTURBATIONS)}, not {how!r}")
    rng = np.random.default_rng([seed, list(PERTURBATIONS).index(how)])
    tokenizer, change = tokenizer or Tokenizer(), PERTURBATIONS[how]
    perturbed = []
    for text in texts:
        spans = tokenizer.spans(text)
        words = change([text[start:end] for start, end in spans], rng) if spans else []
        pieces, copied_to = [], 0
        for (start, end), word in zip(spans, words, strict=True):
            pieces += [text[copied_to:start], word]
            copied_to = end
        perturbed.append("".join([*pieces, text[copied_to:]]))
    return Texts.from_strings(perturbed)


def _shuffle(words: list[str], rng: np.random.Generator) -> list[str]:
    return [words[i] for i in rng.permutation(len(words))]


def _drop(words: list[str], rng: np.random.Generator) -> list[str]:
    keep = rng.random(len(words)) >= PERTURBED_SHARE
    keep[rng.integers(len(words))] = True
    return [word if kept else "" for word, kept in zip(words, keep, strict=True)]


def _misspell(words: list[str], rng: np.random.Generator) -> list[str]:
    wrong = rng.random(len(words)) < PERTURBED_SHARE
    return [_typo(word, rng) if misspelt else word for word, misspelt in zip(words, wrong, strict=True)]


def _typo(word: str, rng: np.random.Generator) -> str:
    """Swap two letters, drop one, double one, or replace one."""
    if len(word) < 2:
        return word
    at, other = int(rng.integers(len(word) - 1)), LETTERS[int(rng.integers(len(LETTERS)))]
    first, second = word[at], word[at + 1]
    typos = (second + first, second, first + first + second, other + second)
    return word[:at] + typos[int(rng.integers(len(typos)))] + word[at + 2 :]


PERTURBATIONS: dict[str, Callable[[list[str], np.random.Generator], list[str]]] = {
    "shuffled": _shuffle,
    "dropped": _drop,
    "misspelt": _misspell,
}
