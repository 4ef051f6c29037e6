"""Candidates from neighbours, and the best of rows, against slow twins."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shortlist.kernels.candidates import cosines_of_labels, merge_neighbours
from shortlist.kernels.reranker import score_candidates, score_parts
from shortlist.kernels.top_k import best_of_row

COSINES = np.array([-0.5, 0, 0.25, 0.5, 1], np.float32)


def random_lists(rng, n, n_values, most):
    indptr = np.append(0, np.cumsum(rng.integers(0, most + 1, n)))
    return indptr, rng.integers(n_values, size=indptr[-1]).astype(np.int32)


def slow_merge(found, cosines, owner, texts, text_cosines, labels_of_text, as_sums):
    """The cosine and the votes of each candidate of one query."""
    cosine_of, votes, total = {}, {}, 0
    near = [(owner[centre], cosine) for centre, cosine in zip(found, cosines, strict=True) if centre >= 0]
    for label, cosine in near:
        cosine_of.setdefault(label, cosine)
    least = 0 if as_sums else min([1, *(cosine for _, cosine in near)])
    for text, cosine in zip(texts, text_cosines, strict=True):
        if text >= 0 and cosine > 0:
            weight = cosine if as_sums else cosine**4
            total += weight
            for label in labels_of_text[text]:
                cosine_of.setdefault(label, least)
                votes[label] = votes.get(label, 0) + weight
    total = max([1e-9, *votes.values()]) if as_sums else max(total, 1e-9)
    return {label: (cosine, votes.get(label, 0) / total) for label, cosine in cosine_of.items()}


@given(
    st.integers(0, 10_000),
    st.integers(0, 5),
    st.integers(1, 50),
    st.integers(0, 9),
    st.integers(0, 40),
    st.integers(1, 50),
    st.booleans(),
)
def test_neighbours_are_merged_as_by_the_slow_twin(seed, n, n_labels, n_found, n_texts, k, as_sums):
    rng = np.random.default_rng(seed)
    owner = rng.integers(n_labels, size=7).astype(np.int32)
    indptr, labels = random_lists(rng, 8, n_labels, 6)
    labels_of_text = [labels[begin:end].tolist() for begin, end in itertools.pairwise(indptr)]
    found = rng.integers(-1, 7, (n, n_found)).astype(np.int32)
    texts = rng.integers(-1, 8, (n, n_texts)).astype(np.int32)
    cosines, text_cosines = rng.choice(COSINES, found.shape), rng.choice(COSINES, texts.shape)
    ids = np.full((n + 2, k), -7, np.int32)
    canvases = ids, np.full(ids.shape, -7, np.float32), np.full(ids.shape, -7, np.float32)
    results = [canvas[1:-1] for canvas in canvases]
    neighbours = found, cosines, owner, texts, text_cosines, indptr, labels
    merge_neighbours(*neighbours, np.float32(0.25), as_sums, n_labels, *results)
    assert all((canvas[[0, -1]] == -7).all() for canvas in canvases)
    for query in range(n):
        rows = [array[query].tolist() for array in (found, cosines, texts, text_cosines)]
        candidates = slow_merge(*rows[:2], owner.tolist(), *rows[2:], labels_of_text, as_sums)
        ranks = sorted((0.25 * votes + 0.75 * cosine for cosine, votes in candidates.values()), reverse=True)[:k]
        best = list(zip(*(result[query].tolist() for result in results), strict=True))
        assert best[len(ranks) :] == [(-1, 0, 0)] * (k - len(ranks))
        best = best[: len(ranks)]
        assert len({label for label, _, _ in best}) == len(ranks)
        assert [0.25 * votes + 0.75 * cosine for _, cosine, votes in best] == pytest.approx(ranks, abs=1e-6)
        for label, *evidence in best:
            assert evidence == pytest.approx(candidates[label], abs=1e-6)


@given(st.integers(0, 10_000), st.integers(0, 9), st.integers(0, 9), st.sampled_from([np.float32, np.int8]))
def test_the_largest_cosine_of_the_centres_of_a_label(seed, n, k, kind):
    """Whole numbers, so that sums are exact; some labels have no centre."""
    rng = np.random.default_rng(seed)
    bounds = np.append(0, np.cumsum(rng.integers(0, 3, 6)))
    places, values = rng.integers(9, size=bounds[-1]), rng.integers(-3, 4, (9, 5)).astype(kind)
    queries, ids = rng.integers(-2, 3, (n, 5)).astype(np.float32), rng.integers(-1, 6, (n, k)).astype(np.int32)
    scales = rng.integers(1, 3, 9).astype(np.float32)
    cosines = np.full((n + 2, k), -7, np.float32)
    cosines_of_labels(queries, ids, bounds, places, values, scales, cosines[1:-1])
    products = queries @ (values * scales[:, None]).T
    expected = [
        [max([-1, *(products[i, places[bounds[label] : bounds[label + 1]]] if label >= 0 else [])]) for label in row]
        for i, row in enumerate(ids)
    ]
    assert cosines.tolist() == [[-7] * k, *expected, [-7] * k]


@given(st.integers(0, 10_000), st.integers(1, 6), st.lists(st.integers(0, 30), max_size=4), st.integers(1, 9))
def test_the_best_of_rows_that_come_in_blocks(seed, n, widths, k):
    rng = np.random.default_rng(seed)
    blocks = [rng.integers(-3, 4, (n, width)).astype(np.float32) for width in widths]
    every = np.concatenate([np.zeros((n, 0), np.float32), *blocks], axis=1)
    ids, scores = np.full((n, k), -1, np.int32), np.full((n, k), -np.inf, np.float32)
    first = 0
    for block in blocks:
        best_of_row(block, first, min(first, k), ids, scores)
        first += block.shape[1]
    order = np.argsort(-every, axis=1, kind="stable")[:, :k]
    assert np.array_equal(ids[:, : order.shape[1]], order)
    assert np.array_equal(scores[:, : order.shape[1]], np.take_along_axis(every, order, axis=1))
    assert (ids[:, order.shape[1] :] == -1).all()


def some_words(rng, n_texts, n_labels, per_page):
    """Words on two pages of 65,536, texts with few words and labels with many, and the other way round: matrices of the
    texts and the labels, and the arrays of both."""
    vocabulary = np.concatenate([np.arange(per_page), 65_536 + np.arange(per_page)])
    chances = rng.choice([0, 0.02, 0.5, 1], (n_texts + n_labels, 1))
    size = n_texts + n_labels, len(vocabulary)
    dense = rng.integers(-3, 4, size) * (rng.random(size) < chances)
    texts, rows = dense[:n_texts], dense[n_texts:]
    indptr, words = np.append(0, np.cumsum((texts != 0).sum(axis=1))), vocabulary[np.nonzero(texts)[1]]
    starts = np.append(0, np.cumsum((rows != 0).reshape(n_labels * 2, per_page).sum(axis=1)))
    of_labels = (vocabulary[np.nonzero(rows)[1]] % 65_536).astype(np.uint16), rows[rows != 0]
    return texts, rows, (indptr, words.astype(np.int32), texts[texts != 0].astype(np.float32)), (starts, 2, *of_labels)


SHAPES = st.integers(0, 10_000), st.integers(0, 5), st.integers(0, 7), st.sampled_from([2, 40, 300])


@given(*SHAPES, st.sampled_from([np.float32, np.int8]))
def test_the_scores_of_candidates_from_their_words(seed, n, k, per_page, kind):
    rng, n_labels = np.random.default_rng(seed), 4
    texts, rows, of_texts, (*of_labels, weights) = some_words(rng, n, n_labels, per_page)
    scales, biases = rng.integers(1, 3, n_labels).astype(np.float32), rng.integers(-3, 4, n_labels).astype(np.float32)
    candidates = rng.integers(-1, n_labels, (n, k)).astype(np.int32)
    scores = np.full((n + 2, k), -7, np.float32)
    score_candidates(*of_texts, *of_labels, weights.astype(kind), scales, biases, candidates, scores[1:-1])
    products = np.append(texts @ rows.T * scales + biases, np.full((n, 1), -np.inf), axis=1)  # the last is for -1
    expected = np.take_along_axis(products, candidates, axis=1)
    assert (scores[[0, -1]] == -7).all()
    assert np.array_equal(scores[1:-1], expected)


@given(*SHAPES)
def test_the_similarity_of_candidates_in_parts_of_words(seed, n, k, per_page):
    rng = np.random.default_rng(seed)
    texts, rows, of_texts, (*of_labels, weights) = some_words(rng, n, 4, per_page)
    candidates = rng.integers(-1, 4, (n, k)).astype(np.int32)
    scores = np.full((n + 2, k), -7, np.float32)
    score_parts(*of_texts, *of_labels, weights.astype(np.int8), candidates, scores[1:-1])
    products = np.append(texts @ rows.T / 127, np.zeros((n, 1)), axis=1)  # the last is for -1
    assert (scores[[0, -1]] == -7).all()
    assert np.allclose(scores[1:-1], np.take_along_axis(products, candidates, axis=1), atol=1e-5)
