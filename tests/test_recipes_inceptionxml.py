"""InceptionXML and InceptionXML+: defaults that follow from the data, what the options do, and what is refused."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from safetensors.numpy import load_file
from tests.model_files import change_arrays

import shortlist
from shortlist.arrays import Ragged
from shortlist.errors import ModelError
from shortlist.recipes.inceptionxml import INCEPTIONXML, INCEPTIONXML_PLUS
from shortlist.recipes.options import resolve
from shortlist.training.data import TrainingData

pytest.importorskip("torch")

SMALL = {
    "n_epochs": 3,
    "embedding_dim": 64,
    "channels": 8,
    "batch_size": 16,
    "dropout": 0.1,
    "threads": 1,
    "validation_fraction": 0.0,
}

PUBLISHED = {"n_epochs": 15, "learning_rate": 0.01}


def colours(n_texts: int = 200, seed: int = 0) -> shortlist.Dataset:
    """The label follows from the colour, whatever the other words."""
    rng = np.random.default_rng(seed)
    names = ["red", "green", "blue", "yellow", "black", "white"]
    rows = []
    for _ in range(n_texts):
        colour = names[rng.integers(len(names))]
        rows.append((f"{colour} thing{rng.integers(20)} of{rng.integers(9)}", [f"code {colour}"]))
    return shortlist.read(rows)


def resolved(recipe, n_texts, n_labels, **given):
    return resolve(recipe.name, recipe.options, given, n_texts, n_labels)


class TestDefaults:
    def test_fewer_texts_get_more_epochs_and_dropout(self):
        few, many = (resolved(INCEPTIONXML, n_texts, 1000) for n_texts in (5_000, 1_000_000))
        assert few.n_epochs > many.n_epochs >= 5
        assert few.dropout > many.dropout
        assert few.batch_size < many.batch_size
        assert round(many.validation_fraction * 1_000_000) == 5000

    def test_clusters_and_candidates_follow_from_the_labels(self):
        for n_labels in (1, 10, 735, 134_502, 2_812_281):
            options = resolved(INCEPTIONXML_PLUS, 10_000, n_labels)
            assert 1 <= options.n_clusters_searched <= options.n_clusters <= n_labels
        assert options.n_clusters_searched * n_labels / options.n_clusters == pytest.approx(1600, rel=0.02)

    def test_given_values_stay_and_others_follow_from_them(self):
        given = {"n_epochs": 7, "n_clusters": 50, "dropout": 0.0, "validation_fraction": 0.0}
        options = resolved(INCEPTIONXML_PLUS, 10_000, 1000, **given)
        assert {name: getattr(options, name) for name in given} == given
        assert options.n_clusters_searched == 50


class TestPublished:
    @pytest.mark.parametrize(
        ("n_texts", "n_labels", "n_epochs", "batch_size", "n_clusters", "vocabulary"),
        [
            (485_176, 670_091, 35, 256, 65_536, 66_666),
            (629_418, 352_072, 30, 256, 32_768, 91_414),
            (1_699_722, 501_070, 27, 256, 32_768, 185_479),
            (1_712_536, 2_812_281, 35, 128, 131_072, 165_431),
        ],
        ids=["AmazonTitles-670K", "WikiSeeAlsoTitles-350K", "WikiTitles-500K", "AmazonTitles-3M"],
    )
    def test_data_sets_of_the_paper_get_the_values_of_its_tables(
        self, n_texts, n_labels, n_epochs, batch_size, n_clusters, vocabulary
    ):
        plus = resolved(INCEPTIONXML_PLUS.as_published(), n_texts, n_labels)
        assert (plus.n_epochs, plus.batch_size, plus.learning_rate) == (n_epochs, batch_size, 0.008)
        assert (plus.n_clusters, plus.n_clusters_searched, plus.max_vocabulary) == (n_clusters, 800, vocabulary)
        unscaled = resolved(INCEPTIONXML.as_published(), n_texts, n_labels)
        assert (unscaled.n_epochs, unscaled.batch_size, unscaled.learning_rate) == (42, 128, 0.005)

    def test_small_data_have_no_more_clusters_than_labels(self):
        for n_labels in (1, 7, 10, 39, 735):
            options = resolved(INCEPTIONXML_PLUS.as_published(), 100, n_labels)
            assert 1 <= options.n_clusters_searched <= options.n_clusters <= max(n_labels // 10, 1)

    def test_word_vectors_are_as_given_or_random(self):
        recipe = INCEPTIONXML.as_published()
        assert resolved(recipe, 100, 7, vectors="glove.txt").vector_init == "given"
        assert resolved(recipe, 100, 7).vector_init == "random"

    def test_the_variant_decides_blocks_detaching_and_ranking(self):
        for recipe in (INCEPTIONXML_PLUS, INCEPTIONXML_PLUS.as_published()):
            values = [resolved(recipe, 100, 70, variant=variant) for variant in ("syncxml", "lightxml")]
            assert [(o.block, o.detach_fraction, o.ranking) for o in values] == [
                ("residual", 0.25, "logits"),
                ("none", 0.0, "product"),
            ]
            assert resolved(recipe, 100, 70, variant="lightxml", block="residual").block == "residual"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("recipe", "options"),
    [
        ("inceptionxml@published", PUBLISHED),
        ("inceptionxml+@published", {**PUBLISHED, "n_clusters": 3, "n_clusters_searched": 2}),
        ("inceptionxml+@published", {**PUBLISHED, "n_clusters": 3, "n_clusters_searched": 2, "variant": "lightxml"}),
        ("inceptionxml-deepxml@published", {"n_epochs": 10, "n_surrogate_epochs": 12}),
        ("xml-cnn@published", {"n_epochs": 10, "channels": 16, "max_words": 40, "n_chunks": 4}),
        ("inceptionxml", {"attention": False}),
        ("inceptionxml", {"bag": False, "shuffle_words": False, "n_epochs": 12, "learning_rate": 0.01}),
        ("inceptionxml+", {"n_clusters": 3, "n_clusters_searched": 1, "detach_fraction": 0.0}),
        ("inceptionxml+", {"n_clusters": 3, "n_clusters_searched": 2, "variant": "lightxml"}),
        ("inceptionxml", {"embedding_dim": 101, "channels": 9, "max_words": 2}),
    ],
    ids=[
        *("published", "published +", "published lightxml", "published deepxml", "published cnn"),
        *("no attention", "no bag", "not detached", "lightxml", "other sizes"),
    ],
)
def test_every_variant_learns_and_is_saved(recipe, options, tmp_path):
    model = shortlist.train(colours(), recipe=recipe, **{**SMALL, "n_epochs": 6, **options})
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

    def test_display_names_are_learnt_from(self):
        data = shortlist.read(self.rows)
        data.display_names = {"x3": "velvet"}
        with_names, without = (
            shortlist.train(data, recipe="inceptionxml", **{**SMALL, "n_epochs": 30, "label_texts": use})
            for use in (True, False)
        )
        scores = [{p.label: p.score for p in model.predict("velvet lamp", k=3)} for model in (with_names, without)]
        assert scores[0]["x3"] > 2 * scores[1]["x3"]

    def test_codes_are_not(self, caplog):
        with caplog.at_level("INFO", "shortlist"):
            shortlist.train(shortlist.read(self.rows), recipe="inceptionxml", **SMALL)
        assert not [line for line in caplog.messages if "names" in line]


def test_word_vectors_from_a_file(tmp_path, caplog):
    path = tmp_path / "vectors.txt"
    rng = np.random.default_rng(0)
    path.write_text("".join(f"{word} {' '.join(map(str, rng.normal(size=70)))}\n" for word in ("red", "green")))
    with caplog.at_level("INFO", "shortlist"):
        model = shortlist.train(colours(50), recipe="inceptionxml", **{**SMALL, "vectors": str(path), "n_epochs": 1})
    assert any("has vectors for" in line for line in caplog.messages)
    assert model.pipelines[0].encoder.arrays()["words"].shape[1] == 70


@pytest.mark.parametrize("recipe", ["astec", "inceptionxml", "xml-cnn", "mach"])
def test_how_word_vectors_start(recipe):
    from shortlist.training.networks import new_network

    data = shortlist.read([("red hat", ["a"]), ("red shoe", ["b"]), ("blue shoe", ["b"])])
    starts = {}
    for how in ("scaled", "given", "random"):
        recipe = shortlist.get_recipe(recipe) if isinstance(recipe, str) else recipe
        options = resolved(recipe, 3, 2, vector_init=how, embedding_dim=64, validation_fraction=0.0, threads=1)
        training_data = TrainingData(data, options)
        network = new_network(recipe, training_data, options).module
        starts[how] = network.arrays()["words"].copy()
        if how == "given":
            order = network.arrays()["buckets"] if recipe.name == "mach" else slice(None)
            assert np.array_equal(starts[how][order], training_data.word_vectors())
    assert 0.2 < np.abs(starts["random"]).max() <= 0.25
    assert not np.allclose(starts["given"], starts["scaled"])


def test_dimensions_can_be_permuted():
    from shortlist.training.networks import new_inception

    vectors = np.random.default_rng(0).normal(size=(5, 64)).astype(np.float32)
    data = SimpleNamespace(idf=np.ones(5), word_ids=Ragged.from_lists([[0, 1]]))
    as_given, permuted, other = (
        new_inception(data, resolved(INCEPTIONXML, 10, 5, dimension_permutation=seed), vectors.copy())
        .words.weight[:-1]
        .detach()
        .numpy()
        for seed in (0, 3, 4)
    )
    assert (as_given == vectors).all()
    order = [int(np.flatnonzero(vectors[0] == value)[0]) for value in permuted[0]]
    assert sorted(order) == list(range(64)) != order
    assert (permuted == vectors[:, order]).all()
    assert (permuted != other).any()


@pytest.mark.slow
def test_training_curves_are_saved_with_the_model(tmp_path):
    options = {**SMALL, "validation_fraction": 0.2}
    shortlist.train(colours(), recipe="inceptionxml+", **options).save(tmp_path / "model")
    records = [json.loads(line) for line in (tmp_path / "model" / "metrics.jsonl").read_text().splitlines()]
    assert [record["epoch"] for record in records] == [1, 2, 3]
    assert {"loss", "meta_loss", "meta_recall", "meta_P@1", "P@1", "P@5", "PSP@1", "N@5"} <= set(records[0])
    assert shortlist.load(tmp_path / "model").records == records


@pytest.mark.slow
def test_prediction_needs_no_torch(tmp_path):
    model = shortlist.train(colours(60), recipe="inceptionxml+", **SMALL)
    model.save(tmp_path / "model")
    code = f"""
import sys
sys.modules["torch"] = None  # importing it fails from here on
import shortlist
print(shortlist.load({str(tmp_path / "model")!r}).predict("red thing3", k=1)[0].label)
"""
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.strip() == model.predict("red thing3", k=1)[0].label


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("inceptionxml+") / "model"
    shortlist.train(colours(40), recipe="inceptionxml+", **{**SMALL, "n_epochs": 1}).save(folder)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(
    ("stage", "name"),
    [
        ("classifier", "weights"),
        ("classifier", "order"),
        ("encoder", "words"),
        ("encoder", "project"),
        ("candidates", "meta.biases"),
        ("candidates", "starts"),
        ("candidates", "cluster_of_label"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(saved, stage, name, tmp_path):
    folder = shutil.copytree(saved, tmp_path / "model")
    array = load_file(folder / f"{stage}.safetensors")[name]
    change_arrays(folder, stage, **{name: array[:-1].copy()})
    with pytest.raises(ModelError, match="damaged"):
        shortlist.load(folder)
