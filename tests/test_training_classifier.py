"""Linear classifiers over features, against the exact solution of the same problem."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from shortlist.arrays import Ragged
from shortlist.training.phases import classifier
from shortlist.training.phases.classifier import learn_svms
from test_training_word_weights import TOLERANCE, best_row, objective, texts_of

N_LABELS = 9


def problem(seed=0, n_texts=40, n_features=6):
    rng = np.random.default_rng(seed)
    features = rng.standard_normal((n_texts, n_features)).astype(np.float32)
    labels = Ragged.from_lists([rng.permutation(N_LABELS)[: rng.integers(0, 3)] for _ in range(n_texts)])
    return features, labels, rng.integers(-1, N_LABELS, (n_texts, 3)).astype(np.int32)


@pytest.mark.parametrize("kind", ["slice", "dismec"])
@pytest.mark.parametrize("C", [0.2, 1.0])
def test_rows_are_nearly_the_best_on_the_texts_of_each_label(kind, C):
    features, labels, candidates = problem()
    learnt = learn_svms(kind, features, labels, N_LABELS, candidates, C)
    unit = sparse.csr_array(features / np.linalg.norm(features, axis=1, keepdims=True))
    every = np.tile(np.arange(N_LABELS), (len(labels), 1))
    for label in range(N_LABELS):
        texts, hits = texts_of(label, labels, candidates if kind == "slice" else every)
        assert len(texts) == len(labels) or kind == "slice"
        best, inputs, signs = best_row(unit, texts, hits, C)
        row = np.append(learnt["weights"][label], learnt["biases"][label])
        reached, least = (objective(values, inputs, signs, C)[0] for values in (row, best))
        assert reached <= least * (1 + TOLERANCE) + 1e-6


def test_blocks_of_labels_change_next_to_nothing(monkeypatch):
    features, labels, candidates = problem()
    whole = learn_svms("dismec", features, labels, N_LABELS, candidates, 1.0)
    monkeypatch.setattr(classifier, "PAIRS_PER_BLOCK", 2 * len(labels))
    parts = learn_svms("dismec", features, labels, N_LABELS, candidates, 1.0)
    for name, array in whole.items():  # a label's number seeds the order of its texts
        np.testing.assert_allclose(parts[name], array, atol=0.2)


def test_small_weights_are_dropped():
    features, labels, candidates = problem()
    rows = learn_svms("dismec", features, labels, N_LABELS, candidates, 1e-4)["weights"]
    assert not rows.any() or np.abs(rows[rows != 0]).min() >= classifier.MIN_WEIGHTS["dismec"]
    assert learn_svms("slice", features, labels, N_LABELS, candidates, 1e-4)["weights"].any()
