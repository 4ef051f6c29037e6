"""The fused training steps against autograd and a row-wise optimiser in plain loops, on random and edge shapes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shortlist.arrays import Ragged, counts_to_indptr
from shortlist.errors import DataError, OptionError
from shortlist.kernels.label_rows import entropy, even_shares, move_rows, samples_by_cluster
from shortlist.kernels.threads import use_threads
from shortlist.training import label_rows
from shortlist.training.label_rows import Clusters, LabelRows, RowOptions

torch = pytest.importorskip("torch")

from shortlist.training.learner import with_positives  # noqa: E402 - needs torch
from shortlist.training.processor import bfloat16_product  # noqa: E402

pytestmark = pytest.mark.slow


def random_problem(rng, n_texts, n_clusters, most_labels, n_seen, n_features):
    """Clusters of different sizes, some of them for each text, and positives in some of those."""
    starts = counts_to_indptr(rng.integers(1, most_labels + 1, n_clusters))
    n_seen = min(n_seen, n_clusters)
    clusters = np.stack([rng.permutation(n_clusters)[:n_seen] for _ in range(n_texts)]).astype(np.int32)
    rows = [np.concatenate([np.arange(starts[c], starts[c + 1]) for c in seen]) for seen in clusters]
    positives = Ragged.from_lists([rng.choice(r, rng.integers(0, min(3, len(r)) + 1), replace=False) for r in rows])
    features = rng.standard_normal((n_texts, n_features)).astype(np.float32)
    return starts, clusters, rows, positives, features


class RowOptimiser:
    """Divides the gradient of a row by the root of its mean square, averaged over the steps that saw the row."""

    def __init__(self, weights, biases):
        self.parameters = (weights, biases)
        self.means = [np.zeros(len(weights)), np.zeros(len(weights))]
        self.seen = np.zeros(len(weights), int)

    def step(self, rows, rate):
        self.seen[rows] += 1
        for parameter, means in zip(self.parameters, self.means, strict=True):
            gradient = parameter.grad.numpy().reshape(len(means), -1)
            for row in rows:
                share = max(1 / 1000, 1 / self.seen[row])
                means[row] = (1 - share) * means[row] + share * (gradient[row] ** 2).mean()
                with torch.no_grad():
                    parameter[row] -= rate * parameter.grad[row] / (means[row] ** 0.5 + 1e-8)
            parameter.grad = None


def oracle_step(weights, biases, optimiser, features, rows, positives, rate=0.01):
    """The same in plain torch: logits of the candidates, cross-entropy, autograd, optimiser."""
    x = torch.tensor(features, requires_grad=True)
    loss = torch.zeros((), dtype=torch.float64)
    for sample, candidates in enumerate(rows):
        logits = weights[candidates] @ x[sample] + biases[candidates]
        truth = torch.tensor(np.isin(candidates, positives.row(sample)).astype(np.float32))
        loss = loss + torch.nn.functional.binary_cross_entropy_with_logits(logits, truth, reduction="sum")
    loss = loss / len(rows)
    loss.backward()
    optimiser.step(np.unique(np.concatenate([np.asarray(r, int) for r in rows])), rate)
    return loss.item(), x.grad.numpy()


def run_both(seed, n_texts, n_clusters, most_labels, n_seen, n_features, threads):
    """One step on some clusters, with which the means start, then two on all of them."""
    rng = np.random.default_rng(seed)
    starts, clusters, rows, positives, features = random_problem(
        rng, n_texts, n_clusters, most_labels, n_seen, n_features
    )
    n_labels = int(starts[-1])
    ours = LabelRows.start(n_labels, n_features, prior=0.1, seed=seed)
    weights = torch.tensor(ours.weights.copy(), requires_grad=True)
    biases = torch.tensor(ours.biases.copy(), requires_grad=True)
    optimiser = RowOptimiser(weights, biases)
    for _ in range(3):
        with use_threads(threads):
            loss, gradient = ours.step(features, Clusters(clusters, starts), positives, 0.01)
        expected_loss, expected_gradient = oracle_step(weights, biases, optimiser, features, rows, positives)
        assert loss == pytest.approx(expected_loss, rel=1e-4, abs=1e-5)
        np.testing.assert_allclose(gradient, expected_gradient, rtol=1e-3, atol=1e-5)
        rows = [np.arange(n_labels) for _ in range(n_texts)]
        clusters = np.tile(np.arange(n_clusters, dtype=np.int32), (n_texts, 1))
        positives = Ragged.from_lists([rng.choice(n_labels, 1) for _ in range(n_texts)])
        features = rng.standard_normal(features.shape).astype(np.float32)
    np.testing.assert_allclose(ours.weights, weights.detach().numpy(), rtol=1e-3, atol=2e-4)
    np.testing.assert_allclose(ours.biases, biases.detach().numpy(), rtol=1e-3, atol=2e-4)


@settings(max_examples=25)
@given(
    st.integers(0, 10_000),
    st.integers(1, 9),
    st.integers(1, 7),
    st.integers(1, 6),
    st.integers(1, 7),
    st.sampled_from([1, 3, 16, 33]),
    st.sampled_from([1, 2]),
)
def test_step_equals_autograd_and_row_optimiser(seed, n_texts, n_clusters, most_labels, n_seen, n_features, threads):
    run_both(seed, n_texts, n_clusters, most_labels, n_seen, n_features, threads)


@settings(max_examples=15)
@given(st.integers(0, 1000), st.integers(1, 8), st.integers(1, 20), st.sampled_from([1, 7, 16]), st.booleans())
def test_step_on_all_labels_equals_autograd_and_row_optimiser(seed, n_texts, n_labels, n_features, short):
    rng = np.random.default_rng(seed)
    ours = LabelRows.start(n_labels, n_features, prior=0.1, seed=seed)
    before = ours.weights.copy()
    weights = torch.tensor(before.copy(), requires_grad=True)
    biases = torch.tensor(ours.biases.copy(), requires_grad=True)
    optimiser = RowOptimiser(weights, biases)
    features = rng.standard_normal((n_texts, n_features)).astype(np.float32)
    positives = Ragged.from_lists(
        [rng.choice(n_labels, rng.integers(0, min(3, n_labels) + 1), False) for _ in features]
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(label_rows, "ROWS_PER_BLOCK", 7)
        ours.product = bfloat16_product if short else np.matmul
        loss, gradient = ours.step(features, None, positives, 0.01)
    every = [np.arange(n_labels)] * n_texts
    expected_loss, expected_gradient = oracle_step(weights, biases, optimiser, features, every, positives)
    # bfloat16 keeps two to three digits of each term, not of their sum; and logits are such products, too.
    assert loss == (
        pytest.approx(expected_loss, rel=0.02, abs=0.01) if short else pytest.approx(expected_loss, 1e-4, 1e-5)
    )
    terms = np.abs(before).sum(axis=0).max() / n_texts  # an upper bound: slopes are below 1 / samples
    slack = terms / 64 if short else 1e-5
    np.testing.assert_allclose(gradient, expected_gradient, rtol=1e-3, atol=slack + 1e-6)
    if not short:
        np.testing.assert_allclose(ours.weights, weights.detach().numpy(), rtol=1e-3, atol=2e-4)
        np.testing.assert_allclose(ours.biases, biases.detach().numpy(), rtol=1e-3, atol=2e-4)


def random_candidates(rng, n_texts, n_labels, k, n_features):
    """Distinct candidates for each text in any order, with gaps; positives among them; features."""
    candidates = np.full((n_texts, k), -1, np.int32)
    for line in candidates:
        own = rng.permutation(n_labels)[: rng.integers(0, min(k, n_labels) + 1)]
        line[rng.permutation(k)[: len(own)]] = own
    positives = [rng.permutation(line[line >= 0])[: rng.integers(0, 4)] for line in candidates]
    return candidates, Ragged.from_lists(positives), rng.standard_normal((n_texts, n_features)).astype(np.float32)


def assert_rows_are_close(found, expected):
    for name, array in expected.arrays().items():
        np.testing.assert_allclose(found.arrays()[name], array, rtol=1e-4, atol=1e-5, err_msg=name)


class TestStepOnCandidates:
    @settings(max_examples=30)
    @given(
        st.integers(0, 10_000),
        st.integers(1, 9),
        st.integers(1, 20),
        st.integers(1, 9),
        st.sampled_from([1, 3, 16, 33]),
        st.sampled_from([1, 2]),
    )
    def test_equals_a_step_on_clusters_of_one_row(self, seed, n_texts, n_labels, k, n_features, threads):
        rng = np.random.default_rng(seed)
        ours, expected = (LabelRows.start(n_labels, n_features, prior=0.1, seed=seed) for _ in range(2))
        for _ in range(3):
            candidates, positives, features = random_candidates(rng, n_texts, n_labels, k, n_features)
            with use_threads(threads):
                found = ours.step(features, candidates, positives, 0.01)
                alone = Clusters(candidates, np.arange(n_labels + 1))
                loss, gradient = expected.step(features, alone, positives, 0.01)
            assert found[0] == pytest.approx(loss, rel=1e-5, abs=1e-6)
            np.testing.assert_allclose(found[1], gradient, rtol=1e-4, atol=1e-6)
            assert_rows_are_close(ours, expected)
        assert np.array_equal(ours.seen, expected.seen)

    def test_equals_autograd_and_row_optimiser(self):
        rng = np.random.default_rng(1)
        ours = LabelRows.start(11, 5, prior=0.1)
        weights, biases = (torch.tensor(array.copy(), requires_grad=True) for array in (ours.weights, ours.biases))
        optimiser = RowOptimiser(weights, biases)
        for _ in range(3):
            candidates, positives, features = random_candidates(rng, 6, 11, 7, 5)
            loss, gradient = ours.step(features, candidates, positives, 0.01)
            rows = [line[line >= 0] for line in candidates]
            expected = oracle_step(weights, biases, optimiser, features, rows, positives)
            assert loss == pytest.approx(expected[0], rel=1e-4)
            np.testing.assert_allclose(gradient, expected[1], rtol=1e-3, atol=1e-5)
        np.testing.assert_allclose(ours.weights, weights.detach().numpy(), rtol=1e-3, atol=2e-4)
        np.testing.assert_allclose(ours.biases, biases.detach().numpy(), rtol=1e-3, atol=2e-4)

    @pytest.mark.parametrize(
        ("candidates", "positives"),
        [
            ([[0]], [[0]]),
            ([[0]], [[]]),
            ([[-1]], [[]]),
            ([[-1, -1], [2, -1]], [[], [2]]),
            ([[2, 0, 1]] * 3, [[0, 1, 2]] * 3),
        ],
        ids=["one positive", "one negative", "none", "one text of two has one", "all labels, all positive"],
    )
    def test_edge_shapes(self, candidates, positives):
        candidates, positives = np.asarray(candidates, np.int32), Ragged.from_lists(positives)
        features = np.random.default_rng(0).standard_normal((len(candidates), 3)).astype(np.float32)
        ours, expected = LabelRows.start(3, 3, prior=0.1), LabelRows.start(3, 3, prior=0.1)
        loss, gradient = ours.step(features, candidates, positives, 0.1)
        clusters = expected.step(features, Clusters(candidates, np.arange(4)), positives, 0.1)
        assert loss == pytest.approx(clusters[0], rel=1e-5)
        np.testing.assert_allclose(gradient, clusters[1], rtol=1e-4, atol=1e-6)
        assert_rows_are_close(ours, expected)
        assert ours.seen.tolist() == [int(row in candidates) for row in range(3)]

    @pytest.mark.parametrize("optimizer", ["row-adam", "adam"])
    def test_row_adam_learns_nothing_from_what_is_known(self, optimizer):
        """That the text has label 0 and does not have label 1 is known; labels 2 and 3 are not."""
        rows = LabelRows.of(np.zeros((4, 3), np.float32), RowOptions(optimizer))
        rows.biases[:] = 8, -8, 0, 0  # log-odds
        candidates, features = np.arange(4, dtype=np.int32)[None], np.ones((1, 3), np.float32)
        loss, _ = rows.step(features, candidates, Ragged.from_lists([[0, 2]]), 0.1)
        moved = np.flatnonzero(rows.weights.any(axis=1))
        assert moved.tolist() == ([2, 3] if optimizer == "row-adam" else [0, 1, 2, 3])
        assert loss == pytest.approx(2 * np.log1p(np.exp(-8)) + 2 * np.log(2), rel=1e-4)

    def test_no_samples(self):
        rows = LabelRows.start(3, 2, prior=0.1)
        none = np.zeros((0, 2), np.float32)
        loss, gradient = rows.step(none, np.zeros((0, 4), np.int32), Ragged.from_lists([]), 0.1)
        assert (loss, gradient.shape) == (0, (0, 2))
        assert not rows.seen.any()

    def test_positives_must_be_candidates(self):
        rows = LabelRows.start(4, 2, prior=0.1)
        before = rows.weights.copy()
        for candidates in ([[1, 2]], [[-1, -1]]):
            with pytest.raises(OptionError, match="positives of a text must be among its candidates"):
                rows.step(np.ones((1, 2)), np.asarray(candidates, np.int32), Ragged.from_lists([[2, 3]]), 0.1)
        assert np.array_equal(rows.weights, before)

    def test_nan_and_infinity_are_reported(self):
        rows = LabelRows.start(3, 2, prior=0.1)
        for bad in (np.nan, np.inf):
            with pytest.raises(DataError, match="Lower the learning rate"):
                rows.step(np.asarray([[1, bad]]), np.zeros((1, 1), np.int32), Ragged.from_lists([[0]]), 0.1)

    def test_the_same_number_of_threads_gives_the_same_bits(self, monkeypatch):
        results = []
        for n_shares in (3, 3, 1):
            monkeypatch.setattr(label_rows, "n_threads", lambda n=n_shares: n)
            candidates, positives, features = random_candidates(np.random.default_rng(5), 30, 40, 10, 17)
            rows = LabelRows.start(40, 17, prior=0.05)
            results.append((*rows.step(features, candidates, positives, 0.01), rows.weights))
        assert results[0][0] == results[1][0] == pytest.approx(results[2][0], rel=1e-6)
        assert np.array_equal(results[0][1], results[1][1])
        np.testing.assert_allclose(results[0][1], results[2][1], rtol=1e-4, atol=1e-6)
        assert np.array_equal(results[0][2], results[1][2])
        assert np.array_equal(results[0][2], results[2][2])


def test_one_label_one_cluster_one_sample():
    run_both(0, 1, 1, 1, 1, 1, 1)


def test_rows_that_are_no_candidates_stay_as_they_are():
    rows = LabelRows.start(6, 4, prior=0.1)
    before = rows.weights.copy()
    starts = np.asarray([0, 2, 4, 6])
    clusters = Clusters(np.asarray([[1], [1]], np.int32), starts)
    rows.step(np.ones((2, 4), np.float32), clusters, Ragged.from_lists([[2], []]), 0.1)
    changed = np.any(rows.weights != before, axis=1)
    assert changed.tolist() == [False, False, True, True, False, False]
    assert rows.seen.tolist() == [0, 0, 1, 1, 0, 0]


def test_positives_must_be_in_the_clusters_of_the_text():
    rows = LabelRows.start(4, 2, prior=0.1)
    clusters = Clusters(np.zeros((1, 1), np.int32), np.asarray([0, 2, 4]))
    with pytest.raises(OptionError, match="positives of a text must be among its candidates"):
        rows.step(np.ones((1, 2), np.float32), clusters, Ragged.from_lists([[3]]), 0.1)


def test_no_clusters_and_no_samples():
    rows = LabelRows.start(3, 2, prior=0.1)
    starts = np.asarray([0, 3])
    none = Clusters(np.asarray([[-1]], np.int32), starts)
    loss, gradient = rows.step(np.ones((1, 2), np.float32), none, Ragged.from_lists([[]]), 0.1)
    assert loss == 0
    assert not gradient.any()
    empty = Clusters(np.zeros((0, 1), np.int32), starts)
    loss, gradient = rows.step(np.zeros((0, 2), np.float32), empty, Ragged.from_lists([]), 0.1)
    assert gradient.shape == (0, 2)


def test_on_clusters_the_same_number_of_threads_gives_the_same_bits():
    results = []
    for threads in (2, 2, 1):
        rng = np.random.default_rng(5)
        starts, clusters, _, positives, features = random_problem(rng, 30, 40, 5, 10, 17)
        rows = LabelRows.start(int(starts[-1]), 17, prior=0.05)
        with use_threads(threads):
            results.append((*rows.step(features, Clusters(clusters, starts), positives, 0.01), rows.weights))
    assert results[0][0] == results[1][0]
    assert np.array_equal(results[0][1], results[1][1])
    assert np.array_equal(results[0][2], results[1][2])
    np.testing.assert_allclose(results[0][1], results[2][1], rtol=1e-4, atol=1e-6)
    assert np.array_equal(results[0][2], results[2][2])


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_nan_and_infinity_are_reported(bad):
    rows = LabelRows.start(3, 2, prior=0.1)
    features = np.asarray([[1, bad]], np.float32)
    with pytest.raises(DataError, match="Lower the learning rate"):
        rows.step(features, Clusters(np.zeros((1, 1), np.int32), np.array([0, 3])), Ragged.from_lists([[0]]), 0.1)


@given(st.integers(0, 1000), st.integers(0, 8), st.integers(1, 9), st.integers(1, 5), st.integers(1, 4))
def test_samples_by_cluster_and_even_shares(seed, n_texts, n_clusters, n_seen, n_shares):
    rng = np.random.default_rng(seed)
    clusters = np.full((n_texts, n_seen), -1, np.int32)
    for sample in range(n_texts):
        seen = rng.permutation(n_clusters)[: rng.integers(0, n_seen + 1)]
        clusters[sample, : len(seen)] = seen
    wanted, bounds, samples = samples_by_cluster(clusters, n_clusters)
    expected = {c: [s for s in range(n_texts) if c in clusters[s]] for c in range(n_clusters)}
    found = {int(c): samples[bounds[i] : bounds[i + 1]].tolist() for i, c in enumerate(wanted)}
    assert found == {c: who for c, who in expected.items() if who}
    starts = counts_to_indptr(rng.integers(1, 5, n_clusters))
    cuts = even_shares(wanted, bounds, starts, n_shares)
    assert cuts[0] == 0
    assert cuts[-1] == len(wanted)
    assert np.all(np.diff(cuts) >= 0)


@given(st.lists(st.floats(-80, 80, width=32), min_size=1, max_size=600), st.integers(1, 3))
def test_entropy_and_its_slopes(logits, n_texts):
    logits = np.asarray([logits] * n_texts, np.float32)
    biases = np.linspace(-1, 1, logits.shape[1], dtype=np.float32)
    exact = (logits + biases).astype(np.float64)
    slopes, losses = np.empty_like(logits), np.full(n_texts, 7.0)
    entropy(logits, biases, np.float32(0.5), slopes, losses)
    assert np.array_equal(logits, exact.astype(np.float32))
    np.testing.assert_allclose(losses - 7, np.logaddexp(0, exact).sum(axis=1), rtol=1e-4, atol=1e-14)
    np.testing.assert_allclose(slopes, 0.5 / (1 + np.exp(-exact)), rtol=1e-5)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_entropy_of_nan_and_infinity_is_not_finite(bad):
    logits, losses = np.asarray([[0, bad]], np.float32), np.zeros(1)
    entropy(logits, np.zeros(2, np.float32), np.float32(1), np.empty_like(logits), losses)
    assert not np.isfinite(losses[0])


@pytest.mark.parametrize("optimizer", ["row-adam", "adam"])
@pytest.mark.parametrize("n_features", [1, 7, 40])
def test_moving_some_rows_is_moving_those_by_their_sums(optimizer, n_features):
    """`move_rows` is compared with autograd and an optimiser above, in a step on all labels."""
    rng = np.random.default_rng(n_features)
    options = RowOptions(optimizer, bias_init="none")
    ours, expected = (LabelRows.start(9, n_features, 0.1, options=options) for _ in range(2))
    before = ours.weights.copy()
    slopes = rng.standard_normal((6, n_features)).astype(np.float32)
    for rows in ([8, 0, 3], [0], [], [5, 8]):
        terms = [rng.integers(6, size=rng.integers(1, 7)) for _ in rows]
        factors = [rng.standard_normal(len(own)).astype(np.float32) for own in terms]
        bounds, rows = counts_to_indptr([len(own) for own in terms]), np.asarray(rows, np.int32)
        flat = np.concatenate([*terms, []]).astype(np.int32), np.concatenate([*factors, []]).astype(np.float32)
        ours.move(rows, Ragged(bounds, *flat), slopes, 0.01)
        rates = label_rows.step_rates(options, expected.seen, 0.01, dense=False)
        for row, own, factor in zip(rows, terms, factors, strict=True):
            one = slice(row, row + 1)
            of_row = expected.weights[one], expected.biases[one], expected._state(one)
            move_rows(*of_row, (factor @ slopes[own])[None], np.zeros(1, np.float32), rates)
    assert_rows_are_close(ours, expected)
    assert not np.array_equal(ours.weights, before)
    assert np.array_equal(ours.weights[[1, 2, 4, 6, 7]], before[[1, 2, 4, 6, 7]])


class TestWithPositives:
    @given(st.integers(0, 10_000), st.integers(0, 6), st.integers(1, 12), st.integers(1, 12))
    def test_appends_missing_clusters_and_counts_the_others(self, seed, n_texts, n_clusters, k):
        rng = np.random.default_rng(seed)
        k = min(k, n_clusters)
        top = np.asarray([np.sort(rng.permutation(n_clusters)[:k]) for _ in range(n_texts)], np.int32)
        positives = [rng.permutation(n_clusters)[: rng.integers(0, n_clusters + 1)].tolist() for _ in range(n_texts)]
        clusters, n_found = with_positives(top.reshape(n_texts, k), Ragged.from_lists(positives))
        assert clusters.shape == (n_texts, k + max(map(len, positives), default=0))
        for line, first, extra in zip(clusters.tolist(), top.tolist(), positives, strict=True):
            expected = first + [cluster for cluster in extra if cluster not in first]
            assert line == expected + [-1] * (len(line) - len(expected))
        assert n_found == sum(len(set(a) & set(b)) for a, b in zip(top.tolist(), positives, strict=True))
