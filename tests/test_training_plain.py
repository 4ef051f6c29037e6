"""Training without torch: every step equals that of the same network in torch."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from shortlist.arrays import Ragged
from shortlist.training import starts
from shortlist.training.batches import Batch
from shortlist.training.heads import BlockOptions, HeadOptions
from shortlist.training.label_rows import LabelRows, RowOptions
from shortlist.training.plain import Mask, PlainBag, PlainFeatures, PlainLearner
from shortlist.training.starts import nearest_centres, rows_at_centres

N_WORDS, N_BUCKETS, N_FEATURES, N_LABELS, N_TEXTS = 40, 11, 24, 30, 9


def batches(seed, weighted=False, shortlists=False, dense=False):
    """Four batches of texts of different lengths, one of them empty."""
    rng = np.random.default_rng(seed)
    for _ in range(4):
        inputs = np.where(rng.random((N_TEXTS, 6)) < 0.7, rng.integers(N_WORDS, size=(N_TEXTS, 6)), N_WORDS)
        inputs[0] = N_WORDS
        weights = rng.random(inputs.shape, np.float32) * (inputs < N_WORDS) if weighted else None
        if dense:
            inputs = rng.standard_normal((N_TEXTS, N_FEATURES), dtype=np.float32)
        positives = Ragged.from_lists([rng.choice(N_LABELS, rng.integers(1, 4), False) for _ in range(N_TEXTS)])
        candidates = None
        if shortlists:
            lists = [np.unique([*positives.row(i), *rng.integers(N_LABELS, size=5)]) for i in range(N_TEXTS)]
            candidates = np.full((N_TEXTS, 8), -1, np.int32)
            for row, labels in zip(candidates, lists, strict=True):
                row[: len(labels)] = labels
        yield Batch(inputs, positives, candidates, weights)


def both(network, plain_network, head):
    """A learner in torch, and one without it that starts from the same numbers."""
    torch = pytest.importorskip("torch")
    from shortlist.training.learner import Learner

    torch.manual_seed(1)
    learner = Learner(network, N_LABELS, 2.0, None, 3, "cpu", head)
    plain = PlainLearner(plain_network, LabelRows.start(N_LABELS, N_FEATURES, 2.0 / N_LABELS, 3, head.rows), 3, head)
    if head.block is not None:
        linear = learner.heads["rows"].block.linear
        if head.block.norm == "spectral":
            norm = linear.parametrizations.weight
            plain.block.vectors[:] = norm[0]._u.numpy(), norm[0]._v.numpy()
            weights = norm.original
        else:
            weights = linear.weight
        plain.block.rows.weights[:] = weights.detach().numpy()
        if head.block.bias:
            plain.block.rows.biases[:] = linear.bias.detach().numpy()
    return learner, plain


def assert_same_steps(learner, plain, given, rtol=2e-4, atol=2e-5):
    for number, batch in enumerate(given):
        rate = 0.01 / (1 + number)
        assert plain.step(batch, rate).loss == pytest.approx(learner.step(batch, rate).loss, rel=1e-4)
    expected, found = learner.for_prediction(), plain.for_prediction()
    assert expected.keys() == found.keys()
    for name, array in expected.items():
        np.testing.assert_allclose(found[name], array, rtol, atol, err_msg=name)
        assert found[name].dtype == array.dtype


BLOCKS = {
    "none": None,
    "ours": BlockOptions(),
    "identity": BlockOptions(init="identity", spectral_bound=0.7),
    "gelu": BlockOptions("gelu", "none", bias=True),
    "linear": BlockOptions("relu", "spectral", bias=True, residual=False),
}


@pytest.mark.parametrize("optimizer", ["row-adam", "adam"])
@pytest.mark.parametrize("block", BLOCKS)
def test_a_bag_of_words_learns_as_in_torch(block, optimizer):
    pytest.importorskip("torch")
    from shortlist.training.networks.bag import BagNetwork

    rng = np.random.default_rng(0)
    idf, vectors = rng.random(N_WORDS) + 0.5, rng.standard_normal((N_WORDS, N_FEATURES)).astype(np.float32)
    network = BagNetwork(idf, N_FEATURES, 0.0)
    network.load({"words": vectors})
    head = HeadOptions(RowOptions(optimizer), BLOCKS[block])
    learners = both(network, PlainBag(idf, vectors, 0.0, optimizer=optimizer), head)
    assert_same_steps(*learners, batches(1, weighted=True, shortlists=block == "ours"))


def test_with_a_relu_it_learns_as_in_torch():
    pytest.importorskip("torch")
    from shortlist.training.networks.bag import BagNetwork

    rng = np.random.default_rng(0)
    idf, vectors = rng.random(N_WORDS) + 0.5, rng.standard_normal((N_WORDS, N_FEATURES)).astype(np.float32)
    network = BagNetwork(idf, N_FEATURES, 0.0, relu=True)
    network.load({"words": vectors})
    assert_same_steps(*both(network, PlainBag(idf, vectors, 0.0, True), HeadOptions()), batches(2))


def test_hashed_words_learn_as_in_torch():
    pytest.importorskip("torch")
    from shortlist.training.networks.bag import HashedBagNetwork

    rng = np.random.default_rng(0)
    idf, buckets = rng.random(N_WORDS) + 0.5, rng.permutation(N_WORDS) % N_BUCKETS
    vectors = rng.standard_normal((N_BUCKETS, N_FEATURES)).astype(np.float32)
    network = HashedBagNetwork(idf, buckets, N_FEATURES, 0.0)
    network.load({"words": vectors, "biases": np.zeros(N_FEATURES, np.float32)})
    plain = PlainBag(idf, vectors, 0.0, buckets=buckets)
    assert_same_steps(*both(network, plain, HeadOptions()), batches(3))


def test_given_features_learn_as_in_torch():
    pytest.importorskip("torch")
    from shortlist.training.networks.bag import GivenFeatures

    network, plain = GivenFeatures(N_FEATURES, 0.0), PlainFeatures(N_FEATURES, 0.0)
    assert_same_steps(*both(network, plain, HeadOptions()), batches(4, dense=True, shortlists=True))


def test_dropout_keeps_the_mean_and_masks_the_gradient():
    mask, ones = Mask(0.25), np.ones((400, 50), np.float32)
    dropped = mask.forward(ones, np.random.default_rng(0))
    assert set(np.unique(dropped)) == {0, np.float32(4 / 3)}
    assert dropped.mean() == pytest.approx(1, abs=0.02)
    assert np.array_equal(mask.backward(ones), dropped)


def new_plain(seed=0):
    rng = np.random.default_rng(0)
    bag = PlainBag(rng.random(N_WORDS), rng.standard_normal((N_WORDS, N_FEATURES)).astype(np.float32), 0.5)
    rows = LabelRows.start(N_LABELS, N_FEATURES, 2.0 / N_LABELS, seed)
    return PlainLearner(bag, rows, seed, HeadOptions(dropout=0.25))


def test_a_restored_learner_goes_on_as_if_nothing_had_happened():
    learner, other = new_plain(), new_plain(seed=5)
    for batch in batches(5):
        learner.step(batch, 0.01)
    other.restore({name: array.copy() for name, array in learner.state().items()})
    for one in (learner, other):
        one.seed(7)
        one.step(next(batches(6)), 0.01)
    for name, array in learner.state().items():
        assert np.array_equal(other.state()[name], array), name


def test_the_seed_decides_what_is_dropped():
    losses = []
    for seed in (1, 1, 2):
        learner = new_plain()
        learner.seed(seed)
        losses.append(learner.step(next(batches(6)), 0.01).loss)
    assert losses[0] == losses[1] != losses[2]


WITHOUT_TORCH = """
import sys
sys.modules["torch"] = None  # importing it raises ImportError
import shortlist, shortlist.errors
texts = [f"{kind} {thing}" for kind in "red blue green old new".split() for thing in "shoe hat coat sock".split()]
data = [(text, [text.split()[1]]) for text in texts] * 3
for recipe in ("astec", "slice", "mach", "deepxml-mlp"):
    model = shortlist.train(data, recipe, embedding_dim=16, validation_fraction=0.1, threads=1)
    assert model.predict("a green hat")[0].label == "hat", recipe
try:
    shortlist.train(data, "inceptionxml")
except shortlist.errors.MissingExtraError as error:
    print(error)
"""


@pytest.mark.slow
def test_bags_train_where_torch_is_not_installed():
    found = subprocess.run([sys.executable, "-c", WITHOUT_TORCH], capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
    assert "pip install" in found.stdout and "train" in found.stdout


@pytest.mark.parametrize("bias_init", ["prior", "none"])
def test_rows_start_at_the_centres_of_their_labels(bias_init):
    rng = np.random.default_rng(0)
    kinds = rng.integers(3, size=60)
    features = (np.eye(3)[kinds] + 0.1 * rng.standard_normal((60, 3))).astype(np.float32)
    labels = Ragged(np.arange(61), kinds)
    head = HeadOptions(RowOptions(bias_init=bias_init), None)
    rows = rows_at_centres(features[:40], labels[:40], features[40:], labels[40:], 3, head)
    assert np.array_equal((features[40:] @ rows.weights.T + rows.biases).argmax(axis=1), kinds[40:])
    assert np.all(rows.biases < 0) if bias_init == "prior" else not rows.biases.any()


@pytest.mark.parametrize("max_cosines", [1, 100, 1000])
def test_nearest_centres_some_texts_at_a_time(monkeypatch, max_cosines):
    rng = np.random.default_rng(0)
    texts, centres = rng.standard_normal((17, 5)).astype("f4"), rng.standard_normal((30, 5)).astype("f4")
    monkeypatch.setattr(starts, "MAX_COSINES", max_cosines)
    ids, cosines = nearest_centres(texts, centres, 4)
    expected = np.sort(np.argsort(-(texts @ centres.T), axis=1)[:, :4], axis=1)
    assert np.array_equal(np.sort(ids, axis=1), expected)
    assert np.take_along_axis(texts @ centres.T, ids, axis=1) == pytest.approx(cosines, abs=1e-5)
