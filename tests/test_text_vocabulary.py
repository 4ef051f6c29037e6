"""Vocabularies against counting by hand: which words, in which order, with which numbers."""

from __future__ import annotations

import json
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shortlist.data import Texts
from shortlist.errors import DataError, OptionError
from shortlist.text import Tokenizer, Vocabulary
from shortlist.text.vocabulary import TEXTS_PER_BLOCK

words = st.text("abcé中", min_size=1, max_size=4)
texts = st.lists(st.lists(words, max_size=8).map(" ".join), max_size=12)
cuts = {"min_count": st.integers(0, 4), "max_words": st.none() | st.integers(0, 5)}


def as_lists(ragged):
    return [ragged.row(i).tolist() for i in range(len(ragged))]


def slow_vocabulary(texts, tokenizer, min_count, max_words):
    """Words by count, equally frequent ones in the order they came, and their counts."""
    counts = Counter(word for text in texts for word in tokenizer.words(text))
    kept = [(word, count) for word, count in counts.items() if count >= min_count]
    kept.sort(key=lambda item: -item[1])
    return dict(kept[:max_words]), counts


def slow_parts(word, shortest, longest):
    stem = f"<{word}>"
    return [stem[i : i + n] for i in range(len(stem)) for n in range(shortest, longest + 1) if i + n <= len(stem)]


@given(texts, st.fixed_dictionaries(cuts), st.sampled_from([(), ("a", "中")]))
def test_words_counts_and_numbers(texts, cut, stop_words):
    tokenizer = Tokenizer(stop_words=stop_words)
    vocabulary, encoded = Vocabulary.build_and_encode(texts, tokenizer, **cut)
    expected, _ = slow_vocabulary(texts, tokenizer, **cut)
    assert vocabulary.words == list(expected)
    assert vocabulary.counts.tolist() == list(expected.values())
    assert vocabulary.counts.dtype == np.int64
    assert len(vocabulary) == len(expected)
    ids = {word: i for i, word in enumerate(expected)}
    assert as_lists(encoded) == [[ids[word] for word in tokenizer.words(text) if word in ids] for text in texts]
    assert as_lists(vocabulary.encode(texts)) == as_lists(encoded)
    assert encoded.values.dtype == np.int32
    assert Vocabulary.build(texts, tokenizer, **cut).words == vocabulary.words


@given(
    texts, texts, st.sampled_from([(1, 1), (1, 3), (2, 2), (3, 5)]), st.integers(2, 4), st.none() | st.integers(0, 5)
)
def test_parts_of_rare_and_unknown_words(texts, others, sizes, min_count, max_words):
    tokenizer = Tokenizer(stop_words=["abc"])
    vocabulary, encoded = Vocabulary.build_and_encode(
        texts, tokenizer, min_count=min_count, max_words=max_words, part_sizes=sizes
    )
    kept, counts = slow_vocabulary(texts, tokenizer, min_count, max_words)
    found = Counter()
    for word, count in counts.items():
        if word not in kept:
            for part in slow_parts(word, *sizes):
                found[part] += count
    parts = {part: count for part, count in found.most_common() if count >= min_count}
    assert vocabulary.words == list(kept)
    assert sorted(vocabulary.parts) == sorted(parts)
    assert dict(zip(vocabulary.parts, vocabulary.part_counts.tolist(), strict=True)) == parts
    assert vocabulary.part_counts.tolist() == sorted(parts.values(), reverse=True)
    assert len(vocabulary) == len(kept) + len(parts)
    ids = {word: i for i, word in enumerate(kept)}
    part_ids = {part: len(kept) + i for i, part in enumerate(vocabulary.parts)}

    def slow_ids(word):
        if word in ids:
            return [ids[word]]
        return [part_ids[part] for part in slow_parts(word, *sizes) if part in part_ids]

    for batch in (texts, others):
        expected = [[number for word in tokenizer.words(text) for number in slow_ids(word)] for text in batch]
        assert as_lists(vocabulary.encode(batch)) == expected
    assert as_lists(encoded) == as_lists(vocabulary.encode(texts))


def test_parts_of_very_long_words():
    long = "é" * 3000
    vocabulary = Vocabulary.build([long, "éx"], min_count=2, part_sizes=(2, 3))
    assert set(vocabulary.parts) == {"<é", "éé", "ééé"}
    row = vocabulary.encode([long]).row(0)
    assert len(row) > 100  # cut, but not into half a character
    assert vocabulary.encode(["éz"]).values.tolist() == [vocabulary.parts.index("<é")]


def test_texts_beyond_one_block():
    many = [f"word{i % 1000} common é{i % 3}" for i in range(2 * TEXTS_PER_BLOCK + 5)]
    vocabulary, encoded = Vocabulary.build_and_encode(many)
    assert vocabulary.words[0] == "common"
    assert vocabulary.counts[0] == len(many)
    assert np.array_equal(encoded.counts, np.full(len(many), 3))
    assert [vocabulary.words[i] for i in encoded.row(len(many) - 1)] == Tokenizer().words(many[-1])
    again = vocabulary.encode(Texts.from_strings(many))
    assert np.array_equal(again.values, encoded.values)
    assert np.array_equal(again.indptr, encoded.indptr)


def test_nothing_to_count():
    for nothing in ([], [""], ["...", " "]):
        vocabulary, encoded = Vocabulary.build_and_encode(nothing)
        assert (vocabulary.words, len(vocabulary), len(encoded)) == ([], 0, len(nothing))
        assert as_lists(vocabulary.encode(["unknown", ""])) == [[], []]


def test_stop_words_keep_no_number_and_no_parts():
    tokenizer = Tokenizer(stop_words="english")
    vocabulary = Vocabulary.build(["the cat", "the hat"] * 2 + ["rare"], tokenizer, min_count=2, part_sizes=(2, 2))
    assert vocabulary.words == ["cat", "hat"]
    assert vocabulary.encode(["the cat this"]).values.tolist() == [0]


ODD_WORDS = ["plain", "ünïcode", "中", "😀", "#hash", "a\u00a0b", "<tag>", "'", "\x7f", "word\u2028sep", "\ufeffbom"]


@pytest.mark.parametrize("name", ["words.txt", "words.txt.gz"])
def test_saving_and_loading(tmp_path, name):
    path = tmp_path / name
    given = Vocabulary(ODD_WORDS, np.arange(len(ODD_WORDS)), Tokenizer("whitespace", keep_punctuation=True))
    given.save(path)
    loaded = Vocabulary.load(path, json.loads(json.dumps(given.to_config())))
    assert loaded.words == ODD_WORDS
    assert loaded.counts.tolist() == given.counts.tolist()
    assert loaded.tokenizer == given.tokenizer
    assert loaded.parts == []
    assert loaded.part_sizes is None
    if name == "words.txt":
        assert path.read_text().splitlines()[0] == "plain\t0"


@given(texts, st.sampled_from([None, (1, 2), (3, 5)]))
def test_a_loaded_vocabulary_numbers_words_as_before(tmp_path, texts, sizes):
    vocabulary = Vocabulary.build(texts, min_count=2, part_sizes=sizes)
    vocabulary.save(tmp_path / "words.txt")
    loaded = Vocabulary.load(tmp_path / "words.txt", vocabulary.to_config())
    assert loaded.words == vocabulary.words
    assert loaded.parts == vocabulary.parts
    assert loaded.part_sizes == vocabulary.part_sizes
    assert loaded.part_counts.tolist() == vocabulary.part_counts.tolist()
    assert as_lists(loaded.encode(texts)) == as_lists(vocabulary.encode(texts))


@pytest.mark.parametrize("content", [b"word\n", b"a\t1\nb\tx\n", b"a\t\n", "a\t²\n".encode(), b"\xff\t1\n"])
def test_a_file_that_is_no_vocabulary(put, content):
    with pytest.raises(DataError, match=r"words\.txt, line [12]: expected a word, a tab and its count"):
        Vocabulary.load(put("words.txt", content), {"tokenizer": {}})
    with pytest.raises(DataError, match="no such file"):
        Vocabulary.load("missing.txt", {"tokenizer": {}})


def test_a_word_twice_has_no_number():
    with pytest.raises(DataError, match="stands twice"):
        Vocabulary(["a", "b", "a"], np.ones(3)).encode(["a"])


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"max_words": -1}, "max_words is -1"),
        ({"part_sizes": (0, 3), "min_count": 2}, "part_sizes"),
        ({"part_sizes": (4, 3), "min_count": 2}, "part_sizes"),
        ({"part_sizes": (3, 5)}, "set min_count to 2 or more"),
    ],
)
def test_wrong_options(options, what):
    with pytest.raises(OptionError, match=what):
        Vocabulary.build(["a b"], **options)


def test_one_text_is_not_a_list_of_texts():
    with pytest.raises(DataError, match="one text"):
        Vocabulary.build("a b c")
