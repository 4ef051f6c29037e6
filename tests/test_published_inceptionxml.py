"""InceptionXML(+) as published: its training against the paper's formulas, its size and FLOPs against the tables."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

import shortlist
from shortlist.recipes.options import resolve
from shortlist.training.batches import Batch, padded
from shortlist.training.data import TrainingData

torch = pytest.importorskip("torch")

from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

from reference_inceptionxml import Reference  # noqa: E402
from shortlist.stages.encoders import InceptionEncoder  # noqa: E402
from shortlist.stages.output_layer import OutputLayer  # noqa: E402
from shortlist.stages.stage import without_prefix  # noqa: E402
from shortlist.training.heads import BlockOptions  # noqa: E402
from shortlist.training.networks import new_network  # noqa: E402
from shortlist.training.networks.layers import ResidualBlock  # noqa: E402
from shortlist.training.phases.joint import joint_learner  # noqa: E402

N_TEXTS, N_LABELS, N_CLUSTERS, N_SEARCHED = 24, 20, 8, 2
DROPOUTS = ("word_dropout", "project_dropout", "branch_dropout", "block_dropout", "head_dropout")
NO_DROPOUT = dict.fromkeys(DROPOUTS, 0.0)
SMALL = {"embedding_dim": 64, "channels": 6, "max_words": 9, "validation_fraction": 0.0, "threads": 1, **NO_DROPOUT}


pytestmark = pytest.mark.usefixtures("full_floats")


def random_data(seed=0):
    rng = np.random.default_rng(seed)
    rows = []
    for i in range(N_TEXTS):
        words = [f"word{j}" for j in rng.integers(40, size=rng.integers(1, 12))]  # some are longer than max_words
        labels = {i % N_LABELS, *rng.integers(N_LABELS, size=rng.integers(0, 4)).tolist()}
        rows.append((" ".join(words), [f"l{label}" for label in sorted(labels)]))
    return shortlist.read(rows)


class Pair:
    """Ours and the reference, with the same weights."""

    def __init__(self, name, **options):
        recipe = shortlist.get_recipe(f"{name}@published")
        meta = {"meta_dropout": 0.0, "n_clusters": N_CLUSTERS, "n_clusters_searched": N_SEARCHED}
        given = {**SMALL, **(meta if name.endswith("+") else {}), **options}
        self.options = o = resolve(recipe.name, recipe.options, given, N_TEXTS, N_LABELS)
        self.data = TrainingData(random_data(), o)
        self.tree = self.data.label_tree(N_CLUSTERS) if name.endswith("+") else None
        self.network = new_network(recipe, self.data, o)
        with torch.no_grad():
            for layer in self.network.module.attention:
                layer.gate.fill_(0.4)
        self.learner = joint_learner(self.data, o, self.network, self.tree)
        rows, meta_rows, clusters = self.rows_by_label("rows"), None, None
        if self.tree is not None:
            starts, order = self.tree.cluster_starts, self.tree.order
            clusters = [order[begin:end].tolist() for begin, end in pairwise(starts)]
            meta = self.learner.heads["meta"].rows
            meta_rows = (meta.weights.copy(), meta.biases.copy())
        state = {name: tensor.numpy().copy() for name, tensor in self.learner._modules.state_dict().items()}
        block = None if o.block == "none" else (o.block_activation, o.block_norm)
        self.reference = Reference(state, rows, meta_rows, clusters, o.max_words, o.attention_value, block)

    def rows_by_label(self, head):
        """Weights and biases of our rows; labels are in their own order, not in that of the clusters."""
        rows = self.learner.heads[head].rows
        order = slice(None) if self.tree is None else np.argsort(self.tree.order)
        return rows.weights[order].copy(), None if self.options.bias_init == "none" else rows.biases[order].copy()

    def step(self, texts, learning_rate, detach=False):
        """Both learn from these texts, and have the same losses."""
        batch = Batch(
            padded(self.data.word_ids, texts, self.options.max_words, self.data.n_words), self.data.labels.take(texts)
        )
        ours = self.learner.step(batch, learning_rate, detach)
        words = [self.data.word_ids.row(i)[: self.options.max_words].tolist() for i in texts]
        labels = [self.data.labels.row(i).tolist() for i in texts]
        loss, meta_loss, _ = self.reference.step(words, labels, learning_rate, N_SEARCHED, detach)
        assert ours.loss == pytest.approx(loss, abs=1e-5)
        assert ours.meta_loss == pytest.approx(meta_loss, abs=1e-5)

    def differences(self):
        """The largest difference of each weight and of each running statistic."""
        ours = {name: tensor.numpy() for name, tensor in self.learner._modules.state_dict().items()}
        for name, array in zip(("weights", "biases"), self.rows_by_label("rows"), strict=True):
            ours[f"rows.{name}"] = array
        if self.tree is not None:
            ours |= {f"meta.{name}": getattr(self.learner.heads["meta"].rows, name) for name in ("weights", "biases")}
        theirs = {**self.reference.p, **self.reference.buffers}
        return {
            name: np.abs(array - theirs[name].detach().numpy())
            for name, array in ours.items()
            if array is not None and not name.endswith("num_batches_tracked")
        }

    def predict(self):
        """Features and logits of all texts in evaluation: by our stages, which know no torch, and by the reference."""
        arrays = self.learner.for_prediction()
        encoder = self.network.stage(without_prefix("encoder", arrays))
        features = encoder.encode(self.data.word_ids)
        logits = OutputLayer(without_prefix("rows", arrays)).logits(features)
        logits = logits if self.tree is None else logits[:, np.argsort(self.tree.order)]
        self.reference.training = False
        with torch.no_grad():
            expected = self.reference.encode(
                [self.data.word_ids.row(i)[: self.options.max_words].tolist() for i in range(N_TEXTS)]
            )
            expected_logits = self.reference.logits("rows", expected)
        return (features, expected.numpy()), (logits, expected_logits.numpy())


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("inceptionxml", {}),
        ("inceptionxml", {"attention_value": "query", "block_activation": "gelu"}),  # as the program has them
        ("inceptionxml+", {}),
        ("inceptionxml+", {"block_activation": "gelu"}),
        ("inceptionxml+", {"variant": "lightxml"}),
    ],
    ids=["InceptionXML", "InceptionXML, program", "InceptionXML+", "InceptionXML+, program", "LightXML"],
)
def test_training_is_that_of_the_paper(name, options):
    """Encoder, both heads, detached steps, missing positives, mean loss and Adam, over several steps."""
    # A larger learning rate enlarges differences of rounding beyond the bar: Adam's first steps are all of its size.
    pair, rng, learning_rate = Pair(name, **options), np.random.default_rng(1), 0.0002
    for number in range(6):
        pair.step(rng.permutation(N_TEXTS)[:12], learning_rate, detach=name.endswith("+") and number < 2)
    for ours, expected in pair.predict():
        np.testing.assert_allclose(ours, expected, rtol=0, atol=1e-5)
    differences = np.concatenate([array.ravel() for array in pair.differences().values()])
    # Adam divides a gradient by its own size: where it is 0 up to rounding, a weight may go either way at first.
    assert np.mean(differences > 1e-5) < 1e-4
    assert differences.max() < learning_rate


def test_detached_steps_of_the_reference_leave_the_encoder_to_the_meta_classifier():
    """The reference itself: without it, the comparison above would say nothing about detaching."""
    ends = []
    for detach in (True, False):
        pair = Pair("inceptionxml+")
        pair.reference.p["rows.weights"].data *= 5
        words, labels = [pair.data.word_ids.row(i)[:9].tolist() for i in range(8)], [[i] for i in range(8)]
        pair.reference.step(words, labels, 0.005, N_SEARCHED, detach)
        ends.append(pair.reference.p["network.project.weight"].detach().clone())
    assert not torch.equal(*ends)


class TestSizes:
    """32 words, 300 dimensions and 480 features; label rows are counted, but not made."""

    n_features = 480

    def encoder_and_block(self, name, **options):
        recipe = shortlist.get_recipe(f"{name}@published")
        options = resolve(recipe.name, recipe.options, {"validation_fraction": 0.0, **options}, N_TEXTS, N_LABELS)
        network = new_network(recipe, TrainingData(random_data(), options), options).module
        assert network.n_features == self.n_features
        return network, ResidualBlock(network.n_features, BlockOptions.of(options))

    @pytest.mark.parametrize(
        ("name", "n_blocks", "published"), [("inceptionxml", 1, 400e3), ("inceptionxml+", 2, 630e3)]
    )
    def test_parameters(self, name, n_blocks, published):
        """Section 6.2, without word vectors and label rows."""
        network, block = self.encoder_and_block(name)
        of_encoder = sum(p.numel() for p in network.parameters()) - network.words.weight.numel()
        of_block = sum(p.numel() for p in block.parameters())
        assert of_encoder + n_blocks * of_block == pytest.approx(published, rel=0.01)

    @pytest.mark.parametrize(
        ("n_labels", "n_clusters", "max_words", "all_labels", "shortlist"),
        [(670_091, 65_536, 32, 0.334, 0.049), (352_072, 32_768, 16, 0.176, 0.027), (501_070, 32_768, 16, 0.247, 0.029)],
        ids=["AmazonTitles-670K", "WikiSeeAlsoTitles-350K", "WikiTitles-500K"],
    )
    def test_giga_flops(self, n_labels, n_clusters, max_words, all_labels, shortlist):
        """Table 2: a multiply-add counts once, attention makes whole matrices, 800 clusters are searched.

        The figures of the Wikipedia titles, most of which have four words or fewer, are those of 16 words.
        """
        network, _ = self.encoder_and_block("inceptionxml", max_words=max_words)
        state = {f"network.{name}": tensor.numpy() for name, tensor in network.state_dict().items()}
        reference = Reference(state, (np.zeros((1, self.n_features)), None), max_words=max_words)
        reference.training = False
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            reference.encode([list(range(9))])
        of_encoder, of_block = counter.get_total_flops() / 2, self.n_features**2
        assert (of_encoder + of_block + n_labels * self.n_features) / 1e9 == pytest.approx(all_labels, rel=0.01)
        n_scored = n_clusters + 800 * n_labels / n_clusters
        assert (of_encoder + 2 * of_block + n_scored * self.n_features) / 1e9 == pytest.approx(shortlist, rel=0.05)

    def test_our_stages_need_fewer(self):
        """They fold the attentions into small matrices: 6 million fewer for the same features."""
        network, block = self.encoder_and_block("inceptionxml+")
        encoder = InceptionEncoder(network.arrays(), {"max_words": 32, **network.config()})
        rows = {"weights": np.zeros((1, self.n_features), np.float32), "biases": np.zeros(1, np.float32)}
        layer = OutputLayer({**rows, **block.arrays()})
        of_encoder = encoder.multiply_adds(np.asarray([32]))
        assert (of_encoder + layer.multiply_adds(670_091)) / 1e9 == pytest.approx(0.329, abs=0.0005)
        shortlisted = of_encoder + layer.multiply_adds(65_536) + layer.multiply_adds(800 * 670_091 / 65_536)
        assert shortlisted / 1e9 == pytest.approx(0.043, abs=0.0005)
