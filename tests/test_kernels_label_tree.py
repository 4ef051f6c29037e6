"""The kernels behind the label tree against slow, obvious twins."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from shortlist.kernels import label_exchange, label_tree
from shortlist.kernels.label_tree import split_sizes
from shortlist.kernels.random import below, mix
from shortlist.kernels.top_k import mark_top

some_scores = st.lists(st.sampled_from([-1.5, -1.0, 0.0, 0.25, 1.0, 2.0]) | st.floats(-3, 3, width=32), min_size=2)


@settings(max_examples=100)
@given(scores=some_scores, data=st.data())
def test_mark_top_marks_the_highest_and_of_equals_the_first(scores, data):
    scores = np.array(scores, np.float32)
    n_left = data.draw(st.integers(1, len(scores)))
    is_left = np.zeros(len(scores), np.bool_)
    n_changed = mark_top(scores, n_left, is_left)
    assert set(np.flatnonzero(is_left)) == set(np.argsort(-scores, kind="stable")[:n_left])
    assert n_changed == n_left
    assert mark_top(scores, n_left, is_left) == 0


@settings(max_examples=200)
@given(data=st.data(), n_clusters=st.integers(2, 40))
def test_split_sizes_give_leaves_that_differ_by_at_most_one(data, n_clusters):
    n_rows = data.draw(st.integers(n_clusters, 500))
    sizes, nodes = [], [(n_rows, n_clusters)]
    while nodes:
        rows, clusters = nodes.pop()
        if clusters == 1:
            sizes.append(rows)
            continue
        left_clusters, left_rows = split_sizes(rows, clusters)
        nodes += [(left_rows, left_clusters), (rows - left_rows, clusters - left_clusters)]
    assert sum(sizes) == n_rows and len(sizes) == n_clusters
    assert max(sizes) - min(sizes) <= 1


def test_random_numbers_cover_their_range_evenly():
    bits = [np.uint64(mix(np.uint64(counter))) for counter in range(3000)]
    assert len(set(bits)) == 3000
    counts = np.bincount([below(number, 7) for number in bits], minlength=7)
    assert counts.min() > 350 and counts.max() < 500 and len(counts) == 7


def make_rows(n, n_words, seed, density=0.3):
    """Unit rows on the grid, for kernels and as a dense matrix."""
    matrix = sparse.csr_array(sparse.random(n, n_words, density, dtype=np.float32, random_state=seed))
    indptr = matrix.indptr.astype(np.int64)
    rows = label_tree.Rows(
        indptr, np.empty(matrix.nnz, np.uint32), np.empty(matrix.nnz, np.float32), np.zeros(n, np.float32)
    )
    same_words = np.arange(n_words, dtype=np.uint32)
    label_tree.scaled_rows(indptr, matrix.indices.astype(np.int32), matrix.data, 0, n, 0.0, same_words, rows)
    return rows, sparse.csr_array((rows.data, matrix.indices, matrix.indptr), shape=matrix.shape).toarray()


def compact_copy(rows, n_words, chosen):
    copy = label_tree.copy_buffer(rows, chosen)
    scratch = np.zeros((n_words, 2), np.int32)
    n_compact_words = label_tree.compact(rows, chosen, scratch, copy)
    assert not scratch.any()
    return copy, n_compact_words


def total_length(dense, groups):
    return sum(np.linalg.norm(dense[groups == group].sum(axis=0)) for group in np.unique(groups))


shapes = {"n": st.integers(2, 40), "n_words": st.integers(1, 30), "seed": st.integers(0, 1000)}


@given(**shapes)
def test_unit_rows_have_length_one_and_lie_on_the_grid(n, n_words, seed):
    rows, dense = make_rows(n, n_words, seed)
    lengths = np.linalg.norm(dense.astype(np.float64), axis=1)
    np.testing.assert_allclose(lengths[lengths > 0], 1, atol=1e-6)
    assert (rows.data * 2**24 % 1 == 0).all()


@given(**shapes)
def test_compact_copies_have_the_same_cosines(n, n_words, seed):
    rows, dense = make_rows(n, n_words, seed)
    chosen = np.random.default_rng(seed).permutation(n)[: n // 2 + 1].astype(np.int32)
    copy, n_compact_words = compact_copy(rows, n_words, chosen)
    shared = (dense[chosen] != 0).sum(axis=0) > 1
    assert n_compact_words == np.count_nonzero(shared)
    assert copy.indptr[-1] == np.count_nonzero(dense[chosen][:, shared])
    cosines = label_exchange.all_cosines(copy, n_compact_words)
    np.testing.assert_allclose(cosines, dense[chosen] @ dense[chosen].T, atol=1e-5)


def halve_slowly(dense, n_left, seed):
    """2-means as the module's docstring describes it."""
    n = len(dense)
    one = below(np.uint64(mix(seed)), n)
    other = (one + 1 + below(np.uint64(mix(seed + np.uint64(1))), n - 1)) % n
    direction, before = dense[one] - dense[other], None
    for _ in range(label_tree.MAX_ITERATIONS):
        is_left = np.zeros(n, np.bool_)
        is_left[np.argsort(-(dense @ direction).round(6), kind="stable")[:n_left]] = True
        if before is not None and (before == is_left).all():
            break
        before = is_left
        left, right = dense[is_left].sum(axis=0), dense[~is_left].sum(axis=0)
        direction = left / max(np.linalg.norm(left), 1e-15) - right / max(np.linalg.norm(right), 1e-15)
    return is_left


def test_splits_equal_the_slow_twin():
    """Rounding may decide between rows with nearly equal scores; this is rare."""
    equal = 0
    for seed in range(40):
        n = 20 + seed
        rows, dense = make_rows(n, 60, seed)
        copy, n_compact_words = compact_copy(rows, 60, np.arange(n, dtype=np.int32))
        is_left = np.empty(n, np.bool_)
        label_tree.split_rows(copy, n_compact_words, n // 3, np.uint64(seed), is_left)
        assert is_left.sum() == n // 3
        equal += (is_left == halve_slowly(dense.astype(np.float64), n // 3, np.uint64(seed))).all()
    assert equal >= 36


@given(**shapes, data=st.data())
def test_clusters_are_a_partition_and_exchanging_only_helps(n, n_words, seed, data):
    rows, dense = make_rows(n, n_words, seed)
    n_clusters = data.draw(st.integers(2, n))
    labels, ends = np.arange(n, dtype=np.int32), np.zeros(n_clusters, np.int64)
    label_tree.grow_subtree(rows, n_words, labels, n_clusters, np.uint64(seed), ends)
    np.testing.assert_array_equal(np.sort(labels), np.arange(n))
    sizes = np.diff(ends, prepend=0)
    assert sizes.sum() == n and sizes.max() - sizes.min() <= 1
    copy, n_compact_words = compact_copy(rows, n_words, np.arange(n, dtype=np.int32))
    order, clusters = np.random.default_rng(seed).permutation(n), np.repeat(np.arange(n_clusters), sizes)
    before = total_length(dense[order], clusters)
    label_exchange.exchange(label_exchange.all_cosines(copy, n_compact_words), order, ends)
    np.testing.assert_array_equal(np.sort(order), np.arange(n))
    assert total_length(dense[order], clusters) >= before - 1e-3


def test_exchanging_repairs_a_bad_start():
    rows, dense = make_rows(64, 40, seed=1, density=0.1)
    copy, n_compact_words = compact_copy(rows, 40, np.arange(64, dtype=np.int32))
    cosines = label_exchange.all_cosines(copy, n_compact_words)
    order, ends = np.arange(64, dtype=np.int32), np.arange(8, 65, 8)
    leaves = np.repeat(np.arange(8), 8)
    before = total_length(dense[order], leaves)
    label_exchange.exchange(cosines, order, ends)
    assert total_length(dense[order], leaves) > 1.2 * before


def test_scores_are_dot_products():
    rows, dense = make_rows(30, 20, seed=4)
    direction = np.random.default_rng(0).normal(size=20).astype(np.float32)
    chosen, scores = np.array([3, 29, 0, 3], np.int32), np.empty(4, np.float32)
    label_tree.score_labels(rows, chosen, direction, scores)
    np.testing.assert_allclose(scores, dense[chosen] @ direction, rtol=1e-4, atol=1e-6)
