"""How label rows start and learn by options: Adam and a mean loss against torch, and candidates as published."""

from __future__ import annotations

import numpy as np
import pytest

from shortlist.arrays import Ragged
from shortlist.training import label_rows
from shortlist.training.label_rows import LabelRows, RowOptions

torch = pytest.importorskip("torch")

from shortlist.stages.attention_layer import rows_of_clusters  # noqa: E402
from shortlist.training.learner import with_positives  # noqa: E402 - needs torch
from test_training_label_rows import random_candidates  # noqa: E402


class TestPublishedOptimiser:
    """Adam with both moments and a mean loss, against torch's own optimisers and autograd."""

    def steps(self, options, candidates_of, sparse, n_labels=13, n_features=9):
        """Three steps of ours and of torch, side by side; `candidates_of(rng)` gives candidates and positives."""
        rng = np.random.default_rng(0)
        ours = LabelRows.start(n_labels, n_features, 0.1, 0, options)
        weights, biases = (torch.tensor(array.copy(), requires_grad=True) for array in (ours.weights, ours.biases))
        learnt = [weights] if options.bias_init == "none" else [weights, biases]
        optimiser = (torch.optim.SparseAdam if sparse else torch.optim.Adam)(learnt, lr=0.01)
        for _ in range(3):
            candidates, positives, features = candidates_of(rng)
            x = torch.tensor(features, requires_grad=True)
            every = np.arange(n_labels)
            rows = [every if candidates is None else line[line >= 0] for line in (candidates if sparse else features)]
            logits = [weights[own] @ text + biases[own] for own, text in zip(rows, x, strict=True)]
            truth = [torch.tensor(np.isin(own, positives.row(i)), dtype=torch.float32) for i, own in enumerate(rows)]
            entropy = torch.nn.functional.binary_cross_entropy_with_logits
            total = sum(entropy(z, y, reduction="sum") for z, y in zip(logits, truth, strict=True))
            expected = total / (len(rows) * max(map(len, rows)))  # a mean over texts × candidates, padding included
            optimiser.zero_grad()
            expected.backward()
            if sparse:
                seen = torch.tensor(np.unique(np.concatenate(rows)), dtype=torch.long)
                for parameter in learnt:
                    slopes = parameter.grad[seen]
                    parameter.grad = torch.sparse_coo_tensor(seen[None], slopes, parameter.shape, check_invariants=True)
            optimiser.step()
            loss, gradient = ours.step(features, candidates, positives, 0.01)
            assert loss == pytest.approx(expected.item(), rel=1e-5)
            np.testing.assert_allclose(gradient, x.grad.numpy(), rtol=1e-4, atol=1e-7)
            np.testing.assert_allclose(ours.weights, weights.detach().numpy(), rtol=0, atol=1e-5)
            np.testing.assert_allclose(ours.biases, biases.detach().numpy(), rtol=0, atol=1e-5)
        return ours

    @pytest.mark.parametrize("bias_init", ["zero", "none", "prior"])
    def test_on_candidates_it_is_sparse_adam(self, bias_init):
        options = RowOptions("adam", "mean", "xavier", bias_init)
        ours = self.steps(options, lambda rng: random_candidates(rng, 6, 13, 7, 9), sparse=True)
        assert ours.seen.tolist() == [3]
        assert (bias_init == "none") == (not ours.biases.any())

    @pytest.mark.parametrize("bias_init", ["zero", "none"])
    def test_on_all_labels_it_is_adam(self, bias_init, monkeypatch):
        monkeypatch.setattr(label_rows, "ROWS_PER_BLOCK", 5)

        def all_labels(rng):
            positives = Ragged.from_lists([rng.choice(13, rng.integers(0, 4), replace=False) for _ in range(6)])
            return None, positives, rng.standard_normal((6, 9)).astype(np.float32)

        self.steps(RowOptions("adam", "mean", "xavier", bias_init), all_labels, sparse=False)


def test_rows_of_clusters():
    starts, clusters = np.asarray([0, 2, 3, 7, 7]), np.asarray([[0, 2], [1, 3], [2, 1]], np.int32)
    rows = rows_of_clusters(clusters, starts)
    assert [row[row >= 0].tolist() for row in rows] == [[0, 1, 3, 4, 5, 6], [2], [3, 4, 5, 6, 2]]
    found, n_found = with_positives(rows, Ragged.from_lists([[4, 2], [2], []]))
    assert [sorted(row[row >= 0]) for row in found] == [[0, 1, 2, 3, 4, 5, 6], [2], [2, 3, 4, 5, 6]]
    assert n_found == 2


def test_ways_to_start():
    xavier = LabelRows.start(300, 60, prior=0.1, options=RowOptions(row_init="xavier", bias_init="zero"))
    bound = (6 / 360) ** 0.5
    assert -bound <= xavier.weights.min() < -0.98 * bound < 0.98 * bound < xavier.weights.max() <= bound
    assert not xavier.biases.any()
    assert LabelRows.start(3, 2, prior=0.1).biases == pytest.approx(np.log(0.1 / 0.9))
