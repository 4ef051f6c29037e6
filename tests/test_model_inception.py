"""The recipes `inceptionxml` and `inceptionxml+`: settings from the data, what the options do, what is refused."""

from __future__ import annotations

import json
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from safetensors.numpy import load_file
from shortlist.model.inception import InceptionOptions, InceptionPlusOptions
from tests.test_models import change_arrays

import shortlist
from shortlist.arrays import Ragged
from shortlist.errors import ModelError, OptionError

pytest.importorskip("torch")

from shortlist.model.inception_training import chosen
from shortlist.model.new_encoders import new_inception

SMALL = {"epochs": 3, "dimensions": 64, "batch_size": 16, "dropout": 0.1, "threads": 1, "validation": 0.0}


def colours(n_texts: int = 200, seed: int = 0) -> shortlist.Dataset:
    """A colour's label follows from its word, whatever the other words."""
    rng = np.random.default_rng(seed)
    names = ["red", "green", "blue", "yellow", "black", "white"]
    rows = []
    for _ in range(n_texts):
        colour = names[rng.integers(len(names))]
        rows.append((f"{colour} thing{rng.integers(20)} of{rng.integers(9)}", [f"code {colour}"]))
    return shortlist.read(rows)


class TestSettings:
    def test_few_texts_get_more_epochs_and_dropout(self):
        few, many = (chosen(InceptionOptions(), n_texts, 1000) for n_texts in (5_000, 1_000_000))
        assert few.epochs > many.epochs >= 5
        assert few.dropout > many.dropout
        assert few.batch_size < many.batch_size
        assert round(many.validation * 1_000_000) == 5000

    def test_clusters_and_candidates_follow_from_the_labels(self):
        for n_labels in (1, 10, 735, 134_502, 2_812_281):
            settings = chosen(InceptionPlusOptions(), 10_000, n_labels)
            assert 1 <= settings.top <= settings.clusters <= n_labels
        assert settings.top * n_labels / settings.clusters == pytest.approx(1600, rel=0.02)

    def test_what_is_given_stays(self):
        given = InceptionPlusOptions(epochs=7, clusters=50, dropout=0.0, validation=0.0)
        settings = chosen(given, 10_000, 1000)
        assert (settings.epochs, settings.clusters, settings.dropout, settings.validation) == (7, 50, 0.0, 0.0)
        assert settings.top == 50

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"epochs": 0}, "epochs is 0; it must be at least 1"),
            ({"dropout": 1.0}, "dropout is 1.0; it is a share"),
            ({"detached": -0.1}, "detached is -0.1; it is a share"),
            ({"rate": 0.0}, "rate is 0.0"),
            ({"form": "round"}, "synchronised or lightxml"),
            ({"resume": True}, "resume needs checkpoints"),
            ({"device": "abacus"}, "device 'abacus' cannot be used"),
            ({"dimensions": 20}, "at least 64 dimensions"),
            ({"vectors": "/nowhere/glove.txt"}, "/nowhere/glove.txt"),
        ],
    )
    def test_senseless_options(self, options, message):
        with pytest.raises(shortlist.errors.ShortlistError, match=message):
            shortlist.train(colours(20), recipe="inceptionxml+", **{**SMALL, **options})

    def test_too_little_memory_is_refused_with_numbers_before_the_work(self, monkeypatch):
        monkeypatch.setattr("shortlist.training.memory.free_memory", lambda: 1_000_000)
        monkeypatch.setattr("shortlist.model.prepared.learn_vectors", None)
        with pytest.raises(OptionError, match=r"needs about 0\.\d+ GB .* and 0\.0 GB are free\. Smaller dimensions"):
            shortlist.train(colours(20), recipe="inceptionxml+", **{**SMALL, "dimensions": 600})

    def test_a_matrix_of_features_is_refused(self):
        data = colours(10)
        data.features = np.zeros((10, 3), np.float32)
        with pytest.raises(OptionError, match="learns from texts"):
            shortlist.train(data, recipe="inceptionxml", **SMALL)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("recipe", "options"),
    [
        ("inceptionxml", {"attention": False}),
        ("inceptionxml", {"bag": False, "shuffle": False, "epochs": 12, "rate": 0.01}),
        ("inceptionxml+", {"clusters": 3, "top": 1, "detached": 0.0}),
        ("inceptionxml+", {"clusters": 3, "top": 2, "form": "lightxml"}),
        ("inceptionxml", {"dimensions": 101, "channels": 8, "max_words": 2}),
    ],
    ids=["no attention", "as published", "not detached", "lightxml", "other sizes"],
)
def test_every_form_learns_and_is_saved(recipe, options, tmp_path):
    model = shortlist.train(colours(), recipe=recipe, **{**SMALL, "epochs": 6, **options})
    test = colours(60, seed=1)
    assert shortlist.evaluate(model.predict_dataset(test, k=3), test, k=(1,))["P@1"] >= 90
    model.save(tmp_path / "model", bits=32)
    again = shortlist.load(tmp_path / "model")
    assert again.predict("a green thing") == model.predict("a green thing")
    model.save(tmp_path / "small")
    small = shortlist.load(tmp_path / "small")
    assert shortlist.evaluate(small.predict_dataset(test, k=3), test, k=(1,))["P@1"] >= 90
    scores = [prediction.score for prediction in again.predict("a green thing", k=6)]
    assert all(0 <= score <= 1 for score in scores)


@pytest.mark.slow
class TestLabelNames:
    rows = [(f"thing{i % 7}", ["x1"]) for i in range(40)] + [(f"stuff{i % 7} velvet sofa", ["x2"]) for i in range(40)]
    rows += [("plain", ["x3"])] * 3

    def test_names_are_learnt_from_where_their_words_are_known(self):
        data = shortlist.read(self.rows)
        data.display_names = {"x3": "velvet"}
        with_names, without = (
            shortlist.train(data, recipe="inceptionxml", **{**SMALL, "epochs": 30, "label_texts": use})
            for use in (True, False)
        )
        scores = [{p.label: p.score for p in model.predict("velvet", k=3)} for model in (with_names, without)]
        assert scores[0]["x3"] > 2 * scores[1]["x3"]

    def test_names_of_unknown_words_are_not(self, caplog):
        with caplog.at_level("INFO", "shortlist"):
            shortlist.train(shortlist.read(self.rows), recipe="inceptionxml", **SMALL)
        assert not [line for line in caplog.messages if "names" in line]


def test_word_vectors_from_a_file(tmp_path, caplog):
    path = tmp_path / "vectors.txt"
    rng = np.random.default_rng(0)
    path.write_text("".join(f"{word} {' '.join(map(str, rng.normal(size=70)))}\n" for word in ("red", "green")))
    with caplog.at_level("INFO", "shortlist"):
        model = shortlist.train(colours(50), recipe="inceptionxml", **{**SMALL, "vectors": str(path), "epochs": 1})
    assert any("has vectors for" in line for line in caplog.messages)
    assert model._network.encoder.dimensions == 70


def test_the_order_of_dimensions_can_be_another():
    vectors = np.random.default_rng(0).normal(size=(5, 64)).astype(np.float32)
    prepared = SimpleNamespace(vectors=vectors.copy, idf=np.ones(5), word_ids=Ragged.from_lists([[0, 1]]))
    as_given, permuted, other = (
        new_inception(prepared, InceptionOptions(dimension_order=order)).words.weight[:-1].detach().numpy()
        for order in (0, 3, 4)
    )
    assert (as_given == vectors).all()
    order = [int(np.flatnonzero(vectors[0] == value)[0]) for value in permuted[0]]
    assert sorted(order) == list(range(64)) != order
    assert (permuted == vectors[:, order]).all() and (permuted != other).any()


def test_curves_are_kept_with_the_model(tmp_path):
    data = colours()
    shortlist.train(data, recipe="inceptionxml+", **{**SMALL, "validation": 0.2}).save(tmp_path / "model")
    lines = [json.loads(line) for line in (tmp_path / "model" / "metrics.jsonl").read_text().splitlines()]
    assert [line["epoch"] for line in lines] == [1, 2, 3]
    assert {"loss", "meta_loss", "meta_recall", "meta_P@1", "P@1", "P@5", "PSP@1", "N@5"} <= set(lines[0])
    assert shortlist.load(tmp_path / "model").records == lines


@pytest.mark.slow
def test_prediction_needs_no_torch(tmp_path):
    model = shortlist.train(colours(60), recipe="inceptionxml+", **SMALL)
    model.save(tmp_path / "model")
    code = f"""
import sys
from types import SimpleNamespace
sys.modules["torch"] = None  # importing it now fails
import shortlist
print(shortlist.load({str(tmp_path / "model")!r}).predict("red thing3", k=1)[0].label)
"""
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.strip() == model.predict("red thing3", k=1)[0].label


@pytest.mark.slow
@pytest.mark.parametrize("name", ["extreme.weights", "encoder.words", "meta.biases", "tree.order"])
def test_arrays_that_do_not_fit_are_refused(name, tmp_path):
    shortlist.train(colours(40), recipe="inceptionxml+", **{**SMALL, "epochs": 1}).save(tmp_path / "model")
    array = load_file(tmp_path / "model" / "arrays.safetensors")[name]
    change_arrays(tmp_path / "model", {name: array[:-1].copy()})
    with pytest.raises(ModelError, match="damaged"):
        shortlist.load(tmp_path / "model")
