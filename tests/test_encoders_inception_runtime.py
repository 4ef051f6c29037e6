"""InceptionXML's encoder without torch, against the torch encoder in evaluation mode."""

from __future__ import annotations

import copy
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import erf

from shortlist.arrays import Ragged
from shortlist.encoders.inception_runtime import BLOCK, InceptionRuntime
from shortlist.errors import ModelError
from shortlist.kernels.encoders import join_taps
from shortlist.training.batches import padded

torch = pytest.importorskip("torch")

from shortlist.encoders.inception import InceptionEncoder  # noqa: E402 - needs torch

N_WORDS = 50


def trained_encoder(dimensions: int = 64, seed: int = 0, **options) -> InceptionEncoder:
    """An encoder in which nothing is as it starts: gates open, batch norms with statistics."""
    torch.manual_seed(seed)
    encoder = InceptionEncoder(N_WORDS, dimensions, **options)
    with torch.no_grad():
        encoder.words.weight *= 0.3
        for layer in encoder.attention:
            layer.gate.uniform_(-0.5, 0.5)
        for norm in (encoder.branch_norm, encoder.last_norm):
            norm.running_mean.normal_()
            norm.running_var.uniform_(0.1, 2)
            norm.weight.normal_()
            norm.bias.normal_()
    return encoder.eval()


def random_texts(lengths, seed: int = 0) -> Ragged:
    rng = np.random.default_rng(seed)
    return Ragged.from_lists([rng.integers(0, N_WORDS, length).tolist() for length in lengths])


def assert_equals_torch(encoder: InceptionEncoder, texts: Ragged) -> None:
    ids = torch.from_numpy(padded(texts, np.arange(len(texts)), encoder.max_words, encoder.padding))
    with torch.no_grad():
        expected = copy.deepcopy(encoder).double()(ids).numpy()
    features = InceptionRuntime(encoder.to_arrays(), encoder.max_words).encode(texts)
    assert features.dtype == np.float32 and features.shape == (len(texts), encoder.n_features)
    np.testing.assert_allclose(features, expected, rtol=1e-4, atol=1e-5 * np.abs(expected).max(initial=1))


@pytest.mark.parametrize("attention", [True, False])
@pytest.mark.parametrize("dimensions", [64, 100, 300])
@pytest.mark.parametrize("lengths", [[], [0], [1], [0, 0, 1], [5], [31, 32, 33, 60], [3, 0, 7, 3, 90, 1, 3]], ids=str)
def test_equals_the_torch_encoder(attention, dimensions, lengths):
    assert_equals_torch(trained_encoder(dimensions, attention=attention), random_texts(lengths))


@settings(max_examples=40, deadline=None)
@given(
    dimensions=st.integers(64, 200),
    max_words=st.integers(1, 20),
    channels=st.integers(1, 40),
    attention=st.booleans(),
    lengths=st.lists(st.integers(0, 25), max_size=3 * BLOCK),
    seed=st.integers(0, 1000),
)
def test_equals_the_torch_encoder_on_random_shapes(dimensions, max_words, channels, attention, lengths, seed):
    encoder = trained_encoder(dimensions, seed, max_words=max_words, channels=channels, attention=attention)
    assert_equals_torch(encoder, random_texts(lengths, seed))


def test_a_text_has_its_features_in_any_company():
    texts = random_texts(np.random.default_rng(1).integers(0, 40, 5 * BLOCK + 3))
    runtime = InceptionRuntime(trained_encoder(100).to_arrays(), 32)
    together = runtime.encode(texts)
    alone = np.concatenate([runtime.encode(texts.take([row])) for row in range(len(texts))])
    np.testing.assert_allclose(together, alone, rtol=1e-4, atol=1e-4)
    order = np.random.default_rng(2).permutation(len(texts))
    np.testing.assert_allclose(runtime.encode(texts.take(order)), together[order], rtol=1e-4, atol=1e-4)


def test_sizes_and_a_vocabulary_without_words():
    runtime = InceptionRuntime(trained_encoder(300).to_arrays(), 32)
    assert (runtime.n_words, runtime.dimensions, runtime.n_features) == (N_WORDS, 300, 480)
    arrays = trained_encoder(64).to_arrays()
    wordless = InceptionRuntime({**arrays, "words": arrays["words"][:0]}, 32)
    expected = InceptionRuntime(arrays, 32).encode(random_texts([0, 0]))
    assert np.array_equal(wordless.encode(random_texts([0, 0])), expected)


def test_giving_the_arrays_changes_nothing_in_an_encoder_that_learns():
    encoder = trained_encoder().train()
    before = copy.deepcopy(encoder.state_dict())
    arrays = encoder.to_arrays()
    assert all(module.training for module in encoder.modules())
    for name, tensor in encoder.state_dict().items():
        torch.testing.assert_close(tensor, before[name], rtol=0, atol=0)
    again = encoder.eval().to_arrays()
    assert all(np.array_equal(array, again[name]) for name, array in arrays.items())


@pytest.mark.parametrize(
    ("name", "damage", "message"),
    [
        ("words", lambda a: a[:, :-1], r"'dimension_mix' is \(64, 64\) where \(63, 63\)"),
        ("words", lambda a: a[0], "'words' has 1 axes instead of 2"),
        ("words", lambda a: a.astype(np.float64), "no array 'words' of float32 or int8"),
        ("words", lambda a: None, "no array 'words'"),
        ("project", lambda a: a[:-1], r"'project' is \(31, 32\) where \(32, 32\)"),
        ("project", lambda a: a[:, :0], "'branch_weights' is"),
        ("project", lambda a: a[0, 0], "'project' has 0 axes"),
        ("project", lambda a: None, "no array 'project'"),
        ("word_mix", lambda a: a[:5], "'word_mix' is"),
        ("word_mix", lambda a: None, "no array 'word_mix'"),
        ("dimension_mix", lambda a: None, "no array 'dimension_mix'"),
        ("branch_weights", lambda a: a.T, "'branch_weights' is"),
        ("branch_biases", lambda a: a[:-1], "'branch_biases' is"),
        ("last_weights", lambda a: a[None], "'last_weights' is"),
        ("last_biases", lambda a: None, "no array 'last_biases'"),
    ],
)
def test_damaged_arrays_are_refused(name, damage, message):
    arrays = trained_encoder().to_arrays()
    arrays[name] = damage(arrays[name])
    with pytest.raises(ModelError, match=message):
        InceptionRuntime({name: array for name, array in arrays.items() if array is not None}, 32)


def test_arrays_that_fit_each_other_but_no_convolution_are_refused():
    arrays = trained_encoder(attention=False).to_arrays()
    with pytest.raises(ModelError, match="48 dimensions and 32 channels, too few"):
        InceptionRuntime({**arrays, "words": arrays["words"][:, :48]}, 32)
    nothing = {name: np.zeros([0] * array.ndim, np.float32) for name, array in arrays.items()}
    with pytest.raises(ModelError, match="damaged"):
        InceptionRuntime({**nothing, "project": np.zeros((32, 0), np.float32)}, 32)


@given(
    columns=st.lists(st.integers(0, 20), min_size=1, max_size=5),
    n_texts=st.integers(0, 3),
    n_positions=st.integers(1, 9),
    scale=st.floats(0.01, 100),
    seed=st.integers(0, 1000),
)
def test_join_taps_equals_its_definition(columns, n_texts, n_positions, scale, seed):
    rng = np.random.default_rng(seed)
    bounds, n_channels = np.cumsum([0, *columns]), max(columns)
    products = scale * rng.standard_normal((n_texts, n_positions + len(columns) - 1, bounds[-1])).astype(np.float32)
    biases = rng.standard_normal(n_channels).astype(np.float32)
    out = np.empty((n_texts, n_positions, n_channels), np.float32)
    join_taps(products.astype(np.float32), bounds, biases, out)
    sums = np.zeros(out.shape) + biases
    for tap, n_columns in enumerate(columns):
        part = products[:, tap : tap + n_positions, bounds[tap] : bounds[tap + 1]]
        sums[:, :, n_channels - n_columns :] += part
    expected = sums / 2 * (1 + erf(sums / np.sqrt(2)))
    np.testing.assert_allclose(out, expected, rtol=1e-6, atol=1e-6 * np.abs(products).max(initial=1))


def test_gelu_keeps_its_precision_over_its_range_and_passes_on_what_is_no_number():
    x = np.append(np.linspace(-10, 10, 100_001), np.nan).astype(np.float32)[None, None]
    out = np.empty_like(x)
    join_taps(x, np.asarray([0, x.size]), np.zeros(x.size, np.float32), out)
    exact = x.astype(np.float64) / 2 * (1 + erf(x.astype(np.float64) / np.sqrt(2)))
    np.testing.assert_allclose(out, exact, rtol=1e-6, atol=1.5e-6)


def test_the_runtime_does_not_import_torch():
    code = "import sys, shortlist.encoders.inception_runtime; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
