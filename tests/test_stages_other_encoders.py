"""Encoders that learn nothing, encoders side by side, and encoders of other packages."""

from __future__ import annotations

import numpy as np
import pytest

from model_files import replaced
from shortlist.arrays import Ragged
from shortlist.errors import ModelError
from shortlist.stages.encoders import (
    BagEncoder,
    FunctionEncoder,
    GivenEncoder,
    NoEncoder,
    ParallelEncoders,
    TfIdfEncoder,
    UnitRowsEncoder,
)

N_WORDS = 50


def new_bag(seed, n_features):
    words = np.random.default_rng(seed).standard_normal((N_WORDS, n_features), np.float32)
    return BagEncoder.from_arrays({"words": words, "idf": np.ones(N_WORDS, np.float32)}, {"max_words": 32})


def random_texts(lengths):
    rng = np.random.default_rng(0)
    return Ragged.from_lists([rng.integers(0, N_WORDS, length).tolist() for length in lengths])


class TestGivenEncoder:
    def test_the_unit_of_the_features_does_not_matter(self):
        features = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
        metres, feet = GivenEncoder.fit(features, 2.5), GivenEncoder.fit(features * 1000, 2.5)
        np.testing.assert_allclose(metres.encode(features), feet.encode(features * 1000), rtol=1e-5)
        ratios = metres.encode(features) / features
        np.testing.assert_allclose(ratios, ratios[0, 0], rtol=1e-5)
        assert np.linalg.norm(metres.encode(features), axis=1).mean() == pytest.approx(2.5)
        assert np.isfinite(GivenEncoder.fit(0 * features, 2.5).encode(features)).all()

    def test_the_matrix_of_the_caller_stays_as_it_is(self):
        features = np.ones((2, 3), np.float32)
        assert GivenEncoder({"scale": np.full(3, 2, np.float32)}).encode(features).tolist() == [[2] * 3] * 2
        assert (features == 1).all()

    def test_damaged_scales_are_refused(self):
        for scale in (np.ones((1, 3), np.float32), np.ones(3), np.full(3, np.nan, np.float32)):
            with pytest.raises(ModelError, match="'scale'"):
                GivenEncoder.from_arrays({"scale": scale}, {})


class TestSparseEncoders:
    def test_tfidf_rows_have_length_1_and_one_column_per_word(self):
        encoder = TfIdfEncoder({"idf": np.array([1, 2, 3], np.float32)})
        rows = encoder.encode(Ragged.from_lists([[0, 1], [2, 2], []])).toarray()
        expected = [np.array([1, 2, 0]) / 5**0.5, [0, 0, 1], [0, 0, 0]]
        np.testing.assert_allclose(rows, expected, rtol=1e-6)
        assert (encoder.n_words, encoder.n_features) == (3, 3)
        with pytest.raises(ModelError, match="'idf' has shape"):
            TfIdfEncoder.from_arrays(encoder.arrays(), {}, n_words=4)

    def test_unit_rows(self):
        encoder = UnitRowsEncoder.from_arrays({}, {"n_features": 2})
        np.testing.assert_allclose(encoder.encode(np.array([[3.0, 4.0], [0, 0]])).toarray(), [[0.6, 0.8], [0, 0]])
        with pytest.raises(ModelError, match="n_features"):
            UnitRowsEncoder.from_arrays({}, {})

    def test_words_with_weights_are_the_rows(self):
        bags = Ragged(np.array([0, 2, 2]), np.array([2, 0], np.int32), np.array([4, 3], np.float32))
        encoder = TfIdfEncoder({"idf": np.ones(3, np.float32)})
        np.testing.assert_allclose(encoder.encode(bags).toarray(), [[0.6, 0, 0.8], [0, 0, 0]], rtol=1e-6)

    def test_no_encoder_takes_texts_and_features(self):
        encoder = NoEncoder.from_arrays({}, {})
        assert encoder.encode(["a", "b"]).shape == encoder.encode(np.ones((2, 5))).shape == (2, 0)
        with pytest.raises(ModelError, match="'words' is not part of this stage"):
            NoEncoder.from_arrays({"words": np.zeros(1)}, {})


class TestParallelEncoders:
    def members(self, n=3):
        return [new_bag(seed, 4 + seed) for seed in range(n)]

    def test_features_stand_side_by_side(self):
        members, texts = self.members(), random_texts([3, 0, 40])
        encoder = ParallelEncoders(members)
        assert (encoder.n_words, encoder.n_features) == (N_WORDS, 4 + 5 + 6)
        expected = np.concatenate([member.encode(texts) for member in members], axis=1)
        assert np.array_equal(encoder.encode(texts), expected)

    def test_eleven_members_come_back_in_order(self):
        """Names of arrays begin with the number of the member: 1 and 10 must not be confused."""
        encoder, texts = ParallelEncoders(self.members(11)), random_texts([3, 5])
        again = ParallelEncoders.from_arrays(encoder.arrays(), encoder.config())
        assert np.array_equal(again.encode(texts), encoder.encode(texts))

    def test_members_must_share_a_vocabulary(self):
        words = {"words": np.zeros((3, 2), np.float32), "idf": np.zeros(3, np.float32)}
        other = BagEncoder.from_arrays(words, {"max_words": 3})
        with pytest.raises(ModelError, match="need one vocabulary"):
            ParallelEncoders([*self.members(), other])
        with pytest.raises(ModelError, match="need one vocabulary"):
            ParallelEncoders([])

    @pytest.mark.parametrize(
        "change", [{"1.idf": None}, {"1.words": lambda a: a[:, :0]}, {"3.words": np.zeros((1, 1), np.float32)}]
    )
    def test_damaged_arrays_are_refused(self, change):
        encoder = ParallelEncoders(self.members())
        with pytest.raises(ModelError):
            ParallelEncoders.from_arrays(replaced(encoder.arrays(), change), encoder.config())


class TestFunctionEncoder:
    @staticmethod
    def mean_words(arrays, word_ids):
        sums = np.add.reduceat(np.append(arrays["words"][word_ids.values], [[0, 0]], axis=0), word_ids.indptr[:-1])
        return sums / np.maximum(word_ids.counts, 1)[:, None]

    def test_encodes_with_the_function_and_the_first_words(self):
        words = np.arange(10, dtype=np.float64).reshape(5, 2)
        encoder = FunctionEncoder({"words": words}, {"max_words": 2, "n_words": 5}, "mean", self.mean_words)
        features = encoder.encode(Ragged.from_lists([[0, 1, 4], [3]]))
        assert features.dtype == np.float32
        assert features.tolist() == [[1, 2], [6, 7]]
        assert (encoder.n_words, encoder.n_features) == (5, 2)
        assert encoder.quantized() is encoder
        assert encoder.multiply_adds(np.array([3])) is None

    @pytest.mark.parametrize("name", ["max_words", "n_words"])
    def test_a_damaged_config_is_refused(self, name):
        config = {"max_words": 2, "n_words": 5, name: "5"}
        with pytest.raises(ModelError, match=name):
            FunctionEncoder({"words": np.ones((5, 2))}, config, "mean", self.mean_words)
