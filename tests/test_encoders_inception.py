"""InceptionXML's encoder against its padded definition, written out plainly."""

from __future__ import annotations

import numpy as np
import pytest

from shortlist.arrays import Ragged
from shortlist.errors import OptionError
from shortlist.training.batches import epoch_batches, padded

torch = pytest.importorskip("torch")

from shortlist.encoders.inception import InceptionEncoder  # noqa: E402 - needs torch


def published_features(encoder: InceptionEncoder, word_ids: list[list[int]]) -> torch.Tensor:
    """The definition: every text padded to the full number of words, attention in the order of the formula."""
    ids = torch.full((len(word_ids), encoder.max_words), encoder.padding)
    for row, words in enumerate(word_ids):
        ids[row, : len(words)] = torch.tensor(words, dtype=torch.long)
    x = embedded = encoder.words(ids)
    if len(encoder.attention):
        by_word, by_dimension = encoder.attention
        x = x + by_word.gate * ((x @ x.transpose(1, 2)) @ (by_word.mix.weight @ x))
        query, key = x.transpose(1, 2), embedded.transpose(1, 2)
        x = (query + by_dimension.gate * ((query @ key.transpose(1, 2)) @ (by_dimension.mix.weight @ key))).transpose(
            1, 2
        )
    x = torch.einsum("ps,bsd->bpd", encoder.project.weight, x)
    branches = []
    for branch in encoder.branches:
        side = (branch.kernel_size[0] - 4) // 2
        wrapped = torch.cat([x[..., len(x[0, 0]) - side :], x, x[..., :side]], dim=2)
        out = torch.nn.functional.conv1d(wrapped, branch.weight, branch.bias, stride=4)
        branches.append(out)
    joined = torch.nn.functional.gelu(encoder.branch_norm(torch.cat(branches, dim=1)))
    last = torch.nn.functional.conv1d(joined, encoder.last.weight, encoder.last.bias, stride=4)
    return torch.nn.functional.gelu(encoder.last_norm(last)).flatten(1)


@pytest.mark.parametrize("attention", [True, False])
@pytest.mark.parametrize("dimensions", [64, 300])
def test_computing_only_the_words_that_are_there_equals_the_padded_definition(attention, dimensions):
    torch.manual_seed(0)
    encoder = InceptionEncoder(50, dimensions, attention=attention).double().eval()
    with torch.no_grad():
        for layer in encoder.attention:
            layer.gate.fill_(0.3)
    texts = [[1, 2, 3], [4], [], [5, 6, 7, 8, 9, 10, 11]]
    ids = torch.from_numpy(padded(Ragged.from_lists(texts), np.arange(4), 32, encoder.padding))
    assert ids.shape == (4, 7)
    ours, expected = encoder(ids), published_features(encoder, texts)
    torch.testing.assert_close(ours, expected, rtol=1e-6, atol=1e-9)


def test_published_size_and_other_sizes():
    assert InceptionEncoder(10, 300).n_features == 480
    for dimensions in (64, 100, 201, 512):
        encoder = InceptionEncoder(10, dimensions)
        assert encoder(torch.tensor([[1, 2], [3, 10]])).shape == (2, encoder.n_features)
    with pytest.raises(OptionError, match="at least 64 dimensions"):
        InceptionEncoder(10, 50)


def test_gates_start_closed_and_learn():
    encoder = InceptionEncoder(10, 64)
    assert all(layer.gate.item() == 0 for layer in encoder.attention)
    encoder(torch.tensor([[1, 2], [3, 4]])).square().sum().backward()
    assert all(layer.gate.grad.item() != 0 for layer in encoder.attention)


def test_batches_cover_every_text_once_and_repeat_by_seed():
    lengths = np.random.default_rng(0).integers(0, 30, 1001)
    batches = list(epoch_batches(lengths, 32, seed=1, epoch=0))
    assert sorted(np.concatenate(batches).tolist()) == list(range(1001))
    again = list(epoch_batches(lengths, 32, seed=1, epoch=0))
    assert all(np.array_equal(a, b) for a, b in zip(batches, again, strict=True))
    other = list(epoch_batches(lengths, 32, seed=1, epoch=1))
    assert not all(np.array_equal(a, b) for a, b in zip(batches, other, strict=False))
    # Texts of like length keep together: far less padding than in batches at random.
    spread = np.mean([np.ptp(lengths[batch]) for batch in batches])
    assert spread < 10


def test_padded_cuts_and_fills():
    ids = Ragged.from_lists([[1, 2, 3], [], [4]])
    assert padded(ids, np.asarray([2, 0, 1]), max_words=2, padding=9).tolist() == [[4, 9], [1, 2], [9, 9]]
    assert padded(ids, np.asarray([1]), max_words=5, padding=9).tolist() == [[9]]
