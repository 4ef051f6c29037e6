"""Astec as published, part by part, against the slow reference in reference_astec.py, over several training steps."""

from __future__ import annotations

import shutil
from dataclasses import replace

import numpy as np
import pytest

import shortlist
from contract import Contract
from reference_astec import Block, Encoder, Training, reranked_score, tfidf
from shortlist.arrays import Ragged
from shortlist.errors import OptionError
from shortlist.recipes.options import resolve

torch = pytest.importorskip("torch")

from shortlist.stages.encoders import BagEncoder  # noqa: E402
from shortlist.stages.network_reranker import NetworkReranker  # noqa: E402
from shortlist.stages.output_layer import OutputLayer  # noqa: E402
from shortlist.stages.stage import without_prefix  # noqa: E402
from shortlist.training import learner as learner_module  # noqa: E402
from shortlist.training.batches import Batch, padded  # noqa: E402
from shortlist.training.heads import identity_head  # noqa: E402
from shortlist.training.learner import Learner  # noqa: E402
from shortlist.training.networks.bag import BagNetwork, GivenFeatures  # noqa: E402
from shortlist.training.networks.layers import Dropout  # noqa: E402
from test_recipes_deepxml import topics  # noqa: E402

N_WORDS, N_FEATURES, N_LABELS, N_TEXTS, N_STEPS, RATE = 20, 8, 15, 6, 5, 0.002
TOLERANCE = 1e-5


def dropped(values):
    """What stands for dropout here: the same numbers are dropped in every step, in the library and in the reference."""
    kept = torch.arange(values.numel()).reshape(values.shape) % 3 != 0
    return values * kept * 1.5


@pytest.fixture
def exact(monkeypatch):
    """Without bfloat16, and with a dropout that is not random."""
    monkeypatch.setattr(learner_module, "has_fast_bfloat16", lambda: False)
    monkeypatch.setattr(Dropout, "forward", lambda self, x: dropped(x) if self.training and self.below else x)


def defaults(**given):
    recipe = shortlist.get_recipe("astec@published")
    return resolve(recipe.name, recipe.options, given)


def texts(seed):
    rng = np.random.default_rng(seed)
    words = Ragged.from_lists([rng.integers(N_WORDS, size=rng.integers(1, 5)) for _ in range(N_TEXTS)])
    labels = Ragged.from_lists([rng.choice(N_LABELS, rng.integers(1, 4), replace=False) for _ in range(N_TEXTS)])
    return words, labels


def lists(ragged):
    return [list(map(int, ragged.row(row))) for row in range(len(ragged))]


def new_encoder(seed=0):
    """The library's network, and the reference with the same vectors; and idf."""
    rng = np.random.default_rng(seed)
    idf = rng.random(N_WORDS).astype(np.float32) + 0.5
    network = BagNetwork(idf, N_FEATURES, defaults().dropout, defaults().relu)
    vectors = rng.standard_normal((N_WORDS, N_FEATURES)).astype(np.float32)
    network.load({"words": vectors})
    return network, Encoder(vectors, dropped), idf


def new_block(head, given):
    """The reference of a block in training, at its start: the identity, and the same vectors of power iteration."""
    if given.block == "none":
        return None
    linear, eye = head.block.linear, np.eye(N_FEATURES, dtype=np.float32)
    if not given.spectral_bound:
        assert np.array_equal(linear.weight.detach().numpy(), eye)
        return Block(eye, eye[0], eye[0], 0, given.block == "residual", dropped, given.block_bias)
    norm = linear.parametrizations.weight
    assert np.array_equal(norm.original.detach().numpy(), eye)
    vectors = norm[0]._u.numpy(), norm[0]._v.numpy()
    return Block(eye, *vectors, given.spectral_bound, given.block == "residual", dropped, given.block_bias)


def assert_near(found, expected):
    np.testing.assert_allclose(np.asarray(found), expected.detach().numpy(), atol=TOLERANCE)


def assert_same_head(learner, reference):
    head = learner.heads["rows"]
    assert_near(head.rows.weights, reference.rows)
    assert not head.rows.biases.any()
    if reference.block is not None:
        arrays = head.block.arrays()
        matrix = next(array for name, array in arrays.items() if name.endswith("block"))
        assert_near(matrix, reference.block.matrix(training=False))
        assert ("block_biases" in arrays) == reference.block.bias.requires_grad
        if "block_biases" in arrays:
            assert_near(arrays["block_biases"], reference.block.bias)


def new_learner(network, given, seed=0):
    torch.manual_seed(seed)
    return Learner(network, N_LABELS, 2.0, None, seed, "cpu", identity_head(given))


def new_reference(encoder, learner, given):
    return Training(encoder, new_block(learner.heads["rows"], given), learner.heads["rows"].rows.weights.copy(), RATE)


def candidates_of(labels, rng, n=6):
    """Candidates of each text that include its labels; rows of different lengths."""
    rows = [sorted({*own, *map(int, rng.choice(N_LABELS, n, replace=False))}) for own in lists(labels)]
    padded_rows = np.full((len(rows), max(map(len, rows))), -1, np.int32)
    for row, own in enumerate(rows):
        padded_rows[row, : len(own)] = own
    return rows, padded_rows


BLOCKS = [
    {},
    {"block_bias": True},
    {"spectral_bound": 0.5},
    {"spectral_bound": 0.0},
    {"block": "linear"},
]


@pytest.mark.usefixtures("exact")
class TestEncoder:
    def test_is_the_rectified_tf_idf_sum(self):
        network, reference, idf = new_encoder()
        words, _ = texts(1)
        reference.dropout = lambda values: values
        expected = reference(tfidf(lists(words), idf))
        inputs = torch.from_numpy(padded(words, np.arange(N_TEXTS), 500, N_WORDS))
        assert_near(network.eval()(inputs).detach(), expected)
        stage = BagEncoder.from_arrays(network.arrays(), {"max_words": 500, **network.config()})
        assert_near(stage.encode(words), expected)


@pytest.mark.usefixtures("exact")
class TestModuleOne:
    @pytest.mark.parametrize("given", BLOCKS, ids=str)
    def test_steps_on_all_clusters(self, given):
        given = defaults(**given)
        network, encoder, idf = new_encoder()
        learner = new_learner(network, given)
        reference = new_reference(encoder, learner, given)
        for step in range(N_STEPS):
            words, labels = texts(step)
            batch = Batch(padded(words, np.arange(N_TEXTS), 500, N_WORDS), labels)
            loss = learner.step(batch, RATE).loss
            expected = reference.step(tfidf(lists(words), idf), lists(labels))
            assert loss == pytest.approx(expected, abs=1e-4)
            assert_near(network.arrays()["words"], encoder.vectors)
            assert_same_head(learner, reference)


@pytest.mark.usefixtures("exact")
class TestModuleFour:
    @pytest.mark.parametrize("given", [*BLOCKS, {"block": "none"}], ids=str)
    def test_steps_on_candidates_with_frozen_features(self, given):
        given = defaults(**given)
        rng = np.random.default_rng(0)
        learner = new_learner(GivenFeatures(N_FEATURES, given.dropout), given)
        reference = new_reference(None, learner, given)
        for step in range(N_STEPS):
            features = np.maximum(rng.standard_normal((N_TEXTS, N_FEATURES)), 0).astype(np.float32)
            _, labels = texts(step)
            rows, candidates = candidates_of(labels, rng)
            loss = learner.step(Batch(features, labels, candidates), RATE).loss
            expected = reference.step(dropped(torch.from_numpy(features)), lists(labels), rows)
            assert loss == pytest.approx(expected, abs=1e-4)
            assert_same_head(learner, reference)

    def test_prediction_uses_what_was_learnt(self):
        """The torch-free layer gives w · (v + ReLU(R · v + b))."""
        given = defaults()
        rng = np.random.default_rng(0)
        learner = new_learner(GivenFeatures(N_FEATURES, given.dropout), given)
        reference = new_reference(None, learner, given)
        features = np.maximum(rng.standard_normal((N_TEXTS, N_FEATURES)), 0).astype(np.float32)
        _, labels = texts(0)
        rows, candidates = candidates_of(labels, rng)
        learner.step(Batch(features, labels, candidates), RATE)
        reference.step(dropped(torch.from_numpy(features)), lists(labels), rows)
        layer = OutputLayer(without_prefix("rows", learner.for_prediction()))
        hidden = reference.block(torch.from_numpy(features), training=False)
        assert_near(layer.logits(features), hidden @ reference.rows.T)


@pytest.mark.usefixtures("exact")
class TestReranker:
    """A second network: steps on candidates that move its vectors, too; and β."""

    def test_steps_and_scores(self):
        given = defaults()
        rng = np.random.default_rng(0)
        network, encoder, idf = new_encoder(seed=3)
        learner = new_learner(network, given)
        reference = new_reference(encoder, learner, given)
        for step in range(N_STEPS):
            words, labels = texts(step)
            rows, candidates = candidates_of(labels, rng)
            batch = Batch(padded(words, np.arange(N_TEXTS), 500, N_WORDS), labels, candidates)
            learner.step(batch, RATE)
            reference.step(tfidf(lists(words), idf), lists(labels), rows)
            assert_near(network.arrays()["words"], encoder.vectors)
            assert_same_head(learner, reference)
        words, _ = texts(99)
        arrays = learner.for_prediction()
        stage = BagEncoder(without_prefix("encoder", arrays), {"max_words": 500, **network.config()})
        reranker = NetworkReranker(stage, without_prefix("rows", arrays), {"n_candidates": 9, "beta": 0.6})
        encoder.dropout = lambda values: values
        hidden = reference.block(encoder(tfidf(lists(words), idf)), training=False)
        ids = np.tile(np.arange(9, dtype=np.int32), (N_TEXTS, 1))
        first = rng.random(ids.shape).astype(np.float32)
        expected = reranked_score(first, (hidden @ reference.rows.T)[:, :9].detach().numpy(), beta=0.6)
        evidence = reranker.gather(None, words, ids)
        np.testing.assert_allclose(reranker.scores(evidence, first), expected, atol=TOLERANCE)
        best, scores = reranker.best(evidence, first, 4)
        np.testing.assert_allclose(scores, -np.sort(-expected, axis=1)[:, :4], atol=TOLERANCE)
        np.testing.assert_allclose(np.take_along_axis(expected, best, axis=1), scores, atol=TOLERANCE)


class TestDefaults:
    """What Table 5 sets for the data sets of the paper follows from their sizes."""

    @pytest.mark.parametrize(
        ("n_texts", "n_labels", "surrogate_rate", "extreme_rate"),
        [
            (629_418, 352_072, 0.005, 0.002),
            (1_699_722, 501_070, 0.005, 0.0005),
            (485_176, 670_091, 0.02, 0.002),
            (1_517_620, 2_812_281, 0.003, 0.0005),
        ],
    )
    def test_learning_rates(self, n_texts, n_labels, surrogate_rate, extreme_rate):
        recipe = shortlist.get_recipe("astec@published")
        values = resolve(recipe.name, recipe.options, {}, n_texts, n_labels)
        assert (values.surrogate_learning_rate, values.learning_rate) == (surrogate_rate, extreme_rate)
        assert values.n_clusters == 65_536 and values.n_reranked == 200
        # Appendix A.1 has 100, 300, 300 for the index of texts, 50, 50, 100 for that of label centres.
        assert (values.text_graph, values.centre_graph, values.n_neighbours) == ("100/300/300", "50/50/100", 300)

    def test_vectors_are_those_of_the_file_or_random(self):
        assert defaults().vector_init == "random"
        assert defaults(vectors="fasttext.vec").vector_init == "given"

    def test_deepxml_recipes_share_one_map(self):
        names = ("astec", "deepxml-mlp", "deepxml-cnn", "inceptionxml-deepxml")
        recipes = [shortlist.get_recipe(name) for name in names]
        for recipe in recipes:
            assert recipe.published["voting"] is recipes[0].published["voting"]
            assert replace(recipe, published={}).name == recipe.name


SMALL = {
    "embedding_dim": 32,
    "batch_size": 32,
    "n_epochs": 6,
    "dropout": 0.2,
    "validation_fraction": 0.1,
    "threads": 1,
}
MODULES = {"n_surrogate_epochs": 8, "n_clusters": 6, "n_reranker_epochs": 6, "n_candidates": 10, "n_nearest_labels": 8}
PUBLISHED = {
    "astec@published": {**SMALL, **MODULES},
    "deepxml-mlp@published": {**SMALL, **MODULES},
    "slice@published": {"embedding_dim": 64, "validation_fraction": 0.1, "threads": 1},
    "mach@published": {**SMALL, "n_epochs": 20, "n_repetitions": 3, "learning_rate": 0.01},
}


@pytest.fixture(scope="module", params=PUBLISHED)
def recipe(request):
    return request.param


@pytest.fixture(scope="module")
def options(recipe):
    return PUBLISHED[recipe]


@pytest.fixture(scope="module")
def train_part():
    return topics(500, 1)


@pytest.fixture(scope="module")
def test_part():
    return topics(200, 2)


@pytest.fixture(scope="module")
def model(recipe, options, train_part):
    return shortlist.train(train_part, recipe=recipe, **options)


@pytest.mark.slow
class TestTogether(Contract):
    """Everything published at once keeps the contract of every recipe."""


@pytest.mark.slow
def test_the_published_reranker_is_resumed(tmp_path):
    given = {**PUBLISHED["astec@published"], "checkpoint_dir": str(tmp_path / "checkpoints")}
    whole = shortlist.train(topics(200, 1), recipe="astec@published", **given)
    state = tmp_path / "checkpoints" / "reranker" / "state"
    assert state.is_dir()
    shutil.rmtree(tmp_path / "checkpoints" / "reranker")  # as if it had been killed before its first checkpoint
    again = shortlist.train(topics(200, 1), recipe="astec@published", **given, resume=True)
    queries = list(topics(20, 3).texts)
    assert again.predict(queries) == whole.predict(queries)
    assert {record["phase"] for record in whole.records} == {"surrogate", "classifier", "reranker"}


def test_a_second_transformer_is_refused():
    with pytest.raises(OptionError, match="a model has one transformer: use words or none"):
        shortlist.train(topics(20, 1), recipe="deepxml-transformer", transformer="folder", reranker="network")


@pytest.mark.slow
def test_the_encoder_can_be_fine_tuned():
    given = {**PUBLISHED["astec@published"], "reranker": "none"}
    frozen, tuned = (
        shortlist.train(topics(300, 1), recipe="astec@published", finetune_encoder=finetune, **given)
        for finetune in (False, True)
    )
    vectors = [model.pipelines[0].encoder.arrays()["words"] for model in (frozen, tuned)]
    assert np.abs(vectors[0] - vectors[1]).max() > 1e-3
    test = topics(200, 2)
    assert shortlist.evaluate(tuned.predict_dataset(test), test, train=topics(300, 1))["P@1"] >= 90
