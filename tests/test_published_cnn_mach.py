"""XML-CNN and MACH as published: several steps of training against plain torch, written from their formulas."""

from __future__ import annotations

import numpy as np
import pytest

import shortlist
from shortlist.arrays import Ragged
from shortlist.recipes.options import resolve
from shortlist.training.batches import Batch, padded
from shortlist.training.data import TrainingData

torch = pytest.importorskip("torch")

from shortlist.stages.output_layer import OutputLayer  # noqa: E402
from shortlist.stages.stage import without_prefix  # noqa: E402
from shortlist.training.hashing import HASHINGS  # noqa: E402
from shortlist.training.heads import EncoderOptions, HeadOptions  # noqa: E402
from shortlist.training.networks import new_learner, new_network  # noqa: E402
from shortlist.training.phases.joint import joint_learner  # noqa: E402

N_TEXTS, N_LABELS, N_STEPS, RATE, TOLERANCE = 24, 20, 6, 0.001, 1e-5


pytestmark = pytest.mark.usefixtures("full_floats")


def training_data(name, **given):
    rng = np.random.default_rng(0)
    rows = []
    for i in range(N_TEXTS):
        words = [f"word{j}" for j in rng.integers(40, size=rng.integers(1, 15))]
        rows.append((" ".join(words), [f"l{label}" for label in {i % N_LABELS, *rng.integers(N_LABELS, size=2)}]))
    recipe = shortlist.get_recipe(f"{name}@published")
    given = {"validation_fraction": 0.0, "threads": 1, "dropout": 0.0, **given}
    options = resolve(recipe.name, recipe.options, given, N_TEXTS, N_LABELS)
    return recipe, options, TrainingData(shortlist.read(rows), options)


def parameter(array):
    return torch.tensor(np.asarray(array), dtype=torch.float64, requires_grad=True)


class Reference:
    """Adam, which moves word vectors only in steps that see them (SparseAdam), and binary cross-entropy."""

    def __init__(self, parameters):
        self.p = {name: parameter(array) for name, array in parameters.items()}
        self.adam = torch.optim.Adam([tensor for name, tensor in self.p.items() if name != "words"], lr=RATE)
        self.lazy = torch.optim.SparseAdam([self.p["words"]], lr=RATE)

    def step(self, texts, labels, reduction):
        logits = torch.stack([self.logits(words) for words in texts])
        truth = torch.zeros_like(logits)
        for row, own in enumerate(labels):
            truth[row, own] = 1
        loss = torch.nn.functional.binary_cross_entropy_with_logits(logits, truth, reduction=reduction)
        loss = loss / len(texts) if reduction == "sum" else loss
        self.adam.zero_grad()
        self.lazy.zero_grad()
        loss.backward()
        seen = torch.tensor(sorted({row for words in texts for row in self.rows_of(words)}))
        gradient, shape = self.p["words"].grad[seen], self.p["words"].shape
        self.p["words"].grad = torch.sparse_coo_tensor(seen[None], gradient, shape, check_invariants=True)
        self.adam.step()
        self.lazy.step()
        return loss.item()

    def all_logits(self, texts):
        with torch.no_grad():
            return torch.stack([self.logits(words) for words in texts]).numpy()


class XmlCnn(Reference):
    """Liu et al. 2017: each filter's maximum in each of p chunks of the padded text; a bottleneck; one-vs-rest."""

    max_words, n_chunks, widths = 12, 3, (2, 4, 8)

    def rows_of(self, words):
        return words[: self.max_words]

    def logits(self, words):
        text = torch.zeros(self.max_words, self.p["words"].shape[1], dtype=torch.float64)
        words = words[: self.max_words]
        text = torch.cat([self.p["words"][words], text[len(words) :]])
        pooled = []
        for i, width in enumerate(self.widths):
            nothing = torch.zeros(width - 1, text.shape[1], dtype=torch.float64)
            around = torch.cat([nothing[: (width - 1) // 2], text, nothing[: width // 2]])
            filters, bias = self.p[f"filters.{i}.weight"], self.p[f"filters.{i}.bias"]  # filters × dimensions × width
            places = [
                torch.relu((filters * around[t : t + width].T).sum(dim=(1, 2)) + bias) for t in range(self.max_words)
            ]
            of_chunk = self.max_words // self.n_chunks
            chunks = [torch.stack(places[c * of_chunk : (c + 1) * of_chunk]) for c in range(self.n_chunks)]
            pooled.append([chunk.amax(dim=0) for chunk in chunks])
        # The hidden layer's inputs are ordered by chunk, then by width.
        flat = torch.cat([pooled[i][c] for c in range(self.n_chunks) for i in range(len(self.widths))])
        hidden = torch.relu(self.p["hidden.weight"] @ flat + self.p["hidden.bias"])
        return self.p["rows"] @ hidden + self.p["biases"]


def test_xml_cnn_learns_as_the_formulas_do():
    small = {"embedding_dim": 16, "channels": 5, "hidden_size": 10, "word_dropout": 0.0}
    recipe, options, data = training_data("xml-cnn", max_words=12, n_chunks=3, **small)
    assert (options.block, options.loss_reduction, options.fixed_chunks) == ("none", "sum", True)
    network = new_network(recipe, data, options)
    learner = joint_learner(data, options, network, None)
    state = {name: tensor.numpy().copy() for name, tensor in network.module.state_dict().items()}
    state["words"] = state.pop("words.weight")[:-1]
    rows = learner.heads["rows"].rows
    reference = XmlCnn({**state, "rows": rows.weights.copy(), "biases": rows.biases.copy()})
    rng = np.random.default_rng(1)
    for _ in range(N_STEPS):
        texts = rng.permutation(N_TEXTS)[:12]
        inputs = padded(data.word_ids, texts, options.max_words, data.n_words)
        loss = learner.step(Batch(inputs, data.labels.take(texts)), RATE).loss
        words, labels = ([ragged.row(i).tolist() for i in texts] for ragged in (data.word_ids, data.labels))
        assert loss == pytest.approx(reference.step(words, labels, "sum"), abs=TOLERANCE)
    arrays = learner.for_prediction()
    features = network.stage(without_prefix("encoder", arrays)).encode(data.word_ids)
    found = OutputLayer(without_prefix("rows", arrays)).logits(features)
    expected = reference.all_logits([data.word_ids.row(i).tolist() for i in range(N_TEXTS)])
    np.testing.assert_allclose(found, expected, rtol=0, atol=TOLERANCE)


class Mach(Reference):
    """Medini et al. 2019, one repetition: hashed words, two hidden layers with ReLU, one output per label bucket."""

    def __init__(self, parameters, bucket_of_word, idf):
        super().__init__(parameters)
        self.bucket_of_word, self.idf = bucket_of_word, idf

    def rows_of(self, words):
        return [int(self.bucket_of_word[word]) for word in words]

    def logits(self, words):
        weights = torch.tensor([float(self.idf[word]) for word in words], dtype=torch.float64)
        first = (weights / weights.norm()) @ self.p["words"][self.rows_of(words)] + self.p["first_bias"]
        second = self.p["second"] @ torch.relu(first) + self.p["second_bias"]
        return self.p["rows"] @ torch.relu(second) + self.p["biases"]


def test_mach_learns_as_the_formulas_do():
    recipe, options, data = training_data("mach", embedding_dim=16, n_word_buckets=25, n_buckets=7)
    assert (options.block, options.loss_reduction, options.hashing) == ("linear", "mean", "universal")
    bucket_of_label = HASHINGS[options.hashing](data.n_labels, options.n_buckets, 0)
    network = new_network(recipe, data, options)
    tasks = [sorted({int(bucket_of_label[label]) for label in data.labels.row(i)}) for i in range(N_TEXTS)]
    n_buckets, head = int(bucket_of_label.max()) + 1, HeadOptions.of(options)
    learner = new_learner(network.module, n_buckets, 2.0, 0, "cpu", head, EncoderOptions.of(options, RATE))
    encoder = network.module.arrays()
    block = learner.block.rows
    reference = Mach(
        {
            "words": encoder["words"].copy(),
            "first_bias": encoder["biases"].copy(),
            "second": block.weights.copy(),
            "second_bias": block.biases.copy(),
            "rows": learner.rows.weights.copy(),
            "biases": learner.rows.biases.copy(),
        },
        encoder["buckets"],
        encoder["idf"],
    )
    rng = np.random.default_rng(1)
    for _ in range(N_STEPS):
        texts = rng.permutation(N_TEXTS)[:12]
        own = [tasks[i] for i in texts]
        inputs = padded(data.word_ids, texts, options.max_words, data.n_words)
        loss = learner.step(Batch(inputs, Ragged.from_lists(own)), RATE).loss
        expected = reference.step([data.word_ids.row(i).tolist() for i in texts], own, "mean")
        assert loss == pytest.approx(expected, abs=TOLERANCE)
    arrays = learner.for_prediction()
    features = network.stage(without_prefix("encoder", arrays)).encode(data.word_ids)
    found = OutputLayer(without_prefix("rows", arrays)).logits(features)
    expected = reference.all_logits([data.word_ids.row(i).tolist() for i in range(N_TEXTS)])
    np.testing.assert_allclose(found, expected, rtol=0, atol=TOLERANCE)
