"""A budget of minutes: as many epochs as fit, with the learning rate down to the end, also after an interruption."""

from __future__ import annotations

import time

import pytest

import shortlist
from shortlist.errors import Stopped
from shortlist.recipes.options import resolve
from shortlist.training.budget import WORK_BESIDE_EPOCHS, Budget, planned_epochs
from shortlist.training.checkpoints import Checkpoints

torch = pytest.importorskip("torch")

from tests.tiny_learner import interrupt_in_step, new_learner, topic_batches  # noqa: E402

from shortlist.training.loop import Schedule, fit  # noqa: E402

SCHEDULE = Schedule(n_epochs=10, batch_size=8, learning_rate=0.01)
STEPS = 5  # per epoch of 40 texts


@pytest.fixture
def clock(monkeypatch):
    """A clock that only `clock[0] += seconds` moves."""
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


def slow_learner(clock, seconds_per_step=1.0):
    """A learner that remembers its learning rates, and takes this long for a step."""
    learner = new_learner()
    step, learner.rates = learner.step, []

    def slow_step(batch, learning_rate, **options):
        clock[0] += seconds_per_step
        learner.rates.append(learning_rate)
        return step(batch, learning_rate, **options)

    learner.step = slow_step
    return learner


def run(learner, budget, checkpoints=None, resume=False):
    return fit(learner, SCHEDULE, topic_batches(40), None, checkpoints, resume, show_progress=False, budget=budget)[1]


def seconds_for(n_epochs):
    """The budget, in minutes, of which one phase of ten epochs gets enough for this many."""
    return n_epochs * STEPS * (10 + WORK_BESIDE_EPOCHS) / 10 / 60


def test_as_many_epochs_as_fit(clock):
    learner = slow_learner(clock)
    records = run(learner, Budget(seconds_for(4.5), 10))
    assert len(records) == 4
    assert len(learner.rates) == 4 * STEPS
    assert (
        learner.rates[-1] < 0.05 * SCHEDULE.learning_rate < max(learner.rates)
    )  # down to the end, as without a budget


def test_never_more_than_the_options_say_and_never_less_than_one(clock):
    assert len(run(slow_learner(clock), Budget(1000, 10))) == 10
    assert len(run(slow_learner(clock), Budget(0.001, 10))) == 1


def test_the_first_step_may_be_slow(clock):
    learner = slow_learner(clock)
    first, step = [30.0], learner.step

    def slow_first_step(*arguments, **options):
        clock[0] += first.pop() if first else 0
        return step(*arguments, **options)

    learner.step = slow_first_step
    assert len(run(learner, Budget(seconds_for(8.5) + 0.5, 10))) >= 5


def test_a_slower_machine_stops_at_the_end_of_an_epoch(clock):
    learner = slow_learner(clock)
    step = learner.step

    def slower(*arguments, **options):
        clock[0] += 9 if len(learner.rates) >= 2 * STEPS else 0
        return step(*arguments, **options)

    learner.step = slower
    assert len(run(learner, Budget(seconds_for(6.5), 10))) == 3


def test_a_resumed_training_has_the_epochs_that_were_planned(clock, tmp_path):
    learner = slow_learner(clock)
    interrupt_in_step(learner, 8)
    with pytest.raises(Stopped):
        run(learner, Budget(seconds_for(4.5), 10), Checkpoints(tmp_path, {}))
    slower = slow_learner(clock, 100.0)
    budget = Budget(seconds_for(4.5), 10)
    assert len(run(slower, budget, Checkpoints(tmp_path, {}), resume=True)) == 4
    assert len(slower.rates) == 4 * STEPS - 8
    assert budget.elapsed == pytest.approx(8 + 100 * (4 * STEPS - 8))  # the time before counts


def test_phases_share_the_time_by_their_epochs(clock):
    budget = Budget(2.0, 8)
    budget.start_phase(6)
    assert budget._phase_end == pytest.approx(120 * 6 / (8 + WORK_BESIDE_EPOCHS))
    clock[0] += 72
    budget.start_phase(2)
    assert budget._phase_end == pytest.approx(72 + 48 * 2 / (2 + WORK_BESIDE_EPOCHS))


@pytest.mark.parametrize(
    ("recipe", "options", "n_epochs"),
    [
        ("astec", {"n_surrogate_epochs": 5, "n_epochs": 3}, 8),
        ("astec", {"n_surrogate_epochs": 5, "n_epochs": 3, "surrogate": "none"}, 3),
        ("astec", {"n_surrogate_epochs": 5, "n_epochs": 3, "reranker": "network", "n_reranker_epochs": 2}, 10),
        ("mach", {"n_epochs": 3, "n_repetitions": 4}, 12),
        ("inceptionxml+", {"n_epochs": 7}, 7),
        ("centroid", {}, 0),
    ],
)
def test_epochs_of_all_phases(recipe, options, n_epochs):
    known = shortlist.get_recipe(recipe)
    assert planned_epochs(known, resolve(known.name, known.options, options)) == n_epochs


def test_every_recipe_takes_minutes():
    for recipe in shortlist.list_recipes().values():
        assert "minutes" in recipe.option_names, recipe.name


def test_train_within_minutes(caplog):
    data = [(f"{kind} {thing} {i}", [thing]) for i in range(8) for kind in ("red", "blue", "old") for thing in "abcdef"]
    with caplog.at_level("INFO", "shortlist"):
        model = shortlist.train(data, "astec", minutes=5, n_epochs=2, n_surrogate_epochs=2, embedding_dim=16, threads=1)
    assert len(model.records) == 4
    assert "of 5 minutes" in caplog.text
    assert "minutes" not in model.options
