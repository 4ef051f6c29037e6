"""Recipes of DeepXML's framework: the modules, their variants, and Astec's encoder."""

from __future__ import annotations

import numpy as np
import pytest

import shortlist
from shortlist.arrays import Ragged
from shortlist.errors import ModelError
from shortlist.stages.encoders import BagEncoder

torch = pytest.importorskip("torch")

from shortlist.training.batches import padded  # noqa: E402
from shortlist.training.blending import WEIGHTS  # noqa: E402
from shortlist.training.heads import BlockOptions  # noqa: E402
from shortlist.training.networks.bag import BagNetwork  # noqa: E402
from shortlist.training.networks.layers import ResidualBlock  # noqa: E402
from shortlist.training.phases.candidates import few_of_each  # noqa: E402

N_TOPICS = 12
SMALL = {
    "n_surrogate_epochs": 8,
    "n_epochs": 6,
    "embedding_dim": 32,
    "batch_size": 32,
    "n_clusters": 6,
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
    def test_stage_and_network_agree_whatever_the_padding(self, relu):
        rng = np.random.default_rng(0)
        torch.manual_seed(0)
        network = BagNetwork(rng.random(20).astype(np.float32) + 0.1, 7, 0.5, relu).eval()
        word_ids = Ragged.from_lists([[3, 4, 4], [], [19], list(range(12))])
        stage = BagEncoder.from_arrays(network.arrays(), {"max_words": 10, **network.config()}, n_words=20)
        expected = stage.encode(word_ids)
        words = padded(word_ids, np.arange(4), 10, padding=20)
        for more in (0, 5):
            inputs = np.pad(words, ((0, 0), (0, more)), constant_values=20)
            found = network(torch.from_numpy(inputs)).detach().numpy()
            assert np.allclose(found, expected, atol=1e-5)
        assert not expected[1].any()
        assert (expected >= 0).all() == relu

    def test_is_the_tf_idf_weighted_sum(self):
        vectors, idf = np.eye(3, dtype=np.float32), np.asarray([1, 2, 2], np.float32)
        stage = BagEncoder.from_arrays({"words": vectors, "idf": idf}, {"max_words": 9})
        assert np.allclose(stage.encode(Ragged.from_lists([[0, 1, 2]])), np.asarray([[1, 2, 2]]) / 3)

    @pytest.mark.parametrize(
        ("name", "array"), [("words", np.zeros(3)), ("idf", np.zeros(3)), ("idf", np.zeros(2, np.float32))]
    )
    def test_damaged_arrays_are_refused(self, name, array):
        arrays = {"words": np.zeros((3, 4), np.float32), "idf": np.zeros(3, np.float32), name: array}
        with pytest.raises(ModelError):
            BagEncoder.from_arrays(arrays, {"max_words": 9})


class TestResidualBlock:
    """Theorem 1 of the paper: what the residual block changes is bounded by its spectral norm, which is at most 1."""

    def test_features_stay_near_whatever_is_learnt(self):
        torch.manual_seed(0)
        block = ResidualBlock(24, BlockOptions(init="identity"))
        optimizer = torch.optim.SGD(block.parameters(), lr=5.0)
        for _ in range(60):  # pull it as far away as possible
            optimizer.zero_grad()
            (-block(torch.randn(64, 24).relu()).square().sum()).backward()
            optimizer.step()
        block.eval()
        norm = float(torch.linalg.matrix_norm(block.linear.weight.detach(), 2))
        assert norm <= 1.01
        features = torch.randn(500, 24).relu()
        moved = (block(features) - features).detach()
        assert (moved.norm(dim=1) <= 1.01 * norm * features.norm(dim=1) + 1e-6).all()
        # (b): cosines of texts and label means stay within the paper's bound for non-negative features.
        means = features.view(50, 10, 24).mean(dim=1)
        moved_means = block(features).detach().view(50, 10, 24).mean(dim=1)
        before = torch.nn.functional.cosine_similarity(features[:, None], means[None], dim=2)
        after = torch.nn.functional.cosine_similarity(block(features).detach()[:, None], moved_means[None], dim=2)
        slack = (1 + norm * 10**0.5) ** 2 - 1
        assert (after <= before + slack + 1e-6).all()
        assert (after >= before / (1 + slack) - 1e-6).all()

    @pytest.mark.parametrize("bound", [0.25, 1.0, 3.0])
    def test_the_bound_is_the_spectral_norm(self, bound):
        torch.manual_seed(0)
        block = ResidualBlock(24, BlockOptions(spectral_bound=bound))
        for _ in range(50):
            block(torch.randn(2, 24))
        assert np.linalg.norm(block.arrays()["block"], 2) == pytest.approx(bound, rel=0.02)
        features = torch.randn(9, 24)
        moved = (block.eval()(features) - features).detach()
        assert (moved.norm(dim=1) <= 1.02 * bound * features.norm(dim=1)).all()

    def test_starts_as_the_identity(self):
        features = torch.rand(5, 6)
        assert torch.allclose(ResidualBlock(6, BlockOptions(init="identity")).eval()(features), 2 * features, atol=1e-4)


def test_few_texts_of_each_label_vote_and_no_label_is_lost():
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
        "options",
        [
            {"surrogate": "hashed"},
            {"surrogate": "frequent"},
            {"surrogate": "none"},
            {"negative_sampling": "slice"},
            {"negative_sampling": "uniform"},
            {"negative_sampling": "frequent"},
            {"relu": True},
            {"vote_weight": 0.5},
            {"min_count": 2, "subwords": "3-4"},
            {"subwords": "3-4", "subwords_of": "all", "max_words": 200},
            {"label_correlations": True},
            {"centre_graph": "16/50/50", "text_graph": "8/20/20", "vote_weight": 0.075, "voting": "sums"},
            {"n_head_labels": 2, "n_head_centres": 5, "unit_centres": False, "n_nearest_labels": 5},
            {"vote_weight": 0.5, "texts_per_label": 0},
            {"blend": "mean"},
            {"blend": "none"},
            {"classifier": "slice"},
            {"classifier": "dismec", "blend": "mean", "alpha": 0.5, "similarity_scale": 0.0},
            {"classifier": "neighbours", "reranker": False},
        ],
        ids=str,
    )
    def test_learns(self, parts, options, tmp_path):
        train, test = parts
        model = shortlist.train(train, recipe="astec", **SMALL, **options)
        assert precision(model, test, train) >= 90
        model.save(tmp_path / "model", bits=32)
        texts = list(test.texts)[:10]
        assert shortlist.load(tmp_path / "model").predict(texts) == model.predict(texts)
        model.save(tmp_path / "small")
        assert precision(shortlist.load(tmp_path / "small"), test, train) >= 90

    def test_the_blend_is_fitted_on_held_out_texts(self, parts):
        model = shortlist.train(parts[0], recipe="astec", **SMALL)
        blend = model.pipelines[0].classifier.blend
        assert blend != type(blend)()
        assert {record["phase"] for record in model.records} == {"surrogate", "classifier"}

    def test_alpha_is_chosen_on_held_out_texts_or_given(self, parts):
        blends = [
            shortlist.train(parts[0], recipe="astec", **SMALL, blend="mean", vote_weight=0.1, **given)
            .pipelines[0]
            .classifier.blend
            for given in ({}, {"alpha": 0.35}, {"alpha": 0.35, "similarity_scale": 0.0})
        ]
        assert blends[0].alpha in WEIGHTS
        assert [blend.alpha for blend in blends[1:]] == [0.35, 0.35]
        assert {blend.vote_weight for blend in blends} == {0.1}
        assert [blend.scale for blend in blends[:2]] == [1, 1] and blends[2].scale not in (0, 1)

    def test_without_held_out_texts(self, parts):
        model = shortlist.train(parts[0], recipe="astec", **SMALL, validation_fraction=0.0)
        blend = model.pipelines[0].classifier.blend
        assert blend == type(blend)()
        assert precision(model, parts[1], parts[0]) >= 90
