"""The network of dense features: it starts from them, learns, and is the same without torch."""

from __future__ import annotations

import numpy as np
import pytest

from shortlist.stages.encoders import DenseEncoder, GivenEncoder

torch = pytest.importorskip("torch")

from shortlist.training.networks.dense import DenseNetwork  # noqa: E402

FEATURES = np.random.default_rng(0).standard_normal((7, 6)).astype(np.float32)


def new_network(dropout=0.0):
    torch.manual_seed(0)
    return DenseNetwork(GivenEncoder.fit(FEATURES, 2.5).arrays()["scale"], 4, dropout)


def test_starts_from_the_features_as_they_are_given():
    found = DenseEncoder.from_arrays(new_network().arrays(), {}, n_words=6).encode(FEATURES)
    np.testing.assert_allclose(found, GivenEncoder.fit(FEATURES, 2.5).encode(FEATURES), rtol=1e-6)


def test_the_stage_equals_the_formula_and_the_network_after_steps():
    network = new_network(dropout=0.5)
    optimizer = torch.optim.Adam(network.parameters(), lr=0.05)
    before = network.arrays()
    for _ in range(5):
        optimizer.zero_grad()
        (network(torch.from_numpy(FEATURES)) - 1).square().sum().backward()
        optimizer.step()
    arrays = network.arrays()
    assert np.array_equal(arrays["scale"], before["scale"])  # a unit, not a weight
    assert all(not np.array_equal(arrays[name], before[name]) for name in arrays if name != "scale")
    v = FEATURES * arrays["scale"]
    hidden = np.maximum(v @ arrays["hidden"] + arrays["hidden_biases"], 0)
    expected = v + hidden @ arrays["output"] + arrays["output_biases"]
    encoder = DenseEncoder.from_arrays(arrays, {}, n_words=6)
    np.testing.assert_allclose(encoder.encode(FEATURES), expected, rtol=1e-5, atol=1e-6)
    by_torch = network.eval()(torch.from_numpy(FEATURES)).detach().numpy()
    np.testing.assert_allclose(encoder.encode(FEATURES), by_torch, rtol=1e-5, atol=1e-5)
    assert (encoder.n_features, encoder.n_words, encoder.multiply_adds(np.zeros(2))) == (6, 6, 6 + 2 * 6 * 4)
