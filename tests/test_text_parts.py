"""Parts of words, compared with a slow twin."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shortlist.text import Tokenizer, Vocabulary
from shortlist.text.parts import N_PARTS, WordParts

SHORTEST, LONGEST, BITS = 3, 5, 17
BASE, MIX = 0xD1342543DE82EF95, 0x9E3779B97F4A7C15
READER = WordParts(Tokenizer(), np.ones(N_PARTS, np.float32))

texts = st.lists(st.text("ab äßж漢 -_'1", max_size=20), max_size=6)


def slow_parts(text):
    found = set()
    for word in Tokenizer().words(text):
        padded = f" {word} "
        for size in range(SHORTEST, LONGEST + 1):
            for start in range(len(padded) - size + 1):
                value = 0
                for character in padded[start : start + size]:
                    value = (value * BASE + ord(character)) % 2**64
                found.add(value * MIX % 2**64 >> (64 - BITS))
    return sorted(found)


@given(texts)
def test_are_those_of_the_slow_twin(texts):
    rows = READER.rows(texts)
    assert [rows.row(i).tolist() for i in range(len(rows))] == [slow_parts(text) for text in texts]


def test_few_parts_share_a_number():
    words = ["".join(word) for word in np.random.default_rng(0).choice(list("abcdefghij"), (500, 8))]
    parts = {f" {word} "[i : i + n] for word in words for n in (3, 4, 5) for i in range(11 - n)}
    rows = READER.rows([" ".join(words)])
    assert len(parts) > len(rows.values) > 0.96 * len(parts)


def test_rare_parts_weigh_more_and_rows_have_length_1():
    vocabulary = Vocabulary(["common", "seldom"], np.array([1000, 1]))
    rows = WordParts.of(vocabulary).rows(["common seldom", "", "new"])
    assert rows.counts[1] == 0 and rows.counts[2] > 0
    for i in (0, 2):
        assert np.linalg.norm(rows.weights[rows.indptr[i] : rows.indptr[i + 1]]) == pytest.approx(1, abs=1e-5)
    is_common = np.isin(rows.row(0), READER.rows(["common"]).values)
    of_text = rows.weights[: rows.indptr[1]]
    assert of_text[is_common].max() < of_text[~is_common].min()


def test_compounds_are_similar_to_names():
    parts = WordParts.of(Vocabulary(["garten"], np.array([5])))
    names = parts.rows(["Gartenbau", "Weltgeschichte"]).to_csr(N_PARTS)
    similar = (parts.rows(["Obstgartenbauten"]).to_csr(N_PARTS) @ names.T).toarray()[0]
    assert similar[0] > 0.3 > 0.1 > similar[1]
