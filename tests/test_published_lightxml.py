"""LightXML as published: its training against plain torch, over several steps, on all labels.

The heads on clusters are those of InceptionXML+ (test_published_inceptionxml.py).
"""

from __future__ import annotations

import copy

import numpy as np
import pytest

import shortlist
from shortlist.recipes.options import resolve
from shortlist.training.data import TrainingData
from tiny_transformers import tiny_transformer

torch = pytest.importorskip("torch")
pytest.importorskip("transformers", reason="needs the extra transformers")

from shortlist.stages.output_layer import OutputLayer  # noqa: E402
from shortlist.stages.stage import without_prefix  # noqa: E402
from shortlist.training import learner as learner_module  # noqa: E402
from shortlist.training.networks import new_network  # noqa: E402
from shortlist.training.phases.joint import joint_learner  # noqa: E402

pytestmark = pytest.mark.slow  # imports transformers
LEARNING_RATE, WEIGHT_DECAY = 1e-3, 0.01


class Reference:
    """The last layers' first outputs side by side, a bottleneck, one row per label; mean loss; AdamW."""

    def __init__(self, transformer, n_layers, projection, rows):
        self.transformer, self.n_layers = copy.deepcopy(transformer).train(), n_layers
        self.weights, self.biases = (torch.from_numpy(array.copy()).requires_grad_() for array in rows)
        self.projection = None if projection is None else copy.deepcopy(projection)
        own = list(self.transformer.parameters())
        heads = [self.weights, self.biases, *([] if projection is None else self.projection.parameters())]
        self.optimizer = torch.optim.AdamW(
            [
                {"params": [p for p in own if p.ndim > 1], "weight_decay": WEIGHT_DECAY},
                {"params": [p for p in own if p.ndim < 2] + heads, "weight_decay": 0.0},
            ],
            lr=LEARNING_RATE,
        )

    def features(self, rows):
        """One text at a time: no padding, no mask."""
        outputs = [self.transformer(torch.tensor([row]), output_hidden_states=True).hidden_states for row in rows]
        return torch.stack([torch.cat([states[-1 - i][0, 0] for i in range(self.n_layers)]) for states in outputs])

    def logits(self, features):
        hidden = features if self.projection is None else self.projection(features)
        return hidden @ self.weights.T + self.biases

    def step(self, rows, labels):
        target = torch.zeros(len(rows), len(self.biases))
        for i, own in enumerate(labels):
            target[i, own] = 1
        loss = torch.nn.functional.binary_cross_entropy_with_logits(self.logits(self.features(rows)), target)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()


@pytest.mark.parametrize("bottleneck", [0, 6])
def test_training_is_that_of_the_paper(bottleneck, tmp_path, monkeypatch):
    monkeypatch.setattr(learner_module, "has_fast_bfloat16", lambda: False)
    rng = np.random.default_rng(0)
    words = [" ".join(f"word{i}" for i in rng.integers(30, size=rng.integers(1, 8))) for _ in range(24)]
    data = shortlist.read([(text, [f"l{i % 10}", f"l{i % 7}"]) for i, text in enumerate(words)])
    no_dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    folder = tiny_transformer(tmp_path / "transformer", data.texts, **no_dropout)
    recipe = shortlist.get_recipe("lightxml@published")
    given = {"transformer": str(folder), "pooled_layers": 2, "max_words": 12, "dropout": 0.0, "bottleneck": bottleneck}
    given |= {"learning_rate": LEARNING_RATE, "encoder_learning_rate": LEARNING_RATE, "validation_fraction": 0.0}
    options = resolve(recipe.name, recipe.options, given, len(data), data.n_labels)
    assert (options.n_clusters, options.weight_decay, options.pooling) == (0, WEIGHT_DECAY, "cls")
    training = TrainingData(data, options)
    network = new_network(recipe, training, options)
    learner = joint_learner(training, options, network, None)
    head = learner.heads["rows"]
    pooled = network.module.pooled
    reference = Reference(pooled.transformer, 2, head.projection, (head.rows.weights, head.rows.biases))
    batches = network.batches(training.labels)
    for _ in range(4):
        texts = rng.permutation(len(data))[:12]
        loss = learner.step(batches.take(texts, rng), LEARNING_RATE).loss
        rows, labels = ([ragged.row(i).tolist() for i in texts] for ragged in (training.inputs, training.labels))
        assert loss == pytest.approx(reference.step(rows, labels), abs=1e-5)
    arrays = learner.for_prediction()
    layer = OutputLayer(without_prefix("rows", arrays))
    assert layer.rows.shape[1] == (bottleneck or 64) and layer.n_features == 64
    found = layer.logits(network.stage(without_prefix("encoder", arrays)).encode(training.inputs))
    with torch.no_grad():
        expected = reference.logits(reference.features([training.inputs.row(i).tolist() for i in range(len(data))]))
    np.testing.assert_allclose(found, expected.numpy(), rtol=0, atol=1e-5)
