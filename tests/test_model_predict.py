"""What a model says beside the labels: search effort, calibrated scores, minimum scores, the effect of each word."""

from __future__ import annotations

import random

import numpy as np
import pytest

import shortlist
from model_files import change_config, put_arrays
from shortlist.errors import ModelError, OptionError
from shortlist.model import model as model_module
from shortlist.model.uninformed import RankOptions, limit_scores
from shortlist.stages.allowed import AllowedLabels
from shortlist.stages.blend import Blend
from shortlist.stages.calibration import N_POINTS, Calibration
from shortlist.training.ensemble import combine
from tiny_models import colours, model_over_features


@pytest.fixture(scope="module")
def over_features():
    return model_over_features()


@pytest.fixture
def centroid():
    return shortlist.train(colours(), recipe="centroid")


class TestSearchEffort:
    def test_more_effort_searches_more_cells(self, over_features, monkeypatch):
        model, queries = over_features
        candidates, n_found = model.pipelines[0].candidates, []
        for search_effort, expected in ((1, 8), (2, 16), (0.5, 4), (0.01, 1)):
            monkeypatch.setattr(candidates, "n_searched", 8)
            ids, _ = model.rank(queries, 50, search_effort=search_effort)
            found = candidates.find(queries, expected).ids
            assert np.array_equal(np.sort(ids, axis=1), np.sort(found, axis=1))
            n_found.append((ids >= 0).sum())
        assert n_found[3] < n_found[2] <= n_found[0] <= n_found[1]

    def test_a_little_is_enough_for_the_best_label(self, over_features):
        model, queries = over_features
        everything = model.rank(queries, 1, search_effort=100)[0]
        assert (model.rank(queries, 1)[0] == everything).mean() >= 0.97
        assert (model.rank(queries, 1, search_effort=1e-9)[0] == everything).mean() < 1

    @pytest.mark.parametrize("classifier", [1.0, 0.0, -0.5])
    def test_missing_candidates_come_last_whatever_the_blend(self, over_features, monkeypatch, classifier):
        """One cell has fewer candidates than are asked for; a blend is learnt and may have any sign."""
        model, queries = over_features
        monkeypatch.setattr(model.pipelines[0].candidates, "n_searched", 1)
        monkeypatch.setattr(model.pipelines[0].classifier, "blend", Blend(classifier, 1.0, 0.0, 0.0))
        ids, scores = model.rank(queries, 50)
        assert (ids == -1).any()
        assert (ids[:, 0] >= 0).all()
        assert (np.diff((ids >= 0).astype(int), axis=1) <= 0).all()
        assert not scores[ids < 0].any()

    def test_what_is_searched_is_saved(self, over_features, tmp_path, monkeypatch):
        model, queries = over_features
        monkeypatch.setattr(model.pipelines[0].candidates, "n_searched", 3)
        model.save(tmp_path / "model", bits=32)
        again = shortlist.load(tmp_path / "model")
        assert again.pipelines[0].candidates.n_searched == 3
        assert np.array_equal(again.rank(queries, 20)[0], model.rank(queries, 20)[0])

    @pytest.mark.parametrize("wrong", [0, -1, "8", 2.5, None, [3]])
    def test_a_wrong_number_in_the_config_is_refused(self, over_features, tmp_path, wrong):
        over_features[0].save(tmp_path / "model")

        def damage(config):
            (stage,) = (stage for stage in config["members"][0] if stage["stage"] == "candidates")
            stage["config"]["n_searched"] = wrong

        change_config(tmp_path / "model", damage)
        with pytest.raises(ModelError, match="n_searched is"):
            shortlist.load(tmp_path / "model")

    @pytest.mark.parametrize("wrong", [0, -1, float("nan"), float("inf"), "2", None, True])
    def test_a_wrong_effort_is_refused(self, centroid, wrong):
        with pytest.raises(OptionError, match="search_effort is"):
            centroid.predict("rot", search_effort=wrong)


def test_features_are_predicted_and_not_explained(over_features):
    model, queries = over_features
    assert model.predict(queries[:2], explain=True) == model.predict(queries[:2])


class TestCalibrated:
    CURVE = Calibration.of_curves("isotonic", [[0.8, -0.2, 1, 0]], [np.linspace(0.1, 0.3, N_POINTS)])

    def test_scores_follow_the_curve_and_the_curve_is_saved(self, centroid, tmp_path):
        centroid.calibration = None
        texts = list(colours(20, seed=1).texts)
        ids, before = centroid.rank(texts)
        centroid.calibration = self.CURVE
        after = centroid.rank(texts)
        assert np.array_equal(after[0], ids)
        assert len(np.unique(after[1])) > 5
        np.testing.assert_allclose(after[1], self.CURVE.apply(before, np.ones(20)))
        assert centroid.scores(texts, np.maximum(ids, 0))[ids >= 0] == pytest.approx(after[1][ids >= 0])
        for k in (1, 2, 3):  # scores do not depend on how many are asked for
            few, few_scores = centroid.rank(texts, k)
            assert np.array_equal(few, ids[:, :k]) and np.array_equal(few_scores, after[1][:, :k])
        assert centroid.scores(texts, np.maximum(ids[:, 1:2], 0)) == pytest.approx(after[1][:, 1:2])
        centroid.save(tmp_path / "model")
        again = shortlist.load(tmp_path / "model")
        assert again.calibration.method == "isotonic"
        assert again.predict(texts) == centroid.predict(texts)

    def test_unknown_words_lower_the_scores(self, centroid):
        centroid.calibration = self.CURVE
        known, half, other = (centroid.predict(text, k=1)[0].score for text in ("rot", "rot new", "rot new and newer"))
        assert known > half > other
        assert centroid.known_share(["rot", "rot new", "rot new and newer", ""]).tolist() == [1, 0.5, 0.25, 0]

    def test_features_have_no_unknown_words(self, over_features):
        model, queries = over_features
        assert model.known_share(queries).tolist() == [1] * 100
        before = model.rank(queries)
        model.calibration = self.CURVE
        try:
            ids, scores = model.rank(queries)
        finally:
            model.calibration = None
        assert np.array_equal(ids, before[0])
        assert (np.diff(scores, axis=1) <= 0).all() and scores.max() <= 0.3

    def test_an_ensemble_takes_the_mean_of_its_members_calibrations(self, centroid):
        other = shortlist.train(colours(), recipe="centroid")
        centroid.calibration, other.calibration = self.CURVE, None
        both, texts = combine([centroid, other]), list(colours(20, seed=1).texts)
        ids, before = both.raw_rank(texts, 10)
        np.testing.assert_allclose(before[:, :4], centroid.raw_rank(texts, 4)[1], rtol=1e-6)
        after = both.rank(texts, 4)
        assert np.array_equal(after[0], ids[:, :4])
        expected = (self.CURVE.apply(before, np.ones(20)) + before)[:, :4] / 2
        np.testing.assert_allclose(after[1], expected, atol=1e-3)

    def test_min_score_is_compared_with_calibrated_scores(self, centroid):
        centroid.calibration = self.CURVE
        assert centroid.predict("rot", min_score=0.35) == []
        assert len(centroid.predict("rot", min_score=0.1)) >= 1

    @pytest.mark.parametrize(
        "damage",
        [
            {"weights": None},
            {"curves": None},
            {"curves": np.linspace(0, 2, N_POINTS)[None]},
            {"curves": np.linspace(1, 0, N_POINTS)[None]},
            {"curves": np.zeros((1, N_POINTS - 1))},
            {"curves": np.zeros((2, N_POINTS))},
            {"weights": np.array([[-1.0, 0, 0, 0]])},
            {"weights": np.array([[1, np.inf, 0, 0]])},
            {"weights": np.array([[1, 0, 0, 0]])},
            {"weights": np.zeros(4)},
            {"more": np.zeros(3)},
        ],
        ids=lambda damage: f"{damage!s:.60}",
    )
    def test_a_damaged_curve_is_refused(self, centroid, tmp_path, damage):
        centroid.calibration = self.CURVE
        centroid.save(tmp_path / "model")
        put_arrays(tmp_path / "model", "calibration.safetensors", damage)
        with pytest.raises(ModelError, match="damaged"):
            shortlist.load(tmp_path / "model")

    @pytest.mark.parametrize("damage", [3, {}, {"stage": "calibration"}, {"config": None}], ids=str)
    def test_a_damaged_config_is_refused(self, centroid, tmp_path, damage):
        centroid.calibration = self.CURVE
        centroid.save(tmp_path / "model")
        change_config(tmp_path / "model", lambda config: config.update(calibration=damage))
        with pytest.raises(ModelError, match="damaged"):
            shortlist.load(tmp_path / "model")


class TestExplained:
    def test_the_word_that_decides_moves_the_score_most(self, centroid):
        centroid.calibration = None
        for text, word in (("ding1 rot zeug2", "rot"), ("grün", "grün"), ("—ding3, GRÜN!", "GRÜN")):
            best = centroid.predict(text, k=1, explain=True)[0]
            assert best.label == f"code {word.lower()}"
            effect = max(best.words, key=lambda effect: effect.moved)
            assert text[effect.start : effect.end] == word
            assert effect.moved > 0

    def test_words_have_an_effect_where_the_calibration_is_flat(self, centroid):
        centroid.calibration = Calibration.of_curves("isotonic", [[1, 0, 0, 0]], [np.full(N_POINTS, 0.9)])
        (prediction,) = centroid.predict("ding1 rot zeug2", k=1, explain=True)
        moved = {("ding1 rot zeug2")[effect.start : effect.end]: effect.moved for effect in prediction.words}
        assert moved["rot"] > moved["ding1"]
        assert moved["ding1"] != 0

    def test_texts_without_known_words_and_without_words(self, centroid):
        assert centroid.predict(["", "  ", "unheard of"], explain=True) == [[], [], []]
        assert centroid.predict([], explain=True) == []

    def test_the_first_words_of_a_long_text_are_explained(self, centroid):
        text = " ".join(["rot", *(f"ding{i % 9}" for i in range(200))])
        (prediction,) = centroid.predict(text, k=1, explain=True)
        assert len(prediction.words) == model_module.MAX_EXPLAINED_WORDS
        assert prediction.words[0][:2] == (0, 3)

    def test_with_a_min_score_only_what_is_left_is_explained(self, centroid):
        centroid.calibration = None
        everything = centroid.predict("ding1 rot zeug2", k=4, explain=True)
        min_score = everything[1].score
        assert centroid.predict("ding1 rot zeug2", k=4, min_score=min_score, explain=True) == everything[:2]

    def test_an_effect_is_the_difference_to_the_text_without_the_word(self, centroid):
        centroid.calibration = None
        text = "ding1 rot zeug2"
        (prediction,) = centroid.predict(text, k=1, explain=True)
        label = centroid.label_names.index(prediction.label)
        for start, end, moved in prediction.words:
            both = centroid.scores([text, text[:start] + text[end:]], np.full((2, 1), label)).ravel().astype(float)
            odds = np.log(both / (1 - both))
            assert moved == pytest.approx(odds[0] - odds[1], abs=1e-3)


@pytest.mark.parametrize("text", ["xyzzy", "", "!?"])
def test_a_text_that_says_nothing_gets_no_high_score(text):
    """Its labels are at most as probable as the most frequent one, also among allowed ones."""
    draw, kinds = (
        random.Random(1),
        {"shoes": ["boots", "sandals"], "hats": ["cap", "beanie"], "bags": ["tote", "purse"]},
    )
    rows = []
    for i in range(180):
        kind, colour = draw.choice(list(kinds)), draw.choice(["red", "blue", "green"])
        label = kind if draw.random() < 0.8 else draw.choice(list(kinds))
        rows.append(
            (f"{colour} {draw.choice(kinds[kind])} {draw.choice(['small', 'large', 'new'])} {i}", [label, colour])
        )
    model = shortlist.train(shortlist.read(rows), recipe="astec", seed=0, threads=1)
    most = model.facts["data"]["texts_of_largest_label"] / model.facts["data"]["texts"]
    assert most < 0.5
    for allow in (None, ["red", "hats"]):
        answers = model.predict(text, allow=allow)
        assert answers and max(answer.score for answer in answers) <= most
    ids = np.arange(model.n_labels)[None]
    assert model.scores([text], ids).max() <= most
    assert model.predict("red")[0].score > 0.8


def test_the_empty_text_is_ranked_as_the_others_are(centroid, monkeypatch):
    """Another number of labels or another search effort may find another best label for it."""
    allowed, asked = AllowedLabels(np.ones(centroid.n_labels, bool)), []

    def raw_rank(inputs, *how):
        asked.append((inputs, *how))
        return np.zeros((1, 2), np.int32), np.array([[0.7, 0.1]])

    monkeypatch.setattr(centroid, "raw_rank", raw_rank)
    centroid.facts["data"] = {"texts": 10, "texts_of_largest_label": 2}
    scores, known = np.array([[0.9, 0.1], [0.9, 0.1], [0.9, 0.1]]), np.array([0, 0, 1])
    limited = limit_scores(scores, np.array([0.7, 0.8, 0.7]), known, centroid, RankOptions(500, 0.1, allowed))
    assert limited.tolist() == [[0.2, 0.1], [0.9, 0.1], [0.9, 0.1]]
    assert asked == [([""], 500, 0.1, allowed)]
