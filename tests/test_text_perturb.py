"""Perturbed texts: deterministic, and changed only where they should be."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shortlist.errors import OptionError
from shortlist.text import Tokenizer
from shortlist.text.perturb import PERTURBATIONS, perturb

TEXTS = ("A red-hot, spicy soup!", "soup", "", "…", "日本語 text")


@pytest.mark.parametrize("how", PERTURBATIONS)
def test_seed_decides(how):
    texts = [*TEXTS] * 20
    assert list(perturb(texts, how, 1)) == list(perturb(texts, how, 1))
    assert list(perturb(texts, how, 1)) != list(perturb(texts, how, 2))


def test_shuffling_keeps_words_and_what_is_between_them():
    (shuffled,) = perturb(["A red-hot, spicy soup!"], "shuffled", 3)
    assert sorted(re.findall(r"\w+", shuffled)) == ["A", "hot", "red", "soup", "spicy"]
    assert re.sub(r"\w+", "", shuffled) == " -,  !"


def test_dropping_keeps_at_least_one_word():
    assert all(text.strip() for text in perturb(["one two three"] * 200, "dropped"))
    assert set(perturb(["soup"] * 50, "dropped")) == {"soup"}


def test_a_quarter_of_the_words_is_misspelt():
    words = " ".join(perturb(["abcdefgh"] * 1000, "misspelt")).split()
    assert 0.17 < np.mean([word != "abcdefgh" for word in words]) < 0.3


@given(st.lists(st.text(st.sampled_from("ab cdé1,"), max_size=20), max_size=5), st.integers(0, 3))
def test_number_or_order_of_words_is_kept(texts, seed):
    words = Tokenizer().words
    for before, after in zip(texts, perturb(texts, "shuffled", seed), strict=True):
        assert sorted(words(after)) == sorted(words(before))
    for before, after in zip(texts, perturb(texts, "dropped", seed), strict=True):
        rest = iter(words(before))
        assert all(word in rest for word in words(after))
        assert bool(words(after)) == bool(words(before))
    for before, after in zip(texts, perturb(texts, "misspelt", seed), strict=True):
        changes = zip(words(before), words(after), strict=True)
        assert all(abs(len(one) - len(other)) <= 1 for one, other in changes)


def test_unknown_perturbations_are_refused():
    with pytest.raises(OptionError, match="shuffled, dropped, misspelt"):
        perturb(["a"], "burnt")
