"""Weights of labels in training: targets of label rows, and how much an example of a centroid or re-ranker counts."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import sparse

import shortlist
from shortlist.arrays import Ragged
from shortlist.training.data import weighted_labels
from shortlist.training.device_rows import DeviceRows
from shortlist.training.label_rows import Clusters, LabelRows
from shortlist.training.word_weights import learn_word_weights


def slow_step(rows, features, candidates, positives):
    """Loss and gradient to the features by autograd, with the weights as targets."""
    x = torch.tensor(features, requires_grad=True)
    loss = torch.zeros(())
    for text, own in enumerate(candidates):
        target = dict(
            zip(positives.row(text).tolist(), positives.weights[slice(*positives.indptr[text : text + 2])], strict=True)
        )
        truth = torch.tensor([float(target.get(label, 0)) for label in own.tolist()])
        logits = torch.tensor(rows.weights[own]) @ x[text] + torch.tensor(rows.biases[own])
        loss = loss + torch.nn.functional.binary_cross_entropy_with_logits(logits, truth, reduction="sum")
    (loss / len(features)).backward()
    return loss.item() / len(features), x.grad.numpy()


@pytest.mark.parametrize("kind", ["labels", "clusters", "all"])
@pytest.mark.parametrize("seed", range(3))
def test_weights_are_the_targets_of_label_rows(kind, seed):
    rng = np.random.default_rng(seed)
    rows = LabelRows.start(12, 5, 0.1, seed)
    twin = DeviceRows(LabelRows.start(12, 5, 0.1, seed), "cpu")
    features = rng.standard_normal((4, 5)).astype(np.float32)
    positives = Ragged.from_lists([[1, 7], [0], [], [11, 3]])
    positives = Ragged(positives.indptr, positives.values, np.array([0.3, 1, 0.5, 0.1, 0.9], np.float32))
    every = np.tile(np.arange(12, dtype=np.int32), (4, 1))
    candidates = {"labels": every, "all": None, "clusters": Clusters(every[:, :4], np.array([0, 3, 6, 9, 12]))}[kind]
    expected = slow_step(rows, features, every, positives)
    for found in (rows.step(features, candidates, positives, 0.01), twin.step(features, candidates, positives, 0.01)):
        assert found[0] == pytest.approx(expected[0], rel=1e-4)
        np.testing.assert_allclose(np.asarray(found[1]), expected[1], rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(twin.arrays()["weights"], rows.weights, rtol=1e-3, atol=1e-5)


def test_a_weight_counts_like_repeated_examples():
    """In the re-ranker, a text with weight 1 beside three of 1/3 counts as three of them do."""
    rng = np.random.default_rng(0)
    words = sparse.csr_array((rng.random((8, 6)) < 0.5).astype(np.float32))
    labels = [[0], [1], [0], [1], [0, 1], [1], [0], [1]]
    none = np.tile(np.array([[0, 1]], np.int32), (8, 1))
    thrice = [row for row in range(8) for _ in range(3 if row == 2 else 1)]
    repeated = learn_word_weights(words[thrice], Ragged.from_lists([labels[i] for i in thrice]), 2, none[thrice], C=0.3)
    rows = Ragged.from_lists(labels)
    weights = np.where(rows.row_ids == 2, 3, 1).astype(np.float32)
    weighted = learn_word_weights(words, Ragged(rows.indptr, rows.values, weights), 2, none, C=0.3)
    plain = learn_word_weights(words, rows, 2, none, C=0.3)
    # Text 2 is a wrong example of label 1 three times in one problem, and once in the other.
    np.testing.assert_allclose(weighted["biases"][0], repeated["biases"][0], atol=0.05)
    assert abs(weighted["biases"][0] - repeated["biases"][0]) < abs(plain["biases"][0] - repeated["biases"][0])


def test_weights_are_relative_to_the_largest():
    labels = Ragged(np.array([0, 2, 4]), np.array([0, 1, 2, 3]), np.array([5.0, 1.0, 0.0, -1.0]))
    found = weighted_labels(labels)
    assert found.values.tolist() == [0, 1] and found.weights.tolist() == pytest.approx([1, 0.2])
    equal = Ragged(np.array([0, 2]), np.array([0, 1]), np.array([3.0, 3.0]))
    assert weighted_labels(equal).weights is None


def weighted_rows(weight):
    """The word "blau" has both labels, "a" with another weight."""
    rows = [(f"blau w{i % 5}", {"a": weight, "b": 1.0}) for i in range(60)]
    rows += [(f"rot w{i % 5}", {"a": 1.0}) for i in range(60)]
    return shortlist.read(rows + [(f"gelb w{i % 5}", {"c": 1.0}) for i in range(60)])


def score_of_a(recipe, weight, **options):
    model = shortlist.train(weighted_rows(weight), recipe=recipe, **options)
    ids = np.array([[model.label_names.index("a")]], np.int32)
    return float(model.pipelines[0].scores(["blau"], ids)[0, 0])


def test_a_smaller_weight_gives_a_lower_score_in_centroids():
    assert score_of_a("centroid", 0.1) < score_of_a("centroid", 1.0) - 0.1


@pytest.mark.slow
@pytest.mark.parametrize(("reranker", "from_centres"), [("none", True), ("none", False), ("words", True)])
def test_a_smaller_weight_gives_a_lower_score_in_label_rows(reranker, from_centres):
    options = {"embedding_dim": 16, "n_epochs": 20, "n_surrogate_epochs": 4, "batch_size": 16, "learning_rate": 0.05}
    options |= {"reranker": reranker, "rows_from_centres": from_centres, "seed": 1, "threads": 1}
    assert score_of_a("astec", 0.1, **options) < score_of_a("astec", 1.0, **options) - 0.04


def test_a_weight_of_zero_is_no_label():
    model = shortlist.train(weighted_rows(0.0), recipe="centroid")
    assert "a" not in {p.label for p in model.predict("blau", min_score=0)}
