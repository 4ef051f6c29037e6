"""The training loop and its parts; a training that was stopped ends bit for bit like one that was not."""

from __future__ import annotations

import os
import signal
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from shortlist.heads.label_rows import LabelRows
from shortlist.training.schedule import one_cycle
from shortlist.training.validation import cut_validation

from shortlist.arrays import Ragged
from shortlist.errors import DataError, OptionError, Stopped
from shortlist.labels.tree import LabelTree
from shortlist.training import memory
from shortlist.training.batches import Batch, FeatureBatches, WordBatches
from shortlist.training.checkpoints import Checkpoints

torch = pytest.importorskip("torch")

from shortlist.encoders.dropout import Dropout  # noqa: E402 - needs torch
from shortlist.training.word_optimiser import WordOptimiser  # noqa: E402

from shortlist.training.learner import Learner, Shortlisting, need_finite  # noqa: E402
from shortlist.training.loop import Plan, fit  # noqa: E402

N_TOPICS, WORDS_PER_TOPIC, N_FEATURES = 12, 4, 16
PLAN = Plan(epochs=4, batch_size=8, rate=0.01, detached=0.25)


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda handle: None)


class SumOfWords(torch.nn.Module):
    """An encoder with one of everything that has a state or draws at random."""

    def __init__(self, n_words):
        super().__init__()
        self.padding, self.n_features = n_words, N_FEATURES
        self.words = torch.nn.Embedding(n_words + 1, N_FEATURES, padding_idx=n_words, sparse=True)
        self.linear = torch.nn.Linear(N_FEATURES, N_FEATURES)
        self.norm, self.dropout = torch.nn.BatchNorm1d(N_FEATURES), Dropout(0.25)

    def forward(self, word_ids):
        return self.dropout(self.norm(self.linear(self.words(word_ids).sum(dim=1))))

    def to_arrays(self):
        return {name: value.detach().numpy().copy() for name, value in self.state_dict().items()}


class Given(torch.nn.Module):
    def __init__(self, n_features):
        super().__init__()
        self.n_features = n_features

    def forward(self, features):
        return features

    def to_arrays(self):
        return {}


def new_learner(seed=0, shortlisted=True, lightxml=False):
    torch.manual_seed(seed)
    tree = LabelTree.from_clusters(np.arange(N_TOPICS) % 4)
    encoder = SumOfWords(N_TOPICS * WORDS_PER_TOPIC)
    shortlisting = Shortlisting(tree, top=2, lightxml=lightxml) if shortlisted else None
    return Learner(encoder, N_TOPICS, 1.0, shortlisting, seed, threads=1)


def topics(n_texts, seed=0):
    """Texts of one to five words of a topic, and the topic as their label."""
    rng = np.random.default_rng(seed)
    of_text = rng.integers(N_TOPICS, size=n_texts)
    words = [t * WORDS_PER_TOPIC + rng.integers(WORDS_PER_TOPIC, size=rng.integers(1, 6)) for t in of_text]
    return Ragged.from_lists(words), Ragged.from_lists([[t] for t in of_text])


def topic_batches(n_texts):
    return WordBatches(*topics(n_texts), max_words=8, padding=N_TOPICS * WORDS_PER_TOPIC, shuffle=True)


def one_batch(n_texts=8):
    """Word ids of equal length and their labels."""
    rng = np.random.default_rng(1)
    of_text = rng.integers(N_TOPICS, size=n_texts)
    return (of_text * WORDS_PER_TOPIC)[:, None] + np.arange(3), Ragged.from_lists([[t] for t in of_text])


def copied(arrays):
    return {name: array.copy() for name, array in arrays.items()}


def assert_equal(found, expected):
    assert list(found) == list(expected)
    for name, array in expected.items():
        assert np.array_equal(found[name], array), name


def without_times(records):
    return [{name: value for name, value in record.items() if name != "seconds"} for record in records]


def interrupt_after(learner, n_steps):
    """Ctrl-C comes during this step, counted from 1."""
    step, taken = learner.step, []

    def step_and_interrupt(*arguments):
        taken.append(arguments)
        if len(taken) == n_steps:
            os.kill(os.getpid(), signal.SIGINT)
        return step(*arguments)

    learner.step = step_and_interrupt


class Scripted:
    """A validation that gives the scores it was told to, and remembers the arrays it saw."""

    def __init__(self, *scores):
        self.scores, self.seen = scores, []

    def __call__(self, arrays):
        self.seen.append(copied(arrays))
        return {"N@5": self.scores[len(self.seen) - 1]}


def validate(arrays):
    """A score that depends on the arrays, every digit of them."""
    return {"N@5": float(np.abs(arrays["extreme.weights"]).mean() * 100 % 1)}


class TestOneCycle:
    def test_rises_to_the_peak_and_falls_to_nearly_nothing(self):
        rates = np.asarray([one_cycle(done, peak=0.5) for done in np.linspace(0, 1, 101)])
        assert rates[0] == pytest.approx(0.5 / 25)
        assert np.argmax(rates) == 30
        assert rates[30] == pytest.approx(0.5)
        assert np.all(np.diff(rates[:31]) > 0)
        assert np.all(np.diff(rates[30:]) < 0)
        assert rates[-1] == pytest.approx(0.5e-5)
        assert np.abs(np.diff(rates)).max() < 0.03  # without a jump

    def test_past_the_end_it_stays_there(self):
        assert one_cycle(1.5, peak=1.0) == one_cycle(1.0, peak=1.0)


class TestCutValidation:
    @given(st.integers(0, 10_000), st.integers(0, 40), st.integers(1, 12), st.floats(0, 0.99))
    def test_parts_are_disjoint_and_complete_and_no_label_loses_its_last_text(self, seed, n_texts, n_labels, share):
        rng = np.random.default_rng(seed)
        labels = Ragged.from_lists([rng.permutation(n_labels)[: rng.integers(0, 4)] for _ in range(n_texts)])
        train, held_out = cut_validation(labels, n_labels, share, seed)
        assert sorted([*train, *held_out]) == list(range(n_texts))
        assert train.tolist() == sorted(train)
        assert held_out.tolist() == sorted(held_out)
        assert set(labels.take(train).values) == set(labels.values)
        assert np.all(labels.take(held_out).counts > 0)
        assert len(held_out) <= round(share * n_texts)

    def test_about_the_share_asked_for(self):
        labels = Ragged.from_lists([[i % 10] for i in range(1000)])
        assert len(cut_validation(labels, 10, 0.2, seed=0)[1]) == 200
        assert len(cut_validation(labels, 10, 0.0, seed=0)[1]) == 0

    def test_same_seed_same_cut(self):
        labels = Ragged.from_lists([[i % 10] for i in range(200)])
        first, again, other = (cut_validation(labels, 10, 0.2, seed)[1].tolist() for seed in (1, 1, 2))
        assert first == again != other


class TestWordBatches:
    words, labels = Ragged.from_lists([[1, 2, 3, 4, 5], [], [6, 7]]), Ragged.from_lists([[0], [1, 2], []])

    def test_texts_are_cut_and_filled_and_labels_follow(self):
        batches = WordBatches(self.words, self.labels, max_words=3, padding=9)
        assert batches.lengths.tolist() == [3, 0, 2]
        batch = batches.take(np.asarray([2, 0, 1]), np.random.default_rng(0))
        assert batch.inputs.tolist() == [[6, 7, 9], [1, 2, 3], [9, 9, 9]]
        assert [batch.positives.row(i).tolist() for i in range(3)] == [[], [0], [1, 2]]
        assert batch.candidates is None

    def test_shuffled_each_text_on_its_own_by_the_random_state_given(self):
        batches = WordBatches(self.words, self.labels, max_words=4, padding=9, shuffle=True)
        rows = np.asarray([0] * 50)
        taken, again = (batches.take(rows, np.random.default_rng(1)).inputs for _ in range(2))
        assert np.array_equal(taken, again)
        assert {tuple(sorted(line)) for line in taken.tolist()} == {(1, 2, 3, 4)}
        assert len({tuple(line) for line in taken.tolist()}) > 10
        assert self.words.row(0).tolist() == [1, 2, 3, 4, 5]


class TestFeatureBatches:
    labels = Ragged.from_lists([[0], [7, 2], [], [5]])
    features = np.arange(8, dtype=np.float32).reshape(4, 2)
    shortlists = np.asarray([[3, 0], [-1, 4], [-1, -1], [6, 1]], np.int32)

    def test_all_labels(self):
        batches = FeatureBatches(self.features, self.labels, 9)
        assert batches.lengths.tolist() == [1, 1, 1, 1]
        batch = batches.take(np.asarray([3, 1]), np.random.default_rng(0))
        assert batch.inputs.tolist() == [[6, 7], [2, 3]]
        assert [batch.positives.row(i).tolist() for i in range(2)] == [[5], [7, 2]]
        assert batch.candidates is None

    def test_shortlists_and_positives(self):
        batches = FeatureBatches(self.features, self.labels, 9, self.shortlists)
        batch = batches.take(np.arange(4), np.random.default_rng(0))
        assert batch.candidates.tolist() == [[0, 3, -1, -1], [2, 4, 7, -1], [-1] * 4, [1, 5, 6, -1]]
        assert batch.candidates.dtype == np.int32

    def test_and_others_at_random(self):
        batches = FeatureBatches(self.features, self.labels, 9, self.shortlists, n_random=3)
        rows = np.asarray([1] * 60)
        batch, again = (batches.take(rows, np.random.default_rng(2)) for _ in range(2))
        assert np.array_equal(batch.candidates, again.candidates)
        lists = [[label for label in line if label >= 0] for line in batch.candidates.tolist()]
        assert all({2, 4, 7} <= set(line) for line in lists)
        assert all(3 <= len(line) == len(set(line)) <= 6 for line in lists)
        assert {label for line in lists for label in line} == set(range(9))

    @given(st.integers(0, 10_000), st.integers(1, 6), st.integers(1, 8), st.integers(0, 4), st.integers(0, 4))
    def test_what_they_give_is_what_a_step_takes(self, seed, n_texts, n_labels, k, n_random):
        rng = np.random.default_rng(seed)
        labels = Ragged.from_lists([rng.permutation(n_labels)[: rng.integers(0, 4)] for _ in range(n_texts)])
        shortlists = rng.integers(-1, n_labels, (n_texts, k)).astype(np.int32)
        features = rng.standard_normal((n_texts, 3)).astype(np.float32)
        batches = FeatureBatches(features, labels, n_labels, shortlists, n_random)
        batch = batches.take(rng.integers(n_texts, size=5), rng)
        rows = LabelRows.start(n_labels, 3, prior=0.1)
        loss, _ = rows.step_on_labels(batch.inputs, batch.candidates, batch.positives, 0.01)
        assert np.isfinite(loss)


class TestDropout:
    def test_drops_its_share_and_makes_up_for_it(self):
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

    def test_gradient_passes_where_numbers_passed(self):
        x = torch.ones(100, requires_grad=True)
        dropped = Dropout(0.5)(x)
        dropped.sum().backward()
        assert torch.equal(x.grad, dropped.detach())

    def test_none_in_evaluation_and_none_of_zero(self):
        x = torch.randn(50)
        assert torch.equal(Dropout(0.5).eval()(x), x)
        assert torch.equal(Dropout(0.0)(x), x)


class TestWordOptimiser:
    def test_equals_the_rule_written_out_and_moves_words_of_the_batch_only(self):
        torch.manual_seed(0)
        words = torch.nn.Embedding(7, 3, padding_idx=6, sparse=True)
        optimiser = WordOptimiser(words.weight)
        vectors = words.weight.detach().numpy().astype(np.float64)
        means, seen = np.zeros(7), np.zeros(7, int)
        for batch, rate in (([0, 2, 2, 6], 0.1), ([2, 4], 0.05), ([0], 0.2)):
            slopes = torch.randn(len(batch), 3)
            words(torch.tensor(batch)).backward(slopes)
            optimiser.step(rate)
            for word in set(batch) - {6}:
                gradient = slopes[np.asarray(batch) == word].sum(dim=0).numpy()
                seen[word] += 1
                means[word] += (np.mean(gradient**2) - means[word]) / seen[word]
                vectors[word] -= rate * gradient / np.sqrt(means[word])
            assert words.weight.grad is None
            np.testing.assert_allclose(words.weight.detach().numpy(), vectors, rtol=1e-5, atol=1e-6)
        assert optimiser.state()["seen"].tolist() == seen.tolist() == [2, 0, 2, 0, 1, 0, 0]
        assert not words.weight[6].any()

    def test_without_a_gradient_nothing_moves(self):
        vectors = torch.nn.Parameter(torch.ones(2, 2))
        WordOptimiser(vectors).step(0.1)
        assert vectors.tolist() == [[1, 1], [1, 1]]


ARRAYS = {"a.b": np.arange(6, dtype=np.float32).reshape(2, 3), "zero": np.asarray(3, np.int64), "none": np.zeros(0)}


class TestCheckpoints:
    def test_arrays_and_facts_come_back(self, tmp_path):
        saved = Checkpoints(tmp_path / "c", {"rate": 0.1, "seed": 1})
        assert saved.load() is None
        saved.save(ARRAYS, {"epoch": 3, "sums": {"losses": 0.1 + 0.2}})
        saved.save_best(ARRAYS)
        saved.write_metrics([{"epoch": 1}, {"epoch": 2}])
        again = Checkpoints(tmp_path / "c", {"rate": 0.1, "seed": 1})
        arrays, facts = again.load()
        assert (facts["epoch"], facts["sums"]["losses"]) == (3, 0.1 + 0.2)
        for name, array in ARRAYS.items():
            for found in (arrays[name], again.load_best()[name]):
                assert found.dtype == array.dtype
                assert np.array_equal(found, array)
        assert (tmp_path / "c" / "metrics.jsonl").read_text() == '{"epoch":1}\n{"epoch":2}\n'

    def test_the_latest_one_counts(self, tmp_path):
        checkpoints = Checkpoints(tmp_path, {})
        checkpoints.save({"old": np.ones(1)}, {"epoch": 1})
        checkpoints.save({"new": np.ones(1)}, {"epoch": 2})
        arrays, facts = checkpoints.load()
        assert (list(arrays), facts["epoch"]) == (["new"], 2)
        assert [path.name for path in tmp_path.iterdir()] == ["state"]

    def test_one_of_another_training_is_refused_with_the_difference(self, tmp_path):
        Checkpoints(tmp_path, {"rate": 0.1, "seed": 1}).save({}, {})
        with pytest.raises(DataError, match=r"had rate = 0.1, this one has 0.2"):
            Checkpoints(tmp_path, {"rate": 0.2, "seed": 1}).load()
        with pytest.raises(DataError, match=r"had bag = None, this one has True"):
            Checkpoints(tmp_path, {"rate": 0.1, "seed": 1, "bag": True}).load()

    def test_an_unfinished_training_is_not_overwritten(self, tmp_path):
        checkpoints = Checkpoints(tmp_path, {})
        checkpoints.refuse_to_overwrite()
        checkpoints.save({}, {})
        with pytest.raises(DataError, match="--resume"):
            checkpoints.refuse_to_overwrite()

    def test_a_half_written_one_is_not_seen_and_goes_away(self, tmp_path):
        checkpoints = Checkpoints(tmp_path, {})
        checkpoints.save({}, {"epoch": 1})
        for number in range(3):
            half = tmp_path / f".state.{number}.partial"
            half.mkdir()
            (half / "facts.json").write_text('{"epoch": 2, "arrays": ["missing"], "identity": {}}')
        (tmp_path / ".metrics.jsonl.7.partial").write_text('{"epoch"')
        (tmp_path / ".state.9.old").mkdir()
        assert checkpoints.load()[1]["epoch"] == 1
        assert [path.name for path in tmp_path.iterdir()] == ["state"]

    @pytest.mark.parametrize("resume", [True, False])
    def test_a_kill_between_the_two_renames_loses_nothing(self, tmp_path, resume):
        checkpoints = Checkpoints(tmp_path, {})
        checkpoints.save(ARRAYS, {"epoch": 1})
        checkpoints.save_best(ARRAYS)
        (tmp_path / "state").rename(tmp_path / ".state.7.old")
        (tmp_path / "best").rename(tmp_path / ".best.7.old")
        (tmp_path / ".state.7.partial").mkdir()
        if resume:
            assert checkpoints.load()[1]["epoch"] == 1
        else:
            with pytest.raises(DataError, match="--resume"):
                checkpoints.refuse_to_overwrite()
        assert list(checkpoints.load_best()) == sorted(ARRAYS)
        assert sorted(path.name for path in tmp_path.iterdir()) == ["best", "state"]

    @pytest.mark.parametrize("damage", [b"", b"\x93NUMPY", b"{}"])
    @pytest.mark.parametrize("name", ["facts.json", "a.b.npy"])
    def test_a_damaged_one_is_reported(self, tmp_path, name, damage):
        checkpoints = Checkpoints(tmp_path, {})
        checkpoints.save(ARRAYS, {})
        (tmp_path / "state" / name).write_bytes(damage)
        with pytest.raises(DataError, match="cannot be read"):
            checkpoints.load()

    def test_due_by_the_clock(self, tmp_path):
        checkpoints = Checkpoints(tmp_path, {}, seconds_between=3600)
        assert not checkpoints.due()
        assert Checkpoints(tmp_path, {}, seconds_between=0).due()


def test_too_little_memory_is_refused_with_numbers(monkeypatch):
    monkeypatch.setattr(memory, "free_memory", lambda: 2_500_000_000)
    memory.need_memory({"label rows": 2_000_000_000, "a batch": 400_000_000}, "")
    with pytest.raises(OptionError) as caught:
        memory.need_memory({"label rows": 2_000_000_000, "a batch": 1_000_000_000, "crumbs": 1}, "Take fewer.")
    assert str(caught.value) == (
        "training needs about 3.00 GB (label rows 2.00, a batch 1.00), and 2.5 GB are free. Take fewer."
    )


def test_free_memory_is_some():
    assert 1e6 < memory.free_memory() < 1e15


class TestLearner:
    @pytest.mark.parametrize(
        "kind", [{"shortlisted": False}, {}, {"lightxml": True}], ids=["all", "shortlisted", "lightxml"]
    )
    def test_steps_lower_the_loss(self, kind):
        learner = new_learner(**kind)
        results = [learner.step(Batch(*one_batch()), rate=0.01) for _ in range(40)]
        assert results[-1].loss < 0.3 * results[0].loss
        if kind != {"shortlisted": False}:
            assert results[-1].meta_loss < 0.5 * results[0].meta_loss
            assert results[-1].wanted == results[-1].found == 8

    @pytest.mark.parametrize(
        "kind", [{"shortlisted": False}, {}, {"lightxml": True}], ids=["all", "shortlisted", "lightxml"]
    )
    def test_restored_it_goes_on_bit_for_bit(self, kind):
        learner = new_learner(**kind)

        def go_on(learner):
            torch.manual_seed(5)
            results = [learner.step(Batch(*one_batch()), rate=0.01) for _ in range(3)]
            return results, copied(learner.for_prediction()), copied(learner.state())

        go_on(learner)
        state = copied(learner.state())
        results, arrays, end = go_on(learner)
        other = new_learner(seed=9, **kind)
        for _ in range(2):  # the state is not used up by going on from it
            other.restore(state)
            again = go_on(other)
            assert again[0] == results
            assert_equal(again[1], arrays)
            assert_equal(again[2], end)

    def test_a_batch_with_candidates_moves_their_rows_and_no_others(self):
        learner = new_learner(shortlisted=False)
        words, positives = one_batch(2)
        other = (positives.values + 1) % N_TOPICS
        candidates = np.stack([positives.values, other, [-1, -1]], axis=1).astype(np.int32)
        before = learner.extreme.rows.weights.copy()
        first = learner.step(Batch(words, positives, candidates), rate=0.01)
        moved = np.flatnonzero((learner.extreme.rows.weights != before).any(axis=1))
        assert moved.tolist() == sorted({*positives.values.tolist(), *other.tolist()})
        for _ in range(40):
            last = learner.step(Batch(words, positives, candidates), rate=0.01)
        assert last.loss < 0.3 * first.loss

    def test_features_that_are_given(self):
        """An encoder that has nothing to learn: neither words nor any weights."""
        rng = np.random.default_rng(0)
        of_text = rng.integers(N_TOPICS, size=60)
        features = (np.eye(N_TOPICS)[of_text] + rng.normal(0, 0.1, (60, N_TOPICS))).astype(np.float32)
        shortlists = np.stack([(of_text + 1) % N_TOPICS, (of_text + 2) % N_TOPICS], axis=1).astype(np.int32)
        labels = Ragged.from_lists([[t] for t in of_text])

        def new():
            torch.manual_seed(0)
            return Learner(Given(N_TOPICS), N_TOPICS, 1.0, None, threads=1)

        batches = FeatureBatches(features, labels, N_TOPICS, shortlists, n_random=2)
        plan = replace(PLAN, epochs=20, rate=0.05)
        arrays, records = fit(new(), plan, batches, None, show_progress=False)
        assert records[-1]["loss"] < 0.3 * records[0]["loss"]
        again, _ = fit(new(), plan, batches, None, show_progress=False)
        assert_equal(again, arrays)
        learner = new()
        learner.step(batches.take(np.arange(8), rng), rate=0.01)
        other = new()
        other.restore(copied(learner.state()))
        assert_equal(other.state(), learner.state())

    def test_looking_at_it_changes_nothing(self):
        learner = new_learner()
        learner.step(Batch(*one_batch()), rate=0.01)
        before = copied(learner.state())
        learner.for_prediction()
        assert_equal(learner.state(), before)

    @pytest.mark.parametrize("detached", [True, False])
    def test_detached_leaves_the_encoder_to_the_meta_head(self, detached):
        ends = []
        for factor in (1, 5):
            learner = new_learner()
            learner.extreme.rows.weights *= factor
            before = copied(learner.for_prediction())
            torch.manual_seed(5)
            learner.step(Batch(*one_batch()), rate=0.01, detached=detached)
            ends.append(copied(learner.for_prediction()))
            for name in ("extreme.weights", "extreme.block", "meta.weights", "encoder.words.weight"):
                assert not np.array_equal(ends[-1][name], before[name])
        same = [np.array_equal(ends[0][name], ends[1][name]) for name in ends[0] if name.startswith("encoder.")]
        assert all(same) == detached
        assert np.array_equal(ends[0]["meta.weights"], ends[1]["meta.weights"])

    def test_words_of_no_batch_and_padding_stay(self):
        learner = new_learner()
        before = copied(learner.for_prediction())["encoder.words.weight"]
        words, positives = one_batch()
        words[0, 1:] = learner.encoder.padding
        learner.step(Batch(words, positives), rate=0.01)
        moved = np.flatnonzero((learner.for_prediction()["encoder.words.weight"] != before).any(axis=1))
        assert moved.tolist() == sorted(set(words.ravel().tolist()) - {learner.encoder.padding})

    def test_unknown_devices_are_refused(self):
        with pytest.raises(OptionError, match="use cpu, cuda or auto"):
            Learner(SumOfWords(3), 2, 1.0, device="toaster")

    def test_weights_that_are_not_finite_are_refused(self):
        with pytest.raises(DataError, match=r"a\.b holds values that are not finite"):
            need_finite({"ids": np.ones(1, int), "a.b": np.asarray([1, np.nan])})


class TestFit:
    @pytest.mark.parametrize("kept", [True, False], ids=["checkpoints", "no checkpoints"])
    def test_the_best_epoch_is_returned_and_not_the_last(self, tmp_path, kept):
        scripted = Scripted(1, 3, 3, 2)
        arrays, records = fit(
            new_learner(),
            PLAN,
            topic_batches(30),
            scripted,
            Checkpoints(tmp_path, {}) if kept else None,
            show_progress=False,
        )
        assert_equal(dict(sorted(arrays.items())), dict(sorted(scripted.seen[1].items())))
        assert not np.array_equal(arrays["extreme.weights"], scripted.seen[3]["extreme.weights"])
        assert [record["N@5"] for record in records] == [1, 3, 3, 2]

    def test_the_last_epoch_where_it_is_the_best_and_where_nothing_is_measured(self):
        scripted = Scripted(1, 2, 3, 4)
        measured, _ = fit(new_learner(), PLAN, topic_batches(30), scripted, show_progress=False)
        assert_equal(measured, scripted.seen[3])
        unmeasured, records = fit(new_learner(), PLAN, topic_batches(30), None, show_progress=False)
        assert_equal(unmeasured, measured)
        assert len(records) == 4
        assert "N@5" not in records[0]

    def test_patience_ends_it(self):
        scripted = Scripted(1, 5, 4, 3, 2, 1)
        arrays, records = fit(
            new_learner(), replace(PLAN, epochs=6, patience=2), topic_batches(30), scripted, show_progress=False
        )
        assert [record["epoch"] for record in records] == [1, 2, 3, 4]
        assert_equal(dict(sorted(arrays.items())), dict(sorted(scripted.seen[1].items())))

    def test_records_tell_the_course(self, tmp_path):
        _, records = fit(
            new_learner(), PLAN, topic_batches(30), validate, Checkpoints(tmp_path, {}), show_progress=False
        )
        assert [record["texts"] for record in records] == [30, 60, 90, 120]
        assert records[-1]["loss"] < records[0]["loss"]
        assert set(records[0]) == {"epoch", "texts", "seconds", "loss", "meta_loss", "meta_recall", "N@5"}
        assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 4

    @pytest.mark.parametrize("n_texts", [5, 9, 16])
    def test_rates_run_through_the_whole_cycle_however_the_batches_come_out(self, n_texts):
        learner = new_learner()
        step, rates, detached = learner.step, [], []
        learner.step = lambda *a: rates.append(a[1]) or detached.append(a[2]) or step(*a)
        fit(learner, PLAN, topic_batches(n_texts), None, show_progress=False)
        n_steps = 4 * -(-n_texts // 8)
        assert rates == [one_cycle(i / n_steps, 0.01) for i in range(n_steps)]
        assert detached == [i < n_steps / 4 for i in range(n_steps)]

    def test_every_step_draws_anew(self):
        learner = new_learner()
        step, seeds = learner.step, []
        learner.step = lambda *a: seeds.append(torch.initial_seed()) or step(*a)
        fit(learner, PLAN, topic_batches(30), None, show_progress=False)
        assert len(set(seeds)) == len(seeds) == 16

    @pytest.mark.parametrize("n_texts", [1, 9])
    def test_a_batch_of_one_text(self, n_texts):
        arrays, _ = fit(new_learner(), PLAN, topic_batches(n_texts), None, show_progress=False)
        assert np.isfinite(arrays["extreme.weights"]).all()

    def test_same_seed_same_model_and_another_seed_another(self):
        models = [
            fit(new_learner(), replace(PLAN, seed=seed), topic_batches(30), validate, show_progress=False)[0]
            for seed in (1, 1, 2)
        ]
        assert_equal(models[1], models[0])
        assert not np.array_equal(models[2]["extreme.weights"], models[0]["extreme.weights"])

    def test_what_is_not_finite_ends_it(self):
        learner = new_learner()
        learner.extreme.rows.weights[3] = np.nan
        with pytest.raises(DataError, match="finite"):
            fit(learner, PLAN, topic_batches(30), None, show_progress=False)


@pytest.mark.slow
class TestStoppedTraining:
    def test_ctrl_c_saves_and_says_how_to_go_on(self, tmp_path):
        learner, handler = new_learner(), signal.getsignal(signal.SIGINT)
        interrupt_after(learner, 6)
        with pytest.raises(Stopped, match=r"epoch 2 of 4; the training is saved in .*stopped here. To go on: --resume"):
            fit(
                learner,
                PLAN,
                topic_batches(30),
                validate,
                Checkpoints(tmp_path / "stopped here", {}),
                show_progress=False,
            )
        assert signal.getsignal(signal.SIGINT) is handler
        _, facts = Checkpoints(tmp_path / "stopped here", {}).load()
        assert (facts["epoch"], facts["step"]) == (1, 2)

    def test_ctrl_c_without_checkpoints_says_that_nothing_is_kept(self):
        learner = new_learner()
        interrupt_after(learner, 1)
        with pytest.raises(Stopped, match="nothing is kept"):
            fit(learner, PLAN, topic_batches(30), None, show_progress=False)

    def test_a_second_ctrl_c_does_not_wait(self):
        learner = new_learner()

        def step(*arguments):
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)

        learner.step = step
        with pytest.raises(KeyboardInterrupt) as caught:
            fit(learner, PLAN, topic_batches(30), None, show_progress=False)
        assert not isinstance(caught.value, Stopped)

    def test_ctrl_c_while_an_epoch_is_judged_is_not_forgotten(self, tmp_path):
        def interrupted(arrays):
            os.kill(os.getpid(), signal.SIGINT)
            return validate(arrays)

        with pytest.raises(Stopped, match="epoch 2"):
            fit(new_learner(), PLAN, topic_batches(30), interrupted, Checkpoints(tmp_path, {}), show_progress=False)

    @pytest.mark.parametrize("judged", [validate, None], ids=["validation", "no validation"])
    @pytest.mark.parametrize("stops", [[1], [3, 1, 1], [4, 4], [16], [2, 11, 3]], ids=str)
    def test_it_ends_like_one_that_was_not_stopped(self, tmp_path, stops, judged):
        """Four steps an epoch: after the first, in the middle, at the end of an epoch, at the very end, repeatedly."""
        expected, expected_records = fit(new_learner(), PLAN, topic_batches(30), judged, show_progress=False)
        for number, stop in enumerate(stops):
            learner = new_learner(seed=number)
            interrupt_after(learner, stop)
            with pytest.raises(Stopped):
                fit(
                    learner,
                    PLAN,
                    topic_batches(30),
                    judged,
                    Checkpoints(tmp_path, {}),
                    bool(number),
                    show_progress=False,
                )
        arrays, records = fit(
            new_learner(seed=9), PLAN, topic_batches(30), judged, Checkpoints(tmp_path, {}), True, show_progress=False
        )
        assert_equal(dict(sorted(arrays.items())), dict(sorted(expected.items())))
        assert without_times(records) == without_times(expected_records)

    @pytest.mark.parametrize("scores", [None, (1, 2, 3, 4), (4, 3, 2, 1)], ids=["no validation", "last", "first"])
    def test_from_the_checkpoint_of_the_very_end(self, tmp_path, scores):
        """As when it was killed while the model was being saved: nothing is left to do but to give the arrays."""
        checkpoints = Checkpoints(tmp_path, {}, seconds_between=0)
        judged = None if scores is None else Scripted(*scores)
        expected, _ = fit(new_learner(), PLAN, topic_batches(30), judged, checkpoints, show_progress=False)
        arrays, records = fit(
            new_learner(seed=9), PLAN, topic_batches(30), judged, Checkpoints(tmp_path, {}), True, show_progress=False
        )
        assert_equal(dict(sorted(arrays.items())), dict(sorted(expected.items())))
        assert len(records) == 4

    @pytest.mark.parametrize(
        "scores", [(1, 2, 3, 4), (1, 4, 3, 2), None], ids=["best last", "best earlier", "unmeasured"]
    )
    def test_the_end_is_saved_though_no_checkpoint_was_due(self, tmp_path, scores):
        """Killed in what follows upon training, it does not train again."""
        judged = None if scores is None else Scripted(*scores)
        expected, records = fit(new_learner(), PLAN, topic_batches(30), judged, Checkpoints(tmp_path, {}), False, False)
        _, facts = Checkpoints(tmp_path, {}).load()
        assert (facts["epoch"], facts["step"], facts["records"]) == (4, 0, records)
        learner = new_learner(seed=9)
        learner.step = None
        arrays, again = fit(learner, PLAN, topic_batches(30), judged, Checkpoints(tmp_path, {}), True, False)
        assert_equal(dict(sorted(arrays.items())), dict(sorted(expected.items())))
        assert again == records

    def test_the_end_is_saved_where_patience_ended_it(self, tmp_path):
        plan, judged = replace(PLAN, epochs=6, patience=2), Scripted(5, 4, 3, 2, 1, 0)
        fit(new_learner(), plan, topic_batches(30), judged, Checkpoints(tmp_path, {}), show_progress=False)
        _, facts = Checkpoints(tmp_path, {}).load()
        assert (facts["epoch"], facts["step"]) == (3, 0)

    def test_the_end_is_saved_where_only_the_last_epoch_was_left_to_judge(self, tmp_path):
        learner = new_learner()
        interrupt_after(learner, 16)
        with pytest.raises(Stopped):
            fit(learner, PLAN, topic_batches(30), validate, Checkpoints(tmp_path, {}), show_progress=False)
        assert Checkpoints(tmp_path, {}).load()[1]["step"] == 4
        fit(new_learner(), PLAN, topic_batches(30), validate, Checkpoints(tmp_path, {}), True, show_progress=False)
        _, facts = Checkpoints(tmp_path, {}).load()
        assert (facts["epoch"], facts["step"], len(facts["records"])) == (4, 0, 4)

    def test_the_end_is_not_saved_twice(self, tmp_path, monkeypatch):
        saved, save = [], Checkpoints.save
        monkeypatch.setattr(Checkpoints, "save", lambda *a: saved.append(a[2]["epoch"]) or save(*a))
        checkpoints = Checkpoints(tmp_path, {}, seconds_between=0)
        fit(new_learner(), PLAN, topic_batches(30), None, checkpoints, show_progress=False)
        assert saved.count(4) == 1

    def test_without_resume_it_does_not_start_over(self, tmp_path):
        Checkpoints(tmp_path, {}).save({}, {})
        with pytest.raises(DataError, match="unfinished training"):
            fit(new_learner(), PLAN, topic_batches(30), None, Checkpoints(tmp_path, {}), show_progress=False)

    def test_resume_without_a_checkpoint_starts_from_the_beginning(self, tmp_path):
        arrays, _ = fit(
            new_learner(), PLAN, topic_batches(30), None, Checkpoints(tmp_path, {}), resume=True, show_progress=False
        )
        expected, _ = fit(new_learner(), PLAN, topic_batches(30), None, show_progress=False)
        assert_equal(arrays, expected)
