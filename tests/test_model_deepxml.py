"""Recipes of DeepXML's framework: modules by themselves, their variants, and Astec's encoder."""

from __future__ import annotations

import numpy as np
import pytest
from shortlist.encoders.bag_runtime import BagRuntime

import shortlist
from shortlist.arrays import Ragged
from shortlist.errors import ModelError, OptionError

torch = pytest.importorskip("torch")

from shortlist.encoders.bag import BagEncoder  # noqa: E402 - needs torch
from shortlist.heads.block import ResidualBlock  # noqa: E402
from shortlist.model.deepxml_training import few_of_each  # noqa: E402

from shortlist.training.batches import padded  # noqa: E402

N_TOPICS = 12
SMALL = {
    "surrogate_epochs": 8,
    "epochs": 6,
    "dimensions": 32,
    "batch_size": 32,
    "clusters": 6,
    "dropout": 0.2,
    "threads": 1,
}


def topics(n_texts, seed):
    rng = np.random.default_rng(seed)
    rows = []
    for topic in rng.integers(N_TOPICS, size=n_texts).tolist():
        words = [f"t{topic}w{i}" for i in rng.integers(6, size=3)] + [f"noise{i}" for i in rng.integers(30, size=2)]
        rows.append((" ".join(words), [f"label {topic}"]))
    return shortlist.read(rows)


def precision(model, test, train):
    return shortlist.evaluate(model.predict_dataset(test), test, train=train)["P@1"]


class TestBag:
    @pytest.mark.parametrize("relu", [False, True])
    def test_runtime_and_torch_agree_however_much_padding_there_is(self, relu):
        rng = np.random.default_rng(0)
        torch.manual_seed(0)
        encoder = BagEncoder(rng.random(20).astype(np.float32) + 0.1, 7, 0.5, relu).eval()
        word_ids = Ragged.from_lists([[3, 4, 4], [], [19], list(range(12))])
        expected = BagRuntime(encoder.to_arrays(), max_words=10).encode(word_ids)
        words = padded(word_ids, np.arange(4), 10, encoder.padding)
        for more in (0, 5):
            inputs = np.pad(words, ((0, 0), (0, more)), constant_values=encoder.padding)
            found = encoder(torch.from_numpy(inputs)).detach().numpy()
            assert np.allclose(found, expected, atol=1e-5)
        assert not expected[1].any()
        assert (expected >= 0).all() == relu

    def test_is_the_tf_idf_weighted_sum(self):
        vectors, idf = np.eye(3, dtype=np.float32), np.asarray([1, 2, 2], np.float32)
        runtime = BagRuntime({"words": vectors, "idf": idf}, max_words=9)
        assert np.allclose(runtime.encode(Ragged.from_lists([[0, 1, 2]])), np.asarray([[1, 2, 2]]) / 3)

    @pytest.mark.parametrize("damage", ["words", "idf", "short"])
    def test_damaged_arrays_are_refused(self, damage):
        arrays = {"words": np.zeros((3, 4), np.float32), "idf": np.zeros(3, np.float32)}
        arrays |= {"short": {"idf": np.zeros(2, np.float32)}}.get(damage, {damage: np.zeros(3)})
        with pytest.raises(ModelError):
            BagRuntime(arrays, 9)


class TestTransfer:
    """Theorem 1 of the paper: what the residual block changes is bounded by its spectral norm, which is at most 1."""

    def test_features_stay_near_whatever_is_learnt(self):
        torch.manual_seed(0)
        block = ResidualBlock(24, identity=True)
        optimiser = torch.optim.SGD(block.parameters(), lr=5.0)
        for _ in range(60):  # pull it as far away as it will go
            optimiser.zero_grad()
            (-block(torch.randn(64, 24).relu()).square().sum()).backward()
            optimiser.step()
        block.eval()
        norm = float(torch.linalg.matrix_norm(block.linear.weight.detach(), 2))
        assert norm <= 1.01
        features = torch.randn(500, 24).relu()
        moved = (block(features) - features).detach()
        assert (moved.norm(dim=1) <= 1.01 * norm * features.norm(dim=1) + 1e-6).all()
        # (b): cosines of texts and labels' means stay within the bound that the paper gives for features above zero.
        means = features.view(50, 10, 24).mean(dim=1)
        moved_means = block(features).detach().view(50, 10, 24).mean(dim=1)
        before = torch.nn.functional.cosine_similarity(features[:, None], means[None], dim=2)
        after = torch.nn.functional.cosine_similarity(block(features).detach()[:, None], moved_means[None], dim=2)
        slack = (1 + norm * 10**0.5) ** 2 - 1
        assert (after <= before + slack + 1e-6).all()
        assert (after >= before / (1 + slack) - 1e-6).all()

    def test_starts_as_the_identity(self):
        features = torch.rand(5, 6)
        assert torch.allclose(ResidualBlock(6, identity=True).eval()(features), 2 * features, atol=1e-4)


def test_few_texts_of_each_label_are_kept_and_no_label_is_lost():
    rng = np.random.default_rng(0)
    labels = Ragged.from_lists([sorted(rng.choice(30, rng.integers(0, 4), replace=False)) for _ in range(2000)])
    rows = few_of_each(labels, 30, 5, seed=0)
    counts = np.bincount(labels.take(rows).values, minlength=30)
    assert (counts >= np.minimum(5, np.bincount(labels.values, minlength=30))).all()
    assert len(rows) < 30 * 5
    assert (np.diff(rows) > 0).all()


@pytest.fixture(scope="module")
def parts():
    return topics(500, 1), topics(200, 2)


@pytest.mark.slow
class TestVariants:
    @pytest.mark.parametrize(
        "how",
        [
            {"surrogate": "hashed"},
            {"surrogate": "frequent"},
            {"surrogate": "none"},
            {"sampling": "slice"},
            {"sampling": "uniform"},
            {"sampling": "frequent"},
            {"relu": True},
            {"share": 0.0},
            {"min_count": 2, "parts": "3-4"},
        ],
        ids=str,
    )
    def test_learns(self, parts, how, tmp_path):
        train, test = parts
        model = shortlist.train(train, recipe="astec", **SMALL, **how)
        assert precision(model, test, train) >= 90
        model.save(tmp_path / "model", bits=32)
        texts = list(test.texts)[:10]
        assert shortlist.load(tmp_path / "model").predict(texts) == model.predict(texts)
        model.save(tmp_path / "small")
        assert precision(shortlist.load(tmp_path / "small"), test, train) >= 90

    def test_every_part_of_the_blend_is_set_from_the_held_out_texts(self, parts):
        model = shortlist.train(parts[0], recipe="astec", **SMALL)
        assert vars(model.pipeline.blend) != vars(type(model.pipeline.blend)())
        assert {record["phase"] for record in model.records} == {"surrogate", "extreme"}

    def test_without_a_validation_part(self, parts):
        model = shortlist.train(parts[0], recipe="astec", **SMALL, validation=0.0)
        assert vars(model.pipeline.blend) == vars(type(model.pipeline.blend)())
        assert precision(model, parts[1], parts[0]) >= 90


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"surrogate": "magic"}, "surrogate is 'magic'; it can be clusters"),
        ({"sampling": "magic"}, "sampling is 'magic'; it can be neighbours"),
        ({"share": 1.5}, "share is 1.5"),
        ({"shortlist": 0}, "shortlist is 0; it must be at least 1"),
        ({"n_random": -1}, "n_random is -1"),
        ({"rate": 2.0}, "rate is 2.0"),
        ({"parts": "few", "min_count": 2}, "parts is 'few'; expected numbers of characters, such as \"3-4\""),
        ({"parts": "3-4"}, "set min_count to 2 or more"),
        ({"resume": True}, "resume needs checkpoints"),
    ],
)
def test_options_that_make_no_sense_are_refused(options, message):
    with pytest.raises(OptionError) as caught:
        shortlist.train(topics(50, 0), recipe="astec", **options)
    assert message in str(caught.value)
