"""The kernels of the re-ranker's evidence against slow twins."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shortlist.arrays import Ragged
from shortlist.kernels.evidence import KNOWN_ABOVE, MAX_NAMES_PER_WORD, OTHERS_BELOW, gather_evidence
from shortlist.odds import CLIP
from shortlist.stages.evidence import Evidence, hashes_of
from shortlist.stages.reranker import Mixture
from shortlist.text import Tokenizer


def gather(texts, names, known, ids, n_more):
    """What the kernel says, as an `Evidence`: `texts` and `names` have weights, `known` are lists of labels."""
    all_ids = np.full((len(ids), ids.shape[1] + n_more), 99, np.int32)
    all_ids[:, : ids.shape[1]] = ids
    similar, is_known = np.full(all_ids.shape, 99, np.float32), np.ones(all_ids.shape, np.bool_)
    gather_evidence(
        texts.indptr, texts.values, texts.weights, names.indptr, names.values, names.weights.astype(np.uint8),
        known.indptr, known.values, ids.shape[1], all_ids, similar, is_known,
    )  # fmt: skip
    return Evidence(all_ids, texts, similar, is_known, known.counts > 0)


def slow_similarities(texts, names, text):
    """The similarity of a text and every label's name, words of too many names left out: a dictionary."""
    found, of_text = {}, slice(*texts.indptr[text : text + 2])
    for word, weight in zip(texts.values[of_text], texts.weights[of_text], strict=True):
        begin, end = names.indptr[word : word + 2]
        if end - begin <= MAX_NAMES_PER_WORD:
            for label, step in zip(names.values[begin:end], names.weights[begin:end], strict=True):
                found[int(label)] = found.get(int(label), 0) + float(weight) * float(step) / 255
    return found


def check(texts, names, known, ids, n_more):
    evidence, n_given = gather(texts, names, known, ids, n_more), ids.shape[1]
    assert np.array_equal(evidence.ids[:, :n_given], ids)
    for text in range(len(ids)):
        similar, taught = slow_similarities(texts, names, text), set(known.row(text).tolist())
        new = evidence.ids[text, n_given:].tolist()
        # Labels of texts with the same words come first, then those with the most similar names; no label twice.
        score = {label: similar.get(label, 0) + 2 * (label in taught) for label in {*similar, *taught}}
        further = sorted((score[label] for label in score.keys() - set(ids[text].tolist())), reverse=True)[:n_more]
        assert [score[label] for label in new[: len(further)]] == pytest.approx(further, abs=1e-5)
        assert new[len(further) :] == [-1] * (n_more - len(further))
        assert len(set(new[: len(further)]) | set(ids[text].tolist())) == len(further) + len(set(ids[text].tolist()))
        for i, label in enumerate(evidence.ids[text].tolist()):
            assert evidence.names[text, i] == pytest.approx(similar.get(label, 0) if label >= 0 else 0, abs=1e-5)
            assert evidence.known[text, i] == (label in taught)
    return evidence


def random_rows(rng, n_rows, n_values, most, weights=None):
    rows = Ragged.from_lists([rng.permutation(n_values)[: rng.integers(0, most + 1)] for _ in range(n_rows)])
    drawn = rng.random(len(rows.values)) if weights is None else rng.integers(0, weights, len(rows.values))
    return Ragged(rows.indptr, rows.values.astype(np.int32), drawn.astype(np.float32))


class TestGatherEvidence:
    @given(
        st.integers(0, 10_000),
        st.integers(0, 40),
        st.integers(1, 30),
        st.integers(1, 60),
        st.integers(0, 5),
        st.integers(0, 8),
    )
    def test_equals_its_slow_twin(self, seed, n_texts, n_words, n_labels, n_given, n_more):
        """Empty texts, words of no name, missing and repeated candidates, no candidates, no room."""
        rng = np.random.default_rng(seed)
        texts, names = random_rows(rng, n_texts, n_words, 6), random_rows(rng, n_words, n_labels, 9, weights=256)
        known = random_rows(rng, n_texts, n_labels, rng.integers(0, 4))
        check(texts, names, known, rng.integers(-1, n_labels, (n_texts, n_given)).astype(np.int32), n_more)

    def test_long_lists_of_names_and_more_known_labels_than_room(self):
        """Hundreds of labels per text, so that the table of labels grows."""
        rng = np.random.default_rng(0)
        texts, names = random_rows(rng, 40, 20, 12), random_rows(rng, 20, 3000, 900, weights=256)
        known = random_rows(rng, 40, 3000, 200)
        for n_more in (0, 1, 7, 50):
            evidence = check(texts, names, known, rng.integers(-1, 3000, (40, 30)).astype(np.int32), n_more)
            assert (evidence.known[:, 30:].sum(axis=1) == np.minimum(known.counts, n_more)).mean() > 0.5

    @pytest.mark.parametrize(("n_names", "counts"), [(MAX_NAMES_PER_WORD, True), (MAX_NAMES_PER_WORD + 1, False)])
    def test_words_of_too_many_names_say_nothing(self, n_names, counts):
        texts = Ragged(np.array([0, 2]), np.array([0, 1], np.int32), np.array([0.8, 0.6], np.float32))
        of_words = [list(range(n_names)), [5]]
        names = Ragged.from_lists(of_words)
        names = Ragged(names.indptr, names.values.astype(np.int32), np.full(len(names.values), 255, np.float32))
        nothing = Ragged(np.zeros(2, np.int64), np.zeros(0, np.int32))
        evidence = check(texts, names, nothing, np.array([[3]], np.int32), n_more=3)
        assert evidence.ids.tolist() == [[3, 5, 0, 1] if counts else [3, 5, -1, -1]]
        assert evidence.names[0].tolist() == pytest.approx([0.8, 1.4, 0.8, 0.8] if counts else [0, 0.6, 0, 0])

    def test_of_equally_similar_names_the_lower_label_comes_first(self):
        texts = Ragged(np.array([0, 1]), np.array([0], np.int32), np.ones(1, np.float32))
        labels = np.random.default_rng(0).permutation(200).astype(np.int32)
        names = Ragged(np.array([0, 200]), labels, np.full(200, 200, np.float32))
        known = Ragged(np.array([0, 2]), np.array([190, 70], np.int32))
        found = gather(texts, names, known, np.array([[1, -1]], np.int32), n_more=6).ids
        assert found.tolist() == [[1, -1, 70, 190, 0, 2, 3, 4]]


@given(st.integers(0, 10_000), st.integers(0, 5), st.integers(0, 9), st.booleans())
def test_log_odds_equal_their_slow_twin(seed, n_texts, k, has_parts):
    rng = np.random.default_rng(seed)
    ids = rng.integers(-1, 7, (n_texts, k)).astype(np.int32)
    frequencies = np.log1p(rng.integers(0, 90, 7)).astype(np.float32)
    probabilities = np.where(rng.random(ids.shape) < 0.3, rng.integers(0, 2, ids.shape), rng.random(ids.shape))
    probabilities, names = probabilities.astype(np.float32), rng.random(ids.shape).astype(np.float32)
    words = np.where(ids >= 0, rng.standard_normal(ids.shape), -np.inf).astype(np.float32)
    is_known, known = rng.random(n_texts) < 0.5, rng.random(ids.shape) < 0.3
    known &= is_known[:, None]
    mixture = Mixture(*rng.standard_normal(12).tolist())
    parts = rng.random(ids.shape).astype(np.float32) if has_parts else None
    evidence = Evidence(ids, Ragged.from_lists([[]] * n_texts), names, known, is_known, parts)
    odds = mixture.log_odds(evidence, probabilities, words, frequencies)
    assert (odds.dtype, odds.shape) == (np.float32, ids.shape)
    for (text, i), label in np.ndenumerate(ids):
        if label < 0:
            assert odds[text, i] == -np.inf
            continue
        p, common = min(max(float(probabilities[text, i]), CLIP), 1 - CLIP), float(frequencies[label])
        name = float(names[text, i])
        expected = mixture.bias + mixture.frequency * common + mixture.names * name + mixture.same_name * name**4
        if parts is not None:
            in_parts = float(parts[text, i])
            expected += mixture.parts * in_parts + mixture.same_parts * in_parts**4
        expected += (mixture.first + mixture.first_frequency * common) * math.log(p / (1 - p))
        expected += (mixture.words + mixture.words_frequency * common) * float(words[text, i])
        if is_known[text] and known[text, i]:
            expected = KNOWN_ABOVE + np.logaddexp(0, expected + mixture.known - KNOWN_ABOVE)
        elif is_known[text]:
            expected = OTHERS_BELOW - np.logaddexp(0, OTHERS_BELOW - expected - mixture.other)
        assert odds[text, i] == pytest.approx(expected, rel=1e-4, abs=1e-3)


def slow_hash(word):
    value = 0xCBF29CE484222325
    for byte in word.encode():
        value = (value ^ byte) * 0x100000001B3 % 2**64
    value = (value ^ (value >> 32)) + 0x9E3779B97F4A7C15
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1)):
        value %= 2**64
        value = (value ^ (value >> shift)) * factor
    return value


class TestHashes:
    words = ["red", "Hat", "hats", "reds", "rot", "grün", "ё", "x"]

    @given(st.lists(st.lists(st.sampled_from(words), max_size=5), max_size=12))
    def test_texts_have_the_same_hash_if_they_have_the_same_words(self, lists):
        hashes = hashes_of([" ".join(words) for words in lists], Tokenizer())
        assert (hashes.dtype, hashes.shape) == (np.int64, (len(lists),))
        bags = [Counter(words) for words in lists]
        for i, one in enumerate(bags):
            assert (hashes[i] == 0) == (not one)
            assert [hashes[i] == hashes[j] for j in range(len(bags))] == [one == other for other in bags]

    def test_case_punctuation_and_order_do_not_matter(self):
        one, other, same, less = hashes_of(["Red hat: new!", "NEW, red-hat", "new hat red", "red hat"], Tokenizer())
        assert one == other == same != less

    def test_where_a_word_ends_matters(self):
        assert len(set(hashes_of(["ab c", "a bc", "abc", "a b c"], Tokenizer()).tolist())) == 4

    def test_are_those_of_a_saved_model(self):
        """FNV-1a and splitmix64 of each word, added up. With other hashes, old models would not know their texts."""
        expected = [sum(slow_hash(word) for word in text.split()) % 2**64 for text in ("red hat", "grün", "")]
        found = hashes_of(["red hat", "grün", ""], Tokenizer())
        assert [value % 2**64 for value in found.tolist()] == expected
