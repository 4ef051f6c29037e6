"""Thresholds as people choose them: tables, goals, thresholds of labels, guarantees, and where a model applies them."""

from __future__ import annotations

import json
import logging
import math

import numpy as np
import pytest
from click.testing import CliRunner

import shortlist
from model_files import change_config, put_arrays
from shortlist.cli import shortlist as command
from shortlist.errors import DataError, ModelError, OptionError
from shortlist.evaluation.thresholds import (
    GRID,
    Goal,
    Judged,
    choose_threshold,
    risk_coverage,
    shown_thresholds,
    threshold_row,
    wilson,
)
from shortlist.model.choosing import judge
from shortlist.stages.thresholds import Thresholds
from tiny_models import colours

NAMES = [f"label {i}" for i in range(20)]


def judged(n_texts=1000, k=3, seed=0, n_labels=20):
    """Predictions whose scores are probabilities: a label with a score of 0.7 is right with a probability of 0.7."""
    rng = np.random.default_rng(seed)
    ids = np.argsort(rng.random((n_texts, n_labels)), axis=1)[:, :k].astype(np.int32)
    scores = -np.sort(-rng.random((n_texts, k)), axis=1).astype(np.float32)
    right = rng.random((n_texts, k)) < scores
    return Judged(ids, scores, right, np.maximum(right.sum(axis=1), 1))


def counted(data, min_score):
    """The slow twin: answered, right and labels per text, text by text."""
    n_answered = n_labels = n_right = 0
    for ids, scores, right in zip(data.ids.tolist(), data.scores, data.right.tolist(), strict=True):
        passing = [
            hit for label, score, hit in zip(ids, scores, right, strict=True) if label >= 0 and score >= min_score
        ]
        n_answered, n_labels, n_right = n_answered + bool(passing), n_labels + len(passing), n_right + sum(passing)
    return n_answered / len(data.ids), n_right / max(n_labels, 1), n_labels / len(data.ids)


def counted_at_once(data, min_score):
    """The same, for a thousand thresholds in a row."""
    passing = (data.ids >= 0) & (data.scores >= min_score)
    n_labels, n_right = passing.sum(), (passing & data.right).sum()
    return passing.any(axis=1).mean(), n_right / max(n_labels, 1), n_labels / len(data.ids)


class TestTable:
    @pytest.mark.parametrize("min_score", [0.0, 0.25, 0.5, 0.999, 1.0])
    def test_a_row_is_what_counting_gives(self, min_score):
        data = judged()
        data.ids[::7, 1] = -1
        row = threshold_row(data, min_score)
        found = row.answered.value, row.right.value, row.labels_per_text.value
        assert found == pytest.approx(counted(data, np.float32(min_score)))
        assert found == pytest.approx(counted_at_once(data, np.float32(min_score)))
        for share in (row.answered, row.right):
            assert 0 <= share.low <= share.value <= share.high <= 1

    @pytest.mark.parametrize(("hits", "n"), [(0, 10), (10, 10), (90, 100), (1, 2)])
    def test_wilson_is_where_the_score_test_is_at_its_limit(self, hits, n):
        share, low, high = wilson(hits, n)
        for end in (low, high):
            if 1e-9 < end < 1 - 1e-9:
                assert abs(share - end) / math.sqrt(end * (1 - end) / n) == pytest.approx(1.959964)

    def test_about_ten_round_thresholds_whatever_the_scores(self):
        data = judged()
        assert shown_thresholds(data) == [0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95]
        low = Judged(data.ids, data.scores / 5, data.right, data.n_true)
        assert 5 <= len(shown_thresholds(low)) <= 11 and max(shown_thresholds(low)) <= 0.2

    def test_the_chosen_threshold_is_marked(self):
        table = choose_threshold(judged(), Goal(precision=0.8), NAMES)
        (marked,) = [line for line in str(table).splitlines() if "<-" in line]
        assert marked.startswith(f"{table.min_score:.3f} <-")
        assert 10 <= len(table.rows) <= 12
        assert json.loads(json.dumps(table.to_json()))["chosen"]["min_score"] == table.min_score

    def test_the_risk_coverage_curve_is_made_of_thresholds(self):
        data = judged()
        curve = risk_coverage(data)
        rows = [threshold_row(data, float(min_score)) for min_score in GRID]
        points = {(round(row.answered.value, 6), round(1 - row.right.value, 6)) for row in rows}
        assert 20 <= len(curve) <= 40
        assert all((round(answered, 6), round(wrong, 6)) in points for answered, wrong in curve)
        assert curve[-1] == (1.0, pytest.approx(1 - rows[0].right.value))


class TestGoals:
    def test_precision_is_the_lowest_threshold_that_reaches_it(self):
        data = judged()
        table = choose_threshold(data, Goal(precision=0.8), NAMES)
        rows = {t: counted_at_once(data, t) for t in GRID}
        reaching = [t for t, (_, right, labels) in rows.items() if right >= 0.8 and labels * 1000 >= 50]
        assert table.reached and table.min_score == pytest.approx(min(reaching))
        assert table.chosen.right.value >= 0.8

    def test_coverage_is_the_highest_threshold_that_leaves_it(self):
        data = judged()
        table = choose_threshold(data, Goal(coverage=0.6), NAMES)
        assert table.min_score == pytest.approx(max(t for t in GRID if counted_at_once(data, t)[0] >= 0.6))

    def test_costs_are_the_lowest(self):
        data = judged(3000)
        table = choose_threshold(data, Goal(cost_wrong=1, cost_missing=0.25), NAMES)
        assert table.chosen.cost == min(row.cost for row in table.rows)
        n_true = data.n_true.sum()
        _, right, labels = counted_at_once(data, np.float32(table.min_score))
        cost = labels * (1 - right) + 0.25 * (n_true / 3000 - labels * right)
        assert table.chosen.cost == pytest.approx(cost)
        # A label is worth predicting if p · cost_missing is more than (1 − p) · cost_wrong.
        assert table.min_score == pytest.approx(0.8, abs=0.05)

    def test_what_cannot_be_reached_comes_with_the_best_that_can(self):
        data = judged()
        wrong = Judged(data.ids, data.scores, data.right & (data.scores < 0.5), data.n_true)
        table = choose_threshold(wrong, Goal(precision=0.9), NAMES)
        assert not table.reached
        rows = [counted_at_once(wrong, t) for t in GRID]
        precisions = [right for _, right, labels in rows if labels * 1000 >= 50]
        assert table.chosen.right.value == pytest.approx(max(precisions))
        assert f"cannot be reached: the best is {max(precisions):.3f}" in str(table)
        data.ids[:500] = -1
        table = choose_threshold(data, Goal(coverage=0.9), NAMES)
        assert not table.reached and "even without a threshold it is 0.500" in str(table)

    def test_numbers_on_fresh_texts_do_not_flatter(self):
        """The threshold looks best on the texts that it was chosen on; the table also says what others will see."""
        others, found = judged(50_000, seed=1000), []
        for seed in range(100):
            table = choose_threshold(judged(100, seed=seed), Goal(precision=0.85), NAMES)
            if table.fresh is not None:
                truth = threshold_row(others, table.min_score)
                found.append((table.chosen.right.value, table.fresh[1].value, truth.right.value))
        chosen_on, fresh, truth = np.mean(found, axis=0)
        assert len(found) > 90
        assert chosen_on - truth > 0.01
        assert abs(fresh - truth) < 0.007

    @pytest.mark.parametrize(
        ("goal", "message"),
        [
            ({}, "give one of precision, coverage, guarantee, or cost_wrong with cost_missing"),
            ({"precision": 0.9, "coverage": 0.5}, "chosen for one goal"),
            ({"precision": 90}, "precision is 90; expected a share"),
            ({"coverage": 0}, "coverage is 0; expected a share"),
            ({"coverage": True}, "coverage is True"),
            ({"guarantee": 1}, "no threshold can promise that"),
            ({"cost_wrong": 1}, "give both costs"),
            ({"cost_wrong": 1, "cost_missing": -1}, "cost_missing is -1; expected"),
            ({"precision": float("nan")}, "precision is nan"),
        ],
    )
    def test_wrong_goals_are_refused(self, goal, message):
        with pytest.raises(OptionError, match=message):
            Goal(**goal)

    def test_too_few_predictions(self):
        with pytest.raises(DataError, match="there are 30 predictions to choose a threshold on; at least 50"):
            choose_threshold(judged(10), Goal(precision=0.5), NAMES)


class TestGuarantee:
    def test_holds_on_fresh_texts(self):
        """The mean over many draws of texts to choose on; the bound is tight up to 1 / (n + 1)."""
        fresh, shares = judged(20_000, seed=1000), []
        for seed in range(200):
            table = choose_threshold(judged(60, seed=seed), Goal(guarantee=0.8), NAMES)
            if not table.reached:
                continue
            passing = (fresh.scores >= np.float32(table.min_score)) & fresh.right
            shares.append(passing.any(axis=1).mean())
        # Without a right label among the three, no threshold helps: n_true is at least 1.
        assert len(shares) > 150
        assert np.mean(shares) >= 0.8

    def test_is_the_quantile_with_the_finite_sample_correction(self):
        scores = np.linspace(0.05, 0.95, 19, dtype=np.float32)[:, None]
        data = Judged(np.zeros((19, 1), np.int32), scores, np.ones((19, 1), bool), np.ones(19))
        # floor(0.1 · 20) = 2: the second lowest score.
        assert choose_threshold(data, Goal(guarantee=0.9), NAMES).min_score == pytest.approx(0.1)

    def test_too_few_texts(self):
        data = judged(8)
        with pytest.raises(DataError, match=r"there are 8 texts with labels; a guarantee of 0\.9 takes at least 9"):
            choose_threshold(data, Goal(guarantee=0.9), NAMES)
        choose_threshold(judged(9), Goal(guarantee=0.9), NAMES)

    def test_right_labels_that_are_not_found_count(self):
        data = judged(200)
        hopeless = Judged(data.ids, data.scores, data.right & (np.arange(200) % 2 == 0)[:, None], data.n_true)
        table = choose_threshold(hopeless, Goal(guarantee=0.9), NAMES)
        assert not table.reached and "A larger k may help" in str(table)

    def test_texts_without_labels_do_not_count(self):
        data = judged(200)
        more = Judged(*(np.concatenate([array, array]) for array in (data.ids, data.scores)),
                      np.concatenate([data.right, np.zeros_like(data.right)]),
                      np.concatenate([data.n_true, np.zeros_like(data.n_true)]))  # fmt: skip
        goal = Goal(guarantee=0.7)
        assert choose_threshold(more, goal, NAMES).min_score == choose_threshold(data, goal, NAMES).min_score


class TestPerLabel:
    def test_labels_with_enough_predictions_get_their_own(self):
        """Label 0 is right twice as often as its scores say, label 1 half as often; label 2 is rare."""
        rng = np.random.default_rng(0)
        ids = np.array([0] * 2000 + [1] * 2000 + [2] * 30, np.int32)[:, None]
        scores = rng.random((4030, 1), np.float32)
        chances = np.where(ids == 0, np.minimum(2 * scores, 1), np.where(ids == 1, scores / 2, scores))
        data = Judged(ids, scores, rng.random((4030, 1)) < chances, np.ones(4030))
        table = choose_threshold(data, Goal(cost_wrong=1, cost_missing=1), NAMES, per_label=True)
        own = table.label_min_scores
        assert set(own) == {"label 0", "label 1"}
        assert own["label 0"] == pytest.approx(0.25, abs=0.1) and own["label 1"] > 0.8
        assert table.with_own.cost < table.chosen.cost
        assert str(table).splitlines()[len(table.rows) + 1].startswith("by label <-")

    def test_few_predictions_do_not_overfit(self):
        """All labels are alike. Thresholds by chance would be too low for the precision on fresh texts."""
        fresh_right = []
        for seed in range(8):
            rng = np.random.default_rng(seed)

            def draw(n, rng=rng):
                scores = rng.beta(0.7, 0.7, (n, 1)).astype(np.float32)
                ids = rng.integers(0, 20, (n, 1)).astype(np.int32)
                return Judged(ids, scores, rng.random((n, 1)) < scores, np.ones(n))

            names = [f"label {i}" for i in range(20)]
            own = choose_threshold(draw(1200), Goal(precision=0.9), names, per_label=True).label_min_scores
            assert len(own) > 10
            fresh, least = draw(20_000), np.array([own.get(name, 2) for name in names])
            passing = fresh.scores >= least[fresh.ids]
            fresh_right.append(fresh.right[passing].mean())
        assert np.mean(fresh_right) > 0.885

    @pytest.mark.parametrize("goal", [{"coverage": 0.5}, {"guarantee": 0.5}])
    def test_not_for_goals_of_whole_texts(self, goal):
        with pytest.raises(OptionError, match="leave per_label out"):
            choose_threshold(judged(), Goal(**goal), NAMES, per_label=True)


@pytest.fixture(scope="module")
def data():
    return colours(300, seed=1)


@pytest.fixture
def model():
    return shortlist.train(colours(), recipe="centroid")


class TestModel:
    def test_the_stored_threshold_applies_unless_another_is_given(self, model, data):
        everything = model.predict(list(data.texts[:50]))
        table = model.choose_threshold(data, precision=0.9)
        assert model.thresholds.min_score == table.min_score > 0
        found = model.predict(list(data.texts[:50]))
        assert found == [[p for p in row if p.score >= np.float32(table.min_score)] for row in everything] != everything
        assert model.predict(list(data.texts[:50]), min_score=0) == everything
        assert model.predict("nothing known") == []
        low = model.predict(list(data.texts[:50]), min_score=0.01)
        assert sum(map(len, low)) > sum(map(len, found))

    def test_precision_in_predictions_is_that_of_the_table(self, model, data):
        table = model.choose_threshold(data, precision=0.9)
        rows = model.predict(list(data.texts))
        hits = [p.label in data.labels_of(i) for i, row in enumerate(rows) for p in row]
        assert np.mean(hits) == pytest.approx(table.chosen.right.value) and np.mean(hits) >= 0.9
        assert np.mean([bool(row) for row in rows]) == pytest.approx(table.chosen.answered.value)

    def test_metrics_at_k_ignore_it(self, model, data):
        before = shortlist.evaluate(model.predict_dataset(data), data).values
        model.thresholds = Thresholds.of(0.9999)
        assert shortlist.evaluate(model.predict_dataset(data), data).values == before
        assert not len(model.predict_dataset(data, min_score=None).labels.values)

    def test_is_saved_and_on_the_card(self, model, data, tmp_path):
        model.choose_threshold(data, precision=0.9)
        model.save(tmp_path / "model")
        again = shortlist.load(tmp_path / "model")
        assert again.card["min_score"] == model.thresholds.min_score
        assert again.card["threshold"]["goal"] == "precision 0.9" and again.card["threshold"]["texts"] == 300
        assert again.predict(list(data.texts)) == shortlist.load(tmp_path / "model").predict(list(data.texts))
        assert not again.thresholds.per_label

    def test_thresholds_of_labels_leave_no_holes(self, model, data, tmp_path):
        ids, scores = model.rank(data.texts, 4)
        of_labels = np.zeros(model.n_labels, np.float32)
        of_labels[ids[0, 0]] = 1
        model.thresholds = Thresholds.of(0.0, of_labels)
        model.save(tmp_path / "model", bits=32)
        for one in (model, shortlist.load(tmp_path / "model")):
            found, found_scores = one.rank(data.texts, 3)
            assert found[0].tolist() == ids[0, 1:].tolist()  # the next one moves up, too
            assert found_scores[0].tolist() == scores[0, 1:].tolist()
            assert (np.diff((found >= 0).astype(int), axis=1) <= 0).all()

    def test_thresholds_of_labels_are_stored(self, model, data):
        table = model.choose_threshold(data, precision=0.9, per_label=True)
        assert set(table.label_min_scores) <= set(model.label_names) and len(table.label_min_scores) == 4
        assert model.thresholds.per_label and model.card["threshold"]["labels_with_own"] == 4
        rows = model.predict(list(data.texts))
        assert all(p.score >= np.float32(table.label_min_scores[p.label]) for row in rows for p in row)
        hits = [p.label in data.labels_of(i) for i, row in enumerate(rows) for p in row]
        assert np.mean(hits) == pytest.approx(table.with_own.right.value)

    def test_nothing_is_stored_if_the_goal_cannot_be_reached(self, model, caplog):
        wrong = shortlist.read([("ding1 rot zeug2", ["code blau"]), ("gelb zeug1", ["code rot"])] * 50)
        with caplog.at_level(logging.WARNING, "shortlist"):
            table = model.choose_threshold(wrong, precision=0.9)
        assert not table.reached and model.thresholds is None and "threshold" not in model.card
        assert "nothing is stored: precision 0.9 cannot be reached" in caplog.text

    def test_labels_that_the_model_does_not_know_are_missing(self, model):
        data = shortlist.read([("ding1 rot zeug2", ["code rot", "elsewhere"])] * 60)
        table = model.choose_threshold(data, cost_wrong=1, cost_missing=1)
        assert table.chosen.cost >= 1

    def test_filter_pairs_are_neither_right_nor_wrong(self, model, data):
        first = model.rank(data.texts, 1)[0].ravel()
        filtered = data.relabelled(model.label_names)
        filtered.filter_pairs = np.column_stack([np.arange(len(data)), first])
        table = model.choose_threshold(filtered, coverage=0.5, k=1)
        plain = model.choose_threshold(data, coverage=0.5, k=1)
        assert table.chosen.right.value < plain.chosen.right.value
        left = judge(model, filtered, 1, None)
        is_true = [label in row for label, row in zip(first, map(filtered.labels.row, range(len(data))), strict=True)]
        assert left.n_true.tolist() == (1 - np.array(is_true, int)).tolist()
        assert not (left.ids.ravel() == first).any()

    def test_data_without_labels_is_refused(self, model):
        with pytest.raises(DataError, match="no text with a label"):
            model.choose_threshold([("rot", [])], precision=0.9)

    def test_warming_up_does_not_depend_on_it(self, model, monkeypatch):
        model.thresholds = Thresholds.of(1.0)
        explained = []
        monkeypatch.setattr(model, "_explain", lambda text, ids, found, threads: explained.append(found) or found)
        model.warm_up()
        assert explained and any(explained)

    @pytest.mark.parametrize("wrong", [-0.1, 1.1, None, "0.5", True])
    def test_a_wrong_threshold_in_the_config_is_refused(self, model, tmp_path, wrong):
        model.thresholds = Thresholds.of(0.5)
        model.save(tmp_path / "model")
        change_config(tmp_path / "model", lambda config: config["thresholds"]["config"].update(min_score=wrong))
        with pytest.raises(ModelError, match="min_score is"):
            shortlist.load(tmp_path / "model")

    @pytest.mark.parametrize(
        ("wrong", "message"),
        [
            (np.full(4, 1.5, np.float32), "between 0 and 1"),
            (np.full(3, 0.5, np.float32), "min_scores"),
            (np.full(4, np.nan, np.float32), "min_scores"),
        ],
    )
    def test_wrong_thresholds_of_labels_are_refused(self, model, tmp_path, wrong, message):
        model.thresholds = Thresholds.of(0.5, np.full(4, 0.5))
        model.save(tmp_path / "model")
        put_arrays(tmp_path / "model", "thresholds.safetensors", {"min_scores": wrong})
        with pytest.raises(ModelError, match=message):
            shortlist.load(tmp_path / "model")


@pytest.fixture(scope="module")
def folder(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("thresholds")
    shortlist.train(colours(), recipe="centroid").save(folder / "model")
    data.write(folder / "parts" / "validation.jsonl")
    data.take(range(100)).write(folder / "parts" / "test.jsonl")
    data.take(range(100)).write(folder / "no-validation" / "test.jsonl")
    data.write(folder / "no-validation" / "train.jsonl")
    return folder


class TestCommand:
    def run(self, *arguments, code=0):
        done = CliRunner().invoke(command, list(map(str, arguments)))
        assert done.exit_code == code, done.output + repr(done.exception)
        return done

    def test_writes_the_chosen_threshold_and_nothing_else(self, folder, data):
        model = folder / "model"
        before = shortlist.load(model)
        done = self.run("threshold", model, folder / "parts", "--precision", 0.9)
        again = shortlist.load(model)
        assert f"{again.thresholds.min_score:.3f} <-" in done.stdout and "written" in done.stderr
        assert "Measured on 300 texts and their 5 best labels" not in done.stdout  # there are only 4 labels
        assert "Measured on 300 texts and their 4 best labels" in done.stdout
        for one, two in zip(before.rank(data.texts, min_score=0), again.rank(data.texts, min_score=0), strict=True):
            assert np.array_equal(one, two)
        assert again.card["storage"] == before.card["storage"]

    def test_predictions_then_say_that_they_are_not_sure(self, folder, put):
        self.run("threshold", folder / "model", folder / "parts", "--precision", 0.9)
        min_score = shortlist.load(folder / "model").thresholds.min_score
        out = self.run("predict", folder / "model", "zeug2").stdout
        assert out == f"zeug2\n  (not sure: no label scores {min_score:g} or more)\n"
        texts = put("in.jsonl", '{"text": "zeug2"}\n')
        row = json.loads(self.run("predict", folder / "model", texts).stdout)
        assert (row["labels"], row["scores"]) == ([], [])
        assert json.loads(self.run("predict", folder / "model", texts, "--min-score", 0).stdout)["labels"]
        assert (
            f"threshold: min_score {min_score:g}; chosen for precision 0.9" in self.run("card", folder / "model").stdout
        )
        self.run("threshold", folder / "model", folder / "parts", "--precision", 0.9, "--per-label")
        out = self.run("predict", folder / "model", "zeug2").stdout
        assert out == "zeug2\n  (not sure: no label reaches its threshold)\n"

    def test_a_dry_run_and_an_unreachable_goal_write_nothing(self, folder):
        before = {path.name: path.read_bytes() for path in (folder / "model").iterdir()}
        assert (
            "nothing was written"
            in self.run("threshold", folder / "model", folder / "parts", "--coverage", 0.5, "--dry-run").stderr
        )
        wrong = folder / "wrong.jsonl"
        shortlist.read([("ding1 rot zeug2", ["code blau"])] * 100).write(wrong)
        done = self.run("threshold", folder / "model", wrong, "--precision", 0.99, code=1)
        assert "precision 0.99 cannot be reached" in done.stdout
        assert {path.name: path.read_bytes() for path in (folder / "model").iterdir()} == before

    def test_json(self, folder):
        done = self.run("threshold", folder / "model", folder / "parts", "--guarantee", 0.8, "--dry-run", "--json")
        found = json.loads(done.stdout)
        assert found["goal"] == "guarantee 0.8" and found["reached"] is True

    def test_without_a_validation_part_the_test_part_is_used_and_named(self, folder):
        done = self.run("threshold", folder / "model", folder / "no-validation", "--coverage", 0.5, "--dry-run")
        assert "choosing on the test part" in done.stderr and "100 texts" in done.stdout

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (("model", "parts"), "give one of precision, coverage"),
            (("parts", "model", "--precision", "0.9"), "not a model"),
            (("model", "model", "--precision", "0.9"), "Give the model first"),
            (("model", "parts", "--coverage", "0.9", "--per-label"), "leave per_label out"),
            (("model", "nowhere.jsonl", "--precision", "0.9"), "nowhere.jsonl"),
        ],
    )
    def test_reports_errors(self, folder, monkeypatch, arguments, message):
        monkeypatch.chdir(folder)
        assert message in self.run("threshold", *arguments, code=2).output

    def test_a_folder_that_cannot_be_replaced_is_refused_before_the_work(self, folder, tmp_path):
        shortlist.load(folder / "model").save(tmp_path / "model")
        (tmp_path / "model" / "notes.txt").write_text("mine")
        done = self.run("threshold", tmp_path / "model", folder / "parts", "--coverage", 0.5, code=2)
        assert "notes.txt" in done.output and "min_score" not in done.stdout
