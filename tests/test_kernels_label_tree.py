"""The kernels behind the label tree against slow, obvious twins."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from shortlist.kernels import label_tree
from shortlist.kernels.label_tree import mark_top, split_sizes
from shortlist.kernels.native import native

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


def mix(counter):
    """SplitMix64, which every seed of the kernels goes through."""
    mask = 2**64 - 1
    bits = (counter + 0x9E3779B97F4A7C15) & mask
    bits = ((bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9) & mask
    bits = ((bits ^ (bits >> 27)) * 0x94D049BB133111EB) & mask
    return bits ^ (bits >> 31)


def below(bits, bound):
    return ((bits >> 32) * bound) >> 32


def make_rows(n, n_words, seed, density=0.3):
    """Unit rows on the grid, for kernels and as a dense matrix."""
    matrix = sparse.csr_array(sparse.random(n, n_words, density, dtype=np.float32, random_state=seed))
    indptr = matrix.indptr.astype(np.int64)
    rows = label_tree.Rows(
        indptr, np.empty(matrix.nnz, np.int32), np.empty(matrix.nnz, np.float32), np.zeros(n, np.float32)
    )
    same_words = np.arange(n_words, dtype=np.int32)
    label_tree.scaled_rows(indptr, matrix.indices.astype(np.int32), matrix.data, 0, n, 0.0, same_words, rows)
    return rows, sparse.csr_array((rows.data, matrix.indices, matrix.indptr), shape=matrix.shape).toarray()


def total_length(dense, groups):
    return sum(np.linalg.norm(dense[groups == group].sum(axis=0)) for group in np.unique(groups))


shapes = {"n": st.integers(2, 40), "n_words": st.integers(1, 30), "seed": st.integers(0, 1000)}


@given(**shapes)
def test_unit_rows_have_length_one_and_lie_on_the_grid(n, n_words, seed):
    rows, dense = make_rows(n, n_words, seed)
    lengths = np.linalg.norm(dense.astype(np.float64), axis=1)
    np.testing.assert_allclose(lengths[lengths > 0], 1, atol=1e-6)
    assert (rows.data * 2**24 % 1 == 0).all()


def direction_between(dense, is_left):
    left, right = dense[is_left].sum(axis=0), dense[~is_left].sum(axis=0)
    return left / max(np.linalg.norm(left), 1e-15) - right / max(np.linalg.norm(right), 1e-15)


def halve_slowly(dense, n_left, seed):
    """2-means as the module's docstring describes it."""
    n = len(dense)
    one = below(mix(seed), n)
    other = (one + 1 + below(mix(seed + 1), n - 1)) % n
    direction, before = dense[one] - dense[other], None
    for _ in range(20):
        is_left = np.zeros(n, np.bool_)
        is_left[np.argsort(-(dense @ direction).round(6), kind="stable")[:n_left]] = True
        if before is not None and (before == is_left).all():
            break
        before, direction = is_left, direction_between(dense, is_left)
    return is_left


def exchange_slowly(dense, order, ends):
    """Try each label in turn: make the exchange with another cluster that raises the sum of lengths most."""
    order, starts = order.copy(), np.concatenate([[0], ends[:-1]])
    cluster_of = np.repeat(np.arange(len(ends)), ends - starts)

    def length(rows):
        return np.linalg.norm(dense[rows].sum(axis=0))

    for _ in range(8):
        before = order.copy()
        for p, a in enumerate(cluster_of):
            i, own = order[p], order[starts[a] : ends[a]]
            sum_a, best, best_q = dense[own].sum(axis=0) - dense[i], 1e-5, -1
            pull = dense[i] @ sum_a / max(np.linalg.norm(sum_a), 1e-6)
            for b in range(len(ends)):
                others = order[starts[b] : ends[b]]
                sum_b, both = dense[others].sum(axis=0), length(own) + length(others)
                if b == a or dense[i] @ sum_b <= pull * max(np.linalg.norm(sum_b), 1e-6):
                    continue
                for q in range(starts[b], ends[b]):
                    j = dense[order[q]]
                    gain = np.linalg.norm(sum_a + j) + np.linalg.norm(sum_b + dense[i] - j) - both
                    if gain > best:
                        best, best_q = gain, q
            if best_q >= 0:
                order[p], order[best_q] = order[best_q], i
        if (order == before).all():
            break
    return order


def grow_slowly(dense, n_clusters, seed):
    """Split level by level, then exchange: the labels in cluster order, and where the clusters end."""
    nodes = [(np.arange(len(dense)), n_clusters)]
    while len(nodes) < n_clusters:
        next_nodes, start = [], 0
        for labels, k in nodes:
            if k == 1:
                next_nodes.append((labels, 1))
            else:
                left_clusters, n_left = split_sizes(len(labels), k)
                is_left = halve_slowly(dense[labels], n_left, mix(seed ^ mix(start << 32 | len(nodes))))
                next_nodes += [(labels[is_left], left_clusters), (labels[~is_left], k - left_clusters)]
            start += len(labels)
        nodes = next_nodes
    ends = np.cumsum([len(labels) for labels, _ in nodes])
    return exchange_slowly(dense, np.concatenate([labels for labels, _ in nodes]), ends), ends


def test_directions_of_samples_equal_the_slow_twin():
    """Rounding may decide between rows with nearly equal scores; this is rare."""
    equal = 0
    for seed in range(40):
        n = 20 + seed
        rows, dense = make_rows(2 * n, 60, seed)
        sample = np.random.default_rng(seed).permutation(2 * n)[:n].astype(np.int32)
        direction = label_tree.sample_direction(rows, 60, sample, n // 3, np.uint64(2**64 - 1 - seed))
        chosen = dense[sample].astype(np.float64)
        expected = direction_between(chosen, halve_slowly(chosen, n // 3, 2**64 - 1 - seed))
        equal += np.allclose(direction, expected, atol=1e-5)
    assert equal >= 36


def test_subtrees_equal_the_slow_twin():
    equal = 0
    for seed in range(40):
        n, n_clusters = 20 + seed, 2 + seed % 9
        rows, dense = make_rows(n, 60, seed)
        labels, ends = np.arange(n, dtype=np.int32), np.zeros(n_clusters, np.int64)
        label_tree.grow_subtree(rows, 60, labels, n_clusters, np.uint64(seed), ends)
        expected, expected_ends = grow_slowly(dense.astype(np.float64), n_clusters, seed)
        np.testing.assert_array_equal(ends, expected_ends)
        equal += (labels == expected).all()
    assert equal >= 36


def test_exchanges_equal_the_slow_twin():
    equal = 0
    for seed in range(40):
        rows, dense = make_rows(40, 30, seed)
        order = np.random.default_rng(seed).permutation(40).astype(np.int32)
        ends = np.array([9, 17, 30, 40])
        expected = exchange_slowly(dense.astype(np.float64), order, ends)
        native.exchange_labels(rows, 30, order, ends)
        equal += (order == expected).all()
    assert equal >= 36


@given(**shapes, data=st.data())
def test_clusters_are_a_partition_and_exchanging_only_helps(n, n_words, seed, data):
    rows, dense = make_rows(n, n_words, seed)
    n_clusters = data.draw(st.integers(1, n))
    labels, ends = np.arange(n, dtype=np.int32), np.zeros(n_clusters, np.int64)
    label_tree.grow_subtree(rows, n_words, labels, n_clusters, np.uint64(seed), ends)
    np.testing.assert_array_equal(np.sort(labels), np.arange(n))
    sizes = np.diff(ends, prepend=0)
    assert sizes.sum() == n and sizes.max() - sizes.min() <= 1
    order = np.random.default_rng(seed).permutation(n).astype(np.int32)
    clusters = np.repeat(np.arange(n_clusters), sizes)
    before = total_length(dense[order], clusters)
    native.exchange_labels(rows, n_words, order, ends)
    np.testing.assert_array_equal(np.sort(order), np.arange(n))
    assert total_length(dense[order], clusters) >= before - 1e-3


def test_exchanging_repairs_a_bad_start():
    rows, dense = make_rows(64, 40, seed=1, density=0.1)
    order, ends = np.arange(64, dtype=np.int32), np.arange(8, 65, 8)
    leaves = np.repeat(np.arange(8), 8)
    before = total_length(dense[order], leaves)
    native.exchange_labels(rows, 40, order, ends)
    assert total_length(dense[order], leaves) > 1.2 * before


def test_scores_are_dot_products():
    rows, dense = make_rows(30, 20, seed=4)
    direction = np.random.default_rng(0).normal(size=20).astype(np.float32)
    chosen, scores = np.array([3, 29, 0, 3], np.int32), np.empty(4, np.float32)
    label_tree.score_labels(rows, chosen, direction, scores)
    np.testing.assert_allclose(scores, dense[chosen] @ direction, rtol=1e-4, atol=1e-6)
