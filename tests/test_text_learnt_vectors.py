"""Learnt word vectors: kernels against slow versions, what vectors say about words, and edge shapes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from shortlist.arrays import Ragged
from shortlist.errors import OptionError
from shortlist.kernels.threads import use_threads
from shortlist.kernels.word_vectors import sparse_times_dense
from shortlist.text import learnt_vectors
from shortlist.text.learnt_vectors import learn_vectors

pytestmark = pytest.mark.slow

texts_of_ids = st.lists(st.lists(st.integers(0, 6), max_size=8), max_size=12)
label_rows = st.lists(st.lists(st.integers(0, 4), max_size=3, unique=True), min_size=12, max_size=12)


def slow_ppmi(texts, contexts, n_words, n_contexts, window):
    """Count all pairs one by one. With `contexts` None, the words around are the contexts."""
    counts = np.zeros((n_words, n_contexts))
    for row, words in enumerate(texts):
        for position, word in enumerate(words):
            if contexts is None:
                around = words[max(0, position - window) : position] + words[position + 1 : position + 1 + window]
            else:
                around = contexts[row]
            for context in around:
                counts[word, context] += 1
    with np.errstate(divide="ignore", invalid="ignore"):
        smoothed = counts.sum(axis=0) ** 0.75
        pmi = np.log(counts / counts.sum(axis=1, keepdims=True) / (smoothed / smoothed.sum()))
    frequencies = np.bincount([word for words in texts for word in words], minlength=n_words)
    return np.maximum(np.nan_to_num(pmi, nan=0, neginf=0), 0) * frequencies[:, None] ** 0.25


def fast_ppmi(texts, contexts, n_words, n_contexts):
    words = Ragged.from_lists(texts)
    return learnt_vectors._ppmi(words, n_words, words if contexts is None else Ragged.from_lists(contexts), n_contexts)


@given(texts_of_ids, st.integers(1, 4))
def test_ppmi_of_words_around(texts, window):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(learnt_vectors, "WINDOW", window)
        fast = fast_ppmi(texts, None, 7, 7)
    np.testing.assert_allclose(fast.toarray(), slow_ppmi(texts, None, 7, 7, window), atol=1e-5)
    assert fast.has_sorted_indices


@given(texts_of_ids, label_rows)
def test_ppmi_of_labels(texts, labels):
    labels = labels[: len(texts)]
    fast = fast_ppmi(texts, labels, 7, 5)
    np.testing.assert_allclose(fast.toarray(), slow_ppmi(texts, labels, 7, 5, 0), atol=1e-5)


@given(st.integers(0, 150), st.integers(1, 40), st.integers(0, 20), st.integers(0, 2**32 - 1))
def test_product_equals_scipy(n_rows, n_columns, width, seed):
    generator = np.random.default_rng(seed)
    matrix = sparse.random_array((n_rows, n_columns), density=0.2, rng=generator, dtype=np.float32).tocsr()
    dense = generator.standard_normal((n_columns, width), np.float32)
    results = []
    for threads in (1, 2):
        out = np.full((n_rows, width), np.nan, np.float32)
        with use_threads(threads):
            sparse_times_dense(matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32), matrix.data, dense, out)
        results.append(out)
    np.testing.assert_allclose(results[0], matrix @ dense, atol=1e-4)
    np.testing.assert_array_equal(results[0], results[1])


def test_factors_are_the_leading_singular_vectors():
    generator = np.random.default_rng(0)
    dense = generator.standard_normal((60, 8)) @ np.diag(2.0 ** -np.arange(8)) @ generator.standard_normal((8, 90))
    factors = learnt_vectors._factorise(sparse.csr_array(dense.astype(np.float32)), 5, generator)
    left, values, _ = np.linalg.svd(dense)
    expected = left[:, :5] * values[:5] ** 0.5
    np.testing.assert_allclose(factors @ factors.T, expected @ expected.T, atol=1e-3)


def test_block_size_does_not_change_the_result(monkeypatch):
    matrix = sparse.random_array((50, 70), density=0.2, rng=np.random.default_rng(1), dtype=np.float32).tocsr()
    whole = learnt_vectors._factorise(matrix, 10, np.random.default_rng(0))
    monkeypatch.setattr(learnt_vectors, "MAX_PRODUCT_SIZE", 7 * 70)
    parts = learnt_vectors._factorise(matrix, 10, np.random.default_rng(0))
    np.testing.assert_array_equal(whole, parts)


def planted(n_texts=600, n_words=60, seed=0):
    """Texts of two topics, the words of each in one half of the ids; the label of each text is its topic."""
    generator = np.random.default_rng(seed)
    topics = generator.integers(0, 2, n_texts)
    half = n_words // 2
    texts = [(generator.integers(0, half, 6) + half * topic).tolist() for topic in topics]
    return Ragged.from_lists(texts), Ragged.from_lists([[topic] for topic in topics])


def cosines_within_and_across(vectors):
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    cosines = unit @ unit.T
    half = len(vectors) // 2
    same = np.kron(np.eye(2, dtype=bool), np.ones((half, half), bool))
    return cosines[same & ~np.eye(2 * half, dtype=bool)].mean(), cosines[~same].mean()


@pytest.mark.parametrize("with_labels", [False, True])
def test_words_of_one_topic_are_similar(with_labels):
    texts, labels = planted()
    vectors = learn_vectors(texts, 60, 20, labels=labels if with_labels else None, n_labels=2)
    within, across = cosines_within_and_across(vectors)
    assert within > across + 0.1
    assert vectors.dtype == np.float32


def test_labels_bring_words_together_that_never_co_occur():
    """Each text has one word, so that only its label says what it is about."""
    generator = np.random.default_rng(0)
    words = generator.integers(0, 40, 2000)
    texts, labels = Ragged.from_lists(words[:, None].tolist()), Ragged.from_lists((words[:, None] // 20).tolist())
    within, across = cosines_within_and_across(learn_vectors(texts, 40, 50, labels=labels, n_labels=2))
    assert within > across + 0.2
    within, across = cosines_within_and_across(learn_vectors(texts, 40, 50))
    assert abs(within - across) < 0.05


def test_seed_decides_and_threads_do_not():
    texts, labels = planted()
    vectors = learn_vectors(texts, 60, 20, labels=labels, n_labels=2, seed=5, threads=2)
    for threads in (1, 2, None):
        again = learn_vectors(texts, 60, 20, labels=labels, n_labels=2, seed=5, threads=threads)
        np.testing.assert_array_equal(vectors, again)
    assert (learn_vectors(texts, 60, 20, labels=labels, n_labels=2, seed=6) != vectors).any()


@pytest.mark.parametrize("embedding_dim", [1, 20, 300])
def test_vectors_have_the_length_of_random_ones(embedding_dim):
    texts, _ = planted()
    vectors = learn_vectors(texts, 62, embedding_dim)
    assert vectors.shape == (62, embedding_dim)
    assert 0.1 < np.sqrt((vectors[:60] ** 2).mean()) < 0.2
    unseen = vectors[60:]
    assert (np.abs(unseen) <= 0.025).all()
    assert (unseen != 0).any(axis=1).all()


@pytest.mark.parametrize(
    ("texts", "n_words"),
    [([], 0), ([], 3), ([[]], 3), ([[0]], 1), ([[0, 0]], 1), ([[0], [1]], 2), ([[0, 1]], 2), ([[0, 1], []], 9)],
)
@pytest.mark.parametrize("embedding_dim", [1, 4])
def test_little_or_no_data(texts, n_words, embedding_dim):
    labels = Ragged.from_lists([[0] for _ in texts])
    for options in ({}, {"labels": labels, "n_labels": 1}):
        vectors = learn_vectors(Ragged.from_lists(texts), n_words, embedding_dim, **options)
        assert vectors.shape == (n_words, embedding_dim)
        assert vectors.dtype == np.float32
        assert np.isfinite(vectors).all()
        assert len(np.unique(vectors, axis=0)) == n_words


def test_no_labels():
    texts = Ragged.from_lists([[0, 1], [1, 2]])
    nothing = Ragged.from_lists([[], []])
    assert np.isfinite(learn_vectors(texts, 3, 4, labels=nothing, n_labels=0)).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"embedding_dim": 0}, "embedding_dim"),
        ({"n_words": 2}, r"word id 2 is out of range \(2 words\)"),
        ({"n_words": -1}, "negative"),
        ({"labels": [[0]], "n_labels": 1}, "2 texts, but labels for 1"),
        ({"labels": [[0], [3]], "n_labels": 3}, r"label id 3 is out of range \(3 labels\)"),
        ({"threads": 0}, "threads"),
    ],
)
def test_wrong_options_are_refused(options, message):
    options = {"n_words": 3, **options}
    if "labels" in options:
        options["labels"] = Ragged.from_lists(options["labels"])
    with pytest.raises(OptionError, match=message):
        learn_vectors(Ragged.from_lists([[0, 1], [1, 2]]), **options)
