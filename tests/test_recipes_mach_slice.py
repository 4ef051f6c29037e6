"""What is particular to the published systems beside our own: `mach`, `slice`, and others' encoders in the pipeline."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse
from scipy.special import expit
from tests.test_models import change_arrays

import shortlist
from shortlist.arrays import Ragged
from shortlist.data.dataset import Dataset
from shortlist.data.texts import Texts
from shortlist.errors import DataError, ModelError, OptionError
from shortlist.model.mach import MachOptions, Repetitions

torch = pytest.importorskip("torch")

from shortlist.encoders.mlp import MLPEncoder  # noqa: E402 - needs torch
from shortlist.model.mach_training import chosen  # noqa: E402
from shortlist.training.learner import Learner  # noqa: E402

QUICK = {"epochs": 2, "dimensions": 16, "batch_size": 16, "dropout": 0.1, "threads": 1}


def things(n_texts: int = 120, seed: int = 0) -> Dataset:
    """A label for each of 10 things, and texts that name one among others' words."""
    rng = np.random.default_rng(seed)
    rows = [(int(thing), f"thing{thing} of{rng.integers(9)}") for thing in rng.integers(10, size=n_texts)]
    return shortlist.read([(text, [f"label {thing}"]) for thing, text in rows])


def points(n_points: int = 300, n_columns: int = 12, seed: int = 0) -> Dataset:
    """Numbers instead of texts: points about one of 10 places; the place is the label, and half have another."""
    rng = np.random.default_rng(seed)
    places = np.random.default_rng(99).normal(size=(10, n_columns))
    own = rng.integers(10, size=n_points)
    features = (places[own] + 0.2 * rng.normal(size=(n_points, n_columns))).astype(np.float32)
    labels = Ragged.from_lists([[int(place), 10] if place % 2 else [int(place)] for place in own])
    names = [f"place {place}" for place in range(10)] + ["odd"]
    return Dataset(Texts.from_strings([""] * n_points), labels, names, features=features)


@pytest.mark.parametrize(
    ("recipe", "options", "message"),
    [
        ("inceptionxml-deepxml", {"dimensions": 20}, "at least 64 dimensions"),
        ("inceptionxml-deepxml", {"channels": 0}, "channels is 0"),
        ("xml-cnn", {"chunks": 0}, "chunks is 0"),
        ("xml-cnn", {"attention": True}, "has no option 'attention'"),
        ("deepxml-cnn", {"hidden": 0}, "hidden is 0"),
        ("deepxml-mlp", {"word_buckets": 0}, "word_buckets is 0"),
        ("mach", {"repetitions": 0}, "repetitions is 0"),
        ("mach", {"buckets": -1}, "buckets is -1"),
        ("mach", {"resume": True}, "resume needs checkpoints"),
        ("slice", {"surrogate": "magic"}, "surrogate is 'magic'"),
    ],
)
def test_senseless_options(recipe, options, message):
    with pytest.raises(OptionError, match=message):
        shortlist.train(things(20), recipe=recipe, **{**QUICK, **options})


@pytest.mark.parametrize("recipe", ["inceptionxml-deepxml", "xml-cnn", "deepxml-cnn", "mach", "deepxml-mlp", "slice"])
def test_too_little_memory_is_refused_with_numbers_before_the_work(recipe, monkeypatch):
    monkeypatch.setattr("shortlist.training.memory.free_memory", lambda: 1_000)
    monkeypatch.setattr("shortlist.model.prepared.learn_vectors", None)
    with pytest.raises(OptionError, match=r"training needs about 0\.\d+ GB.* and 0\.0 GB are free\. (Small|Few)er"):
        shortlist.train(things(20), recipe=recipe)


class TestMach:
    def test_buckets_follow_from_the_labels(self):
        for n_labels in (1, 10, 256, 257, 131_000, 2_812_281):
            buckets = chosen(MachOptions(), 10_000, n_labels).buckets
            assert 1 <= buckets <= n_labels
            assert buckets == n_labels or buckets == pytest.approx(16 * n_labels**0.5, rel=0.01)
        assert chosen(MachOptions(buckets=7), 10_000, 1000).buckets == 7

    def test_a_score_is_the_mean_of_the_probabilities_of_the_buckets(self, monkeypatch):
        monkeypatch.setattr("shortlist.model.mach.LABELS_PER_BLOCK", 7)
        monkeypatch.setattr("shortlist.model.mach.TEXTS_PER_BLOCK", 2)
        rng = np.random.default_rng(0)
        arrays = {"buckets": rng.integers(5, size=(3, 20)).astype(np.int32)}
        for repetition in range(3):
            torch.manual_seed(repetition)
            encoder = MLPEncoder(np.ones(9), rng.permutation(9) % 4, 6)
            arrays |= {f"{repetition}.encoder.{name}": array for name, array in encoder.to_arrays().items()}
            arrays[f"{repetition}.extreme.weights"] = rng.normal(size=(5, 6)).astype(np.float32)
            arrays[f"{repetition}.extreme.biases"] = rng.normal(size=5).astype(np.float32)
        texts = Ragged.from_lists([[1, 2], [], [8], [0, 0, 3], [4]])
        network = Repetitions(arrays, 32, 20)
        means = np.zeros((5, 20))
        for encoder, head, buckets in zip(network.encoders, network.heads, arrays["buckets"], strict=True):
            means += expit(head.logits(encoder.encode(texts)))[:, buckets] / 3
        ids, scores = network.rank(texts, 6)
        order = np.argsort(-means, axis=1, kind="stable")[:, :6]
        np.testing.assert_allclose(scores, np.take_along_axis(means, order, axis=1), rtol=1e-5)
        np.testing.assert_allclose(np.take_along_axis(means, ids, axis=1), scores, rtol=1e-5)
        assert network.rank(texts, 50)[0].shape == (5, 20)

    @pytest.mark.slow
    def test_resumed_it_ends_in_the_same_model_and_starting_over_is_refused(self, tmp_path, monkeypatch):
        options = {**QUICK, "repetitions": 3, "buckets": 4, "validation": 0.1}
        shortlist.train(things(), recipe="mach", **options).save(tmp_path / "unbroken")
        options |= {"checkpoints": str(tmp_path / "checkpoints"), "minutes_between_checkpoints": 0.0}
        step, taken = Learner.step, []

        def killed(learner, *arguments):
            taken.append(1)
            if len(taken) in (3, 20):  # in the first repetition, and in the second
                raise RuntimeError("killed")
            return step(learner, *arguments)

        monkeypatch.setattr(Learner, "step", killed)
        with pytest.raises(RuntimeError, match="killed"):
            shortlist.train(things(), recipe="mach", **options)
        with pytest.raises(DataError, match="repetition-1 holds an unfinished training"):
            shortlist.train(things(), recipe="mach", **options)
        with pytest.raises(RuntimeError, match="killed"):
            shortlist.train(things(), recipe="mach", **options, resume=True)
        folders = sorted(path.name for path in (tmp_path / "checkpoints").iterdir() if path.name != "tensorboard")
        assert folders == ["repetition-1", "repetition-2"]
        with pytest.raises(DataError, match=r"had rate = 0\.004, this one has 0\.1"):
            shortlist.train(things(), recipe="mach", **options, resume=True, rate=0.1)
        options["minutes_between_checkpoints"] = 10.0
        shortlist.train(things(), recipe="mach", **options, resume=True).save(tmp_path / "resumed")
        for path in (tmp_path / "unbroken").iterdir():
            assert (tmp_path / "resumed" / path.name).read_bytes() == path.read_bytes(), path.name

    @pytest.mark.slow
    def test_damaged_models_are_refused(self, tmp_path):
        model = shortlist.train(things(), recipe="mach", **{**QUICK, "epochs": 1, "repetitions": 2, "buckets": 4})
        model.save(tmp_path / "model")
        buckets = model._arrays["buckets"]
        for change, message in (
            ({"buckets": buckets + 1}, "buckets beyond the 4 of repetition 0"),
            ({"buckets": buckets - 1}, "buckets beyond the 4 of repetition 0"),
            ({"buckets": buckets[:, 1:]}, "for 10 labels"),
            ({"buckets": buckets.astype(np.float32)}, "for 10 labels"),
            ({"buckets": np.zeros((3, 10), np.int32)}, "is damaged"),
            ({"buckets": np.zeros((0, 10), np.int32)}, "is damaged"),
            ({"buckets": buckets, "1.encoder.buckets": model._arrays["1.encoder.buckets"] + 99}, "beyond"),
        ):
            change_arrays(tmp_path / "model", change)
            with pytest.raises(ModelError, match=message):
                shortlist.load(tmp_path / "model")


SMALL = {"epochs": 6, "batch_size": 16, "dropout": 0.1, "threads": 1}


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
        assert model.reranker is None
        assert not len(model.vocabulary)
        assert model.predict(test.features[:0]) == []

    def test_save_and_load_change_nothing(self, model, tmp_path):
        model.save(tmp_path / "model", bits=32)
        features = points(20, seed=2).features
        assert shortlist.load(tmp_path / "model").predict(features) == model.predict(features)
        model.save(tmp_path / "small")
        before, after = model.predict(features, k=1), shortlist.load(tmp_path / "small").predict(features, k=1)
        assert [row[0].label for row in after] == [row[0].label for row in before]

    def test_sparse_features_in_another_unit_are_the_same_data(self, model):
        data, test = points(), points(20, seed=3)
        for matrix in (sparse.csr_array, sparse.coo_array):
            again = shortlist.train(replace(data, features=matrix(data.features)), recipe="slice", **SMALL)
            assert again.predict(matrix(test.features)) == model.predict(test.features)
        thousandfold = shortlist.train(replace(data, features=4096 * data.features), recipe="slice", **SMALL)
        assert [row[0].label for row in thousandfold.predict(4096 * test.features)] == [
            row[0].label for row in model.predict(test.features)
        ]

    def test_requests_that_make_no_sense(self, model):
        with pytest.raises(OptionError, match="trained on features; give it a matrix"):
            model.predict("a text")
        with pytest.raises(OptionError, match="trained on features; give it a matrix"):
            model.predict_dataset(things(3))
        with pytest.raises(OptionError, match="knows 12 features; the matrix has 13"):
            model.predict(np.zeros((2, 13)))
        with pytest.raises(DataError, match="row 1 of the features holds a value that is not finite"):
            model.predict(np.asarray([[0.0] * 12, [np.nan] * 12]))
        of_texts = shortlist.train(things(), recipe="slice", **{**QUICK, "epochs": 1})
        with pytest.raises(OptionError, match="trained on texts; it got a matrix"):
            of_texts.predict_dataset(points(3))

    def test_resumed_it_ends_in_the_same_model(self, model, tmp_path, monkeypatch):
        options = {**SMALL, "checkpoints": str(tmp_path / "checkpoints"), "minutes_between_checkpoints": 0.0}
        step, taken = Learner.step, []

        def killed(learner, *arguments):
            taken.append(1)
            if len(taken) == 10:
                raise RuntimeError("killed")
            return step(learner, *arguments)

        monkeypatch.setattr(Learner, "step", killed)
        with pytest.raises(RuntimeError, match="killed"):
            shortlist.train(points(), recipe="slice", **options)
        other = points()
        other.features = other.features + np.float32(1)
        with pytest.raises(DataError, match="had data = "):
            shortlist.train(other, recipe="slice", **options, resume=True)
        options["minutes_between_checkpoints"] = 10.0
        shortlist.train(points(), recipe="slice", **options, resume=True).save(tmp_path / "resumed")
        model.save(tmp_path / "unbroken")
        for path in (tmp_path / "unbroken").iterdir():
            assert (tmp_path / "resumed" / path.name).read_bytes() == path.read_bytes(), path.name


def with_features(features) -> Dataset:
    data = points(20)
    data.features = features
    return data


@pytest.mark.parametrize(
    ("features", "options", "error", "message"),
    [
        (sparse.csr_array((20, 3_000_000)), {}, OptionError, r"20 × 3,000,000, and all of it is held, zeros too"),
        (np.full((20, 3), np.nan), {}, DataError, "row 0 of the features holds a value that is not finite"),
        (np.zeros((19, 3)), {}, DataError, r"\(19, 3\); expected a matrix of 20 rows"),
        (np.zeros((20, 0)), {}, DataError, r"\(20, 0\); expected a matrix"),
        (np.zeros(20), {}, DataError, r"\(20,\); expected a matrix"),
        (np.asarray([["a"]] * 20), {}, DataError, "expected a matrix of numbers"),
        (np.zeros((20, 3)), {"surrogate": "clusters"}, OptionError, "are for texts"),
        (np.zeros((20, 3)), {"reranker": True}, OptionError, "are for texts"),
        (np.zeros((20, 3)), {"vectors": "glove.txt"}, OptionError, "are for texts"),
    ],
    ids=["wide", "nan", "rows", "no columns", "no matrix", "words", "surrogate", "reranker", "vectors"],
)
def test_features_that_slice_cannot_learn_from(features, options, error, message):
    with pytest.raises(error, match=message):
        shortlist.train(with_features(features), recipe="slice", threads=1, **options)


@pytest.mark.parametrize("recipe", ["astec", "inceptionxml-deepxml", "xml-cnn", "deepxml-cnn", "mach", "deepxml-mlp"])
def test_features_are_for_slice_alone(recipe):
    with pytest.raises(OptionError, match=f"{recipe} learns from texts"):
        shortlist.train(points(20), recipe=recipe)
