"""InceptionXML's encoder: convolutions along the dimensions of the word vectors, not along the words.

A text of S words is an S × d matrix. Two gated self-attention layers let words, then dimensions, attend to each other;
a projection turns the words into channels; three convolutions of different widths and a last one give the features.
The bag of word vectors next to them is not in the paper: it needs less data to learn from.

The published code pads every text to 32 words. A padded word is a zero vector and changes nothing, so texts here are as
long as the longest in their batch, and no attention over dimensions makes a dimensions × dimensions matrix per text.

Defaults are ours; the options of `InceptionNetwork` turn each part into the published one.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import spectral_norm

from shortlist.arrays import Arrays
from shortlist.errors import OptionError
from shortlist.stages.encoders.inception import LAST_WIDTH, PADDING, STRIDE, WIDTHS, branch_columns, last_length
from shortlist.training.networks.layers import Dropout, scales_and_shifts, start_with_xavier

PUBLISHED_LENGTH = 15
PATH_DROPOUT = 0.5


def _new_mix(size: int, weight_init: str) -> nn.Module:
    mix = nn.Linear(size, size, bias=False)
    if weight_init == "xavier":
        nn.init.xavier_normal_(mix.weight)
    return spectral_norm(mix)


class WordAttention(nn.Module):
    """`x + gate · (x·xᵀ)·(mix·x)`, words attending to words. The gate starts at 0."""

    def __init__(self, max_words: int, weight_init: str) -> None:
        super().__init__()
        self.mix = _new_mix(max_words, weight_init)
        self.gate = nn.Parameter(torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        n_words = x.shape[1]
        mix: Tensor = self.mix.weight  # type: ignore[assignment]
        return x + self.gate * ((x @ x.transpose(1, 2)) @ (mix[:n_words, :n_words] @ x))


class DimensionAttention(nn.Module):
    """Dimensions attending to dimensions: `q + gate · (q·kᵀ)·(mix·v)` for q = xᵀ and k = vectorsᵀ.

    The value v is k, as in the paper's formula, or q ("query"), as in its program. There are far more dimensions than
    words, so it is computed transposed, as `x + gate · ((vᵀ·mixᵀ)·vectorsᵀ)·x`.
    """

    def __init__(self, embedding_dim: int, weight_init: str, value: str) -> None:
        super().__init__()
        self.mix = _new_mix(embedding_dim, weight_init)
        self.gate, self.value = nn.Parameter(torch.zeros(1)), value

    def forward(self, x: Tensor, vectors: Tensor) -> Tensor:
        value = x if self.value == "query" else vectors
        return x + self.gate * ((self.mix(value) @ vectors.transpose(1, 2)) @ x)


class InceptionNetwork(nn.Module):
    """Word ids (batch × words, padding = `n_words`) to features (batch × `n_features`).

    attention_value  value of the attention over dimensions: "vectors" or "query"
    norm_first       batch norm, then GELU; else GELU, then batch norm
    project_norm     a bias, GELU and batch norm after the projection
    word_dropout     share of the word vectors' numbers that is dropped; `project_dropout`: of the projection's output;
                     `branch_dropout`: of the branches' output; `dropout`: of the features
    weight_init      how layers start: "torch" (torch's default), or "xavier", with biases at 0
    """

    def __init__(
        self,
        n_words: int,
        embedding_dim: int = 300,
        max_words: int = 32,
        channels: int = 32,
        dropout: float = 0.25,
        attention: bool = True,
        bag: bool = False,
        attention_value: str = "vectors",
        norm_first: bool = True,
        project_norm: bool = False,
        word_dropout: float = 0.0,
        project_dropout: float = 0.0,
        branch_dropout: float = 0.25,
        weight_init: str = "torch",
    ) -> None:
        super().__init__()
        last_channels = count_last_channels(embedding_dim, channels)
        self.padding = n_words
        self.max_words = max_words
        # Sparse gradients: the optimiser leaves words alone that are not in the batch.
        self.words = nn.Embedding(n_words + 1, embedding_dim, padding_idx=n_words, sparse=True)
        self.attention = nn.ModuleList()
        if attention:
            self.attention.append(WordAttention(max_words, weight_init))
            self.attention.append(DimensionAttention(embedding_dim, weight_init, attention_value))
        # A batch norm right after a layer cancels its biases: all that Adam would learn is rounding errors.
        biases = not norm_first
        self.project = nn.Linear(max_words, channels, bias=project_norm and biases)
        self.project_norm = nn.BatchNorm1d(channels) if project_norm else None
        self.branches = nn.ModuleList(nn.Conv1d(channels, channels, width, STRIDE, bias=biases) for width in WIDTHS)
        self.branch_norm = nn.BatchNorm1d(len(WIDTHS) * channels)
        self.last = nn.Conv1d(len(WIDTHS) * channels, last_channels, LAST_WIDTH, STRIDE, bias=biases)
        self.last_norm = nn.BatchNorm1d(last_channels)
        self.word_dropout, self.project_dropout = Dropout(word_dropout), Dropout(project_dropout)
        self.branch_dropout, self.dropout = Dropout(branch_dropout), Dropout(dropout)
        self.norm_first, self.attention_value = norm_first, attention_value
        self.bag, self.path_dropout = bag, Dropout(PATH_DROPOUT)
        self.n_features = count_features(embedding_dim, channels, bag)
        if weight_init == "xavier":
            for layer in (self.project, *self.branches, self.last):
                start_with_xavier(layer)

    def forward(self, word_ids: Tensor) -> Tensor:
        n_words = word_ids.shape[1]
        vectors = self.word_dropout(self.words(word_ids))
        x = vectors
        if self.attention:
            by_word, by_dimension = self.attention
            x = by_dimension(by_word(vectors), vectors)
        # Positions before channels: windows are then neighbouring rows of a matrix.
        x = x.transpose(1, 2) @ self.project.weight[:, :n_words].T
        if self.project_norm is not None:
            x = self.project_dropout(self._activate(x + _biases(self.project), self.project_norm))
        x = torch.cat([x[:, -PADDING:], x, x[:, :PADDING]], dim=1)
        weights, biases = self._joined_branches()
        x = self._activate(_convolution(x, self._branch_taps(weights), biases), self.branch_norm)
        x = _convolution(self.branch_dropout(x), _taps(self.last.weight), _biases(self.last))
        x = self._activate(x, self.last_norm).transpose(1, 2).flatten(1)
        if self.bag:
            # Convolutions overfit small data; half of the time the bag has to do without them.
            x = x * self.path_dropout(x.new_ones(len(x), 1))
            counts = (word_ids != self.padding).sum(dim=1, keepdim=True).clamp(min=1)
            x = torch.cat([x, (vectors.sum(dim=1) / counts.sqrt()).to(x.dtype)], dim=1)
        return self.dropout(x)

    def _activate(self, x: Tensor, norm: nn.BatchNorm1d) -> Tensor:
        """Batch norm over channels, the last dimension, and GELU, in their order."""
        if self.norm_first:
            return nn.functional.gelu(norm(x.flatten(0, 1)).view(x.shape))
        return norm(nn.functional.gelu(x).flatten(0, 1)).view(x.shape)

    @torch.no_grad()
    def arrays(self) -> Arrays:
        """The weights as they work in evaluation: gates are folded into the mixes, and batch norms into the layers.

        A batch norm before the activation belongs to its own layer, one after it to the next layer; after the last
        one, its scales and shifts remain.
        """
        arrays = {"words": self.words.weight[:-1]}
        if self.attention:
            self.attention.eval()  # in training mode, reading a spectral norm changes it
            for name, layer in zip(("word_mix", "dimension_mix"), self.attention, strict=True):
                arrays[name] = (layer.gate * layer.mix.weight).T  # type: ignore[union-attr, operator]
            self.attention.train(self.training)
        layers = {
            "project": (self.project.weight[:, :, None], _biases(self.project), self.project_norm),
            "branch": (*self._joined_branches(), self.branch_norm),
            "last": (self.last.weight, _biases(self.last), self.last_norm),
        }
        before = None
        for name, (weights, biases, norm) in layers.items():
            weights = weights.cpu().double()  # not every device has float64
            biases = biases.cpu().double()
            if before is not None:
                biases = biases + (weights * before[1][:, None]).sum(dim=(1, 2))
                weights = weights * before[0][:, None]
            before = None if norm is None else scales_and_shifts(norm)
            if before is not None and self.norm_first:
                weights, biases, before = weights * before[0][:, None, None], biases * before[0] + before[1], None
            arrays[f"{name}_biases"], arrays[f"{name}_weights"] = biases, weights
        if before is not None:
            arrays["scales"], arrays["shifts"] = before
        arrays["project"] = arrays.pop("project_weights").squeeze(2).T
        if self.project_norm is None:
            del arrays["project_biases"]
        arrays["branch_weights"] = torch.cat(self._branch_taps(arrays["branch_weights"]), dim=1)
        arrays["last_weights"] = torch.cat(_taps(arrays["last_weights"]), dim=1)
        return {name: array.float().contiguous().cpu().numpy() for name, array in arrays.items()}

    def config(self) -> dict[str, Any]:
        return {"bag": self.bag, "attention_value": self.attention_value}

    def _joined_branches(self) -> tuple[Tensor, Tensor]:
        """Weights and biases of all branches, narrow windows padded with zeros to the widest."""
        weights = [
            nn.functional.pad(branch.weight, ((max(WIDTHS) - width) // 2,) * 2)  # type: ignore[arg-type]
            for branch, width in zip(self.branches, WIDTHS, strict=True)
        ]
        return torch.cat(weights), torch.cat([_biases(branch) for branch in self.branches])

    def _branch_taps(self, weights: Tensor) -> list[Tensor]:
        """The taps of the joined branches, without the columns that are zero."""
        columns = branch_columns(self.project.out_features)
        return [tap[:, -n_columns:] for tap, n_columns in zip(_taps(weights), columns, strict=True)]


def _biases(layer: Any) -> Tensor:
    """The biases of a layer; 0 where it has none."""
    return layer.weight.new_zeros(len(layer.weight)) if layer.bias is None else layer.bias


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


def _convolution(x: Tensor, taps: list[Tensor], biases: Tensor) -> Tensor:
    """A strided convolution, positions × channels in and out."""
    n_steps = x.shape[1] // STRIDE
    rows = x[:, : n_steps * STRIDE].reshape(len(x), n_steps, STRIDE * x.shape[2])
    return _JoinedTaps.apply(rows, biases, *taps)


def _taps(weights: Tensor) -> list[Tensor]:
    """Each stride of a window as a matrix, (positions, channels in) × channels out."""
    return [tap.permute(2, 1, 0).flatten(0, 1) for tap in weights.split(STRIDE, dim=2)]
