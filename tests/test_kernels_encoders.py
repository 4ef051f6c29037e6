"""Sums of word vectors and tf-idf weights of two bags, against plain numpy and scipy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from scipy.special import erf

from shortlist.arrays import QuantizedMatrix, Ragged
from shortlist.errors import ModelError
from shortlist.kernels.encoders import gelu_rows, sum_words
from shortlist.kernels.words import weigh_texts
from shortlist.stages.encoders import BagEncoder
from shortlist.text import TfIdf


def random_texts(rng, n_texts, n_words, most=8):
    return Ragged.from_lists([rng.integers(n_words, size=rng.integers(0, most)) for _ in range(n_texts)])


class TestSumWords:
    @given(st.integers(0, 10_000), st.integers(0, 5), st.integers(1, 9), st.integers(1, 12), *2 * [st.booleans()])
    def test_equals_a_loop_in_python(self, seed, n_texts, n_rows, max_words, packed, weighted):
        """Several words may share a row, as hashed words do. Words may come with weights, as columns of features do."""
        rng = np.random.default_rng(seed)
        n_words = 2 * n_rows
        rows = QuantizedMatrix.of_floats(rng.standard_normal((n_rows, 4)).astype(np.float32))
        rows = rows.in_8_bits() if packed else rows
        row_of_word = rng.integers(n_rows, size=n_words).astype(np.int32)
        idf = (rng.random(n_words) + 0.1).astype(np.float32)
        texts = random_texts(rng, n_texts, n_words)
        given = rng.standard_normal(len(texts.values)).astype(np.float32) if weighted else np.zeros(0, np.float32)
        canvas = np.full((n_texts + 2, 4), -7, np.float32)
        words = texts.indptr, texts.values, given
        sum_words(*words, row_of_word, rows.values, rows.scales, idf, max_words, canvas[1:-1])
        assert (canvas[[0, -1]] == -7).all()
        for text in range(n_texts):
            words = texts.row(text)[:max_words]
            weights = idf[words] * (given[texts.indptr[text] :][: len(words)] if weighted else 1)
            weights = weights / max(np.linalg.norm(weights), 1e-6)
            np.testing.assert_allclose(canvas[1 + text], weights @ rows[row_of_word[words]], rtol=1e-4, atol=1e-5)

    @pytest.mark.parametrize("kind", ["bag", "mlp"])
    def test_encoders_in_8_bits_are_close_to_float32(self, kind):
        rng = np.random.default_rng(0)
        words = rng.standard_normal((30, 6)).astype(np.float32)
        arrays = {"words": words, "idf": np.ones(30, np.float32)}
        if kind == "mlp":
            arrays |= {"biases": np.zeros(6, np.float32), "buckets": rng.permutation(30).astype(np.int32)}
        packed = arrays | QuantizedMatrix.of_floats(words).in_8_bits().to_arrays("words")
        texts = random_texts(rng, 20, 30)
        before, after = (BagEncoder.from_arrays(part, {"max_words": 32}).encode(texts) for part in (arrays, packed))
        # Half a step of each of up to seven words, weighed together to length 1.
        np.testing.assert_allclose(after, before, atol=np.abs(words).max() / 254 * 7**0.5)
        assert not np.array_equal(after, before)
        del packed["words.scales"]
        with pytest.raises(ModelError, match="one float32 scale for each of its 30 rows"):
            BagEncoder.from_arrays(packed, {"max_words": 32})


def test_gelu_of_rows_equals_its_definition():
    """`join_taps`, which ends with it, has more tests in test_stages_encoders.py."""
    x = np.append(np.linspace(-9, 9, 998), [np.nan, np.inf, -np.inf, 0.0]).astype(np.float32)
    canvas = np.full((5, 334), -7, np.float32)
    canvas[1:-1] = x.reshape(3, -1)
    gelu_rows(canvas[1:-1])
    assert (canvas[[0, -1]] == -7).all()
    with np.errstate(invalid="ignore"):
        expected = x.astype(np.float64) / 2 * (1 + erf(x / np.sqrt(2)))
    finite = np.isfinite(x)
    np.testing.assert_allclose(canvas[1:-1].ravel()[finite], expected[finite], rtol=1e-6, atol=1.5e-6)
    assert np.isnan(canvas[3, 330]) and canvas[3, 331] == np.inf


class TestWeighTexts:
    @given(st.integers(0, 10_000), st.integers(0, 6), st.integers(1, 9), st.integers(1, 9))
    def test_equals_two_bags_of_tf_idf_side_by_side(self, seed, n_texts, n_words, n_more):
        rng = np.random.default_rng(seed)
        bags = [random_texts(rng, n_texts, n, 20) for n in (n_words, n_more)]
        weights = [TfIdf((rng.random(n) + 0.5).astype(np.float32)) for n in (n_words, n_more)]
        lengths = [0.8, 0.3]
        most = sum(len(bag.values) for bag in bags)
        starts = np.full(n_texts + 1, -7, np.int64)
        columns, values = np.full(most + 2, -7, np.int32), np.full(most + 2, -7, np.float32)
        arguments = [
            part
            for bag, tf_idf, length in zip(bags, weights, lengths, strict=True)
            for part in (bag.indptr, bag.values, tf_idf.idf, length)
        ]
        before = [bag.values.copy() for bag in bags]
        weigh_texts(*arguments, starts, columns[1:-1], values[1:-1])
        assert (columns[0], columns[-1], values[0], values[-1]) == (-7, -7, -7, -7)
        assert all(np.array_equal(bag.values, kept) for bag, kept in zip(bags, before, strict=True))
        end = starts[-1]
        found = sparse.csr_array((values[1 : end + 1], columns[1 : end + 1], starts), shape=(n_texts, n_words + n_more))
        expected = sparse.hstack(
            [length * tf_idf.transform(bag) for bag, tf_idf, length in zip(bags, weights, lengths, strict=True)]
        )
        np.testing.assert_allclose(found.toarray(), expected.toarray(), rtol=1e-5, atol=1e-6)
        for text in range(n_texts):  # sorted, each column once
            assert (np.diff(columns[1 + starts[text] : 1 + starts[text + 1]]) > 0).all()
