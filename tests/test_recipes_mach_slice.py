"""What is particular to MACH and Slice: buckets of labels, and features instead of texts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from safetensors.numpy import load_file
from scipy import sparse
from scipy.special import expit
from tests.model_files import change_arrays

import shortlist
from shortlist.arrays import Ragged
from shortlist.data.dataset import Dataset
from shortlist.errors import DataError, ModelError, OptionError
from shortlist.recipes.mach import MACH
from shortlist.recipes.options import resolve
from shortlist.stages.candidates import Candidates
from shortlist.stages.classifier import BucketClassifier, bucket_arrays
from shortlist.stages.encoders import BagEncoder, ParallelEncoders
from shortlist.text.texts import Texts

torch = pytest.importorskip("torch")

from shortlist.training.plain import PlainLearner  # noqa: E402

QUICK = {"n_epochs": 2, "embedding_dim": 16, "batch_size": 16, "dropout": 0.1, "threads": 1}


def things(n_texts: int = 120, seed: int = 0) -> Dataset:
    """One label for each of 10 things, and texts that name one of them."""
    rng = np.random.default_rng(seed)
    rows = [(int(thing), f"thing{thing} of{rng.integers(9)}") for thing in rng.integers(10, size=n_texts)]
    return shortlist.read([(text, [f"label {thing}"]) for thing, text in rows])


def points(n_points: int = 300, n_columns: int = 12, seed: int = 0) -> Dataset:
    """Features instead of texts: points around one of 10 places. The place is the label; odd places have another."""
    rng = np.random.default_rng(seed)
    places = np.random.default_rng(99).normal(size=(10, n_columns))
    own = rng.integers(10, size=n_points)
    features = (places[own] + 0.2 * rng.normal(size=(n_points, n_columns))).astype(np.float32)
    labels = Ragged.from_lists([[int(place), 10] if place % 2 else [int(place)] for place in own])
    names = [f"place {place}" for place in range(10)] + ["odd"]
    return Dataset(Texts.from_strings([""] * n_points), labels, names, features=features)


def fail_in_steps(monkeypatch, *numbers):
    """Raise RuntimeError("killed") in these steps of training, counted from 1 over all trainings."""
    step, taken = PlainLearner.step, []

    def step_or_fail(learner, *arguments, **options):
        taken.append(1)
        if len(taken) in numbers:
            raise RuntimeError("killed")
        return step(learner, *arguments, **options)

    monkeypatch.setattr(PlainLearner, "step", step_or_fail)


def assert_same_files(folder, expected):
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {
        path.name: path.read_bytes() for path in expected.iterdir()
    }


class TestMach:
    def test_buckets_follow_from_the_labels(self):
        for n_labels in (1, 10, 256, 257, 131_000, 2_812_281):
            n_buckets = resolve("mach", MACH.options, {}, 10_000, n_labels).n_buckets
            assert 1 <= n_buckets <= n_labels
            assert n_buckets == n_labels or n_buckets == pytest.approx(16 * n_labels**0.5, rel=0.01)
        assert resolve("mach", MACH.options, {"n_buckets": 7}, 10_000, 1000).n_buckets == 7

    def test_a_score_is_the_mean_probability_of_the_buckets(self, monkeypatch):
        monkeypatch.setattr("shortlist.stages.classifier.LABELS_PER_BLOCK", 7)
        rng = np.random.default_rng(0)
        buckets = rng.integers(5, size=(3, 20)).astype(np.int32)
        encoders, layers = [], []
        for _ in range(3):
            arrays = {"words": rng.normal(size=(4, 6)), "idf": np.ones(9), "biases": rng.normal(size=6)}
            arrays = {name: array.astype(np.float32) for name, array in arrays.items()}
            arrays["buckets"] = (rng.permutation(9) % 4).astype(np.int32)
            encoders.append(BagEncoder.from_arrays(arrays, {"max_words": 32, "relu": True}, n_words=9))
            layer = {"weights": rng.normal(size=(5, 6)), "biases": rng.normal(size=5)}
            layers.append({name: array.astype(np.float32) for name, array in layer.items()})
        texts = Ragged.from_lists([[1, 2], [], [8], [0, 0, 3], [4]])
        means = np.zeros((5, 20))
        for encoder, layer, own in zip(encoders, layers, buckets, strict=True):
            means += expit(encoder.encode(texts) @ layer["weights"].T + layer["biases"])[:, own] / 3
        features = ParallelEncoders(encoders).encode(texts)
        classifier = BucketClassifier.from_arrays(bucket_arrays(layers, buckets), {}, n_labels=20)
        ids, scores = classifier.best(features, Candidates(), 6)
        order = np.argsort(-means, axis=1, kind="stable")[:, :6]
        np.testing.assert_allclose(scores, np.take_along_axis(means, order, axis=1), rtol=1e-5)
        np.testing.assert_allclose(np.take_along_axis(means, ids, axis=1), scores, rtol=1e-5)
        np.testing.assert_allclose(classifier.scores(features, ids, ()), scores, rtol=1e-5)
        assert classifier.best(features, Candidates(), 50)[0].shape == (5, 20)

    @pytest.mark.slow
    def test_resumed_it_ends_in_the_same_model_and_starting_over_is_refused(self, tmp_path, monkeypatch):
        options = {**QUICK, "n_repetitions": 3, "n_buckets": 4, "validation_fraction": 0.1}
        shortlist.train(things(), recipe="mach", **options).save(tmp_path / "uninterrupted")
        options |= {"checkpoint_dir": str(tmp_path / "checkpoints"), "checkpoint_minutes": 0.0}
        fail_in_steps(monkeypatch, 3, 20)  # in the first repetition, and in the second
        with pytest.raises(RuntimeError, match="killed"):
            shortlist.train(things(), recipe="mach", **options)
        with pytest.raises(DataError, match="repetition-1 holds an interrupted training"):
            shortlist.train(things(), recipe="mach", **options)
        with pytest.raises(RuntimeError, match="killed"):
            shortlist.train(things(), recipe="mach", **options, resume=True)
        folders = sorted(path.name for path in (tmp_path / "checkpoints").iterdir() if path.name != "tensorboard")
        assert folders == ["repetition-1", "repetition-2"]
        with pytest.raises(DataError, match=r"had learning_rate = 0\.004, this one has 0\.1"):
            shortlist.train(things(), recipe="mach", **options, resume=True, learning_rate=0.1)
        options["checkpoint_minutes"] = 10.0
        shortlist.train(things(), recipe="mach", **options, resume=True).save(tmp_path / "resumed")
        assert_same_files(tmp_path / "resumed", tmp_path / "uninterrupted")

    @pytest.mark.slow
    def test_damaged_models_are_refused(self, tmp_path):
        options = {**QUICK, "n_epochs": 1, "n_repetitions": 2, "n_buckets": 4}
        folder = tmp_path / "model"
        shortlist.train(things(), recipe="mach", **options).save(folder)
        buckets = load_file(folder / "classifier.safetensors")["buckets"]
        for changed, message in (
            (buckets + 1, "'buckets' has a value of 4"),
            (buckets - 1, "'buckets' has a value of -1"),
            (buckets[:, 1:].copy(), "'buckets' has shape"),
            (buckets.astype(np.float32), "'buckets' is float32"),
            (np.zeros((3, 10), np.int32), "'2.weights' is missing"),
            (np.zeros((1, 10), np.int32), "'1.biases' is not part of this stage"),
            (np.zeros((0, 10), np.int32), "is damaged"),
        ):
            change_arrays(folder, "classifier", buckets=changed)
            with pytest.raises(ModelError, match=message):
                shortlist.load(folder)
        change_arrays(folder, "classifier", buckets=buckets)
        shortlist.load(folder)
        word_buckets = load_file(folder / "encoder.safetensors")["1.buckets"]
        change_arrays(folder, "encoder", **{"1.buckets": word_buckets + 99})
        with pytest.raises(ModelError, match="'buckets' has a value of"):
            shortlist.load(folder)


SMALL = {"n_epochs": 6, "batch_size": 16, "dropout": 0.1, "threads": 1}


@pytest.fixture(scope="module")
def model():
    return shortlist.train(points(), recipe="slice", **SMALL)


@pytest.mark.slow
class TestSliceOnFeatures:
    def test_learns(self, model):
        test = points(100, seed=1)
        assert shortlist.evaluate(model.predict_dataset(test), test, k=(1,))["P@1"] >= 95
        predictions = model.predict(test.features[:3], k=2)
        assert [len(row) for row in predictions] == [2, 2, 2]
        assert predictions[0][0].label.startswith(("place", "odd"))
        assert model.pipelines[0].reranker is None
        assert model.vocabulary is None
        assert model.tokenizer is None
        assert model.predict(test.features[:0]) == []

    def test_save_and_load_change_nothing(self, model, tmp_path):
        model.save(tmp_path / "model", bits=32)
        features = points(20, seed=2).features
        assert shortlist.load(tmp_path / "model").predict(features) == model.predict(features)
        model.save(tmp_path / "small")
        before, after = model.predict(features, k=1), shortlist.load(tmp_path / "small").predict(features, k=1)
        assert [row[0].label for row in after] == [row[0].label for row in before]

    def test_sparse_features_and_other_units_give_the_same_model(self, model):
        data, test = points(), points(20, seed=3)
        for matrix in (sparse.csr_array, sparse.coo_array):
            again = shortlist.train(replace(data, features=matrix(data.features)), recipe="slice", **SMALL)
            assert again.predict(matrix(test.features)) == model.predict(test.features)
        scaled = shortlist.train(replace(data, features=4096 * data.features), recipe="slice", **SMALL)
        assert [row[0].label for row in scaled.predict(4096 * test.features)] == [
            row[0].label for row in model.predict(test.features)
        ]

    def test_inputs_that_do_not_fit_are_refused(self, model):
        with pytest.raises(OptionError, match="trained on features; give it a matrix"):
            model.predict("a text")
        with pytest.raises(OptionError, match="trained on features; give it a matrix"):
            model.predict_dataset(things(3))
        with pytest.raises(OptionError, match="takes 12 features; the matrix has 13"):
            model.predict(np.zeros((2, 13)))
        with pytest.raises(DataError, match="row 1 of the features contains NaN or infinity"):
            model.predict(np.asarray([[0.0] * 12, [np.nan] * 12]))
        of_texts = shortlist.train(things(), recipe="slice", **{**QUICK, "n_epochs": 1})
        with pytest.raises(OptionError, match="trained on texts; it got a matrix"):
            of_texts.predict_dataset(points(3))
        assert of_texts.options["reranker"] == "words"  # there are words to re-rank by

    def test_resumed_it_ends_in_the_same_model(self, model, tmp_path, monkeypatch):
        options = {**SMALL, "checkpoint_dir": str(tmp_path / "checkpoints"), "checkpoint_minutes": 0.0}
        fail_in_steps(monkeypatch, 10)
        with pytest.raises(RuntimeError, match="killed"):
            shortlist.train(points(), recipe="slice", **options)
        other = points()
        other.features = other.features + np.float32(1)
        with pytest.raises(DataError, match="had data = "):
            shortlist.train(other, recipe="slice", **options, resume=True)
        options["checkpoint_minutes"] = 10.0
        shortlist.train(points(), recipe="slice", **options, resume=True).save(tmp_path / "resumed")
        model.save(tmp_path / "uninterrupted")
        assert_same_files(tmp_path / "resumed", tmp_path / "uninterrupted")


@pytest.mark.parametrize(
    ("features", "options", "error", "message"),
    [
        (np.zeros((20, 300_000)), {}, OptionError, r"20 × 300,000: reduce it to some hundred columns \(SVD\), or, if"),
        (np.full((20, 3), np.nan), {}, DataError, "row 0 of the features contains NaN or infinity"),
        (np.zeros((19, 3)), {}, DataError, r"\(19, 3\); expected a matrix with 20 rows"),
        (np.zeros((20, 0)), {}, DataError, r"\(20, 0\); expected a matrix"),
        (np.zeros(20), {}, DataError, r"\(20,\); expected a matrix"),
        (np.asarray([["a"]] * 20), {}, DataError, "expected a matrix of numbers"),
        (np.zeros((20, 3)), {"surrogate": "clusters"}, OptionError, "surrogate is 'clusters': it is for words"),
        (np.zeros((20, 3)), {"reranker": True}, OptionError, "are for words"),
        (np.zeros((20, 3)), {"vectors": __file__}, OptionError, "are for words"),
    ],
    ids=["wide", "nan", "rows", "no columns", "no matrix", "words", "surrogate", "reranker", "vectors"],
)
def test_features_that_slice_cannot_learn_from(features, options, error, message):
    data = points(20)
    data.features = features
    with pytest.raises(error, match=message):
        shortlist.train(data, recipe="slice", threads=1, **options)
