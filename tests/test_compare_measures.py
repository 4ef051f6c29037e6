"""Significance and counts of multiply-adds, each against something slow and obvious."""

from __future__ import annotations

import numpy as np
import pytest

import shortlist
from comparing import write_data
from shortlist.arrays import Ragged
from shortlist.compare.flops import multiply_adds, of_encoder, of_head, of_network, of_pipeline
from shortlist.compare.measure import Convention, intervals_of, scores_of
from shortlist.compare.parts import Parts
from shortlist.compare.significance import differences_to_best
from shortlist.encoders.bag_runtime import BagRuntime
from shortlist.encoders.cnn_runtime import CNNRuntime
from shortlist.encoders.inception_runtime import InceptionRuntime, branch_columns
from shortlist.encoders.mlp_runtime import MLPRuntime
from shortlist.evaluation import compare, evaluate
from shortlist.heads.runtime import HeadRuntime
from shortlist.model.deepxml import Pipeline
from shortlist.model.inception import Network
from shortlist.shortlisters.cells import CellIndex
from shortlist.shortlisters.merged import MergedShortlister

CONVENTION = Convention(resamples=200, seed=4)


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    return Parts.read(str(write_data(tmp_path_factory.mktemp("data"))), 0)


def systems(parts, n_systems=3):
    """Predictions of systems that are better and better."""
    rng, test = np.random.default_rng(1), parts.test
    found = {}
    for system in range(n_systems):
        ids = rng.permuted(np.tile(np.arange(parts.train.n_labels), (len(test), 1)), axis=1)[:, :10]
        for row in np.flatnonzero(rng.random(len(test)) < 0.3 * system):
            own = test.labels.row(row)
            rest = [label for label in ids[row] if label not in own]
            ids[row] = [*own, *rest][:10]
        found[f"system {system}"] = ids.astype(np.int32)
    return found


def test_differences_are_those_of_compare(parts):
    measured = {name: scores_of(ids, parts, CONVENTION) for name, ids in systems(parts).items()}
    scores = {name: one[0] for name, one in measured.items()}
    found = differences_to_best(scores, {name: one[1] for name, one in measured.items()})
    train = (parts.train.label_frequencies, len(parts.train))
    evaluated = {
        name: evaluate(ids, parts.test.labels, train=train, unseen="ignore") for name, ids in systems(parts).items()
    }
    assert found["system 2"] == {}
    for name in ("system 0", "system 1"):
        assert len(found[name]) == 15
        slow = compare(evaluated[name], evaluated["system 2"], resamples=200, seed=4)
        for metric, one in found[name].items():
            expected = slow[metric]
            assert [one["difference"], one["low"], one["high"], one["p"]] == pytest.approx(
                [expected.value, expected.low, expected.high, expected.p], abs=1e-9
            )


def test_differences_of_precision_by_hand(parts):
    """Resample texts in a plain loop, with numpy's mean: a twin that knows nothing of counts and products."""
    ids = systems(parts)
    kept = np.flatnonzero(parts.test.labels.counts)
    right = {
        name: np.array([found[row, 0] in parts.test.labels.row(row) for row in kept], float)
        for name, found in ids.items()
    }
    rng = np.random.default_rng(CONVENTION.seed)
    drawn = [rng.integers(len(kept), size=len(kept)) for _ in range(CONVENTION.resamples)]
    moved = np.array([100 * (right["system 0"][rows].mean() - right["system 2"][rows].mean()) for rows in drawn])
    measured = {name: scores_of(found, parts, CONVENTION) for name, found in ids.items()}
    one = differences_to_best(*({name: of[i] for name, of in measured.items()} for i in (0, 1)))["system 0"]["P@1"]
    assert one["difference"] == pytest.approx(100 * (right["system 0"].mean() - right["system 2"].mean()))
    assert (one["low"], one["high"]) == pytest.approx(tuple(np.quantile(moved, [0.025, 0.975])))
    low, high = intervals_of(measured["system 0"][1])["P@1"]
    alone = np.array([100 * right["system 0"][rows].mean() for rows in drawn])
    assert (low, high) == pytest.approx(tuple(np.quantile(alone, [0.025, 0.975])))


def test_a_system_is_not_behind_its_twin(parts):
    ids = systems(parts)["system 1"]
    measured = {name: scores_of(ids, parts, CONVENTION) for name in ("one", "twin")}
    found = differences_to_best(*({name: of[i] for name, of in measured.items()} for i in (0, 1)))
    assert found["one"] == {}
    assert found["twin"]["P@1"] == {"difference": 0, "low": 0, "high": 0, "p": 1}


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
