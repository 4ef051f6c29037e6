"""What every recipe does, whatever it learns from: tests to inherit, over fixtures of the inheriting module.

recipe, options        the name of the recipe, and its options
train_part, test_part  data sets of texts or of features, one topic each
model                  the recipe trained on `train_part`
"""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import shortlist
from shortlist.errors import OptionError

# P@1 that each recipe must reach on the test part.
BARS = {"popular": 4.0}
BAR = 95.0


def inputs_of(dataset, n=None):
    """The first n texts, or rows of features, as one gives them to `predict`."""
    return list(dataset.texts[:n]) if dataset.features is None else dataset.features[: n or len(dataset)]


class Contract:
    def test_learns(self, model, recipe, train_part, test_part):
        result = shortlist.evaluate(model.predict_dataset(test_part), test_part, train=train_part)
        assert result["P@1"] >= BARS.get(recipe, BAR)

    def test_one_text_equals_many(self, model, test_part):
        inputs = inputs_of(test_part, 20)
        for i, among_many in enumerate(model.predict(inputs)):
            alone = model.predict(inputs[i : i + 1])[0]
            # Matrix products of another shape round in another way.
            assert [p.score for p in alone] == pytest.approx([p.score for p in among_many], rel=1e-4, abs=1e-6)
            assert alone[0].label == among_many[0].label

    def test_predictions_are_names_with_falling_scores(self, model, train_part):
        predictions = model.predict(inputs_of(train_part, 1), k=3)[0]
        assert 1 <= len(predictions) <= 3
        scores = [prediction.score for prediction in predictions]
        assert scores == sorted(scores, reverse=True)
        for prediction in predictions:
            assert prediction.label in train_part.label_names
            assert prediction.name == train_part.display_name(prediction.label)

    def test_save_and_load_change_nothing(self, model, test_part, tmp_path):
        model.save(tmp_path / "model", bits=32)
        again = shortlist.load(tmp_path / "model")
        inputs = inputs_of(test_part, 20)
        assert again.predict(inputs) == model.predict(inputs)
        assert "examples" not in again.card  # held-out texts are stored on request only
        assert (again.recipe, again.options, again.inputs) == (model.recipe, model.options, model.inputs)

    def test_8_bits_change_almost_nothing(self, model, test_part, tmp_path):
        model.save(tmp_path / "model")
        again = shortlist.load(tmp_path / "model")
        inputs = inputs_of(test_part, 50)
        (before, scores), (after, stored) = (one.rank(inputs, 1) for one in (model, again))
        assert np.array_equal(after, before)
        # A candidate that is lost among a text's best ten moves the scores of the others.
        assert np.quantile(np.abs(stored - scores), 0.95) < 0.03
        again.save(tmp_path / "again")  # and nothing the second time
        assert shortlist.load(tmp_path / "again").predict(inputs) == again.predict(inputs)

    @pytest.mark.slow  # trains again
    def test_same_data_same_folder(self, model, recipe, options, train_part, tmp_path):
        model.save(tmp_path / "one")
        shortlist.train(train_part, recipe=recipe, **options).save(tmp_path / "two")
        files = sorted(path.name for path in (tmp_path / "one").iterdir())
        assert files == sorted(path.name for path in (tmp_path / "two").iterdir())
        for name in files:
            assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()

    def test_threads_change_nothing(self, model, test_part):
        inputs = inputs_of(test_part)
        assert model.predict(inputs, threads=1) == model.predict(inputs, threads=2)

    def test_k_larger_than_what_exists(self, model, train_part):
        assert len(model.predict(inputs_of(train_part, 1), k=10_000)[0]) <= train_part.n_labels

    def test_scores_of_given_labels_are_those_of_their_ranking(self, model, test_part):
        inputs = inputs_of(test_part, 30)
        ids, scores = model.rank(inputs, 3)
        there = ids >= 0
        given = model.scores(inputs, np.maximum(ids, 0))
        np.testing.assert_allclose(given[there], scores[there], rtol=1e-3, atol=1e-5)

    def test_labels_below_min_score_are_left_out(self, model, test_part):
        inputs = inputs_of(test_part, 30)
        everything = model.predict(inputs)
        scores = sorted(prediction.score for row in everything for prediction in row)
        least = float(scores[len(scores) // 2])
        some = model.predict(inputs, min_score=least)
        assert some == [[prediction for prediction in row if prediction.score >= least] for row in everything]
        ids, scores = model.rank(inputs, 5, min_score=least)
        assert (ids[scores < np.float32(least)] == -1).all()
        assert model.predict(inputs, min_score=0) == everything

    @pytest.mark.parametrize("wrong", [-0.1, 1.5, True, "0.5", float("nan")])
    def test_bad_min_scores(self, model, test_part, wrong):
        with pytest.raises(OptionError, match=r"min_score is .*; expected a score from 0 to 1"):
            model.predict(inputs_of(test_part, 1), min_score=wrong)

    @pytest.mark.parametrize("wrong", [0, -1, True, "2", None, float("nan"), float("inf")])
    def test_bad_search_efforts(self, model, test_part, wrong):
        with pytest.raises(OptionError, match=r"search_effort is .*; expected a factor such as"):
            model.predict(inputs_of(test_part, 1), search_effort=wrong)
        with pytest.raises(OptionError, match="search_effort is"):
            model.predict_dataset(test_part, search_effort=wrong)

    def test_any_search_effort_gives_predictions(self, model, test_part):
        inputs = inputs_of(test_part, 5)
        for search_effort in (0.01, 0.5, 2, 1000):
            assert [len(row) > 0 for row in model.predict(inputs, search_effort=search_effort)] == [True] * 5

    def test_several_threads_at_once_give_what_one_gives(self, model, test_part):
        inputs = inputs_of(test_part)
        expected = [model.predict(inputs[i : i + 5], threads=1) for i in range(0, 60, 5)]
        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(lambda i: model.predict(inputs[i : i + 5], threads=1), range(0, 60, 5)))
        assert found == expected

    def test_has_a_card(self, model, recipe, train_part, tmp_path):
        card = model.card
        assert (card["recipe"], card["title"], card["n_labels"]) == (recipe, recipe, train_part.n_labels)
        assert card["options"] == model.options
        model.save(tmp_path / "model")
        again = shortlist.load(tmp_path / "model").card
        assert json.loads(json.dumps(again)) == again
        stored = {**json.loads(json.dumps(card)), "storage": {**card.get("storage", {}), "bits": 8}}
        assert {name: again[name] for name in stored} == stored
        assert again["created"].startswith("20")
        counted = [path for path in (tmp_path / "model").iterdir() if path.name not in ("config.json", "README.md")]
        assert again["size_bytes"] == sum(path.stat().st_size for path in counted)

    @pytest.mark.parametrize("k", [2.5, True, "3", None])
    def test_k_is_a_whole_number(self, model, test_part, k):
        with pytest.raises(OptionError, match="expected a whole number"):
            model.predict(inputs_of(test_part, 1), k=k)
        with pytest.raises(OptionError, match="expected a whole number"):
            model.predict_dataset(test_part, k=k)

    def test_k_is_at_least_1(self, model, test_part):
        with pytest.raises(OptionError, match="at least one label"):
            model.predict(inputs_of(test_part, 1), k=0)

    def test_no_inputs_no_predictions(self, model, test_part):
        assert model.predict(inputs_of(test_part)[:0]) == []
