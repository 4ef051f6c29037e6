"""What the re-ranker knows beside scores: names by their features, and the labels of taught texts by their words."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from shortlist.arrays import Ragged, check_arrays
from shortlist.stages.evidence import EVIDENCE_SPEC, index_names, remember_texts, taught_labels
from shortlist.text import Tokenizer

WORDS = ["red", "blue", "hat", "shoe"]
TAUGHT_SPEC = {name: spec for name, spec in EVIDENCE_SPEC.items() if name.startswith("taught.")}
labelled_texts = st.lists(
    st.tuples(st.lists(st.sampled_from(WORDS), max_size=3), st.sets(st.integers(0, 4), max_size=3)), max_size=12
)


def remember(pairs):
    return remember_texts([text for text, _ in pairs], Ragged.from_lists([labels for _, labels in pairs]), Tokenizer())


def taught(arrays, texts):
    found = taught_labels(arrays, texts, Tokenizer())
    assert len(found) == len(texts)
    return [found.row(i).tolist() for i in range(len(texts))]


class TestTaughtTexts:
    @given(labelled_texts, st.lists(st.lists(st.sampled_from([*WORDS, "new"]), max_size=3), max_size=5))
    def test_have_the_labels_of_at_least_half_of_the_texts_with_the_same_words(self, pairs, new):
        arrays = remember([(" ".join(words), sorted(labels)) for words, labels in pairs])
        check_arrays(arrays, TAUGHT_SPEC, n_labels=5)
        asked = [words for words, _ in pairs] + new
        for words, found in zip(asked, taught(arrays, [" ".join(words) for words in asked]), strict=True):
            same = [labels for others, labels in pairs if Counter(others) == Counter(words)] if words else []
            votes = Counter(label for labels in same for label in labels)
            assert found == sorted(label for label, n in votes.items() if 2 * n >= len(same))

    def test_case_punctuation_and_order_do_not_matter(self):
        arrays = remember([("Red hat, new", [3, 1]), ("blue hat", [2])])
        assert taught(arrays, ["NEW red-hat!", "hat red", "blue hat", "hat  BLUE"]) == [[1, 3], [], [2], [2]]

    def test_texts_that_contradict_each_other_say_nothing(self):
        assert taught(remember([("red hat", [i]) for i in range(3)]), ["hat red"]) == [[]]
        assert taught(remember([("red hat", [i]) for i in range(2)]), ["hat red"]) == [[0, 1]]

    @pytest.mark.parametrize("pairs", [[], [("", [1])], [("!?", [1]), ("", [2])], [("red", [])]], ids=str)
    def test_nothing_is_taught_by_texts_without_words_or_labels(self, pairs):
        arrays = remember(pairs)
        check_arrays(arrays, TAUGHT_SPEC, n_labels=5)
        assert taught(arrays, ["", "red", "!"]) == [[], [], []]
        assert taught(arrays, []) == []

    def test_no_text_is_stored(self):
        arrays = remember([("red hat", [0]), ("blue shoe", [1])])
        assert {name: array.dtype.name for name, array in arrays.items()} == {
            "taught.hashes": "int64",
            "taught.indptr": "int64",
            "taught.labels": "int32",
        }
        assert all(word.encode() not in array.tobytes() for word in WORDS for array in arrays.values())


class TestNames:
    @given(st.integers(0, 10_000), st.integers(0, 8), st.integers(0, 9))
    def test_are_listed_by_feature_in_255_steps(self, seed, n_labels, n_features):
        rng = np.random.default_rng(seed)
        dense = rng.random((n_labels, n_features)) * (rng.random((n_labels, n_features)) < 0.4)
        arrays = index_names(sparse.csr_array(dense.astype(np.float32)))
        spec = {name: spec for name, spec in EVIDENCE_SPEC.items() if name.startswith("names.")}
        check_arrays(arrays, spec, n_labels=n_labels, n_features=n_features)
        index = arrays["names.weights"] / 255, arrays["names.labels"], arrays["names.indptr"]
        again = sparse.csr_array(index, shape=(n_features, n_labels)).toarray().T
        np.testing.assert_allclose(again, dense, atol=0.5 / 255 + 1e-6)

    def test_a_weight_a_little_above_1_is_1(self):
        """A name of one word has length 1, give or take a rounding error."""
        arrays = index_names(sparse.csr_array(np.array([[1 + 1e-6]], np.float32)))
        assert arrays["names.weights"].tolist() == [255]
