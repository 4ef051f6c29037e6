"""Output layers: logits and the best rows, against dense products."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import log_expit

from shortlist.arrays import check_arrays, counts_to_indptr
from shortlist.kernels.threads import n_cores, use_threads
from shortlist.stages import output_layer
from shortlist.stages.candidates import top_clusters
from shortlist.stages.output_layer import OutputLayer, output_layer_spec

INF = float("inf")


def expected_lists(ids_and_scores, k):
    """The k best of (ids, scores) of each text, padded with -1 and −∞; of equals, the lower id first."""
    ids, scores = np.full((len(ids_and_scores), k), -1), np.full((len(ids_and_scores), k), -np.inf)
    for text, (candidates, values) in enumerate(ids_and_scores):
        order = np.lexsort((candidates, -values))[:k]
        ids[text, : len(order)], scores[text, : len(order)] = candidates[order], values[order]
    return ids, scores


def small_numbers(rng, *shape):
    """Whole numbers from -2 to 2: sums of products are exact, and many are equal."""
    return rng.integers(-2, 3, shape).astype(np.float32)


def layer_arrays(rng, n_rows, n_features, residual=True, packed=False):
    arrays = {"weights": small_numbers(rng, n_rows, n_features), "biases": small_numbers(rng, n_rows)}
    if packed:
        arrays["weights"] = arrays["weights"].astype(np.int8)
        arrays["weights.scales"] = 2 ** small_numbers(rng, n_rows)
    if residual:
        arrays["block"] = small_numbers(rng, n_features, n_features)
    return arrays


def random_layer(*arguments, **kind):
    return OutputLayer(layer_arrays(*arguments, **kind))


def dense_logits(layer, features):
    """The logits of all rows, by one product."""
    hidden = features if layer.block is None else np.maximum(features @ layer.block.T, 0) + features
    return hidden @ (layer.rows.values * layer.rows.scales[:, None]).T + layer.biases


class TestOutputLayer:
    @given(
        st.integers(0, 10_000), st.integers(0, 9), st.integers(1, 20), st.integers(0, 6), st.booleans(), st.booleans()
    )
    def test_logits_equal_a_dense_product(self, seed, n_texts, n_rows, k, residual, packed):
        """Few texts are scored by a kernel, many by matrix products, candidates one by one: all the same."""
        rng = np.random.default_rng(seed)
        layer, features = random_layer(rng, n_rows, 3, residual, packed), small_numbers(rng, n_texts, 3)
        expected = dense_logits(layer, features)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(output_layer, "ROWS_PER_BLOCK", 6)
            assert np.array_equal(layer.logits(features), expected)
            patch.setattr(output_layer, "FEW_TEXTS", 0)
            assert np.array_equal(layer.logits(features), expected)
        candidates = rng.integers(-1, n_rows, (n_texts, k)).astype(np.int32)
        of_candidates = np.take_along_axis(expected, np.maximum(candidates, 0), axis=1)
        found = layer.logits_of(features, candidates)
        assert np.array_equal(found, np.where(candidates >= 0, of_candidates, -INF))

    @given(
        st.integers(0, 10_000),
        st.integers(0, 8),
        st.integers(1, 20),
        st.integers(1, 30),
        st.integers(1, 9),
        st.booleans(),
    )
    def test_best_in_blocks_of_any_size(self, seed, n_texts, n_rows, k, block, packed):
        rng = np.random.default_rng(seed)
        layer, features = random_layer(rng, n_rows, 3, packed=packed), small_numbers(rng, n_texts, 3)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(output_layer, "ROWS_PER_BLOCK", block)
            ids, scores = layer.best(features, k)
        logits = dense_logits(layer, features)
        expected = expected_lists([(np.arange(n_rows), line) for line in logits], min(k, n_rows))
        assert ids.tolist() == expected[0].tolist()
        assert scores.tolist() == expected[1].tolist()

    @given(
        st.integers(0, 10_000), st.integers(0, 5), st.integers(1, 6), st.integers(1, 30), st.booleans(), st.booleans()
    )
    def test_best_of_clusters(self, seed, n_texts, n_clusters, k, residual, packed):
        rng = np.random.default_rng(seed)
        starts = counts_to_indptr(rng.integers(0, 5, n_clusters) + (np.arange(n_clusters) == 0))
        layer = random_layer(rng, int(starts[-1]), 3, residual, packed)
        features = small_numbers(rng, n_texts, 3)
        clusters = np.full((n_texts, n_clusters), -1, np.int32)
        for line in clusters:
            seen = rng.permutation(n_clusters)[: rng.integers(0, n_clusters + 1)]
            line[rng.permutation(n_clusters)[: len(seen)]] = seen
        logits = dense_logits(layer, features)
        rows = [
            np.asarray([row for c in line if c >= 0 for row in range(starts[c], starts[c + 1])], int)
            for line in clusters
        ]
        ids, scores = layer.best_of_clusters(features, clusters, starts, k, None)
        expected = expected_lists([(r, line[r]) for r, line in zip(rows, logits, strict=True)], min(k, int(starts[-1])))
        assert ids.tolist() == expected[0].tolist()
        assert scores.tolist() == expected[1].tolist()

    @given(st.integers(0, 10_000), st.integers(1, 5), st.integers(1, 6), st.integers(1, 30))
    def test_best_by_the_product_with_the_probability_of_the_cluster(self, seed, n_texts, n_clusters, k):
        rng = np.random.default_rng(seed)
        starts = counts_to_indptr(rng.integers(1, 5, n_clusters))
        layer = random_layer(rng, int(starts[-1]), 3)
        features = rng.standard_normal((n_texts, 3)).astype(np.float32)
        cluster_logits = 20 * rng.standard_normal((n_texts, n_clusters)).astype(np.float32)
        every = np.tile(np.arange(n_clusters, dtype=np.int32), (n_texts, 1))
        ids, scores = layer.best_of_clusters(features, every, starts, k, cluster_logits)
        sums = log_expit(layer.logits(features)) + log_expit(np.repeat(cluster_logits, np.diff(starts), axis=1))
        rows = np.arange(int(starts[-1]))
        expected = expected_lists([(rows, line) for line in sums], min(k, len(rows)))
        np.testing.assert_allclose(scores, expected[1], rtol=1e-5, atol=1e-6)
        # By the scores of the rows found: rounding may swap two that are all but equal.
        np.testing.assert_allclose(np.take_along_axis(sums, ids, axis=1), expected[1], rtol=1e-5, atol=1e-6)
        assert all(len(set(line)) == len(line) for line in ids.tolist())

    @pytest.mark.skipif(n_cores() < 2, reason="there is one core")
    def test_threads_change_nothing(self):
        rng = np.random.default_rng(1)
        layer = OutputLayer({"weights": rng.standard_normal((50, 7), np.float32), "biases": np.zeros(50, np.float32)})
        features, starts = rng.standard_normal((40, 7), np.float32), np.arange(0, 51, 5)
        cluster_logits = rng.standard_normal((40, 10), np.float32)
        results = []
        for threads in (1, 2):
            with use_threads(threads):
                clusters = top_clusters(cluster_logits, 4)
                lists = (
                    layer.best(features, 6),
                    layer.best_of_clusters(features, clusters, starts, 6, None),
                    layer.best_of_clusters(features, clusters, starts, 6, cluster_logits),
                )
                results.append([clusters, *(array for pair in lists for array in pair)])
        for one, two in zip(*results, strict=True):
            assert np.array_equal(one, two)

    @pytest.mark.parametrize(
        ("block", "names"),
        [
            (None, set()),
            (("relu", "spectral"), {"block"}),
            (("relu", "batch", True, 0.25), {"block", "block_biases", "block_scales", "block_shifts"}),
            (("gelu", "spectral", True, 0.25, "xavier"), {"gelu_block", "block_biases"}),
            (("gelu", "none"), {"gelu_block"}),
            (("relu", "spectral", True, 0.0, "identity", True, 0.5, 0.5), {"block", "block_biases"}),
            (("relu", "none", True, 0.0, "xavier", False), {"plain_block", "block_biases"}),
            (("gelu", "spectral", False, 0.0, "torch", False), {"gelu_plain_block"}),
        ],
    )
    def test_equals_the_head_in_torch(self, block, names):
        torch = pytest.importorskip("torch")
        from shortlist.training.heads import BlockOptions, HeadOptions
        from shortlist.training.label_rows import LabelRows
        from shortlist.training.learner import Head

        torch.manual_seed(0)
        options = HeadOptions(block=None if block is None else BlockOptions(*block))
        head = Head(LabelRows.start(20, 9, prior=0.1), torch.device("cpu"), options)
        for _ in range(3):  # each step of its power iteration changes the spectral norm
            head.block(torch.randn(4, 9))
        arrays = head.arrays()
        assert head.block.training
        assert set(arrays) == {"weights", "biases"} | names
        check_arrays(arrays, output_layer_spec("n_rows"), n_rows=20, n_features=9)
        features = torch.randn(6, 9)
        head.block.eval()
        expected = head.block(features) @ torch.from_numpy(head.rows.weights).T + torch.from_numpy(head.rows.biases)
        logits = OutputLayer(arrays).logits(features.numpy())
        np.testing.assert_allclose(logits, expected.detach().numpy(), rtol=1e-5, atol=1e-5)
