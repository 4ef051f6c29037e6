"""XML-CNN's and MACH's encoders: with torch, without it, and what padding and odd texts do to them."""

from __future__ import annotations

import copy
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from shortlist.arrays import Ragged
from shortlist.encoders.cnn_runtime import BLOCK, WIDTHS, CNNRuntime, chunk_bounds
from shortlist.encoders.given_runtime import GivenRuntime, dense
from shortlist.encoders.mlp_runtime import MLPRuntime
from shortlist.errors import DataError, ModelError, OptionError
from shortlist.training.batches import padded

torch = pytest.importorskip("torch")

from shortlist.encoders.cnn import CNNEncoder  # noqa: E402 - needs torch
from shortlist.encoders.mlp import MLPEncoder  # noqa: E402

N_WORDS = 50


def new_cnn(seed: int = 0, dimensions: int = 20, **sizes) -> CNNEncoder:
    torch.manual_seed(seed)
    return CNNEncoder(N_WORDS, dimensions, **{"channels": 6, "hidden": 15, **sizes}).eval()


def new_mlp(seed: int = 0, dimensions: int = 20, n_buckets: int = 11) -> MLPEncoder:
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    encoder = MLPEncoder(rng.uniform(1, 5, N_WORDS), rng.permutation(N_WORDS) % n_buckets, dimensions).eval()
    torch.nn.init.normal_(encoder.biases)
    return encoder


def random_texts(lengths, seed: int = 0) -> Ragged:
    rng = np.random.default_rng(seed)
    return Ragged.from_lists([rng.integers(0, N_WORDS, length).tolist() for length in lengths])


def by_torch(encoder, texts: Ragged, max_words: int, more_padding: int = 0) -> np.ndarray:
    ids = padded(texts, np.arange(len(texts)), max_words, encoder.padding)
    ids = np.pad(ids, ((0, 0), (0, more_padding)), constant_values=encoder.padding)
    with torch.no_grad():
        return copy.deepcopy(encoder).double()(torch.from_numpy(ids)).numpy()


ENCODERS = pytest.mark.parametrize(("new", "runtime"), [(new_cnn, CNNRuntime), (new_mlp, MLPRuntime)])


@ENCODERS
@pytest.mark.parametrize("lengths", [[], [0], [1], [0, 0, 1], [5], [31, 32, 33, 60], [3, 0, 7, 3, 90, 1, 3]], ids=str)
def test_the_runtime_equals_torch(new, runtime, lengths):
    encoder, texts = new(), random_texts(lengths)
    features = runtime(encoder.to_arrays(), 32).encode(texts)
    assert features.dtype == np.float32 and features.shape == (len(texts), encoder.n_features)
    np.testing.assert_allclose(features, by_torch(encoder, texts, 32), rtol=1e-4, atol=1e-5)
    assert (features >= 0).all()


@given(
    dimensions=st.integers(1, 30),
    channels=st.integers(1, 9),
    chunks=st.integers(1, 6),
    hidden=st.integers(1, 20),
    max_words=st.integers(1, 20),
    lengths=st.lists(st.integers(0, 25), max_size=12),
    seed=st.integers(0, 1000),
)
def test_the_cnn_runtime_equals_torch_on_random_shapes(dimensions, channels, chunks, hidden, max_words, lengths, seed):
    encoder = new_cnn(seed, dimensions, channels=channels, chunks=chunks, hidden=hidden)
    texts = random_texts(lengths, seed)
    features = CNNRuntime(encoder.to_arrays(), max_words).encode(texts)
    np.testing.assert_allclose(features, by_torch(encoder, texts, max_words), rtol=1e-4, atol=1e-5)


@ENCODERS
@given(lengths=st.lists(st.integers(0, 12), min_size=1, max_size=6), more=st.integers(1, 20), seed=st.integers(0, 1000))
def test_padding_changes_nothing(new, runtime, lengths, more, seed):
    encoder, texts = new(seed), random_texts(lengths, seed)
    expected = by_torch(encoder, texts, 32)
    np.testing.assert_allclose(by_torch(encoder, texts, 32, more), expected, rtol=1e-9, atol=1e-12)
    alone = np.concatenate([by_torch(encoder, texts.take([row]), 32) for row in range(len(texts))])
    np.testing.assert_allclose(alone, expected, rtol=1e-9, atol=1e-12)


def test_padding_does_not_learn_from_padding():
    encoder, texts = new_cnn().train(), random_texts([2, 5])
    ids = torch.from_numpy(padded(texts, np.arange(2), 32, encoder.padding))
    encoder(ids).sum().backward()
    gradient = encoder.words.weight.grad.coalesce()
    assert not gradient.to_dense()[encoder.padding].any()


@ENCODERS
def test_a_text_has_its_features_in_any_company(new, runtime):
    texts = random_texts(np.random.default_rng(1).integers(0, 9, 3 * BLOCK + 3))
    working = runtime(new().to_arrays(), 32)
    together = working.encode(texts)
    alone = np.concatenate([working.encode(texts.take([row])) for row in range(len(texts))])
    np.testing.assert_allclose(together, alone, rtol=1e-4, atol=1e-5)


def test_the_order_of_words_counts_for_the_cnn_and_not_for_the_mlp():
    there, back = Ragged.from_lists([[1, 2, 3, 4]]), Ragged.from_lists([[4, 3, 2, 1]])
    cnn, mlp = CNNRuntime(new_cnn().to_arrays(), 32), MLPRuntime(new_mlp().to_arrays(), 32)
    assert not np.allclose(cnn.encode(there), cnn.encode(back), atol=1e-3)
    np.testing.assert_allclose(mlp.encode(there), mlp.encode(back), atol=1e-6)


def test_a_filter_is_the_sum_of_its_window():
    """By hand: one filter of width 2 over words of one dimension sees each word and the next."""
    encoder = new_cnn(dimensions=1, channels=1, chunks=2, hidden=2)
    with torch.no_grad():
        encoder.words.weight[:N_WORDS] = torch.arange(N_WORDS)[:, None].float()
        for filters in encoder.filters:
            filters.weight.zero_()
            filters.bias.zero_()
        encoder.filters[0].weight[:] = torch.tensor([1.0, 10.0])
        encoder.hidden.weight.zero_()
        encoder.hidden.weight[0, 0] = encoder.hidden.weight[1, len(WIDTHS)] = 1
        encoder.hidden.bias.zero_()
    # Windows: 1 + 10·2, 2 + 10·3, 3 and nothing behind it. The chunks of three words: the first two, and the last two.
    assert CNNRuntime(encoder.to_arrays(), 32).encode(Ragged.from_lists([[1, 2, 3]])).tolist() == [[32, 32]]
    assert CNNRuntime(encoder.to_arrays(), 32).encode(Ragged.from_lists([[4, 2, 3, 1]])).tolist() == [[32, 13]]


@given(st.integers(1, 40), st.integers(1, 9))
def test_chunks_cover_every_word_and_none_is_empty(n_words, n_chunks):
    bounds = chunk_bounds(n_words, n_chunks)
    assert {word for begin, end in bounds for word in range(begin, end)} == set(range(n_words))
    assert all(begin < end for begin, end in bounds)


def test_words_of_one_bucket_are_one_to_the_mlp():
    encoder = new_mlp(n_buckets=1)
    with torch.no_grad():
        encoder.idf.fill_(1)
    features = MLPRuntime(encoder.to_arrays(), 32).encode(Ragged.from_lists([[3, 4], [7, 8]]))
    assert np.array_equal(features[0], features[1])


@pytest.mark.parametrize(
    ("name", "damage", "message"),
    [
        ("words", lambda a: a[:, :-1], "do not fit 18 filters"),
        ("words", lambda a: a.astype(np.float64), "no array 'words' of float32"),
        ("taps", lambda a: a[:, :-1], "do not fit 18 filters"),
        ("biases", lambda a: a[:-1], "do not fit 17 filters"),
        ("biases", lambda a: a[:0], "do not fit 0 filters"),
        ("hidden", lambda a: a[:-1], "do not fit 18 filters"),
        ("hidden_biases", lambda a: a[:-1], "do not fit 18 filters"),
        ("hidden_biases", lambda a: None, "no array 'hidden_biases'"),
    ],
)
def test_damaged_arrays_of_the_cnn_are_refused(name, damage, message):
    arrays = new_cnn().to_arrays()
    arrays[name] = damage(arrays[name])
    with pytest.raises(ModelError, match=message):
        CNNRuntime({name: array for name, array in arrays.items() if array is not None}, 32)


@pytest.mark.parametrize(
    ("name", "damage", "message"),
    [
        ("buckets", lambda a: a + 1, "buckets beyond the 11"),
        ("buckets", lambda a: a - 1, "buckets beyond the 11"),
        ("buckets", lambda a: a.astype(np.int64), "no array 'buckets' of int32"),
        ("buckets", lambda a: a[:-1], "not of one length"),
        ("words", lambda a: a[:-1], "buckets beyond the 10"),
        ("words", lambda a: a[:, :-1], "not of one length"),
        ("biases", lambda a: None, "no array 'biases'"),
        ("idf", lambda a: a[:-1], "not of one length"),
    ],
)
def test_damaged_arrays_of_the_mlp_are_refused(name, damage, message):
    arrays = new_mlp().to_arrays()
    arrays[name] = damage(arrays[name])
    with pytest.raises(ModelError, match=message):
        MLPRuntime({name: array for name, array in arrays.items() if array is not None}, 32)


class TestGivenFeatures:
    def test_stay_as_they_are_but_for_the_unit_of_measure(self):
        features = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
        metres, feet = GivenRuntime.fit(features, 2.5), GivenRuntime.fit(features * 1000, 2.5)
        np.testing.assert_allclose(metres.encode(features), feet.encode(features * 1000), rtol=1e-5)
        ratios = metres.encode(features) / features
        np.testing.assert_allclose(ratios, ratios[0, 0], rtol=1e-5)
        assert np.linalg.norm(metres.encode(features), axis=1).mean() == pytest.approx(2.5)
        assert np.isfinite(GivenRuntime.fit(0 * features, 2.5).encode(features)).all()

    def test_dense_and_sparse_are_one(self):
        features = np.asarray([[0, 1.5], [2, 0], [0, 0]])
        for same in (features, sparse.csr_array(features), sparse.coo_matrix(features), features.astype(np.float16)):
            made = dense(same)
            assert made.dtype == np.float32 and made.tolist() == features.tolist()
        assert dense(np.asarray([[True, False]])).tolist() == [[1, 0]]

    @pytest.mark.parametrize(
        ("features", "message"),
        [
            ([[1, 2], [np.nan, 0], [np.inf, 0]], "row 1 of the features .* so do 1 more"),
            (sparse.csr_array(np.asarray([[0, np.inf]])), "row 0"),
            ([[0, 1e300]], "row 0"),
            ([["a"]], "2 axes of <U1"),
            ([1, 2], "1 axes"),
            ([[1j]], "complex"),
        ],
    )
    def test_what_is_no_matrix_of_numbers_is_refused(self, features, message):
        with pytest.raises(DataError, match=message):
            dense(features)

    def test_other_columns_and_damaged_scales_are_refused(self):
        with pytest.raises(OptionError, match="knows 3 features; the matrix has 4"):
            GivenRuntime({"scale": np.ones(3, np.float32)}).encode(np.zeros((1, 4)))
        for scale in (np.ones((1, 3), np.float32), np.ones(3), np.full(3, np.nan, np.float32)):
            with pytest.raises(ModelError, match="'scale'"):
                GivenRuntime({"scale": scale})


@pytest.mark.parametrize("name", ["cnn_runtime", "mlp_runtime", "given_runtime"])
def test_the_runtimes_do_not_import_torch(name):
    code = f"import sys, shortlist.encoders.{name}; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
