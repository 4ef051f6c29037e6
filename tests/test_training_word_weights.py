"""Learning the word weights of the re-ranker, against the exact solution of the same problem."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from scipy.optimize import minimize

from shortlist.arrays import Ragged
from shortlist.kernels.reranker import texts_of_labels
from shortlist.kernels.threads import n_cores, use_threads
from shortlist.stages.pages import PAGE
from shortlist.text.features import normalize_sparse_rows
from shortlist.training import word_weights
from shortlist.training.word_weights import learn_word_weights

# Learning stops when no text would move the weights by more than a tenth; the objective is then this near to the best.
TOLERANCE = 0.03


def random_problem(seed, n_texts, n_words, n_labels, k):
    """Texts of a few words each (some of none), labels (some of none), and candidates with gaps and repeats."""
    rng = np.random.default_rng(seed)
    dense = rng.random((n_texts, n_words)) * (rng.random((n_texts, n_words)) < min(1, 3 / n_words))
    features = normalize_sparse_rows(sparse.csr_array(dense.astype(np.float32)))
    labels = Ragged.from_lists([rng.permutation(n_labels)[: rng.integers(0, 3)] for _ in range(n_texts)])
    return features, labels, rng.integers(-1, n_labels, (n_texts, k)).astype(np.int32)


def texts_of(label, labels, candidates):
    """The texts that a label belongs to or is a candidate for, each once; and to which it belongs."""
    hits = {text: True for text in range(len(labels)) if label in labels.row(text)}
    hits |= {text: False for text in range(len(labels)) if label in candidates[text] and text not in hits}
    texts = sorted(hits)
    return np.asarray(texts, int), np.asarray([hits[text] for text in texts], bool)


def objective(row, inputs, signs, C):
    """Half the squared length of weights and bias, plus C times the squared hinge losses; and its gradient."""
    losses = np.maximum(1 - signs * (inputs @ row), 0)
    return row @ row / 2 + C * losses @ losses, row - 2 * C * (signs * losses) @ inputs


def best_row(features, texts, hits, C):
    """The weights, with the bias last, that minimise the objective; and the inputs and signs of the problem."""
    inputs = np.hstack([features.toarray()[texts].astype(np.float64), np.ones((len(texts), 1))])
    signs = np.where(hits, 1.0, -1.0)
    start = np.zeros(inputs.shape[1])
    found = minimize(objective, start, (inputs, signs, C), "L-BFGS-B", jac=True, options={"ftol": 1e-14})
    return found.x, inputs, signs


def dense_rows(arrays, n_words):
    """Labels × words, with the biases as the last column."""
    n_labels = len(arrays["biases"])
    n_pages = (len(arrays["starts"]) - 1) // max(n_labels, 1)
    dense = np.zeros((n_labels, n_words + 1))
    dense[:, -1] = arrays["biases"]
    for run, (begin, end) in enumerate(itertools.pairwise(arrays["starts"].tolist())):
        label, page = divmod(run, n_pages)
        words = page * PAGE + arrays["words"][begin:end].astype(int)
        dense[label, words] = arrays["weights"][begin:end] * arrays["scales"][label].astype(float)
    return dense


def assert_nearly_best(features, labels, n_labels, candidates, C=0.5):
    """The objective and the scores of every label, with no weight dropped."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(word_weights, "MIN_WEIGHT", 1e-30)
        learnt = learn_word_weights(features, labels, n_labels, candidates, C)
    for label, row in enumerate(dense_rows(learnt, features.shape[1])):
        texts, hits = texts_of(label, labels, candidates)
        expected, inputs, signs = best_row(features, texts, hits, C)
        least = objective(expected, inputs, signs, C)[0]
        assert least <= objective(row, inputs, signs, C)[0] + 1e-6
        assert objective(row, inputs, signs, C)[0] <= (1 + TOLERANCE) * least + 1e-6
        ours, best = inputs @ row, inputs @ expected
        assert np.abs(ours - best).max(initial=0) < 0.15
        clear = best[:, None] - best[None, :] > 0.2
        assert np.all((ours[:, None] > ours[None, :])[clear])
    return learnt


def assert_equal(found, expected):
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        assert np.array_equal(found[name], array), name
        assert found[name].dtype == array.dtype


class TestLearnWordWeights:
    @given(
        st.integers(0, 10_000),
        st.integers(1, 30),
        st.integers(1, 15),
        st.integers(1, 6),
        st.integers(1, 5),
        st.sampled_from([0.1, 0.25, 0.5]),
    )
    def test_nearly_the_exact_solution(self, seed, n_texts, n_words, n_labels, k, C):
        features, labels, candidates = random_problem(seed, n_texts, n_words, n_labels, k)
        assert_nearly_best(features, labels, n_labels, candidates, C)

    @pytest.mark.parametrize(
        ("labels", "candidates"),
        [
            ([[0], [1], [2]], [[-1], [-1], [-1]]),
            ([[0], [1], [2]], [[0], [1], [2]]),
            ([[], [], []], [[0], [0], [0]]),
            ([[0, 1, 2], [2], []], [[0, 1, 2], [0, 1, -1], [-1, 2, 0]]),
            ([[1], [1], [1]], [[0, 2], [0, 2], [0, 2]]),
        ],
        ids=["no candidates", "only hits", "only misses", "mixed", "all or nothing"],
    )
    def test_edge_shapes(self, labels, candidates):
        features = sparse.csr_array(np.asarray([[1, 0], [0, 0], [0.6, 0.8]], np.float32))
        candidates = np.asarray(candidates, np.int32)
        learnt = assert_nearly_best(features, Ragged.from_lists(labels), 3, candidates)
        seen = {label for row in labels for label in row} | set(candidates.ravel().tolist())
        for label in set(range(3)) - seen:
            assert learnt["biases"][label] == 0
            assert learnt["starts"][label] == learnt["starts"][label + 1]

    def test_one_label_one_text_one_word(self):
        features, labels = sparse.csr_array(np.ones((1, 1), np.float32)), Ragged.from_lists([[0]])
        learnt = learn_word_weights(features, labels, 1, np.zeros((1, 1)))
        # One step of the dual solves it: the share is 1 / (1 + 1 + 1), for the word and for the bias.
        assert learnt["weights"].tolist() == learnt["biases"].tolist() == pytest.approx([1 / 3])
        assert (learnt["starts"].tolist(), learnt["words"].tolist()) == ([0, 1], [0])

    @pytest.mark.parametrize("n_texts", [4, 0])
    def test_texts_without_words_and_no_texts(self, n_texts):
        labels = Ragged.from_lists([[0], [0], [0], []][:n_texts])
        none = sparse.csr_array((n_texts, 3), dtype=np.float32)
        learnt = assert_nearly_best(none, labels, 2, np.zeros((n_texts, 1), np.int32))
        assert len(learnt["words"]) == 0
        assert (learnt["biases"][0] > 0) == (n_texts > 0)
        assert learnt["biases"][1] == 0

    def test_repeated_texts_count_twice(self):
        features, labels, candidates = random_problem(3, 12, 6, 3, 2)
        twice = sparse.vstack([features, features], format="csr")
        assert_nearly_best(twice, Ragged.concatenate([labels, labels]), 3, np.concatenate([candidates, candidates]))

    @given(st.integers(0, 10_000), st.integers(0, 8), st.integers(1, 5), st.integers(1, 6))
    def test_each_pair_of_a_text_and_a_label_counts_once(self, seed, n_texts, n_labels, k):
        rng = np.random.default_rng(seed)
        labels = Ragged.from_lists([rng.integers(n_labels, size=rng.integers(0, 4)) for _ in range(n_texts)])
        candidates = rng.integers(-1, n_labels, (n_texts, k)).astype(np.int32)
        starts, texts, hits = texts_of_labels(candidates, labels.indptr, labels.values, n_labels)
        assert starts[-1] == len(texts) == len(hits)
        for label in range(n_labels):
            own = slice(starts[label], starts[label + 1])
            expected = texts_of(label, labels, candidates)
            assert texts[own].tolist() == expected[0].tolist()
            assert hits[own].tolist() == expected[1].tolist()

    def test_repeated_labels_and_candidates_change_nothing(self):
        features, labels, candidates = random_problem(5, 30, 10, 4, 3)
        expected = learn_word_weights(features, labels, 4, candidates)
        repeated = Ragged.from_lists([np.repeat(labels.row(text), 2) for text in range(30)])
        assert_equal(learn_word_weights(features, repeated, 4, np.hstack([candidates, candidates])), expected)

    def test_blocks_and_shares_of_the_work_change_nothing(self, monkeypatch):
        features, labels, candidates = random_problem(1, 60, 20, 17, 6)
        expected = learn_word_weights(features, labels, 17, candidates)
        assert len(expected["words"]) > 17
        for words_per_block in (0, 1, 40, 300):
            monkeypatch.setattr(word_weights, "WORDS_PER_BLOCK", words_per_block)
            for n_shares in (1, 2, 5, 40):
                monkeypatch.setattr(word_weights, "n_threads", lambda n=n_shares: n)
                assert_equal(learn_word_weights(features, labels, 17, candidates), expected)

    @pytest.mark.skipif(n_cores() < 2, reason="there is one core")
    def test_threads_change_nothing(self):
        features, labels, candidates = random_problem(2, 200, 40, 30, 8)
        learnt = []
        for threads in (1, 2):
            with use_threads(threads):
                learnt.append(learn_word_weights(features, labels, 30, candidates))
        assert_equal(learnt[1], learnt[0])

    def test_small_weights_are_dropped_and_words_ascend(self, monkeypatch):
        features, labels, candidates = random_problem(4, 60, 20, 8, 4)
        monkeypatch.setattr(word_weights, "MIN_WEIGHT", 0.1)
        learnt = learn_word_weights(features, labels, 8, candidates)
        monkeypatch.setattr(word_weights, "MIN_WEIGHT", 1e-30)
        everything = dense_rows(learn_word_weights(features, labels, 8, candidates), 20)
        dropped = np.abs(everything[:, :-1]) < 0.1
        assert (dropped & (everything[:, :-1] != 0)).any()
        everything[:, :-1][dropped] = 0
        assert np.array_equal(dense_rows(learnt, 20), everything)
        assert np.abs(learnt["weights"]).min() >= 0.1
        for begin, end in itertools.pairwise(learnt["starts"]):
            assert np.all(np.diff(learnt["words"][begin:end].astype(int)) > 0)

    def test_order_within_rows_and_types_do_not_matter(self):
        features, labels, candidates = random_problem(6, 40, 12, 5, 3)
        expected = learn_word_weights(features, labels, 5, candidates)
        before = unsorted(features)
        again = before.copy()
        assert_equal(learn_word_weights(again, labels, 5, candidates.astype(np.int64)), expected)
        assert np.array_equal(again.indices, before.indices)  # the matrix of the caller stays as it is
        assert_equal(learn_word_weights(features.astype(np.float64), labels, 5, candidates), expected)

    def test_labels_that_are_confused_are_told_apart(self):
        """Twins share all words but one each, and both are always candidates: a guess is right half of the time."""
        rng = np.random.default_rng(0)
        n_twins, n_noise = 10, 50

        def texts(n_texts):
            label = rng.integers(2 * n_twins, size=n_texts)
            noise = 3 * n_twins + rng.integers(n_noise, size=(3, n_texts))
            words = np.stack([label, 2 * n_twins + label // 2, *noise])
            rows = Ragged(5 * np.arange(n_texts + 1), words.T.ravel().astype(np.int32))
            both = label[:, None] // 2 * 2 + np.arange(2)
            return normalize_sparse_rows(rows.to_csr(3 * n_twins + n_noise)), label, both

        features, label, both = texts(600)
        learnt = learn_word_weights(features, Ragged(np.arange(601), label.astype(np.int32)), 2 * n_twins, both)
        rows = dense_rows(learnt, 3 * n_twins + n_noise)
        features, label, both = texts(400)
        scores = np.take_along_axis(features.toarray() @ rows[:, :-1].T + rows[:, -1], both, axis=1)
        best = both[np.arange(400), scores.argmax(axis=1)]
        assert (best == label).mean() >= 0.98


def unsorted(features):
    """The same matrix, with the columns of each row in descending order."""
    bounds = itertools.pairwise(features.indptr.tolist())
    order = np.asarray([place for begin, end in bounds for place in reversed(range(begin, end))], int)
    return sparse.csr_array((features.data[order], features.indices[order], features.indptr), shape=features.shape)
