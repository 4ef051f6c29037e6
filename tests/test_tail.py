"""Tail labels on demand: the order of predictions, what training chooses, and where a tail can be given."""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pytest
from click.testing import CliRunner

import shortlist
from model_files import change_config, put_arrays
from shortlist.arrays import Ragged
from shortlist.cli import shortlist as command
from shortlist.errors import ModelError, OptionError
from shortlist.evaluation import evaluate
from shortlist.labels import propensities
from shortlist.model.model import TAIL_CANDIDATES
from shortlist.stages.tail import TailRanking
from shortlist.stages.thresholds import Thresholds
from shortlist.training.tune import choose_tail
from tiny_models import model_over_features


@pytest.fixture(scope="module")
def data():
    """A frequent and a rare label that share a word, which is a little more typical of the frequent one."""
    rows = (
        [("cake flour sugar oven", ["baking"])] * 300
        + [("cake flour sugar rye", ["sourdough"])] * 12
        + [("fish pan", ["frying"])] * 100
    )
    return shortlist.read(rows)


@pytest.fixture(scope="module")
def model(data):
    return shortlist.train(data, recipe="centroid", validation_fraction=0.3)


class TestOrder:
    @pytest.mark.parametrize("tail", [0.0, 0.1, 0.5, 1.0])
    def test_is_that_of_score_times_inverse_propensity(self, tail):
        rng = np.random.default_rng(0)
        frequencies = rng.integers(1, 500, size=50)
        ids = np.stack([rng.permutation(50)[:9] for _ in range(20)]).astype(np.int32)
        ids[::3, 4] = -1
        scores = rng.random((20, 9)).astype(np.float32)
        order = TailRanking.of_frequencies(frequencies, 1000).order(ids, scores, tail)
        p = propensities(frequencies, 1000)
        for row, row_scores, found in zip(ids, scores, order, strict=True):
            gain = {i: row_scores[i] * (1 / p[row[i]]) ** tail for i in range(9) if row[i] >= 0}
            assert found[: len(gain)].tolist() == sorted(gain, key=lambda i: -gain[i])
            assert (row[found[len(gain) :]] == -1).all()

    def test_equal_scores_keep_their_order(self):
        ids = np.array([[2, 0, 1]])
        assert TailRanking.of_frequencies([5, 5, 5], 100).order(ids, np.ones((1, 3)), 0.7).tolist() == [[0, 1, 2]]


class TestPredict:
    def test_rare_labels_come_first_and_scores_stay(self, model):
        plain, rare = model.predict("cake flour sugar", k=3), model.predict("cake flour sugar", k=3, tail=1)
        assert plain[0].label == "baking" and rare[0].label == "sourdough"
        assert {(p.label, p.score) for p in plain} == {(p.label, p.score) for p in rare}
        scores = [p.score for p in rare]
        assert scores != sorted(scores, reverse=True)
        assert model.predict("cake flour sugar", k=3, tail=0) == plain

    def test_more_candidates_than_are_shown_are_ranked_again(self, model):
        assert [p.label for p in model.predict("cake flour sugar", k=1, tail=1)] == ["sourdough"]

    def test_the_best_hundred_are_candidates(self):
        model, queries = model_over_features()
        frequencies = np.random.default_rng(0).integers(1, 1000, size=model.n_labels)
        model.tail_ranking = TailRanking.of_frequencies(frequencies, 10_000)
        assert TAIL_CANDIDATES == 100
        ids, scores = model.rank(queries, TAIL_CANDIDATES)
        order = model.tail_ranking.order(ids, scores, 0.4)[:, :3]
        found, found_scores = model.rank(queries, 3, tail=0.4)
        assert np.array_equal(found, np.take_along_axis(ids, order, axis=1))
        assert np.array_equal(found_scores, np.take_along_axis(scores, order, axis=1))

    def test_only_labels_that_pass_the_threshold_are_ranked(self, model):
        score = next(p.score for p in model.predict("cake flour sugar", k=3) if p.label == "baking")
        assert [p.label for p in model.predict("cake flour sugar", k=1, tail=1, min_score=score)] == ["baking"]

    def test_words_are_explained_in_the_new_order(self, model):
        found = model.predict("cake flour sugar rye", k=2, tail=1, explain=True)
        assert [p.label for p in found] == [p.label for p in model.predict("cake flour sugar rye", k=2, tail=1)]
        assert all(p.words for p in found)

    def test_auto_is_what_the_model_has_stored(self, model, tmp_path):
        stored = model.tail_ranking.auto
        assert model.predict("cake flour sugar", tail="auto") == model.predict("cake flour sugar", tail=stored)
        model.save(tmp_path / "model", bits=32)
        again = shortlist.load(tmp_path / "model")
        again.tail_ranking = again.tail_ranking.with_auto(1.0)
        again.save(tmp_path / "model", bits=32)
        again = shortlist.load(tmp_path / "model")
        assert again.card["tail"] == 1.0
        assert again.predict("cake flour sugar", k=1, tail="auto")[0].label == "sourdough"
        assert again.predict("cake flour sugar", tail=0.5) == model.predict("cake flour sugar", tail=0.5)

    @pytest.mark.parametrize("wrong", [-0.1, 1.1, True, "0.5", "car", None, float("nan")])
    def test_wrong_tails_are_refused(self, model, wrong):
        with pytest.raises(OptionError, match=r"tail is .*; expected a number from 0 to 1, or 'auto'"):
            model.predict("cake flour sugar", tail=wrong)

    def test_auto_needs_a_stored_value(self, data):
        model = shortlist.train(data, recipe="popular")
        assert model.card["tail"] is None
        with pytest.raises(OptionError, match="training has chosen no value for this model"):
            model.predict("cake flour sugar", tail="auto")
        assert model.predict("cake flour sugar", k=1, tail=1) != []

    def test_a_model_without_frequencies_takes_no_tail(self):
        model, queries = model_over_features()
        with pytest.raises(OptionError, match="does not know how frequent its labels are"):
            model.rank(queries, tail=0.5)

    @pytest.mark.parametrize(
        ("wrong", "message"),
        [
            (np.full(3, 0.5, np.float32), "at least 1"),
            (np.full(2, 2.0, np.float32), "inverse_propensities"),
            (np.full(3, np.inf, np.float32), "inverse_propensities"),
        ],
    )
    def test_wrong_arrays_are_refused(self, model, tmp_path, wrong, message):
        model.save(tmp_path / "model")
        put_arrays(tmp_path / "model", "tail.safetensors", {"inverse_propensities": wrong})
        with pytest.raises(ModelError, match=message):
            shortlist.load(tmp_path / "model")

    @pytest.mark.parametrize("wrong", [-1, 2, "auto", True])
    def test_a_wrong_stored_value_is_refused(self, model, tmp_path, wrong):
        model.save(tmp_path / "model")
        change_config(tmp_path / "model", lambda config: config["tail"]["config"].update(auto=wrong))
        with pytest.raises(ModelError, match="auto is"):
            shortlist.load(tmp_path / "model")


class TestEvaluate:
    def test_the_order_of_a_tail_is_measured(self, model):
        test = shortlist.read([("cake flour sugar", ["sourdough"])])
        assert evaluate(model.predict_dataset(test), test, k=1)["P@1"] == 0
        assert evaluate(model.predict_dataset(test, tail=1), test, k=1)["P@1"] == 100

    def test_lists_with_scores_are_measured_in_order_only_on_request(self, model):
        found, truth = model.predict(["cake flour sugar"], tail=1), [["sourdough"]]
        by_score = evaluate(found, truth, k=1)
        assert by_score["P@1"] == 0
        assert any("not listed by score: 1" in note and "--in-order" in note for note in by_score.notes)
        in_order = evaluate(found, truth, k=1, in_order=True)
        assert in_order["P@1"] == 100 and not any("by score" in note for note in in_order.notes)
        assert not any("by score" in note for note in evaluate(model.predict(["cake flour sugar"]), truth, k=1).notes)


def build_of(labels, frequencies, n_train, **options):
    """The state of training that choosing a tail reads."""

    def measure(ids):
        result = evaluate(ids, labels, train=(frequencies, n_train), k=(1, 5))
        return {name: result[name] for name in ("P@1", "PSP@1", "P@5", "PSP@5")}

    data = SimpleNamespace(
        label_frequencies=frequencies,
        n_train=n_train,
        held_out_labels=labels,
        n_labels=len(frequencies),
        measure=measure,
    )
    return SimpleNamespace(data=data, options=options)


class TestChooseTail:
    def case(self, n_wrong, max_tail_loss=0.5):
        """1,000 texts with a frequent label before a rare one; the rare one is right, except for `n_wrong` texts."""
        frequencies = np.array([900, 1])
        ids = np.tile(np.array([[0, 1]], np.int32), (1000, 1))
        scores = np.tile(np.array([[0.5, 0.45]]), (1000, 1))
        labels = Ragged.from_lists([[0]] * n_wrong + [[0, 1]] * (1000 - n_wrong))
        chances = np.full((1000, 2), 0.5)
        return choose_tail(ids, scores, chances, build_of(labels, frequencies, 1000, max_tail_loss=max_tail_loss))

    def test_best_psp_that_costs_no_more_than_allowed(self):
        assert self.case(n_wrong=5)["tail"] > 0
        assert self.case(n_wrong=6)["tail"] == 0
        assert self.case(n_wrong=6, max_tail_loss=0.6)["tail"] > 0
        facts = self.case(n_wrong=5)
        at = {point["tail"]: point for point in facts["curve"]}
        assert sorted(at) == [0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0]
        assert (at[0]["P@1"], at[1.0]["P@1"], at[1.0]["loss"]) == (100, 99.5, 0.5)
        assert at[1.0]["standard_error"] == pytest.approx(100 * np.sqrt(0.005 * 0.995 / 1000), abs=0.01)
        assert facts["tail"] == min(t for t in at if at[t]["PSP@1"] == max(p["PSP@1"] for p in facts["curve"]))
        assert facts["allowed_loss"] == 0.5
        assert json.loads(json.dumps(facts)) == facts

    def test_what_scores_promise_may_not_fall_by_more_either(self):
        """On few texts, hits are luck: here all are, although the rare label is far less likely."""
        labels = Ragged.from_lists([[0, 1]] * 20)
        ids, scores = np.tile(np.array([[0, 1]], np.int32), (20, 1)), np.tile([[0.5, 0.3]], (20, 1))
        facts = choose_tail(ids, scores, scores, build_of(labels, np.array([900, 1]), 1000))
        assert facts["curve"][-1]["loss"] == 0 and facts["curve"][-1]["expected_loss"] == pytest.approx(20)
        assert facts["tail"] == 0

    def test_promises_must_be_affordable_with_some_doubt(self):
        labels = Ragged.from_lists([[0, 1]] * 1000)
        ids, scores = np.tile(np.array([[0, 1]], np.int32), (1000, 1)), np.tile([[0.5, 0.45]], (1000, 1))
        tails = []
        for gap in (0.0035, 0.0045):  # 0.35 and 0.45 points of P@1, of which 0.5 are allowed
            chances = np.tile([[0.5, 0.5 - gap]], (1000, 1))
            tails.append(choose_tail(ids, scores, chances, build_of(labels, np.array([900, 1]), 1000))["tail"])
        assert tails[0] > 0 == tails[1]

    def test_training_stores_it(self, model):
        card = model.card
        assert card["tail"] == card["tail_choice"]["tail"] == model.tail_ranking.auto
        assert card["options"]["max_tail_loss"] == 0.5
        assert card["tail_choice"]["curve"][0]["P@1"] == card["scores"]["P@1"]

    def test_frequencies_are_those_of_all_texts(self, model, data):
        expected = 1 / propensities(data.label_frequencies, len(data))
        np.testing.assert_allclose(model.tail_ranking.arrays()["inverse_propensities"], expected, rtol=1e-6)

    def test_the_order_of_held_out_texts_goes_far_down(self):
        """Candidates beyond the first five can come first."""
        ids = np.tile(np.arange(10, dtype=np.int32), (10, 1))
        scores = np.tile(np.linspace(0.5, 0.4, 10), (10, 1))
        frequencies = np.array([900] * 9 + [1])
        facts = choose_tail(ids, scores, np.full((10, 10), 0.5),
                            build_of(Ragged.from_lists([[9]] * 10), frequencies, 1000))  # fmt: skip
        assert facts["tail"] > 0 and facts["curve"][-1]["P@1"] == 100


@pytest.fixture
def run(model, tmp_path):
    model.save(tmp_path / "model", bits=32)

    def call(verb, *arguments, code=0):
        done = CliRunner().invoke(command, [verb, str(tmp_path / "model"), *map(str, arguments)])
        assert done.exit_code == code, done.output + repr(done.exception)
        return done.stdout if code == 0 else done.output

    return call


class TestCommands:
    def test_predict(self, run, put):
        assert run("predict", "cake flour sugar", "-k", 1, "--tail", 1).endswith("  sourdough\n")
        assert run("predict", "cake flour sugar", "--tail", "auto")
        rows = put("in.jsonl", '{"text": "cake flour sugar"}\n')
        assert json.loads(run("predict", rows, "-k", 1, "--tail", 1))["labels"] == ["sourdough"]
        assert "neither a number from 0 to 1 nor auto" in run("predict", "cake flour sugar", "--tail", "much", code=2)
        assert "expected a number from 0 to 1" in run("predict", "cake flour sugar", "--tail", 2, code=2)

    def test_evaluate(self, run, put, tmp_path):
        truth = put("truth.jsonl", '{"text": "cake flour sugar", "labels": ["sourdough"]}\n')
        for options, expected in (([], 0), (["--tail", 1], 100)):
            assert json.loads(run("evaluate", truth, "-k", 1, "--json", *options))["values"]["P@1"] == expected
        out = tmp_path / "out.jsonl"
        run("predict", truth, "--out", out, "--tail", 1)
        for options, expected in (([], 0), (["--in-order"], 100)):
            done = CliRunner().invoke(command, ["evaluate", str(out), str(truth), "-k", "1", "--json", *options])
            assert json.loads(done.stdout)["values"]["P@1"] == expected
        done = CliRunner().invoke(command, ["evaluate", str(out), str(truth), "--tail", "0.5"])
        assert done.exit_code == 2 and "--tail is for a model" in done.output

    def test_card(self, run, model):
        assert f"tail=auto is {model.tail_ranking.auto:g}, chosen on these held-out texts" in run("card")


def test_an_ensemble_has_the_smallest_tail_of_its_members(model):
    from shortlist.training.ensemble import combine

    members = [shortlist.model.Model(model.recipe, model.options, model.pipelines, model.label_names,
                                     tail_ranking=model.tail_ranking.with_auto(auto))
               for auto in (0.3, 0.2, None)]  # fmt: skip
    assert combine(members).tail_ranking.auto == 0.2
    assert combine(members[2:]).tail_ranking.auto is None
    members[0].thresholds = Thresholds.of(0.5)
    assert combine(members).thresholds is None
