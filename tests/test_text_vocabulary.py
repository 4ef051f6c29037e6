"""Vocabularies against slow counting: which words, in which order, with which ids."""

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
    """Words by descending count, ties in the order of first occurrence; and all counts."""
    counts = Counter(word for text in texts for word in tokenizer.words(text))
    kept = [(word, count) for word, count in counts.items() if count >= min_count]
    kept.sort(key=lambda item: -item[1])
    return dict(kept[:max_words]), counts


def slow_subwords(word, shortest, longest):
    marked = f"<{word}>"
    return [marked[i : i + n] for i in range(len(marked)) for n in range(shortest, longest + 1) if i + n <= len(marked)]


@given(texts, st.fixed_dictionaries(cuts), st.sampled_from([(), ("a", "中")]))
def test_words_counts_and_ids(texts, cut, stop_words):
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
def test_subwords_of_rare_and_unknown_words(texts, others, lengths, min_count, max_words):
    tokenizer = Tokenizer(stop_words=["abc"])
    vocabulary, encoded = Vocabulary.build_and_encode(
        texts, tokenizer, min_count=min_count, max_words=max_words, subword_lengths=lengths
    )
    kept, counts = slow_vocabulary(texts, tokenizer, min_count, max_words)
    found = Counter()
    for word, count in counts.items():
        if word not in kept:
            for subword in slow_subwords(word, *lengths):
                found[subword] += count
    subwords = {subword: count for subword, count in found.most_common() if count >= min_count}
    assert vocabulary.words == list(kept)
    assert sorted(vocabulary.subwords) == sorted(subwords)
    assert dict(zip(vocabulary.subwords, vocabulary.subword_counts.tolist(), strict=True)) == subwords
    assert vocabulary.subword_counts.tolist() == sorted(subwords.values(), reverse=True)
    assert len(vocabulary) == len(kept) + len(subwords)
    ids = {word: i for i, word in enumerate(kept)}
    subword_ids = {subword: len(kept) + i for i, subword in enumerate(vocabulary.subwords)}

    def slow_ids(word):
        if word in ids:
            return [ids[word]]
        return [subword_ids[subword] for subword in slow_subwords(word, *lengths) if subword in subword_ids]

    for batch in (texts, others):
        expected = [[word_id for word in tokenizer.words(text) for word_id in slow_ids(word)] for text in batch]
        assert as_lists(vocabulary.encode(batch)) == expected
    assert as_lists(encoded) == as_lists(vocabulary.encode(texts))


def test_subwords_of_all_words_follow_them(tmp_path):
    tokenizer = Tokenizer(stop_words=("the",))
    texts = ["the cat", "the cats", "hat"]
    vocabulary, word_ids = Vocabulary.build_and_encode(texts, tokenizer, subword_lengths=(3, 4), subwords_of_all=True)
    assert vocabulary.words == ["cat", "cats", "hat"]
    parts = [part for word in vocabulary.words for part in slow_subwords(word, 3, 4)]
    assert sorted(vocabulary.subwords) == sorted(set(parts))
    counts = dict(zip(vocabulary.subwords, vocabulary.subword_counts.tolist(), strict=True))
    assert counts["<ca"] == 2 and counts["at>"] == 2 and counts["<hat"] == 1
    names = [*vocabulary.words, *vocabulary.subwords]
    expected = [["cat", *slow_subwords("cat", 3, 4)], ["cats", *slow_subwords("cats", 3, 4)]]
    assert [[names[i] for i in word_ids.row(row)] for row in (0, 1)] == expected
    unknown = [names[i] for i in vocabulary.encode(["the mat"]).values]
    assert unknown == [part for part in slow_subwords("mat", 3, 4) if part in names]
    vocabulary.save(tmp_path / "words.txt")
    again = Vocabulary.load(tmp_path / "words.txt", vocabulary.to_config())
    assert again.encode(texts).values.tolist() == word_ids.values.tolist()


def test_subwords_of_very_long_words():
    long = "é" * 3000
    vocabulary = Vocabulary.build([long, "éx"], min_count=2, subword_lengths=(2, 3))
    assert set(vocabulary.subwords) == {"<é", "éé", "ééé"}
    row = vocabulary.encode([long]).row(0)
    assert len(row) > 100  # truncated, but not inside a character
    assert vocabulary.encode(["éz"]).values.tolist() == [vocabulary.subwords.index("<é")]


def test_more_texts_than_one_block():
    many = [f"word{i % 1000} common é{i % 3}" for i in range(2 * TEXTS_PER_BLOCK + 5)]
    vocabulary, encoded = Vocabulary.build_and_encode(many)
    assert vocabulary.words[0] == "common"
    assert vocabulary.counts[0] == len(many)
    assert np.array_equal(encoded.counts, np.full(len(many), 3))
    assert [vocabulary.words[i] for i in encoded.row(len(many) - 1)] == Tokenizer().words(many[-1])
    again = vocabulary.encode(Texts.from_strings(many))
    assert np.array_equal(again.values, encoded.values)
    assert np.array_equal(again.indptr, encoded.indptr)


def test_no_words():
    for nothing in ([], [""], ["...", " "]):
        vocabulary, encoded = Vocabulary.build_and_encode(nothing)
        assert (vocabulary.words, len(vocabulary), len(encoded)) == ([], 0, len(nothing))
        assert as_lists(vocabulary.encode(["unknown", ""])) == [[], []]


def test_stop_words_get_no_id_and_no_subwords():
    tokenizer = Tokenizer(stop_words="english")
    vocabulary = Vocabulary.build(["the cat", "the hat"] * 2 + ["rare"], tokenizer, min_count=2, subword_lengths=(2, 2))
    assert vocabulary.words == ["cat", "hat"]
    assert vocabulary.encode(["the cat this"]).values.tolist() == [0]


ODD_WORDS = ["plain", "ünïcode", "中", "😀", "#hash", "a\u00a0b", "<tag>", "'", "\x7f", "word\u2028sep", "\ufeffbom"]


@pytest.mark.parametrize("name", ["words.txt", "words.txt.gz"])
def test_saving_and_loading(tmp_path, name):
    path = tmp_path / name
    given = Vocabulary(ODD_WORDS, np.arange(len(ODD_WORDS)), Tokenizer("whitespace"))
    given.save(path)
    loaded = Vocabulary.load(path, json.loads(json.dumps(given.to_config())))
    assert loaded.words == ODD_WORDS
    assert loaded.counts.tolist() == given.counts.tolist()
    assert loaded.tokenizer == given.tokenizer
    assert loaded.subwords == []
    assert loaded.subword_lengths is None
    if name == "words.txt":
        assert path.read_text().splitlines()[0] == "plain\t0"


@given(texts, st.sampled_from([None, (1, 2), (3, 5)]))
def test_a_loaded_vocabulary_gives_the_same_ids(tmp_path, texts, lengths):
    vocabulary = Vocabulary.build(texts, min_count=2, subword_lengths=lengths)
    vocabulary.save(tmp_path / "words.txt")
    loaded = Vocabulary.load(tmp_path / "words.txt", vocabulary.to_config())
    assert loaded.words == vocabulary.words
    assert loaded.subwords == vocabulary.subwords
    assert loaded.subword_lengths == vocabulary.subword_lengths
    assert loaded.subword_counts.tolist() == vocabulary.subword_counts.tolist()
    assert as_lists(loaded.encode(texts)) == as_lists(vocabulary.encode(texts))


@pytest.mark.parametrize("content", [b"word\n", b"a\t1\nb\tx\n", b"a\t\n", "a\t²\n".encode(), b"\xff\t1\n"])
def test_malformed_files_are_refused(put, content):
    with pytest.raises(DataError, match=r"words\.txt, line [12]: expected a word, a tab and its count"):
        Vocabulary.load(put("words.txt", content), {"tokenizer": {}})
    with pytest.raises(DataError, match="no such file"):
        Vocabulary.load("missing.txt", {"tokenizer": {}})


def test_duplicate_words_are_refused():
    with pytest.raises(DataError, match="occurs twice"):
        Vocabulary(["a", "b", "a"], np.ones(3)).encode(["a"])


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"max_words": -1}, "max_words is -1"),
        ({"subword_lengths": (0, 3), "min_count": 2}, "subword_lengths"),
        ({"subword_lengths": (4, 3), "min_count": 2}, "subword_lengths"),
        ({"subword_lengths": (3, 5)}, "set min_count to 2 or more"),
    ],
)
def test_wrong_options_are_refused(options, what):
    with pytest.raises(OptionError, match=what):
        Vocabulary.build(["a b"], **options)


def test_one_string_is_not_a_list_of_texts():
    with pytest.raises(DataError, match="one text"):
        Vocabulary.build("a b c")


def test_stop_words_are_known_and_need_no_training_text():
    """Training failed after its last epoch: stop words have numbers above the ids that `seen` is about."""
    vocabulary = Vocabulary.build(["the red shoes"], Tokenizer(stop_words=("the", "of")))
    texts = ["the red hat of", "shoes"]
    assert vocabulary.known_share(texts).tolist() == [0.75, 1]
    seen = np.array([word == "red" for word in vocabulary.words])
    assert vocabulary.known_share(texts, seen).tolist() == [0.75, 0]


def test_counts_of_all_lengths_are_read(tmp_path):
    counts = [10**18 - 1, 1234567, 10, 7, 0]
    (tmp_path / "vocabulary.txt").write_text("".join(f"wörd {count}\t{count}\n" for count in counts))
    loaded = Vocabulary.load(tmp_path / "vocabulary.txt", Vocabulary(["a"], [1]).to_config())
    assert loaded.counts.tolist() == counts
    assert list(loaded.words) == [f"wörd {count}" for count in counts]


def test_words_are_added_behind_those_that_were_learnt(tmp_path):
    plain = Vocabulary.build(["red shoes"], Tokenizer(stop_words=("the",)))
    more = plain.with_words(["hat"], np.array([3])).with_words(["blue"], np.array([1]))
    assert [*more.words] == ["red", "shoes", "hat", "blue"] and more.counts.tolist() == [1, 1, 3, 1]
    assert (len(more), more.n_learnt, plain.n_learnt) == (4, 2, 2)
    assert more.is_known(["hat", "the", "coat"]).tolist() == [True, True, False]
    ids = more.encode(["blue shoes", "hat"])
    assert as_lists(more.learnt(ids)) == [[1], []] and plain.learnt(ids) is ids
    more.save(tmp_path / "vocabulary.txt")
    assert Vocabulary.load(tmp_path / "vocabulary.txt", more.to_config()).n_learnt == 2
    for wrong in (5, -1, "2", 1.0):
        with pytest.raises(DataError, match=r"n_added is .*; expected at most 4 words"):
            Vocabulary.load(tmp_path / "vocabulary.txt", {**more.to_config(), "n_added": wrong})
