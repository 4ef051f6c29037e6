"""What learns: the network and its label rows, dropout, the word vectors' optimiser, the learning-rate schedule."""

from __future__ import annotations

import numpy as np
import pytest

from shortlist.arrays import Ragged
from shortlist.errors import DataError, OptionError
from shortlist.training.batches import Batch, DenseBatches, ShortlistBatches

torch = pytest.importorskip("torch")

from tests.tiny_learner import N_TOPICS, Given, SumOfWords, assert_equal, copied, new_learner, one_batch  # noqa: E402

from shortlist.training.heads import BlockOptions, require_finite  # noqa: E402
from shortlist.training.label_rows import RowOptions  # noqa: E402
from shortlist.training.learner import Learner  # noqa: E402
from shortlist.training.loop import (  # noqa: E402
    Schedule,
    fit,
    learning_rate_at,
)
from shortlist.training.networks.layers import Dropout  # noqa: E402
from shortlist.training.optimization import WordAdam, WordRowAdam  # noqa: E402


class TestOneCycle:
    def test_rises_to_the_peak_and_falls_to_almost_0(self):
        rates = np.asarray([learning_rate_at(progress, peak=0.5) for progress in np.linspace(0, 1, 101)])
        assert rates[0] == pytest.approx(0.5 / 25)
        assert np.argmax(rates) == 30
        assert rates[30] == pytest.approx(0.5)
        assert np.all(np.diff(rates[:31]) > 0)
        assert np.all(np.diff(rates[30:]) < 0)
        assert rates[-1] == pytest.approx(0.5e-5)
        assert np.abs(np.diff(rates)).max() < 0.03  # no jump

    def test_published_values(self):
        rates = [learning_rate_at(progress, 0.5, "one-cycle-published") for progress in (0, 0.33, 1)]
        assert rates == pytest.approx([0.05, 0.5, 0.05 / 10_000])

    def test_stays_constant_after_the_end(self):
        assert learning_rate_at(1.5, peak=1.0) == learning_rate_at(1.0, peak=1.0)


def test_step_schedule_halves_the_rate_once():
    schedule = Schedule(n_epochs=20, batch_size=8, learning_rate=0.02, schedule="step", decay_epoch=14)
    rates = [schedule.rate(epoch / 20) for epoch in range(20)]
    assert rates == [0.02] * 14 + [0.01] * 6


class TestDropout:
    def test_drops_its_fraction_and_scales_up_the_rest(self):
        torch.manual_seed(0)
        dropped = Dropout(0.25)(torch.ones(200, 500))
        assert float((dropped == 0).float().mean()) == pytest.approx(0.25, abs=0.01)
        assert set(dropped.unique().tolist()) == {0.0, float(torch.tensor(1 / 0.75))}

    def test_follows_the_seed_of_torch(self):
        dropout, x = Dropout(0.5), torch.ones(100)
        draws = []
        for seed in (1, 1, 2):
            torch.manual_seed(seed)
            draws += [(dropout(x).tolist(), dropout(x).tolist())]
        assert draws[0] == draws[1] != draws[2]
        assert draws[0][0] != draws[0][1]

    def test_gradient_passes_where_values_passed(self):
        x = torch.ones(100, requires_grad=True)
        dropped = Dropout(0.5)(x)
        dropped.sum().backward()
        assert torch.equal(x.grad, dropped.detach())

    def test_does_nothing_in_evaluation_or_at_0(self):
        x = torch.randn(50)
        assert torch.equal(Dropout(0.5).eval()(x), x)
        assert torch.equal(Dropout(0.0)(x), x)


class TestWordRowAdam:
    def test_equals_its_rule_in_numpy_and_moves_only_words_of_the_batch(self):
        torch.manual_seed(0)
        words = torch.nn.Embedding(7, 3, padding_idx=6, sparse=True)
        optimizer = WordRowAdam(words.weight)
        vectors = words.weight.detach().numpy().astype(np.float64)
        means, seen = np.zeros(7), np.zeros(7, int)
        for batch, learning_rate in (([0, 2, 2, 6], 0.1), ([2, 4], 0.05), ([0], 0.2)):
            slopes = torch.randn(len(batch), 3)
            words(torch.tensor(batch)).backward(slopes)
            optimizer.step(learning_rate)
            for word in set(batch) - {6}:
                gradient = slopes[np.asarray(batch) == word].sum(dim=0).numpy()
                seen[word] += 1
                means[word] += (np.mean(gradient**2) - means[word]) / seen[word]
                vectors[word] -= learning_rate * gradient / np.sqrt(means[word])
            assert words.weight.grad is None
            np.testing.assert_allclose(words.weight.detach().numpy(), vectors, rtol=1e-5, atol=1e-6)
        assert optimizer.state()["seen"].tolist() == seen.tolist() == [2, 0, 2, 0, 1, 0, 0]
        assert not words.weight[6].any()

    def test_without_a_gradient_nothing_moves(self):
        vectors = torch.nn.Parameter(torch.ones(2, 2))
        WordRowAdam(vectors).step(0.1)
        assert vectors.tolist() == [[1, 1], [1, 1]]


class TestWordAdam:
    def test_equals_sparse_adam(self):
        torch.manual_seed(0)
        ours, theirs = (torch.nn.Embedding(7, 3, padding_idx=6, sparse=True) for _ in range(2))
        theirs.weight.data.copy_(ours.weight)
        optimizer, expected = WordAdam(ours.weight), torch.optim.SparseAdam(theirs.parameters(), lr=0.1)
        for batch, learning_rate in (([0, 2, 2, 6], 0.1), ([2, 4], 0.05), ([0], 0.2)):
            slopes = 1e-6 * torch.randn(len(batch), 3)  # so small that epsilon counts
            for words in (ours, theirs):
                words(torch.tensor(batch)).backward(slopes)
            optimizer.step(learning_rate)
            expected.param_groups[0]["lr"] = learning_rate
            expected.step()
            expected.zero_grad()
            torch.testing.assert_close(ours.weight, theirs.weight, rtol=1e-5, atol=1e-6)
        assert optimizer.state()["n_steps"].tolist() == [3]

    def test_without_a_gradient_nothing_moves(self):
        vectors = torch.nn.Parameter(torch.ones(2, 2))
        WordAdam(vectors).step(0.1)
        assert vectors.tolist() == [[1, 1], [1, 1]]


PUBLISHED = {
    "rows": RowOptions("adam", "mean", "xavier", "none"),
    "block": BlockOptions("gelu", "batch", True, 0.25, "xavier"),
    "dropout": 0.25,
    "whole_clusters": False,
}
KINDS = pytest.mark.parametrize(
    "kind",
    [{"clusters": False}, {}, {"block": None}, PUBLISHED],
    ids=["all labels", "clusters", "lightxml", "published"],
)


class TestLearner:
    @pytest.mark.slow
    @KINDS
    def test_steps_lower_the_loss(self, kind):
        learner = new_learner(**kind)
        results = [learner.step(Batch(*one_batch()), learning_rate=0.01) for _ in range(100)]
        assert results[-1].loss < 0.3 * results[0].loss
        if kind != {"clusters": False}:
            assert results[-1].meta_loss < 0.5 * results[0].meta_loss
            assert results[-1].n_positive_clusters == results[-1].n_found_clusters == 8

    @KINDS
    def test_a_restored_learner_continues_bit_for_bit(self, kind):
        learner = new_learner(**kind)

        def three_steps(learner):
            torch.manual_seed(5)
            results = [learner.step(Batch(*one_batch()), learning_rate=0.01) for _ in range(3)]
            return results, copied(learner.for_prediction()), copied(learner.state())

        three_steps(learner)
        state = copied(learner.state())
        results, arrays, end = three_steps(learner)
        other = new_learner(seed=9, **kind)
        for _ in range(2):  # restoring from a state does not change it
            other.restore(state)
            again = three_steps(other)
            assert again[0] == results
            assert_equal(again[1], arrays)
            assert_equal(again[2], end)

    def test_a_batch_with_candidates_moves_only_their_rows(self):
        learner = new_learner(clusters=False)
        words, positives = one_batch(2)
        other = (positives.values + 1) % N_TOPICS
        candidates = np.stack([positives.values, other, [-1, -1]], axis=1).astype(np.int32)
        rows = learner.heads["rows"].rows
        before = rows.weights.copy()
        first = learner.step(Batch(words, positives, candidates), learning_rate=0.01)
        moved = np.flatnonzero((rows.weights != before).any(axis=1))
        assert moved.tolist() == sorted({*positives.values.tolist(), *other.tolist()})
        for _ in range(40):
            last = learner.step(Batch(words, positives, candidates), learning_rate=0.01)
        assert last.loss < 0.3 * first.loss

    def test_features_that_are_given(self):
        """An encoder with nothing to learn: neither words nor weights."""
        rng = np.random.default_rng(0)
        topics = rng.integers(N_TOPICS, size=60)
        features = (np.eye(N_TOPICS)[topics] + rng.normal(0, 0.1, (60, N_TOPICS))).astype(np.float32)
        candidates = np.stack([(topics + 1) % N_TOPICS, (topics + 2) % N_TOPICS], axis=1).astype(np.int32)
        labels = Ragged.from_lists([[t] for t in topics])

        def new():
            torch.manual_seed(0)
            return Learner(Given(N_TOPICS), N_TOPICS, 1.0)

        batches = ShortlistBatches(DenseBatches(features, labels), N_TOPICS, candidates, n_random=2)
        schedule = Schedule(n_epochs=20, batch_size=8, learning_rate=0.05)
        arrays, records = fit(new(), schedule, batches, None, show_progress=False)
        assert records[-1]["loss"] < 0.3 * records[0]["loss"]
        again, _ = fit(new(), schedule, batches, None, show_progress=False)
        assert_equal(again, arrays)
        learner = new()
        learner.step(batches.take(np.arange(8), rng), learning_rate=0.01)
        other = new()
        other.restore(copied(learner.state()))
        assert_equal(other.state(), learner.state())

    def test_reading_its_arrays_changes_nothing(self):
        learner = new_learner()
        learner.step(Batch(*one_batch()), learning_rate=0.01)
        before = copied(learner.state())
        learner.for_prediction()
        assert_equal(learner.state(), before)

    @pytest.mark.parametrize("detach", [True, False])
    def test_detached_label_rows_do_not_move_the_encoder(self, detach):
        ends = []
        for factor in (1, 5):
            learner = new_learner()
            learner.heads["rows"].rows.weights *= factor
            before = copied(learner.for_prediction())
            torch.manual_seed(5)
            learner.step(Batch(*one_batch()), learning_rate=0.01, detach=detach)
            ends.append(copied(learner.for_prediction()))
            for name in ("rows.weights", "rows.block", "meta.weights", "encoder.words.weight"):
                assert not np.array_equal(ends[-1][name], before[name])
        same = [np.array_equal(ends[0][name], ends[1][name]) for name in ends[0] if name.startswith("encoder.")]
        assert all(same) == detach
        assert np.array_equal(ends[0]["meta.weights"], ends[1]["meta.weights"])

    def test_words_outside_the_batch_and_padding_stay(self):
        learner = new_learner()
        before = copied(learner.for_prediction())["encoder.words.weight"]
        words, positives = one_batch()
        words[0, 1:] = learner.network.padding
        learner.step(Batch(words, positives), learning_rate=0.01)
        moved = np.flatnonzero((learner.for_prediction()["encoder.words.weight"] != before).any(axis=1))
        assert moved.tolist() == sorted(set(words.ravel().tolist()) - {learner.network.padding})

    def test_unknown_devices_are_refused(self):
        with pytest.raises(OptionError, match="use cpu, cuda or auto"):
            Learner(SumOfWords(3), 2, 1.0, device="toaster")

    def test_weights_that_are_not_finite_are_refused(self):
        with pytest.raises(DataError, match=r"training diverged: a\.b contains NaN or infinity"):
            require_finite({"ids": np.ones(1, int), "a.b": np.asarray([1, np.nan])})
