"""Batches of words and of features, and the part of the data that is held out."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from shortlist.arrays import Ragged
from shortlist.training.batches import DenseBatches, ShortlistBatches, WordBatches, epoch_batches
from shortlist.training.data import cut_validation
from shortlist.training.label_rows import LabelRows


class TestCutValidation:
    @given(st.integers(0, 10_000), st.integers(0, 40), st.integers(1, 12), st.floats(0, 1))
    def test_parts_are_disjoint_and_complete_and_there_is_something_to_learn_from(
        self, seed, n_texts, n_labels, fraction
    ):
        rng = np.random.default_rng(seed)
        labels = Ragged.from_lists([rng.permutation(n_labels)[: rng.integers(0, 4)] for _ in range(n_texts)])
        train, held_out = cut_validation(labels, fraction, seed)
        assert sorted([*train, *held_out]) == list(range(n_texts))
        assert train.tolist() == sorted(train)
        assert held_out.tolist() == sorted(held_out)
        assert len(labels.take(train).values) or not len(labels.values)
        assert np.all(labels.take(held_out).counts > 0)
        assert len(held_out) <= round(fraction * n_texts)

    def test_holds_out_the_requested_fraction(self):
        labels = Ragged.from_lists([[i % 10] for i in range(1000)])
        assert len(cut_validation(labels, 0.2, seed=0)[1]) == 200
        assert len(cut_validation(labels, 0.0, seed=0)[1]) == 0

    def test_every_text_is_held_out_as_often_as_any_other(self):
        """A label's only text, too: labels of new texts may be unknown."""
        labels = Ragged.from_lists([[0]] * 9 + [[1]])
        counts = np.bincount(np.concatenate([cut_validation(labels, 0.3, seed)[1] for seed in range(400)]))
        assert counts.sum() == 3 * 400
        assert (np.abs(counts - 120) < 45).all()

    def test_nothing_is_held_out_if_nothing_would_be_left_to_learn_from(self):
        labels = Ragged.from_lists([[], [0], []])
        for seed in range(9):
            assert cut_validation(labels, 0.9, seed)[1].tolist() == []
        assert cut_validation(Ragged.from_lists([[0], [1]]), 1.0, seed=0)[1].tolist() == []

    def test_same_seed_same_cut(self):
        labels = Ragged.from_lists([[i % 10] for i in range(200)])
        first, again, other = (cut_validation(labels, 0.2, seed)[1].tolist() for seed in (1, 1, 2))
        assert first == again != other


class TestEpochBatches:
    def test_every_text_once_in_an_order_that_follows_seed_and_epoch(self):
        lengths = np.random.default_rng(0).integers(1, 9, size=103)

        def rows(seed, epoch):
            return [batch.tolist() for batch in epoch_batches(lengths, 8, seed, epoch)]

        first = rows(1, 0)
        assert sorted(row for batch in first for row in batch) == list(range(103))
        assert sorted(len(batch) for batch in first) == [7] + 12 * [8]
        assert first == rows(1, 0) != rows(1, 1)
        assert first != rows(2, 0)

    def test_texts_of_a_batch_are_of_about_equal_length(self):
        lengths = np.random.default_rng(0).integers(1, 9, size=200)
        spread = [np.ptp(lengths[batch]) for batch in epoch_batches(lengths, 8, 0, 0)]
        assert max(spread) <= 2


class TestWordBatches:
    words, labels = Ragged.from_lists([[1, 2, 3, 4, 5], [], [6, 7]]), Ragged.from_lists([[0], [1, 2], []])

    def test_batches_need_not_be_of_equal_length(self):
        assert WordBatches(self.words, self.labels, group=False).lengths.tolist() == [0, 0, 0]

    def test_texts_are_truncated_and_padded_and_labels_follow(self):
        batches = WordBatches(self.words, self.labels, max_words=3, padding=9)
        assert batches.lengths.tolist() == [3, 0, 2]
        batch = batches.take(np.asarray([2, 0, 1]), np.random.default_rng(0))
        assert batch.inputs.tolist() == [[6, 7, 9], [1, 2, 3], [9, 9, 9]]
        assert [batch.positives.row(i).tolist() for i in range(3)] == [[], [0], [1, 2]]
        assert batch.candidates is None

    def test_each_text_is_shuffled_on_its_own_by_the_given_generator(self):
        batches = WordBatches(self.words, self.labels, max_words=4, padding=9, shuffle=True)
        rows = np.asarray([0] * 50)
        taken, again = (batches.take(rows, np.random.default_rng(1)).inputs for _ in range(2))
        assert np.array_equal(taken, again)
        assert {tuple(sorted(row)) for row in taken.tolist()} == {(1, 2, 3, 4)}
        assert len({tuple(row) for row in taken.tolist()}) > 10
        assert self.words.row(0).tolist() == [1, 2, 3, 4, 5]


class TestShortlistBatches:
    labels = Ragged.from_lists([[0], [7, 2], [], [5]])
    features = np.arange(8, dtype=np.float32).reshape(4, 2)
    candidates = np.asarray([[3, 0], [-1, 4], [-1, -1], [6, 1]], np.int32)

    def test_candidates_and_positives(self):
        batches = ShortlistBatches(DenseBatches(self.features, self.labels), 9, self.candidates)
        assert batches.lengths.tolist() == [1, 1, 1, 1]
        batch = batches.take(np.arange(4), np.random.default_rng(0))
        assert batch.inputs.tolist() == self.features.tolist()
        assert [batch.positives.row(i).tolist() for i in range(4)] == [[0], [7, 2], [], [5]]
        assert batch.candidates.tolist() == [[0, 3, -1, -1], [2, 4, 7, -1], [-1] * 4, [1, 5, 6, -1]]
        assert batch.candidates.dtype == np.int32

    def test_random_negatives_are_added(self):
        batches = ShortlistBatches(DenseBatches(self.features, self.labels), 9, self.candidates, n_random=3)
        rows = np.asarray([1] * 60)
        batch, again = (batches.take(rows, np.random.default_rng(2)) for _ in range(2))
        assert np.array_equal(batch.candidates, again.candidates)
        of_texts = [[label for label in row if label >= 0] for row in batch.candidates.tolist()]
        assert all({2, 4, 7} <= set(labels) for labels in of_texts)
        assert all(3 <= len(labels) == len(set(labels)) <= 6 for labels in of_texts)
        assert {label for labels in of_texts for label in labels} == set(range(9))

    @given(st.integers(0, 10_000), st.integers(1, 6), st.integers(1, 8), st.integers(0, 4), st.integers(0, 4))
    def test_label_rows_accept_every_batch(self, seed, n_texts, n_labels, k, n_random):
        rng = np.random.default_rng(seed)
        labels = Ragged.from_lists([rng.permutation(n_labels)[: rng.integers(0, 4)] for _ in range(n_texts)])
        candidates = rng.integers(-1, n_labels, (n_texts, k)).astype(np.int32)
        features = rng.standard_normal((n_texts, 3)).astype(np.float32)
        batches = ShortlistBatches(DenseBatches(features, labels), n_labels, candidates, n_random)
        batch = batches.take(rng.integers(n_texts, size=5), rng)
        rows = LabelRows.start(n_labels, 3, prior=0.1)
        loss, _ = rows.step(batch.inputs, batch.candidates, batch.positives, 0.01)
        assert np.isfinite(loss)
