"""Pipelines: what a prediction costs in all, blocks of texts, search effort, and stages that do not fit."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

import shortlist
from shortlist.errors import ModelError, OptionError
from shortlist.stages.candidates import AllLabels
from shortlist.stages.classifier import RowClassifier
from shortlist.stages.columns import Columns
from shortlist.stages.encoders import GivenEncoder
from shortlist.stages.pipeline import Pipeline
from shortlist.text import Vocabulary
from test_stages import N_LABELS, N_WORDS, bag, clusters, layer, nearest


def pipeline(encoder, candidates, classifier, reranker=None):
    words = Vocabulary([f"word{i}" for i in range(encoder.n_words)], np.ones(encoder.n_words, np.int64))
    inputs = Columns(encoder.n_words, dense=True) if encoder.dense else words
    return Pipeline(inputs if encoder.n_words else None, encoder, candidates, classifier, reranker)


class TestPipeline:
    THREE = ["word1 word2 word3"]

    def test_multiply_adds_of_all_labels(self):
        assert pipeline(bag(), AllLabels(), RowClassifier(layer(N_LABELS))).multiply_adds(self.THREE) == (
            3 * 10 + 10 * 10 + N_LABELS * 10
        )

    def test_multiply_adds_of_clusters(self):
        stages = pipeline(bag(), clusters(), RowClassifier(layer(N_LABELS, block=False)))
        # Two of eight clusters have a quarter of the labels.
        assert stages.multiply_adds(self.THREE) == 3 * 10 + 8 * 10 + N_LABELS / 4 * 10

    def test_multiply_adds_of_nearest_labels(self):
        stages = pipeline(bag(), nearest(), RowClassifier(layer(N_LABELS), {"blend": {}}))
        # One cell, and so all centres; then the residual block and 15 rows.
        assert stages.multiply_adds(self.THREE) == 30 + (10 + N_LABELS * 10) + (100 + 150)
        stages.candidates = nearest("exact")
        assert stages.multiply_adds(self.THREE) is None

    def test_multiply_adds_of_baselines_and_ensembles(self):
        data = [("red hat", ["hat"]), ("red shoe", ["shoe"]), ("old hat", ["hat", "old"])]
        model = shortlist.train(data, "centroid")
        # "red" is a word of 2 labels, "hat" of 2, "nobody" of none.
        assert model.multiply_adds(["red hat", "nobody"]) == (2 + 2) / 2
        assert shortlist.train([("red hat", ["hat"])], "popular").multiply_adds(["red"]) == 0
        twice = type(model)("centroid", {}, model.pipelines * 2, model.label_names)
        assert twice.multiply_adds(["red hat", "nobody"]) == 4

    def test_stages_must_fit_each_other(self):
        row_classifier = RowClassifier(layer(N_LABELS))
        with pytest.raises(ModelError, match="the encoder gives 10 features, the classifier takes 9"):
            pipeline(bag(), AllLabels(), RowClassifier(layer(N_LABELS, 9)))
        with pytest.raises(ModelError, match="the encoder gives 9 features, the candidates takes 10"):
            pipeline(bag(9), nearest(), RowClassifier(layer(N_LABELS, 9)))
        with pytest.raises(ModelError, match="the vocabulary has 0 words, the encoder 50"):
            Pipeline(None, bag(), AllLabels(), row_classifier)
        with pytest.raises(ModelError, match="one of encoder and vocabulary takes dense features, the other does not"):
            Pipeline(Columns(N_WORDS, dense=True), bag(), AllLabels(), row_classifier)

    @pytest.mark.parametrize("n_texts", [0, 1, 5, 40])
    @pytest.mark.parametrize("candidates", [AllLabels, nearest])
    def test_blocks_of_texts_change_nothing(self, monkeypatch, n_texts, candidates):
        rng = np.random.default_rng(0)
        texts = [" ".join(f"word{i}" for i in rng.integers(N_WORDS, size=3)) for _ in range(n_texts)]
        classifier = RowClassifier(layer(N_LABELS), {} if candidates is AllLabels else {"blend": {}})
        stages = pipeline(bag(), candidates(), classifier)
        expected = stages.rank(texts, 5)
        assert expected[0].shape == (n_texts, 5)
        monkeypatch.setattr("shortlist.stages.pipeline.TEXTS_PER_BLOCK", 3)
        found = stages.rank(texts, 5)
        assert np.array_equal(found[0], expected[0])
        np.testing.assert_allclose(found[1], expected[1], rtol=1e-5)

    def test_scores_of_the_best_labels_are_those_of_their_ranking(self):
        for candidates, config in ((AllLabels(), {}), (nearest(), {"blend": {}}), (clusters(), {})):
            stages = pipeline(bag(), candidates, RowClassifier(layer(N_LABELS), config))
            texts = ["word1 word2", "word3", ""]
            ids, scores = stages.rank(texts, 5)
            np.testing.assert_allclose(stages.scores(texts, ids), scores, rtol=1e-4, atol=1e-6)

    def test_search_effort_multiplies_what_is_searched(self, monkeypatch):
        stages, searched = pipeline(bag(), clusters(), RowClassifier(layer(N_LABELS))), []
        find = stages.candidates.find
        monkeypatch.setattr(stages.candidates, "find", lambda x, n: searched.append(n) or find(x, n))
        for search_effort in (1, 2, 0.5, 1e-9, 1e300):
            stages.rank(["word1"], 3, search_effort)
        assert searched == [2, 4, 1, 1, 2**31]

    def test_texts_and_features_are_not_confused(self):
        of_texts = pipeline(bag(), AllLabels(), RowClassifier(layer(N_LABELS)))
        with pytest.raises(OptionError, match="trained on texts; it got a matrix"):
            of_texts.rank(np.ones((2, 10), np.float32), 3)
        given = GivenEncoder({"scale": np.ones(10, np.float32)})
        of_features = pipeline(given, AllLabels(), RowClassifier(layer(N_LABELS)))
        assert of_features.rank(np.ones((2, 10), np.float32), 3)[0].shape == (2, 3)
        assert of_features.multiply_adds(np.ones((2, 10), np.float32)) == 10 + 100 + N_LABELS * 10
        with pytest.raises(OptionError, match="trained on features; give it a matrix"):
            of_features.rank(["word1"], 3)

    @pytest.mark.parametrize(
        "matrix", [sparse.csr_array, sparse.csc_array, sparse.coo_array, sparse.coo_matrix, sparse.bsr_array]
    )
    def test_sparse_features_in_any_format(self, monkeypatch, matrix):
        monkeypatch.setattr("shortlist.stages.pipeline.TEXTS_PER_BLOCK", 3)
        given = GivenEncoder({"scale": np.ones(10, np.float32)})
        stages = pipeline(given, AllLabels(), RowClassifier(layer(N_LABELS)))
        features = np.random.default_rng(0).standard_normal((8, 10)).astype(np.float32)
        assert np.array_equal(stages.rank(matrix(features), 3)[0], stages.rank(features, 3)[0])
