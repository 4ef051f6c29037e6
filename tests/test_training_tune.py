"""The last steps of training, on held-out texts: search effort, calibration, the cost of 8 bits, the model card."""

from __future__ import annotations

import json
import logging
from types import SimpleNamespace

import numpy as np
import pytest

import shortlist
from shortlist.arrays import Ragged
from shortlist.stages.candidates.cells import CellIndex
from shortlist.training import tune as tune_module
from shortlist.training.calibrate import ANY_SCORES
from shortlist.training.tune import calibrate, cost_of_8_bits
from tiny_models import colours, model_over_features


@pytest.fixture
def over_features():
    return model_over_features()


def build_of(model, queries, labels):
    """The state of training that tuning reads: held-out rows of features, each with one label."""
    data = SimpleNamespace(
        held_out=np.arange(len(queries)),
        held_out_raw=queries,
        held_out_inputs=queries,
        held_out_labels=Ragged(np.arange(len(queries) + 1), np.asarray(labels, np.int32)),
        n_labels=model.n_labels,
    )
    return SimpleNamespace(data=data)


class TestCostOf8Bits:
    def test_is_p_at_1_of_both(self, over_features, caplog):
        model, queries = over_features
        best = model.rank(queries, 1)[0].ravel()
        with caplog.at_level(logging.WARNING, "shortlist"):
            facts = cost_of_8_bits(model, build_of(model, queries, best))
        in_8_bits = model.quantized().rank(queries, 1)[0].ravel()
        stored = round(100 * float((in_8_bits == best).mean()), 2)
        assert facts == {"P@1_as_learnt": 100.0, "P@1_as_stored": stored, "held_out_texts": 100}

    def test_a_loss_that_matters_is_a_warning(self, over_features, caplog, monkeypatch):
        model, queries = over_features
        monkeypatch.setattr(tune_module, "MAX_8_BIT_LOSS", -1.0)
        with caplog.at_level(logging.WARNING, "shortlist"):
            cost_of_8_bits(model, build_of(model, queries, model.rank(queries, 1)[0].ravel()))
        assert any("bits=32" in line for line in caplog.messages)


def test_calibration_leaves_out_missing_labels(over_features):
    model, queries = over_features
    ids, scores = np.tile(np.array([[1, 2, -1]], np.int32), (100, 1)), np.tile([[0.9, 0.5, 0.0]], (100, 1))
    calibration, facts = calibrate(ids, scores, np.ones(100), build_of(model, queries, np.full(100, 1)), ANY_SCORES)
    assert sum(row["labels"] for row in facts["table"]) == 200
    assert facts["method"] == ("none" if calibration is None else calibration.method)


SMALL = {
    "n_epochs": 4,
    "n_surrogate_epochs": 4,
    "embedding_dim": 32,
    "batch_size": 32,
    "dropout": 0.2,
    "threads": 1,
    "validation_fraction": 0.2,
}


def noisy_topics():
    rng = np.random.default_rng(0)
    rows = []
    for topic in rng.integers(60, size=900).tolist():
        label = topic if rng.random() < 0.7 else int(rng.integers(60))
        rows.append((f"t{topic}w{rng.integers(4)} n{rng.integers(30)}", [f"label {label}"]))
    return shortlist.read(rows)


@pytest.fixture(scope="module")
def trained():
    """Astec with several cells, and held-out pairs enough for a calibration."""
    pytest.importorskip("torch")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("shortlist.stages.candidates.cells.ONE_CELL_UP_TO", 16)
        return shortlist.train(noisy_topics(), "astec", **SMALL, store_examples=True)


def known_by_heart(model):
    """P@1 on the texts that the model was trained on."""
    data = noisy_topics()
    return (model.rank(data.texts, 1)[0].ravel() == data.labels.values).mean()


@pytest.mark.slow
class TestTrained:
    def test_the_card_says_what_held_out_texts_showed(self, trained):
        card = trained.card
        data = card["data"]
        assert {name: data[name] for name in ("texts", "labels", "pairs")} == {"texts": 900, "labels": 60, "pairs": 900}
        assert 150 < data["held_out_texts"] <= 180
        assert {"P@1", "P@3", "P@5", "N@5", "PSP@1"} <= set(card["scores"])
        assert 50 < card["scores"]["P@1"] <= 100
        assert 1 <= len(card["examples"]) <= 8
        assert all(text.startswith("t") for text in card["examples"])
        assert card["n_words"] == len(trained.vocabulary)
        assert json.loads(json.dumps(card)) == card

    def test_as_much_is_searched_as_p_at_1_needs(self, trained):
        facts, stage = trained.card["search_effort"], trained.pipelines[0].candidates
        assert facts["of"] == stage.max_searched > 1
        assert facts["searched"] == stage.n_searched <= facts["of"]
        curve = facts["curve"]
        assert curve[0]["searched"] == facts["of"]
        assert [after["searched"] for after in curve[1:]] == [int(0.7 * before["searched"]) for before in curve[:-1]]
        reached = next(point for point in curve if point["searched"] == facts["searched"])
        assert reached["P@1"] >= curve[0]["P@1"] - facts["allowed_loss"] - 0.01

    def test_the_best_calibration_is_used(self, trained):
        facts = trained.card["calibration"]
        assert set(facts["errors"]) == {"none", "logistic", "isotonic"}
        method = "none" if trained.calibration is None else trained.calibration.method
        assert facts["method"] == method
        assert sum(row["labels"] for row in facts["table"]) > 200
        assert all(row["from"] <= row["mean_score"] <= row["to"] for row in facts["table"])

    def test_no_text_is_stored_unless_asked_for(self, tmp_path):
        model = shortlist.train(colours(), "astec", **SMALL)
        assert "examples" not in model.card
        model.save(tmp_path / "model")
        assert "zeug" not in (tmp_path / "model" / "card.json").read_text()
        assert "data" in shortlist.load(tmp_path / "model").card

    def test_without_held_out_texts_the_card_says_little(self, tmp_path):
        model = shortlist.train(colours(100), "astec", **{**SMALL, "validation_fraction": 0.0})
        assert model.calibration is None
        assert set(model.facts) == {"data"}
        model.save(tmp_path / "model")
        assert shortlist.load(tmp_path / "model").card["storage"] == {"bits": 8}

    def test_save_and_load_change_nothing(self, trained, tmp_path):
        trained.save(tmp_path / "model")
        again = shortlist.load(tmp_path / "model")
        assert again.pipelines[0].candidates.n_searched == trained.pipelines[0].candidates.n_searched
        if trained.calibration is not None:
            assert again.calibration.config() == trained.calibration.config()
            for name, array in trained.calibration.arrays().items():
                assert np.array_equal(again.calibration.arrays()[name], array)
        storage = again.card["storage"]
        assert storage == {**trained.card["storage"], "bits": 8}
        assert set(storage) == {"bits", "P@1_as_learnt", "P@1_as_stored", "held_out_texts"}
        assert abs(storage["P@1_as_learnt"] - storage["P@1_as_stored"]) < 3
        # Three in ten labels are random: only a model that knows these texts by heart would be right about all.
        assert storage["P@1_as_learnt"] < 90 < 100 * known_by_heart(trained)
        for name in trained.card.keys() - {"storage"}:
            assert again.card[name] == trained.card[name]

    def test_more_search_effort_searches_more_cells(self, trained, monkeypatch):
        asked, search = [], CellIndex.search

        def search_and_note(index, queries, k, n_cells, **options):
            asked.append(n_cells)
            return search(index, queries, k, n_cells, **options)

        monkeypatch.setattr(CellIndex, "search", search_and_note)
        for search_effort in (1, 2, 0.5):
            trained.predict("t3w1", search_effort=search_effort)
        n_searched = trained.pipelines[0].candidates.n_searched
        assert asked == [n_searched, 2 * n_searched, max(1, round(n_searched / 2))]

    def test_warm_up_changes_nothing(self, trained):
        texts = trained.card["examples"]
        before = trained.predict(texts)
        trained.warm_up()
        assert trained.predict(texts) == before


@pytest.fixture(scope="module")
def ensemble():
    pytest.importorskip("torch")
    return shortlist.train(colours(), "astec", ensemble=2, **SMALL)


@pytest.mark.slow
class TestEnsemble:
    def test_explains(self, ensemble):
        text = "ding1 grün zeug2"
        best = ensemble.predict(text, k=1, explain=True)[0]
        assert best.label == "code grün"
        effect = max(best.words, key=lambda effect: effect.moved)
        assert (text[effect.start : effect.end], effect.moved > 0) == ("grün", True)

    def test_min_score_and_search_effort(self, ensemble):
        assert ensemble.predict("ding1 grün", min_score=1) in ([], ensemble.predict("ding1 grün", k=1))
        assert ensemble.predict("ding1 grün", k=1, search_effort=2)[0].label == "code grün"

    def test_its_card_knows_the_data_and_its_members_are_those_trained_alone(self, ensemble, tmp_path):
        alone = shortlist.train(colours(), "astec", **SMALL)
        assert ensemble.card["data"] == alone.card["data"]
        for stage in ("encoder", "candidates", "classifier", "reranker"):
            found, expected = (getattr(model.pipelines[0], stage) for model in (ensemble, alone))
            assert found.config() == expected.config()
            assert all(np.array_equal(array, found.arrays()[name]) for name, array in expected.arrays().items()), stage
        ensemble.save(tmp_path / "model")
        assert shortlist.load(tmp_path / "model").card["data"] == alone.card["data"]
