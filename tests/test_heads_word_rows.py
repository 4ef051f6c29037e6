"""Word rows against the same problem solved slowly and exactly, and against dense products."""

from __future__ import annotations

import itertools
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from scipy.optimize import minimize

from shortlist.arrays import Ragged
from shortlist.errors import ModelError
from shortlist.heads import word_rows
from shortlist.heads.word_rows import PAGE, WordRows, sorted_rows
from shortlist.kernels.word_rows import texts_of_labels
from shortlist.text.features import normalize_sparse_rows

# Learning stops when no text would move the weights by more than a tenth: this near to the best it must come.
NEARLY = 0.03


def random_problem(seed, n_texts, n_words, n_labels, k):
    """Texts of a few words each (some of none), labels (some of none), and candidates with gaps, repeats and labels."""
    rng = np.random.default_rng(seed)
    dense = rng.random((n_texts, n_words)) * (rng.random((n_texts, n_words)) < min(1, 3 / n_words))
    features = normalize_sparse_rows(sparse.csr_array(dense.astype(np.float32)))
    labels = Ragged.from_lists([rng.permutation(n_labels)[: rng.integers(0, 3)] for _ in range(n_texts)])
    return features, labels, rng.integers(-1, n_labels, (n_texts, k)).astype(np.int32)


def pairs_of(label, labels, candidates):
    """The texts that a label sees, each once, and whether it is right for them."""
    found = {text: True for text in range(len(labels)) if label in labels.row(text)}
    found |= {text: False for text in range(len(labels)) if label in candidates[text] and text not in found}
    texts = sorted(found)
    return np.asarray(texts, int), np.asarray([found[text] for text in texts], bool)


def objective(row, inputs, signs, cost):
    """Half the squared length of weights and bias, and the squared hinge losses; and how it changes."""
    misses = np.maximum(1 - signs * (inputs @ row), 0)
    return row @ row / 2 + cost * misses @ misses, row - 2 * cost * (signs * misses) @ inputs


def best_row(features, texts, right, cost):
    """The weights with the bias behind them that make the objective smallest; inputs and signs to judge others by."""
    inputs = np.hstack([features.toarray()[texts].astype(np.float64), np.ones((len(texts), 1))])
    signs = np.where(right, 1.0, -1.0)
    start = np.zeros(inputs.shape[1])
    found = minimize(objective, start, (inputs, signs, cost), "L-BFGS-B", jac=True, options={"ftol": 1e-14})
    return found.x, inputs, signs


def dense_rows(rows, n_words):
    """Labels × words, and the biases as the last column."""
    dense = np.zeros((len(rows.biases), n_words + 1))
    dense[:, -1] = rows.biases
    for run in range(len(rows.starts) - 1):
        label, page = divmod(run, rows.n_pages)
        own = slice(rows.starts[run], rows.starts[run + 1])
        dense[label, page * PAGE + rows.words[own].astype(int)] = rows.weights[own] * rows.scales[label].astype(float)
    return dense


def learn(features, labels, n_labels, candidates, **options):
    return WordRows.learn(features, labels, n_labels, candidates, show_progress=False, **options)


def assert_nearly_best(features, labels, n_labels, candidates, cost=0.5):
    """Every label's objective and scores, with all weights kept."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(word_rows, "LEAST_WEIGHT", 1e-30)
        learnt = learn(features, labels, n_labels, candidates, cost=cost)
    for label, row in enumerate(dense_rows(learnt, features.shape[1])):
        texts, right = pairs_of(label, labels, candidates)
        expected, inputs, signs = best_row(features, texts, right, cost)
        least = objective(expected, inputs, signs, cost)[0]
        assert least <= objective(row, inputs, signs, cost)[0] + 1e-6
        assert objective(row, inputs, signs, cost)[0] <= (1 + NEARLY) * least + 1e-6
        ours, best = inputs @ row, inputs @ expected
        assert np.abs(ours - best).max(initial=0) < 0.15
        clear = best[:, None] - best[None, :] > 0.2
        assert np.all((ours[:, None] > ours[None, :])[clear])
    return learnt


def assert_equal(found, expected):
    for name, array in expected.to_arrays().items():
        assert np.array_equal(found.to_arrays()[name], array), name
        assert found.to_arrays()[name].dtype == array.dtype


class TestLearn:
    @settings(max_examples=25)
    @given(
        st.integers(0, 10_000),
        st.integers(1, 30),
        st.integers(1, 15),
        st.integers(1, 6),
        st.integers(1, 5),
        st.sampled_from([0.1, 0.25, 0.5]),
    )
    def test_equals_the_problem_solved_exactly(self, seed, n_texts, n_words, n_labels, k, cost):
        features, labels, candidates = random_problem(seed, n_texts, n_words, n_labels, k)
        assert_nearly_best(features, labels, n_labels, candidates, cost)

    @pytest.mark.parametrize(
        ("labels", "candidates"),
        [
            ([[0], [1], [2]], [[-1], [-1], [-1]]),
            ([[0], [1], [2]], [[0], [1], [2]]),
            ([[], [], []], [[0], [0], [0]]),
            ([[0, 1, 2], [2], []], [[0, 1, 2], [0, 1, -1], [-1, 2, 0]]),
            ([[1], [1], [1]], [[0, 2], [0, 2], [0, 2]]),
        ],
        ids=["no candidates", "only right ones", "only wrong ones", "mixed", "all or nothing"],
    )
    def test_edge_shapes(self, labels, candidates):
        features = sparse.csr_array(np.asarray([[1, 0], [0, 0], [0.6, 0.8]], np.float32))
        candidates = np.asarray(candidates, np.int32)
        learnt = assert_nearly_best(features, Ragged.from_lists(labels), 3, candidates)
        seen = {label for row in labels for label in row} | set(candidates.ravel().tolist())
        for label in set(range(3)) - seen:
            assert learnt.biases[label] == 0
            assert learnt.starts[label] == learnt.starts[label + 1]

    def test_one_label_one_text_one_word(self):
        learnt = learn(sparse.csr_array(np.ones((1, 1), np.float32)), Ragged.from_lists([[0]]), 1, np.zeros((1, 1)))
        # One step of the dual solves it: the share is 1 / (1 + 1 + 1), for the word and for the bias.
        assert learnt.weights.tolist() == learnt.biases.tolist() == pytest.approx([1 / 3])
        assert (learnt.starts.tolist(), learnt.words.tolist()) == ([0, 1], [0])

    def test_no_text_has_a_word_and_no_text_at_all(self):
        for n_texts in (4, 0):
            labels = Ragged.from_lists([[0], [0], [0], []][:n_texts])
            none = sparse.csr_array((n_texts, 3), dtype=np.float32)
            learnt = assert_nearly_best(none, labels, 2, np.zeros((n_texts, 1), np.int32))
            assert len(learnt.words) == 0
            assert (learnt.biases[0] > 0) == (n_texts > 0)
            assert learnt.biases[1] == 0

    def test_texts_that_stand_twice_weigh_twice(self):
        features, labels, candidates = random_problem(3, 12, 6, 3, 2)
        twice = sparse.vstack([features, features], format="csr")
        assert_nearly_best(twice, Ragged.concatenate([labels, labels]), 3, np.concatenate([candidates, candidates]))

    @given(st.integers(0, 10_000), st.integers(0, 8), st.integers(1, 5), st.integers(1, 6))
    def test_each_pair_of_a_text_and_a_label_counts_once(self, seed, n_texts, n_labels, k):
        rng = np.random.default_rng(seed)
        labels = Ragged.from_lists([rng.integers(n_labels, size=rng.integers(0, 4)) for _ in range(n_texts)])
        candidates = rng.integers(-1, n_labels, (n_texts, k)).astype(np.int32)
        starts, texts, right = texts_of_labels(candidates, labels.indptr, labels.values, n_labels)
        assert starts[-1] == len(texts) == len(right)
        for label in range(n_labels):
            own = slice(starts[label], starts[label + 1])
            expected = pairs_of(label, labels, candidates)
            assert texts[own].tolist() == expected[0].tolist()
            assert right[own].tolist() == expected[1].tolist()

    def test_repeats_change_nothing(self):
        features, labels, candidates = random_problem(5, 30, 10, 4, 3)
        expected = learn(features, labels, 4, candidates)
        repeated = Ragged.from_lists([np.repeat(labels.row(text), 2) for text in range(30)])
        assert_equal(learn(features, repeated, 4, np.hstack([candidates, candidates])), expected)

    def test_blocks_and_shares_change_not_a_bit(self, monkeypatch):
        features, labels, candidates = random_problem(1, 60, 20, 17, 6)
        expected = learn(features, labels, 17, candidates)
        assert len(expected.words) > 17
        for words_per_block in (0, 1, 40, 300):
            monkeypatch.setattr(word_rows, "WORDS_PER_BLOCK", words_per_block)
            for n_shares in (1, 2, 5, 40):
                monkeypatch.setattr(word_rows, "use_threads", shares_of(n_shares))
                assert_equal(learn(features, labels, 17, candidates), expected)

    @pytest.mark.skipif(n_cores() < 2, reason="there is one core")
    def test_threads_change_not_a_bit(self):
        features, labels, candidates = random_problem(2, 200, 40, 30, 8)
        one, two = (learn(features, labels, 30, candidates, threads=threads) for threads in (1, 2))
        assert_equal(two, one)
        for threads in (1, 2):
            words = Ragged.from_csr(features)
            assert np.array_equal(one.scores(words, candidates, threads), two.scores(words, candidates))

    def test_small_weights_are_dropped_and_words_rise(self, monkeypatch):
        features, labels, candidates = random_problem(4, 60, 20, 8, 4)
        monkeypatch.setattr(word_rows, "LEAST_WEIGHT", 0.1)
        learnt = learn(features, labels, 8, candidates)
        monkeypatch.setattr(word_rows, "LEAST_WEIGHT", 1e-30)
        everything = dense_rows(learn(features, labels, 8, candidates), 20)
        dropped = np.abs(everything[:, :-1]) < 0.1
        assert (dropped & (everything[:, :-1] != 0)).any()
        everything[:, :-1][dropped] = 0
        assert np.array_equal(dense_rows(learnt, 20), everything)
        assert np.abs(learnt.weights).min() >= 0.1
        for label in range(8):
            assert np.all(np.diff(learnt.words[learnt.starts[label] : learnt.starts[label + 1]]) > 0)

    def test_order_within_rows_and_the_type_of_features_do_not_matter(self):
        features, labels, candidates = random_problem(6, 40, 12, 5, 3)
        expected = learn(features, labels, 5, candidates)
        before = unsorted(features)
        again = before.copy()
        assert_equal(learn(again, labels, 5, candidates.astype(np.int64)), expected)
        assert np.array_equal(again.indices, before.indices)  # what the caller gave stays as it was
        assert_equal(learn(features.astype(np.float64), labels, 5, candidates), expected)

    def test_labels_mistaken_for_each_other_are_told_apart(self):
        """Twins share all words but one each; candidates are always both. Guessing is right half of the time."""
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
        learnt = learn(features, Ragged(np.arange(601), label.astype(np.int32)), 2 * n_twins, both)
        features, label, both = texts(400)
        best = np.take_along_axis(both, learnt.scores(Ragged.from_csr(features), both).argmax(axis=1)[:, None], axis=1)[
            :, 0
        ]
        assert (best == label).mean() >= 0.98


def shares_of(n_shares):
    """`use_threads` that cuts the work into so many shares, however many threads there are."""
    return lambda threads: nullcontext(n_shares)


def unsorted(features):
    """The same matrix, its columns in falling order within each row."""
    bounds = itertools.pairwise(features.indptr.tolist())
    order = np.asarray([place for begin, end in bounds for place in reversed(range(begin, end))], int)
    return sparse.csr_array((features.data[order], features.indices[order], features.indptr), shape=features.shape)


def rows_of(weights, rng, columns=None, n_words=None):
    """Word rows of a dense matrix, with biases; its columns stand for words 0, 1, … or for those given."""
    packed = Ragged.from_csr(weights)
    columns = np.arange(weights.shape[1]) if columns is None else columns
    biases = rng.standard_normal(len(weights)).astype(np.float32)
    n_words = n_words or weights.shape[1]
    return WordRows.of_words(packed.indptr, columns[packed.values], packed.weights, biases, n_words)


def slow_scores(features, weights, biases, candidates):
    products = features.toarray() @ weights.T + biases
    return np.where(candidates >= 0, np.take_along_axis(products, np.maximum(candidates, 0), axis=1), -np.inf)


class TestScores:
    @given(st.integers(0, 10_000), st.integers(0, 9), st.integers(1, 12), st.integers(1, 6), st.integers(0, 7))
    def test_equal_a_dense_product(self, seed, n_texts, n_words, n_labels, k):
        rng = np.random.default_rng(seed)
        features, _, candidates = random_problem(seed, n_texts, n_words, n_labels, k)
        weights = rng.standard_normal((n_labels, n_words)) * (rng.random((n_labels, n_words)) < 0.4)
        rows = rows_of(weights.astype(np.float32), rng)
        scores = rows.scores(Ragged.from_csr(features), candidates)
        assert scores.dtype == np.float32
        expected = slow_scores(features, weights, rows.biases, candidates)
        np.testing.assert_allclose(scores, expected, rtol=1e-5, atol=1e-5)

    @given(st.integers(0, 10_000), st.sampled_from([1, PAGE - 1, PAGE, PAGE + 1, 3 * PAGE + 7]), st.booleans())
    @settings(max_examples=25)
    def test_words_on_any_page(self, seed, n_words, packed):
        """Words beyond 16 bits, those at both ends of a page among them, and labels without any on some pages."""
        rng = np.random.default_rng(seed)
        ends = np.array([0, 1, PAGE - 1, PAGE, PAGE + 1, 2 * PAGE - 1, 2 * PAGE, 3 * PAGE, n_words - 1])
        columns = np.unique(np.append(ends[ends < n_words], rng.integers(n_words, size=20)))
        features, _, candidates = random_problem(seed, 6, len(columns), 5, 4)
        weights = rng.standard_normal((5, len(columns))) * (rng.random((5, len(columns))) < 0.5)
        weights[rng.integers(5)] = 0  # a label without a word
        weights = weights.astype(np.float32)
        rows = rows_of(weights, rng, columns, n_words)
        assert rows.n_pages == -(-n_words // PAGE)
        assert rows.words.dtype == np.uint16
        WordRows.from_arrays(rows.to_arrays(), 5, n_words)
        nearest = 1e-5
        if packed:
            rows = rows.in_8_bits()
            assert rows.weights.dtype == np.int8
            WordRows.from_arrays(rows.to_arrays(), 5, n_words)
            # Half a step of the label for each word of the text.
            nearest = 1e-5 + np.abs(weights).max() / 254 * np.abs(features).sum(axis=1).max()
        of_texts = Ragged.from_csr(features)
        of_texts = Ragged(of_texts.indptr, columns[of_texts.values].astype(np.int32), of_texts.weights)
        expected = slow_scores(features, weights, rows.biases, candidates)
        np.testing.assert_allclose(rows.scores(of_texts, candidates), expected, atol=nearest)

    def test_in_8_bits_each_label_has_a_scale_of_its_own(self):
        weights = np.asarray([[0, 0, 0], [1e-3, -2e-3, 0], [0, 0, 0], [50, 0, -100], [0, 0, 0]], np.float32)
        rows = rows_of(weights, np.random.default_rng(0)).in_8_bits()
        assert rows.weights.tolist() == [64, -127, 64, -127]
        assert rows.scales == pytest.approx([0, 2e-3 / 127, 0, 100 / 127, 0])
        assert (np.abs(dense_rows(rows, 3)[:, :-1] - weights).max(axis=1) <= rows.scales / 2 * (1 + 1e-4)).all()
        assert rows.in_8_bits() is rows

    def test_words_that_no_text_has_change_nothing(self):
        """A file may name places on a page beyond the last word; nobody ever asks for them."""
        rows = rows_of(np.ones((2, 3), np.float32), np.random.default_rng(0))
        beyond = replace(rows, words=rows.words + np.asarray([0, 0, 60_000] * 2, np.uint16))
        texts = Ragged(np.asarray([0, 2]), np.asarray([0, 1], np.int32), np.ones(2, np.float32))
        both = np.asarray([[0, 1]], np.int32)
        assert np.array_equal(
            WordRows.from_arrays(beyond.to_arrays(), 2, 3).scores(texts, both), rows.scores(texts, both)
        )

    def test_sorted_rows_leaves_what_is_sorted_alone(self):
        features = random_problem(0, 5, 5, 2, 1)[0]
        assert np.shares_memory(sorted_rows(features).data, features.data)


class TestArrays:
    @pytest.fixture
    def arrays(self):
        return learn(*random_problem(4, 60, 20, 8, 4)[:2], 8, random_problem(4, 60, 20, 8, 4)[2]).to_arrays()

    def test_come_back(self, arrays):
        again = WordRows.from_arrays(arrays, 8, 20)
        assert_equal(again, WordRows(**arrays))
        nothing = {name: array[:0] for name, array in arrays.items()} | {"starts": np.zeros(1, np.int64)}
        assert len(WordRows.from_arrays(nothing, 0, 0).words) == 0

    @pytest.mark.parametrize("name", ["starts", "words", "scales", "biases"])
    def test_missing_or_of_another_type_or_shape(self, arrays, name):
        right = arrays.pop(name)
        for wrong in ({}, {name: right.astype(np.float64)}, {name: right[:, None]}, {name: right[0]}):
            with pytest.raises(ModelError, match=f"no array '{name}' of {right.dtype}"):
                WordRows.from_arrays(arrays | wrong, 8, 20)

    def test_weights_missing_or_of_another_type_or_shape(self, arrays):
        right = arrays.pop("weights")
        for wrong in ({}, {"weights": right.astype(np.float64)}, {"weights": right[:, None]}, {"weights": right[0]}):
            with pytest.raises(ModelError, match="one weight, float32 or int8, for each word"):
                WordRows.from_arrays(arrays | wrong, 8, 20)

    def test_of_more_words_than_a_page_are_others(self, arrays):
        with pytest.raises(ModelError, match="8 labels and 65,537 words"):
            WordRows.from_arrays(arrays, 8, PAGE + 1)
        assert WordRows.from_arrays(arrays, 8, PAGE).n_pages == 1

    @pytest.mark.parametrize(
        ("name", "change", "message"),
        [
            ("starts", lambda a: a[:-1], "not those of 8 labels"),
            ("starts", lambda a: a[:0], "not those of 8 labels"),
            ("biases", lambda a: a[:-1], "not those of 8 labels"),
            ("biases", lambda a: np.append(a, a[:1]), "not those of 8 labels"),
            ("scales", lambda a: a[:-1], "not those of 8 labels"),
            ("weights", lambda a: a[:-1], "one weight, float32 or int8, for each word"),
            ("words", lambda a: a[:-1], "one weight, float32 or int8, for each word"),
            ("starts", lambda a: a + 1, "do not follow"),
            ("starts", lambda a: a - 1, "do not follow"),
            ("starts", lambda a: np.append(a[:-1], a[-1] + 1), "do not follow"),
            ("starts", lambda a: np.append(a[:-1], a[-1] - 1), "do not follow"),
            ("starts", lambda a: a[[0, 2, 1, *range(3, 9)]], "do not follow"),
            ("starts", lambda a: np.where(np.arange(9) == 4, -5, a), "do not follow"),
        ],
    )
    def test_damage_is_refused(self, arrays, name, change, message):
        with pytest.raises(ModelError, match=message):
            WordRows.from_arrays(arrays | {name: change(arrays[name])}, 8, 20)
