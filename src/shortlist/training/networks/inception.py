"""InceptionXML's encoder: convolutions along the dimensions of the word vectors, not along the words.

A text of S words is an S × d matrix. Two gated self-attention layers let words, then dimensions, attend to each other;
a projection turns the words into channels; three convolutions of different widths and a last one give the features.
The bag of word vectors beside them is not in the paper: it needs less data to learn from.

The published code pads every text to 32 words. A padded word is a zero vector and changes nothing, so texts here are as
long as the longest in their batch, and no attention over dimensions makes a dimensions × dimensions matrix per text.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import spectral_norm

from shortlist.arrays import Arrays
from shortlist.errors import OptionError
from shortlist.stages.encoders.inception import LAST_WIDTH, PADDING, STRIDE, WIDTHS, branch_columns, last_length
from shortlist.training.networks.dropout import Dropout

PUBLISHED_LENGTH = 15
INNER_DROPOUT = 0.25
PATH_DROPOUT = 0.5


class WordAttention(nn.Module):
    """`x + gate · (x·xᵀ)·(mix·x)`, words attending to words. The gate starts at 0."""

    def __init__(self, max_words: int) -> None:
        super().__init__()
        self.mix = spectral_norm(nn.Linear(max_words, max_words, bias=False))
        self.gate = nn.Parameter(torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        n_words = x.shape[1]
        mix: Tensor = self.mix.weight  # type: ignore[assignment]
        return x + self.gate * ((x @ x.transpose(1, 2)) @ (mix[:n_words, :n_words] @ x))


class DimensionAttention(nn.Module):
    """Dimensions attending to dimensions: `q + gate · (q·kᵀ)·(mix·k)` for q = xᵀ and k = vectorsᵀ.

    There are far more dimensions than words, so it is computed transposed, as `x + gate · ((vectors·mixᵀ)·vectorsᵀ)·x`.
    """

    def __init__(self, embedding_dim: int) -> None:
        super().__init__()
        self.mix = spectral_norm(nn.Linear(embedding_dim, embedding_dim, bias=False))
        self.gate = nn.Parameter(torch.zeros(1))

    def forward(self, x: Tensor, vectors: Tensor) -> Tensor:
        return x + self.gate * ((self.mix(vectors) @ vectors.transpose(1, 2)) @ x)


class InceptionNetwork(nn.Module):
    """Word ids (batch × words, padding = `n_words`) to features (batch × `n_features`)."""

    def __init__(
        self,
        n_words: int,
        embedding_dim: int = 300,
        max_words: int = 32,
        channels: int = 32,
        dropout: float = 0.25,
        attention: bool = True,
        bag: bool = False,
    ) -> None:
        super().__init__()
        last_channels = count_last_channels(embedding_dim, channels)
        self.padding = n_words
        self.max_words = max_words
        # Sparse gradients: the optimiser leaves words alone that are not in the batch.
        self.words = nn.Embedding(n_words + 1, embedding_dim, padding_idx=n_words, sparse=True)
        self.attention = nn.ModuleList(
            [WordAttention(max_words), DimensionAttention(embedding_dim)] if attention else []
        )
        self.project = nn.Linear(max_words, channels, bias=False)
        self.branches = nn.ModuleList(nn.Conv1d(channels, channels, width, STRIDE) for width in WIDTHS)
        self.branch_norm = nn.BatchNorm1d(len(WIDTHS) * channels)
        self.last = nn.Conv1d(len(WIDTHS) * channels, last_channels, LAST_WIDTH, STRIDE)
        self.last_norm = nn.BatchNorm1d(last_channels)
        self.inner_dropout, self.dropout = Dropout(INNER_DROPOUT), Dropout(dropout)
        self.bag, self.path_dropout = bag, Dropout(PATH_DROPOUT)
        self.n_features = count_features(embedding_dim, channels, bag)

    def forward(self, word_ids: Tensor) -> Tensor:
        n_words = word_ids.shape[1]
        vectors = self.words(word_ids)
        x = vectors
        if self.attention:
            by_word, by_dimension = self.attention
            x = by_dimension(by_word(vectors), vectors)
        # Positions before channels: windows are then neighbouring rows of a matrix.
        x = x.transpose(1, 2) @ self.project.weight[:, :n_words].T
        x = torch.cat([x[:, -PADDING:], x, x[:, :PADDING]], dim=1)
        weights, biases = self._joined_branches()
        x = _convolution(x, self._branch_taps(weights), biases, self.branch_norm)
        x = _convolution(self.inner_dropout(x), _taps(self.last.weight), self.last.bias, self.last_norm)
        x = x.transpose(1, 2).flatten(1)
        if self.bag:
            # Convolutions overfit small data; half of the time the bag has to do without them.
            x = x * self.path_dropout(x.new_ones(len(x), 1))
            counts = (word_ids != self.padding).sum(dim=1, keepdim=True).clamp(min=1)
            x = torch.cat([x, (vectors.sum(dim=1) / counts.sqrt()).to(x.dtype)], dim=1)
        return self.dropout(x)

    @torch.no_grad()
    def arrays(self) -> Arrays:
        """The weights as they work in evaluation: gates folded into the mixes, batch norms into the convolutions."""
        arrays = {"words": self.words.weight[:-1], "project": self.project.weight.T}
        if self.attention:
            self.attention.eval()  # in training mode, reading a spectral norm changes it
            for name, layer in zip(("word_mix", "dimension_mix"), self.attention, strict=True):
                arrays[name] = (layer.gate * layer.mix.weight).T  # type: ignore[union-attr, operator]
            self.attention.train(self.training)
        weights, arrays["branch_biases"] = _folded(*self._joined_branches(), self.branch_norm)
        arrays["branch_weights"] = torch.cat(self._branch_taps(weights), dim=1)
        weights, arrays["last_biases"] = _folded(self.last.weight, self.last.bias, self.last_norm)
        arrays["last_weights"] = torch.cat(_taps(weights), dim=1)
        return {name: array.float().contiguous().cpu().numpy() for name, array in arrays.items()}

    def config(self) -> dict[str, Any]:
        return {"bag": self.bag}

    def _joined_branches(self) -> tuple[Tensor, Tensor]:
        """Weights and biases of all branches, narrow windows padded with zeros to the widest."""
        weights = [
            nn.functional.pad(branch.weight, ((max(WIDTHS) - width) // 2,) * 2)  # type: ignore[arg-type]
            for branch, width in zip(self.branches, WIDTHS, strict=True)
        ]
        return torch.cat(weights), torch.cat([branch.bias for branch in self.branches])  # type: ignore[misc]

    def _branch_taps(self, weights: Tensor) -> list[Tensor]:
        """The taps of the joined branches, without the columns that are zero."""
        columns = branch_columns(self.project.out_features)
        return [tap[:, -n_columns:] for tap, n_columns in zip(_taps(weights), columns, strict=True)]


def count_last_channels(embedding_dim: int, channels: int) -> int:
    """Channels of the last convolution: about as many features as published (15 · 32 from 300 dimensions)."""
    if embedding_dim < LAST_WIDTH * STRIDE:
        raise OptionError(f"embedding_dim is {embedding_dim}; InceptionXML needs at least {LAST_WIDTH * STRIDE}")
    return -(-PUBLISHED_LENGTH * channels // last_length(embedding_dim))


def count_features(embedding_dim: int, channels: int, bag: bool) -> int:
    """The number of features of an encoder with these sizes."""
    convolved = count_last_channels(embedding_dim, channels) * last_length(embedding_dim)
    return convolved + (embedding_dim if bag else 0)


class _JoinedTaps(torch.autograd.Function):
    """out[:, i] = biases + Σ_t rows[:, i + t] · taps[t]; a tap with fewer columns adds to the last ones.

    One product serves all taps, and no window is copied; torch's own convolution takes twice as long.
    """

    @staticmethod
    def forward(ctx: Any, rows: Tensor, biases: Tensor, *taps: Tensor) -> Tensor:
        weights = torch.cat(taps, dim=1).to(rows.dtype)
        ctx.save_for_backward(rows, weights)
        ctx.columns = [tap.shape[1] for tap in taps]
        n_out = rows.shape[1] - len(taps) + 1
        out = biases.to(rows.dtype).repeat(len(rows), n_out, 1)
        products = (rows.flatten(0, 1) @ weights).view(*rows.shape[:2], weights.shape[1]).split(ctx.columns, dim=2)
        for tap, product in enumerate(products):
            out[..., -product.shape[2] :] += product[:, tap : tap + n_out]
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, ...]:
        rows, weights = ctx.saved_tensors
        n_out = gradient.shape[1]
        of_products = gradient.new_zeros((*rows.shape[:2], weights.shape[1]))
        for tap, part in enumerate(of_products.split(ctx.columns, dim=2)):
            part[:, tap : tap + n_out] = gradient[..., -part.shape[2] :]
        flat = of_products.flatten(0, 1)
        of_weights = (rows.flatten(0, 1).T @ flat).float().split(ctx.columns, dim=1)
        return (flat @ weights.T).view(rows.shape), gradient.sum(dim=(0, 1)).float(), *of_weights


def _convolution(x: Tensor, taps: list[Tensor], biases: Tensor | None, norm: nn.BatchNorm1d) -> Tensor:
    """GELU of the batch-normed strided convolution, positions × channels in and out."""
    n_steps = x.shape[1] // STRIDE
    rows = x[:, : n_steps * STRIDE].reshape(len(x), n_steps, STRIDE * x.shape[2])
    out = _JoinedTaps.apply(rows, biases, *taps)
    return nn.functional.gelu(norm(out.flatten(0, 1)).view(out.shape))


def _folded(weights: Tensor, biases: Tensor | None, norm: nn.BatchNorm1d) -> tuple[Tensor, Tensor]:
    """The convolution with the batch norm behind it folded in, computed in float64."""
    tensors = (weights, biases, norm.weight, norm.bias, norm.running_mean, norm.running_var)
    # On the CPU: not every device has float64.
    weights, biases, factor, shift, mean, variance = (tensor.cpu().double() for tensor in tensors)  # type: ignore[union-attr]
    factor = factor / (variance + norm.eps).sqrt()
    return weights * factor[:, None, None], (biases - mean) * factor + shift


def _taps(weights: Tensor) -> list[Tensor]:
    """Each stride of a window as a matrix, (positions, channels in) × channels out."""
    return [tap.permute(2, 1, 0).flatten(0, 1) for tap in weights.split(STRIDE, dim=2)]
