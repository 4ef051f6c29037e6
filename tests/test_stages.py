"""The contract of all stages: arrays and back, 8 bits, and the cost of a prediction counted by hand."""

from __future__ import annotations

import json

import numpy as np
import pytest
from safetensors.numpy import load, save
from scipy import sparse

from shortlist.arrays import Ragged, check_arrays
from shortlist.errors import ModelError
from shortlist.files import DTYPES
from shortlist.stages.calibration import N_POINTS, Calibration
from shortlist.stages.candidates import CANDIDATES, AllLabels, NearestLabels, TopClusters
from shortlist.stages.candidates.cells import CellIndex
from shortlist.stages.candidates.neighbours import GraphSizes, NeighbourIndex
from shortlist.stages.classifier import (
    CLASSIFIERS,
    BucketClassifier,
    PriorClassifier,
    RowClassifier,
    SparseClassifier,
    VoteClassifier,
    bucket_arrays,
)
from shortlist.stages.encoders import (
    ENCODERS,
    BagEncoder,
    CNNEncoder,
    DenseEncoder,
    GivenEncoder,
    InceptionEncoder,
    NoEncoder,
    ParallelEncoders,
    TfIdfEncoder,
    UnitRowsEncoder,
)
from shortlist.stages.encoders.inception import branch_columns
from shortlist.stages.evidence import index_names, remember_texts
from shortlist.stages.network_reranker import NetworkReranker
from shortlist.stages.output_layer import OutputLayer
from shortlist.stages.pages import paged_weights
from shortlist.stages.reranker import Mixture, Reranker
from shortlist.stages.stage import without_prefix
from shortlist.text import LexicalFeatures, Vocabulary

N_WORDS, N_FEATURES, N_LABELS = 50, 10, 40
TEXTS = Ragged.from_lists([[1, 2, 3], [], [7] * 40])


def floats(*shape, seed=0):
    return np.random.default_rng([seed, *shape]).standard_normal(shape, np.float32)


def bag(n_features=N_FEATURES, hashed=False, seed=0):
    arrays = {"words": floats(N_WORDS, n_features, seed=seed), "idf": np.ones(N_WORDS, np.float32)}
    if hashed:
        arrays["words"] = arrays["words"][:20]
        arrays["biases"], arrays["buckets"] = floats(n_features), np.arange(N_WORDS, dtype=np.int32) % 20
    return BagEncoder.from_arrays(arrays, {"max_words": 6, "relu": hashed})


def dense():
    arrays = {"scale": floats(3), "hidden": floats(3, 4), "hidden_biases": floats(4)}
    return DenseEncoder.from_arrays(arrays | {"output": floats(4, 3), "output_biases": floats(3)}, {})


def cnn():
    """Windows of 2, 4 and 8 words with 3 filters each; 2 chunks of 9 filters to 7 features."""
    arrays = {"words": floats(N_WORDS, 10), "taps": floats(10, 14 * 3), "biases": floats(9)}
    arrays |= {"hidden": floats(18, 7), "hidden_biases": floats(7)}
    return CNNEncoder.from_arrays(arrays, {"max_words": 6})


def inception(attention=True, bag=False):
    channels, embedding_dim = 2, 64
    arrays = {
        "words": floats(N_WORDS, embedding_dim) / 8,
        "project": floats(8, channels),
        "branch_weights": floats(4 * channels, sum(branch_columns(channels))),
        "branch_biases": floats(3 * channels),
        "last_weights": floats(4 * 3 * channels, 4 * 3),
        "last_biases": floats(3),
    }
    if attention:
        arrays |= {"word_mix": floats(8, 8) / 9, "dimension_mix": floats(embedding_dim, embedding_dim) / 99}
    return InceptionEncoder.from_arrays(arrays, {"max_words": 8, "bag": bag})


def layer(n_rows, n_features=N_FEATURES, block=True):
    arrays = {"weights": floats(n_rows, n_features), "biases": floats(n_rows)}
    return arrays | ({"block": floats(n_features, n_features)} if block else {})


def clusters(n_clusters=8):
    """Clusters of five labels."""
    arrays = {f"meta.{name}": array for name, array in layer(n_clusters, block=False).items()}
    arrays["starts"] = np.arange(0, N_LABELS + 1, N_LABELS // n_clusters)
    arrays["cluster_of_label"] = np.repeat(np.arange(n_clusters, dtype=np.int32), N_LABELS // n_clusters)
    return TopClusters.from_arrays(arrays, {"n_searched": 2, "max_searched": 4, "use_logits": True})


def nearest(votes="none", n_candidates=15, **options):
    owner, texts, labels = np.arange(N_LABELS, dtype=np.int32), None, None
    if votes != "none":
        texts = NeighbourIndex.build(floats(30, N_FEATURES), exact=votes == "exact")
        labels = Ragged.from_lists([[i, i + 10] for i in range(30)])
    weight = 0.0 if votes == "none" else 0.5
    return NearestLabels.build(
        floats(N_LABELS, N_FEATURES, seed=1), owner, N_LABELS, n_candidates, texts, labels, 7, weight, **options
    )


def reranker():
    words = Vocabulary.build(["red shoe", "blue hat"])
    features = LexicalFeatures.fit(["red shoe", "blue hat", "blue hats"], words)
    bounds = np.array([0, 2, 2, 5])
    arrays = paged_weights(bounds, np.array([0, 3, 1, 2, 4]), floats(5), floats(3), features.n_features)
    arrays |= {"idf": features.words_tfidf.idf, "subword_idf": features.ngrams_tfidf.idf}
    arrays |= index_names(features.transform(["red", "a blue hat", "new"])) | {"frequencies": floats(3) ** 2}
    arrays |= remember_texts(["red hat", "shoe"], Ragged.from_lists([[2], [0, 1]]), words.tokenizer)
    config = {"n_candidates": 2, "mixture": vars(Mixture(*floats(10).tolist()))}
    return Reranker.from_arrays(arrays, config, words, features.ngrams, n_labels=3)


def network_reranker():
    return NetworkReranker(bag(), layer(N_LABELS), {"n_candidates": 5, "beta": 0.6})


def rerank_ids(stage):
    ids = np.tile(np.arange(5, dtype=np.int32), (len(TEXTS), 1))
    ids[0, 3:] = -1
    evidence = stage.gather(None, TEXTS, ids)
    return stage.best(evidence, np.full(ids.shape, 0.25, np.float32), 3)


def features_of(stage, n_texts=6):
    return floats(n_texts, stage.n_features or N_FEATURES, seed=2)


def find(stage):
    """Candidates in the order of their ids: some stages give them in no order."""
    found = stage.find(features_of(stage), stage.n_searched)
    if found.ids is None:
        return [array for array in (found.clusters, found.starts, *found.evidence) if array is not None]
    order = np.argsort(found.ids, axis=1)
    return [np.take_along_axis(array, order, axis=1) for array in (found.ids, *found.evidence)]


def rerank(stage):
    texts, ids = ["red hat", "blue", ""], np.array([[0, 1, 2], [2, 0, -1], [1, 2, 0]], np.int32)
    evidence = stage.gather(texts, stage.features.words.encode(texts), ids)
    return stage.best(evidence, np.full(evidence.ids.shape, 0.25, np.float32), 3)


def classify(stage):
    ids = np.tile(np.arange(stage.n_labels, dtype=np.int32), (6, 1))
    features = features_of(stage)
    has_evidence = "blend" in stage.config() or isinstance(stage, VoteClassifier)
    evidence = (np.zeros(ids.shape, np.float32),) * 2 if has_evidence else ()
    if isinstance(stage, SparseClassifier):
        features = sparse.csr_array(np.maximum(features, 0))
    return [stage.scores(features, ids, evidence)]


SPARSE_ROWS = sparse.csr_array(np.array([[1, 0, 2], [0, 3, 0]], np.float32))
# Every kind of stage, and what it does with some input, as arrays.
STAGES = {
    "bag": (bag, lambda stage: [stage.encode(TEXTS)]),
    "bag, hashed": (lambda: bag(hashed=True), lambda stage: [stage.encode(TEXTS)]),
    "cnn": (cnn, lambda stage: [stage.encode(TEXTS)]),
    "inception": (inception, lambda stage: [stage.encode(TEXTS)]),
    "inception, with bag": (lambda: inception(False, True), lambda stage: [stage.encode(TEXTS)]),
    "parallel": (lambda: ParallelEncoders([bag(), bag(4, True)]), lambda stage: [stage.encode(TEXTS)]),
    "tfidf": (lambda: TfIdfEncoder({"idf": floats(N_WORDS) ** 2}), lambda stage: [stage.encode(TEXTS).toarray()]),
    "given": (lambda: GivenEncoder.fit(floats(5, 3), 2.5), lambda stage: [stage.encode(floats(2, 3))]),
    "dense": (dense, lambda stage: [stage.encode(floats(2, 3))]),
    "unit-rows": (lambda: UnitRowsEncoder({}, {"n_features": 3}), lambda s: [s.encode(floats(2, 3)).toarray()]),
    "none": (lambda: NoEncoder({}), lambda stage: [stage.encode(["a", "b"])]),
    "all": (AllLabels, find),
    "clusters": (clusters, find),
    "nearest": (lambda: nearest(n_candidates=N_LABELS), find),
    "nearest, exact votes": (lambda: nearest("exact", N_LABELS), find),
    "nearest, votes by graphs": (lambda: nearest("graphs", N_LABELS), find),
    "nearest, all by graphs": (lambda: nearest("graphs", N_LABELS, votes_are_sums=True, graph=GraphSizes()), find),
    "rows": (lambda: RowClassifier(layer(N_LABELS)), classify),
    "rows, blended": (lambda: RowClassifier(layer(N_LABELS), {"blend": {"cosine": 0.5}}), classify),
    "rows, ordered": (lambda: RowClassifier({**layer(9), "order": np.arange(9, dtype=np.int32)[::-1]}), classify),
    "buckets": (lambda: BucketClassifier(bucket_arrays([layer(5), layer(5, 3)], np.ones((2, 7), np.int32))), classify),
    "sparse": (lambda: SparseClassifier.of_rows(SPARSE_ROWS), classify),
    "prior": (lambda: PriorClassifier({"frequencies": np.array([0.5, 0.1], np.float32)}), classify),
    "votes": (lambda: VoteClassifier({}, {"n_labels": 5, "n_features": 2}), classify),
    "words": (reranker, rerank),
    "network": (network_reranker, rerank_ids),
    "curves": (
        lambda: Calibration.of_curves("isotonic", [[0.7, -0.2, 0.4, 0.1]], [np.linspace(0, 0.9, N_POINTS)]),
        lambda stage: [stage.apply(np.linspace(1, 0, 9)[None], np.array([0.5]))],
    ),
}
EVERY_STAGE = pytest.mark.parametrize("name", STAGES)


def again(stage, arrays=None):
    """The stage from its arrays and config, after a trip through safetensors and JSON."""
    content = save({name: np.ascontiguousarray(array) for name, array in (arrays or stage.arrays()).items()})
    arrays, config = load(content), json.loads(json.dumps(stage.config()))
    if isinstance(stage, Reranker):
        return Reranker.from_arrays(arrays, config, stage.features.words, stage.subwords, stage.n_labels)
    if isinstance(stage, NetworkReranker):
        own = without_prefix("encoder", arrays)
        encoder = ENCODERS[config["encoder"]["kind"]].from_arrays(own, config["encoder"]["config"])
        return NetworkReranker.from_arrays(arrays, config, encoder, N_LABELS)
    return type(stage).from_arrays(arrays, config)


# Sequences of hidden states, and weights of Hugging Face: in test_recipes_attentionxml.py and test_transformers.py.
TESTED_ELSEWHERE = {"lstm", "attention", "attention-clusters", "transformer"}


def test_every_kind_of_stage_is_tested():
    kinds = {new().kind for new, _ in STAGES.values()} | TESTED_ELSEWHERE
    assert kinds == {*ENCODERS, *CANDIDATES, *CLASSIFIERS, Reranker.kind, NetworkReranker.kind, Calibration.kind}


class TestEveryStage:
    @EVERY_STAGE
    def test_arrays_and_config_are_all_there_is(self, name):
        new, apply = STAGES[name]
        stage = new()
        restored = again(stage)
        assert restored.kind == stage.kind == name.split(",")[0]
        assert restored.config() == stage.config()
        assert restored.arrays().keys() == stage.arrays().keys()
        for key, array in stage.arrays().items():
            assert restored.arrays()[key].dtype == array.dtype
            assert array.dtype in map(np.dtype, DTYPES.values())
            assert np.array_equal(restored.arrays()[key], array)
        for one, two in zip(apply(restored), apply(stage), strict=True):
            assert np.array_equal(one, two)

    @EVERY_STAGE
    def test_in_8_bits_it_does_nearly_the_same(self, name):
        new, apply = STAGES[name]
        stage = new()
        before = {key: array.copy() for key, array in stage.arrays().items()}
        packed = stage.quantized()
        assert type(packed) is type(stage)
        assert packed.config() == stage.config()
        for key, array in before.items():  # the stage itself stays as it is
            assert np.array_equal(stage.arrays()[key], array)
        matrices = {key for key, array in packed.arrays().items() if array.dtype == np.int8}
        assert {key for key in matrices if stage.arrays()[key].dtype != np.float32} == set()
        names = {"weights", "words", "cells", "vectors"}
        large = {key for key, a in stage.arrays().items() if a.dtype == np.float32 and key.split(".")[-1] in names}
        assert matrices == large - {"texts.vectors"} - ({"weights"} if stage.kind == "sparse" else set())
        for one, two in zip(apply(packed), apply(stage), strict=True):
            if one.dtype.kind == "f":
                np.testing.assert_allclose(one, two, atol=0.05 * np.abs(two[np.isfinite(two)]).max(initial=1))
            else:
                assert (one == two).mean() > 0.8

    @EVERY_STAGE
    def test_in_8_bits_it_comes_back_and_stays_as_it_is(self, name):
        new, apply = STAGES[name]
        packed = new().quantized()
        for same in (again(packed), packed.quantized()):
            assert same.arrays().keys() == packed.arrays().keys()
            for one, two in zip(apply(same), apply(packed), strict=True):
                assert np.array_equal(one, two)

    @EVERY_STAGE
    def test_its_spec_describes_its_arrays(self, name):
        stage = STAGES[name][0]()
        if stage.spec:
            sizes = {"n_labels": stage.config()["n_labels"]} if "n_labels" in stage.config() else {}
            check_arrays(stage.arrays(), stage.spec, **sizes)
            check_arrays(stage.quantized().arrays(), stage.spec, **sizes)

    @EVERY_STAGE
    def test_unknown_arrays_are_refused(self, name):
        stage = STAGES[name][0]()
        with pytest.raises(ModelError, match="'unknown' is not part of this stage"):
            again(stage, {**stage.arrays(), "unknown": np.zeros(1, np.float32)})


class TestMultiplyAdds:
    COUNTS = np.array([2, 4, 40])  # of 40 words, 6 are read

    def test_bags(self):
        assert bag().multiply_adds(self.COUNTS) == (2 + 4 + 6) / 3 * 10
        assert bag(5, hashed=True).multiply_adds(self.COUNTS) == 4 * 5
        assert ParallelEncoders([bag(), bag(5)]).multiply_adds(self.COUNTS) == 4 * 10 + 4 * 5

    def test_cnn(self):
        assert cnn().multiply_adds(self.COUNTS) == 4 * 10 * 14 * 3 + 18 * 7

    @pytest.mark.parametrize("attention", [False, True])
    def test_inception(self, attention):
        encoder, words, channels, embedding_dim = inception(attention), 5, 2, 64
        arrays = encoder.arrays()
        projection = embedding_dim * words * channels
        attended = words * embedding_dim**2 + 2 * words**2 * embedding_dim + 3 * words**2 * channels
        # The last convolution has one position, over 16 positions of the branches. These read 64 dimensions and a
        # margin of 12, in steps of 4. Windows of 4, 8 and 16 dimensions touch 2, 2 and 4 of the 4 steps of a position.
        assert sum(branch_columns(channels)) == channels * (2 + 2 + 4)
        branches = (64 + 12) // 4 * arrays["branch_weights"].size
        last = 16 // 4 * arrays["last_weights"].size
        expected = projection + (attended if attention else 0) + branches + last
        assert encoder.multiply_adds(np.array([words])) == expected
        assert encoder.multiply_adds(np.array([99])) == inception(attention).multiply_adds(np.array([8]))

    def test_encoders_that_learn_nothing(self):
        assert GivenEncoder({"scale": floats(7)}).multiply_adds(np.zeros(3)) == 7
        assert TfIdfEncoder({"idf": floats(7)}).multiply_adds(self.COUNTS) == 0
        assert UnitRowsEncoder({}, {"n_features": 7}).multiply_adds(np.zeros(3)) == 0
        assert NoEncoder({}).multiply_adds(np.zeros(3)) == 0

    def test_output_layers(self):
        assert OutputLayer(layer(100, 8)).multiply_adds(100) == 8 * 8 + 100 * 8
        assert OutputLayer(layer(100, 8, block=False)).multiply_adds(12.5) == 100
        assert RowClassifier(layer(100, 8)).multiply_adds(30, None) == 8 * 8 + 30 * 8
        assert RowClassifier(layer(100, 8)).multiply_adds(None, None) is None

    def test_all_labels(self):
        assert AllLabels().multiply_adds(1) == 0
        assert AllLabels().n_candidates(1, 77) == 77

    def test_clusters(self):
        stage = clusters()
        assert stage.multiply_adds(2) == 8 * N_FEATURES
        assert stage.n_candidates(2, N_LABELS) == 10  # two of eight clusters have a quarter of the labels
        assert stage.n_candidates(99, N_LABELS) == N_LABELS

    def test_nearest_labels(self, monkeypatch):
        # One cell, and so all centres.
        assert nearest().multiply_adds(1) == N_FEATURES + N_LABELS * N_FEATURES
        assert nearest().n_candidates(1, N_LABELS) == 15
        assert nearest(n_candidates=500).n_candidates(1, N_LABELS) == N_LABELS
        assert nearest("exact").multiply_adds(1) is None
        monkeypatch.setattr("shortlist.stages.candidates.cells.ONE_CELL_UP_TO", 16)
        index = CellIndex.build(floats(N_LABELS, N_FEATURES))
        n_cells = len(index.cells)
        assert n_cells > 4
        assert index.multiply_adds(2) == n_cells * N_FEATURES + N_LABELS * N_FEATURES * 2 / n_cells
        assert index.multiply_adds(999) == n_cells * N_FEATURES + N_LABELS * N_FEATURES

    def test_buckets(self):
        stage = BucketClassifier(bucket_arrays([layer(5, 4), layer(6, 3)], np.zeros((2, 7), np.int32)))
        assert stage.multiply_adds(7, None) == (4 * 4 + 5 * 4) + (3 * 3 + 6 * 3)

    def test_sparse_rows_and_priors(self):
        stage = SparseClassifier.of_rows(sparse.csr_array(np.array([[1, 1, 0], [0, 1, 0]])))
        # Feature 0 belongs to one label, feature 1 to two, feature 2 to none.
        texts = sparse.csr_array(np.array([[1, 1, 0], [0, 0, 1]]))
        assert stage.multiply_adds(2, texts) == (1 + 2) / 2
        assert PriorClassifier({"frequencies": np.ones(3, np.float32)}).multiply_adds(3, None) == 0

    def test_reranker(self):
        stage, texts = reranker(), ["red shoe", ""]
        n_features = np.diff(stage.features.rows(texts).indptr)
        assert n_features[0] >= 2 and n_features[1] == 0
        assert stage.multiply_adds(texts, stage.features.words.encode(texts)) == 2 * n_features[0] / 2

    def test_network_reranker(self):
        encoding = bag().multiply_adds(TEXTS.counts)
        assert network_reranker().multiply_adds(None, TEXTS) == encoding + N_FEATURES**2 + 5 * N_FEATURES

    def test_calibration(self):
        assert STAGES["curves"][0]().multiply_adds() == 0
