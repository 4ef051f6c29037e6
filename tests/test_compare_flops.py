"""Multiply-adds by hand. TO MOVE to the tests of the stages' `multiply_adds` when `compare/flops.py` is deleted."""

from __future__ import annotations

import numpy as np
import pytest

import shortlist
from shortlist.arrays import Ragged
from shortlist.compare.flops import multiply_adds, of_encoder, of_head, of_network, of_pipeline
from shortlist.encoders.bag_runtime import BagRuntime
from shortlist.encoders.cnn_runtime import CNNRuntime
from shortlist.encoders.inception_runtime import InceptionRuntime, branch_columns
from shortlist.encoders.mlp_runtime import MLPRuntime
from shortlist.heads.runtime import HeadRuntime
from shortlist.model.deepxml import Pipeline
from shortlist.model.inception import Network
from shortlist.shortlisters.cells import CellIndex
from shortlist.shortlisters.merged import MergedShortlister


def zeros(*shape):
    return np.zeros(shape, np.float32)


def head(n_rows, n_features, block=True):
    arrays = {"weights": zeros(n_rows, n_features), "biases": zeros(n_rows)}
    return HeadRuntime(arrays | ({"block": zeros(n_features, n_features)} if block else {}), n_rows, n_features)


def test_heads_by_hand():
    assert of_head(head(100, 8), 100) == 8 * 8 + 100 * 8
    assert of_head(head(100, 8, block=False), 12.5) == 100


def test_simple_encoders_by_hand():
    counts = np.array([2, 4, 40])  # of 40 words, 6 are looked at
    bag = BagRuntime({"words": zeros(50, 10), "idf": zeros(50)}, max_words=6)
    assert of_encoder(bag, counts) == (2 + 4 + 6) / 3 * 10
    hashed = {"words": zeros(20, 5), "biases": zeros(5), "idf": zeros(50), "buckets": np.zeros(50, np.int32)}
    assert of_encoder(MLPRuntime(hashed, max_words=6), counts) == 4 * 5
    # Windows of 2, 4 and 8 words with 3 filters each; 2 chunks of 9 filters to 7 features.
    arrays = {"words": zeros(50, 10), "taps": zeros(10, 14 * 3), "biases": zeros(9)}
    cnn = CNNRuntime(arrays | {"hidden": zeros(18, 7), "hidden_biases": zeros(7)}, max_words=6)
    assert of_encoder(cnn, counts) == 4 * 10 * 14 * 3 + 18 * 7


@pytest.mark.parametrize("attention", [False, True])
def test_inception_by_hand(attention):
    words, channels, dimensions = 5, 2, 64
    arrays = {
        "words": zeros(50, dimensions),
        "project": zeros(8, channels),
        "branch_weights": zeros(4 * channels, sum(branch_columns(channels))),
        "branch_biases": zeros(3 * channels),
        "last_weights": zeros(4 * 3 * channels, 4 * 3),
        "last_biases": zeros(3),
    }
    if attention:
        arrays |= {"word_mix": zeros(8, 8), "dimension_mix": zeros(dimensions, dimensions)}
    runtime = InceptionRuntime(arrays, max_words=8)
    projection = dimensions * words * channels
    attended = words * dimensions**2 + 2 * words**2 * dimensions + 3 * words**2 * channels
    # The last convolution has one place, of 16 places of the branches; these take 64 dimensions and a margin of 12, in
    # steps of 4. Windows of 4, 8 and 16 dimensions touch 2, 2 and 4 of the 4 steps that a place looks at.
    assert sum(branch_columns(channels)) == channels * (2 + 2 + 4)
    branches = (64 + 12) // 4 * arrays["branch_weights"].size
    last = 16 // 4 * arrays["last_weights"].size
    assert of_encoder(runtime, np.array([words])) == projection + (attended if attention else 0) + branches + last


def test_clusters_by_hand():
    n_labels, n_clusters = 32, 8
    arrays = {"encoder.words": zeros(50, 10), "encoder.idf": zeros(50)}
    arrays |= {"extreme.weights": zeros(n_labels, 10), "extreme.biases": zeros(n_labels)}
    network = Network(BagRuntime, arrays, 6, n_labels)
    assert of_network(network, 1, np.array([3])) == 3 * 10 + n_labels * 10
    arrays |= {"meta.weights": zeros(n_clusters, 10), "meta.biases": zeros(n_clusters)}
    starts = np.arange(0, n_labels + 1, 4, dtype=np.int64)
    arrays |= {"tree.order": np.arange(n_labels, dtype=np.int32), "tree.cluster_starts": starts}
    network = Network(BagRuntime, arrays, 6, n_labels)
    # Two of eight clusters: their labels are a quarter.
    assert of_network(network, 2, np.array([3])) == 3 * 10 + n_clusters * 10 + 8 * 10
    assert of_network(network, 99, np.array([3])) == 3 * 10 + n_clusters * 10 + n_labels * 10


def test_shortlists_by_hand():
    n_labels = 40
    index = CellIndex.build(np.random.default_rng(0).normal(size=(n_labels, 10)).astype(np.float32))
    none = Ragged(np.zeros(1, np.int64), np.zeros(0, np.int32))
    shortlister = MergedShortlister(index, np.arange(n_labels, dtype=np.int32), None, none, 5, 0.0, n_labels)
    bag = BagRuntime({"words": zeros(50, 10), "idf": zeros(50)}, max_words=6)
    pipeline = Pipeline(bag, shortlister, head(n_labels, 10), n_candidates=15)
    # One cell, and so all centres; then the residual block and 15 rows.
    assert of_pipeline(pipeline, 1, np.array([3])) == 30 + (10 + n_labels * 10) + (100 + 150)


def test_centroids_by_hand():
    model = shortlist.train([("red hat", ["hat"]), ("red shoe", ["shoe"]), ("old hat", ["hat", "old"])], "centroid")
    # "red" is a word of 2 labels, "hat" of 2; "nobody" of none.
    assert multiply_adds(model, ["red hat", "nobody"]) == (2 + 2) / 2
    assert multiply_adds(shortlist.train([("red hat", ["hat"])], "popular"), ["red"]) == 0
