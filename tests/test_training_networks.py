"""The networks of the encoders: against the papers' definitions, and what padding does to them."""

from __future__ import annotations

import copy

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shortlist.arrays import Ragged
from shortlist.errors import OptionError
from shortlist.stages.encoders.cnn import WIDTHS
from shortlist.training.batches import padded

torch = pytest.importorskip("torch")

from shortlist.training.networks.inception import InceptionNetwork  # noqa: E402
from test_stages_encoders import (  # noqa: E402 - needs torch
    N_WORDS,
    by_torch,
    new_bag,
    new_cnn,
    new_hashed_bag,
    new_inception,
    random_texts,
)

NETWORKS = pytest.mark.parametrize("new", [new_bag, new_hashed_bag, new_cnn, new_inception])


@NETWORKS
@given(lengths=st.lists(st.integers(0, 12), min_size=1, max_size=6), more=st.integers(1, 20), seed=st.integers(0, 1000))
def test_padding_changes_nothing(new, lengths, more, seed):
    network, texts = new(seed), random_texts(lengths, seed)
    expected = by_torch(network, texts)
    np.testing.assert_allclose(by_torch(network, texts, more_padding=more), expected, rtol=1e-9, atol=1e-12)
    alone = np.concatenate([by_torch(network, texts.take([row])) for row in range(len(texts))])
    np.testing.assert_allclose(alone, expected, rtol=1e-9, atol=1e-12)


@NETWORKS
def test_the_vector_of_padding_does_not_learn(new):
    network, texts = new().train(), random_texts([2, 5])
    ids = torch.from_numpy(padded(texts, np.arange(2), 32, N_WORDS))
    network(ids).square().sum().backward()
    gradient = network.words.weight.grad.coalesce().to_dense()
    assert gradient[:-1].any()
    assert not gradient[-1].any()


def test_padded_cuts_and_fills():
    ids = Ragged.from_lists([[1, 2, 3], [], [4]])
    assert padded(ids, np.asarray([2, 0, 1]), max_words=2, padding=9).tolist() == [[4, 9], [1, 2], [9, 9]]
    assert padded(ids, np.asarray([1]), max_words=5, padding=9).tolist() == [[9]]


def published_features(network: InceptionNetwork, word_ids: list[list[int]]) -> torch.Tensor:
    """The paper's definition: every text padded to the full number of words, attention in the order of the formula."""
    ids = torch.full((len(word_ids), network.max_words), network.padding)
    for row, words in enumerate(word_ids):
        ids[row, : len(words)] = torch.tensor(words, dtype=torch.long)
    x = embedded = network.words(ids)
    if len(network.attention):
        by_word, by_dimension = network.attention
        x = x + by_word.gate * ((x @ x.transpose(1, 2)) @ (by_word.mix.weight @ x))
        query, key = x.transpose(1, 2), embedded.transpose(1, 2)
        x = (query + by_dimension.gate * ((query @ key.transpose(1, 2)) @ (by_dimension.mix.weight @ key))).transpose(
            1, 2
        )
    x = torch.einsum("ps,bsd->bpd", network.project.weight, x)
    branches = []
    for branch in network.branches:
        side = (branch.kernel_size[0] - 4) // 2
        wrapped = torch.cat([x[..., len(x[0, 0]) - side :], x, x[..., :side]], dim=2)
        out = torch.nn.functional.conv1d(wrapped, branch.weight, branch.bias, stride=4)
        branches.append(out)
    joined = torch.nn.functional.gelu(network.branch_norm(torch.cat(branches, dim=1)))
    last = torch.nn.functional.conv1d(joined, network.last.weight, network.last.bias, stride=4)
    return torch.nn.functional.gelu(network.last_norm(last)).flatten(1)


@pytest.mark.parametrize("n_words", [0, 1, 3, 9, 20])
def test_fixed_chunks_are_those_of_the_padded_text(n_words):
    """The definition: a text padded to the full number of words, cut into equal chunks by position."""
    network, texts = new_cnn(n_chunks=4, fixed_chunks=True, max_words=20).double(), random_texts([n_words])
    ids = torch.from_numpy(np.append(texts.values, [N_WORDS] * (20 - n_words)).astype(np.int64))
    with torch.no_grad():
        vectors = network.words(ids).T[None]
        pooled = []
        for filters, width in zip(network.filters, WIDTHS, strict=True):
            windows = torch.nn.functional.pad(vectors, ((width - 1) // 2, width // 2))
            pooled.append(torch.relu(filters(windows)).view(1, -1, 4, 5).amax(dim=3))
        expected = torch.relu(network.hidden(torch.cat(pooled, dim=1).transpose(1, 2).flatten(1)))
    np.testing.assert_allclose(by_torch(network, texts, 20), expected, rtol=1e-9, atol=1e-12)


class TestInceptionNetwork:
    def test_no_layer_has_biases_that_a_batch_norm_takes_away(self):
        """Their gradient is 0 but for rounding, and Adam made steps of it: two threads learnt another model."""
        names = {name for name, _ in InceptionNetwork(50, 64, project_norm=True).named_parameters()}
        biases = {name for name in names if name.endswith("bias")}
        assert biases == {"project_norm.bias", "branch_norm.bias", "last_norm.bias"}
        published = {name for name, _ in InceptionNetwork(50, 64, norm_first=False).named_parameters()}
        assert {"last.bias", *(f"branches.{i}.bias" for i in range(3))} <= published

    @pytest.mark.parametrize("attention", [True, False])
    @pytest.mark.parametrize("embedding_dim", [64, 300])
    def test_texts_without_padding_equal_the_padded_definition(self, attention, embedding_dim):
        torch.manual_seed(0)
        network = InceptionNetwork(50, embedding_dim, attention=attention).double().eval()
        with torch.no_grad():
            for layer in network.attention:
                layer.gate.fill_(0.3)
        texts = [[1, 2, 3], [4], [], [5, 6, 7, 8, 9, 10, 11]]
        ids = torch.from_numpy(padded(Ragged.from_lists(texts), np.arange(4), 32, network.padding))
        assert ids.shape == (4, 7)
        torch.testing.assert_close(network(ids), published_features(network, texts), rtol=1e-6, atol=1e-9)

    def test_published_size_and_other_sizes(self):
        assert InceptionNetwork(10, 300).n_features == 480
        for embedding_dim in (64, 100, 201, 512):
            network = InceptionNetwork(10, embedding_dim)
            assert network(torch.tensor([[1, 2], [3, 10]])).shape == (2, network.n_features)
        with pytest.raises(OptionError, match="embedding_dim is 50; InceptionXML needs at least 64"):
            InceptionNetwork(10, 50)

    def test_gates_start_closed_and_learn(self):
        network = InceptionNetwork(10, 64)
        assert all(layer.gate.item() == 0 for layer in network.attention)
        network(torch.tensor([[1, 2], [3, 4]])).square().sum().backward()
        assert all(layer.gate.grad.item() != 0 for layer in network.attention)

    def test_arrays_changes_nothing_in_a_network_that_learns(self):
        network = new_inception().train()
        before = copy.deepcopy(network.state_dict())
        arrays = network.arrays()
        assert all(module.training for module in network.modules())
        for name, tensor in network.state_dict().items():
            torch.testing.assert_close(tensor, before[name], rtol=0, atol=0)
        again = network.eval().arrays()
        assert all(np.array_equal(array, again[name]) for name, array in arrays.items())
