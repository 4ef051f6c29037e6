"""Texts that a model of words cannot tell apart."""

from __future__ import annotations

from shortlist.text.same_words import same_words
from shortlist.text.texts import Texts


def test_case_punctuation_and_spacing_make_no_difference():
    texts = ["Red shoes", "red  SHOES!", "(red)-shoes", "shoes red", "redshoes", "Straße", "STRASSE", "ＲＥＤ shoes"]
    (numbers,) = same_words(Texts.from_strings(texts))
    assert numbers.tolist() == [0, 0, 0, 1, 2, 3, 4, 0]


def test_texts_without_words_are_compared_as_they_are():
    first, second = same_words(Texts.from_strings(["?", "", "a"]), Texts.from_strings(["!", "?", "", "A?"]))
    assert first.tolist() == [-1, -2, 1]
    assert second.tolist() == [-3, -1, -2, 1]
