"""The training loop: a training that was interrupted ends bit for bit like one that was not."""

from __future__ import annotations

import os
import signal
from dataclasses import replace

import numpy as np
import pytest

from shortlist.errors import DataError, Stopped
from shortlist.training.checkpoints import Checkpoints

torch = pytest.importorskip("torch")

from tests.tiny_learner import assert_equal, copied, interrupt_in_step, new_learner, topic_batches  # noqa: E402

from shortlist.training.loop import (  # noqa: E402
    Schedule,
    fit,
    learning_rate_at,
)

SCHEDULE = Schedule(n_epochs=4, batch_size=8, learning_rate=0.01, detach_fraction=0.25)


@pytest.fixture(autouse=True)
def no_fsync(monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda handle: None)


class Scripted:
    """A validation that gives the scores it was told to, and remembers the arrays it saw."""

    def __init__(self, *scores):
        self.scores, self.seen = scores, []

    def measure(self, arrays):
        self.seen.append(copied(arrays))
        return {"N@5": self.scores[len(self.seen) - 1]}


class EveryDigit:
    """A validation whose score depends on every digit of the weights."""

    def __init__(self, interrupt=False):
        self.interrupt = interrupt

    def measure(self, arrays):
        if self.interrupt:
            os.kill(os.getpid(), signal.SIGINT)
        return {"N@5": float(np.abs(arrays["rows.weights"]).mean() * 100 % 1)}


def run(learner=None, validation=None, checkpoints=None, resume=False, n_texts=30, **schedule):
    return fit(
        learner or new_learner(),
        replace(SCHEDULE, **schedule),
        topic_batches(n_texts),
        validation,
        checkpoints,
        resume,
        show_progress=False,
    )


def without_times(records):
    return [{name: value for name, value in record.items() if name != "seconds"} for record in records]


def saved_progress(folder):
    return Checkpoints(folder, {}).load()[1]["progressed"]


class TestFit:
    @pytest.mark.parametrize("checkpoints", [True, False], ids=["checkpoints", "no checkpoints"])
    def test_returns_the_best_epoch_not_the_last(self, tmp_path, checkpoints):
        scripted = Scripted(1, 3, 3, 2)
        arrays, records = run(None, scripted, Checkpoints(tmp_path, {}) if checkpoints else None)
        assert_equal(arrays, scripted.seen[1])
        assert not np.array_equal(arrays["rows.weights"], scripted.seen[3]["rows.weights"])
        assert [record["N@5"] for record in records] == [1, 3, 3, 2]

    def test_returns_the_last_epoch_if_it_is_the_best_or_nothing_is_measured(self):
        scripted = Scripted(1, 2, 3, 4)
        measured, _ = run(None, scripted)
        assert_equal(measured, scripted.seen[3])
        unmeasured, records = run()
        assert_equal(unmeasured, measured)
        assert len(records) == 4
        assert "N@5" not in records[0]

    def test_patience_stops_it(self):
        scripted = Scripted(1, 5, 4, 3, 2, 1)
        arrays, records = run(None, scripted, n_epochs=6, patience=2)
        assert [record["epoch"] for record in records] == [1, 2, 3, 4]
        assert_equal(arrays, scripted.seen[1])

    def test_one_record_per_epoch(self, tmp_path):
        _, records = run(None, EveryDigit(), Checkpoints(tmp_path, {}))
        assert [record["texts"] for record in records] == [30, 60, 90, 120]
        assert records[-1]["loss"] < records[0]["loss"]
        assert set(records[0]) == {"epoch", "texts", "seconds", "loss", "meta_loss", "meta_recall", "N@5"}
        assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 4

    @pytest.mark.parametrize("n_texts", [5, 9, 16])
    def test_the_learning_rate_runs_through_the_whole_cycle(self, n_texts):
        learner = new_learner()
        step, rates, detached = learner.step, [], []

        def recorded(batch, learning_rate, detach):
            rates.append(learning_rate)
            detached.append(detach)
            return step(batch, learning_rate, detach)

        learner.step = recorded
        run(learner, n_texts=n_texts)
        n_steps = 4 * -(-n_texts // 8)
        assert rates == [learning_rate_at(i / n_steps, 0.01) for i in range(n_steps)]
        assert detached == [i < n_steps / 4 for i in range(n_steps)]

    def test_every_step_has_its_own_seed(self):
        learner = new_learner()
        step, seeds = learner.step, []
        learner.step = lambda *a, **o: seeds.append(torch.initial_seed()) or step(*a, **o)
        run(learner)
        assert len(set(seeds)) == len(seeds) == 16

    @pytest.mark.parametrize("n_texts", [1, 9])
    def test_a_batch_of_one_text(self, n_texts):
        arrays, _ = run(n_texts=n_texts)
        assert np.isfinite(arrays["rows.weights"]).all()

    def test_same_seed_same_model(self):
        models = [run(None, EveryDigit(), seed=seed)[0] for seed in (1, 1, 2)]
        assert_equal(models[1], models[0])
        assert not np.array_equal(models[2]["rows.weights"], models[0]["rows.weights"])

    def test_weights_that_are_not_finite_stop_it(self):
        learner = new_learner()
        learner.heads["rows"].rows.weights[3] = np.nan
        with pytest.raises(DataError, match="training diverged"):
            run(learner)


@pytest.mark.slow
class TestInterrupted:
    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
    def test_a_signal_saves_and_says_how_to_resume(self, tmp_path, number):
        learner, handler = new_learner(), signal.getsignal(number)
        interrupt_in_step(learner, 6, number)
        message = r"epoch 2 of 4; the training is saved in .*stopped here. To continue, rerun with --resume"
        with pytest.raises(Stopped, match=message):
            run(learner, EveryDigit(), Checkpoints(tmp_path / "stopped here", {}))
        assert signal.getsignal(number) is handler
        progress = saved_progress(tmp_path / "stopped here")
        assert (progress["epoch"], progress["step"]) == (1, 2)

    def test_ctrl_c_without_checkpoints_says_that_nothing_is_saved(self):
        learner = new_learner()
        interrupt_in_step(learner, 1)
        with pytest.raises(Stopped, match="nothing is saved, because there was no checkpoint_dir"):
            run(learner)

    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
    def test_a_second_signal_does_not_wait_for_the_step(self, number):
        learner = new_learner()

        def step(*arguments, **options):
            os.kill(os.getpid(), number)
            os.kill(os.getpid(), number)

        learner.step = step
        with pytest.raises(KeyboardInterrupt) as caught:
            run(learner)
        assert not isinstance(caught.value, Stopped)

    def test_ctrl_c_during_validation_stops_after_the_next_step(self, tmp_path):
        with pytest.raises(Stopped, match="epoch 2"):
            run(None, EveryDigit(interrupt=True), Checkpoints(tmp_path, {}))

    @pytest.mark.parametrize("validation", [EveryDigit(), None], ids=["validation", "no validation"])
    @pytest.mark.parametrize("stops", [[1], [3, 1, 1], [4, 4], [16], [2, 11, 3]], ids=str)
    def test_resumed_it_ends_like_one_that_was_not_interrupted(self, tmp_path, stops, validation):
        """With four steps per epoch: after the first step, within an epoch, at its end, at the very end, repeatedly."""
        expected, expected_records = run(None, validation)
        for number, stop in enumerate(stops):
            learner = new_learner(seed=number)
            interrupt_in_step(learner, stop)
            with pytest.raises(Stopped):
                run(learner, validation, Checkpoints(tmp_path, {}), resume=number > 0)
        arrays, records = run(new_learner(seed=9), validation, Checkpoints(tmp_path, {}), resume=True)
        assert_equal(arrays, expected)
        assert without_times(records) == without_times(expected_records)

    @pytest.mark.parametrize("scores", [None, (1, 2, 3, 4), (4, 3, 2, 1)], ids=["no validation", "last", "first"])
    def test_resumed_from_the_last_checkpoint(self, tmp_path, scores):
        """As after a kill while the model was being saved: only the arrays are left to return."""
        validation = None if scores is None else Scripted(*scores)
        expected, _ = run(None, validation, Checkpoints(tmp_path, {}, seconds_between=0))
        arrays, records = run(new_learner(seed=9), validation, Checkpoints(tmp_path, {}), resume=True)
        assert_equal(arrays, expected)
        assert len(records) == 4

    @pytest.mark.parametrize(
        "scores", [(1, 2, 3, 4), (1, 4, 3, 2), None], ids=["best last", "best earlier", "no validation"]
    )
    def test_the_end_is_saved_even_if_no_checkpoint_was_due(self, tmp_path, scores):
        """A training that is killed in a later phase does not repeat this one."""
        validation = None if scores is None else Scripted(*scores)
        expected, records = run(None, validation, Checkpoints(tmp_path, {}))
        progress = saved_progress(tmp_path)
        assert (progress["epoch"], progress["step"], progress["records"]) == (4, 0, records)
        learner = new_learner(seed=9)
        learner.step = None
        arrays, again = run(learner, validation, Checkpoints(tmp_path, {}), resume=True)
        assert_equal(arrays, expected)
        assert again == records

    def test_the_end_is_saved_when_patience_stopped_it(self, tmp_path):
        run(None, Scripted(5, 4, 3, 2, 1, 0), Checkpoints(tmp_path, {}), n_epochs=6, patience=2)
        progress = saved_progress(tmp_path)
        assert (progress["epoch"], progress["step"]) == (3, 0)

    def test_the_end_is_saved_when_only_the_last_validation_was_missing(self, tmp_path):
        learner = new_learner()
        interrupt_in_step(learner, 16)
        with pytest.raises(Stopped):
            run(learner, EveryDigit(), Checkpoints(tmp_path, {}))
        assert saved_progress(tmp_path)["step"] == 4
        run(None, EveryDigit(), Checkpoints(tmp_path, {}), resume=True)
        progress = saved_progress(tmp_path)
        assert (progress["epoch"], progress["step"], len(progress["records"])) == (4, 0, 4)

    def test_the_end_is_saved_once(self, tmp_path, monkeypatch):
        saved, save = [], Checkpoints.save
        monkeypatch.setattr(Checkpoints, "save", lambda *a: saved.append(a[2]["progressed"]["epoch"]) or save(*a))
        run(None, None, Checkpoints(tmp_path, {}, seconds_between=0))
        assert saved.count(4) == 1

    def test_without_resume_it_does_not_start_over(self, tmp_path):
        Checkpoints(tmp_path, {}).save({}, {})
        with pytest.raises(DataError, match="holds an interrupted training"):
            run(None, None, Checkpoints(tmp_path, {}))

    def test_resume_without_a_checkpoint_starts_from_the_beginning(self, tmp_path):
        arrays, _ = run(None, None, Checkpoints(tmp_path, {}), resume=True)
        assert_equal(arrays, run()[0])
