"""InceptionXML's encoder: convolutions along the dimensions of the word vectors, not along the words.

A text of S words is an S × d picture. Two gated self-attention layers let words, then dimensions, speak to each
other; a projection turns the word axis into channels, after which the order of the words is gone; three
convolutions of different width and a last one over their outputs give the features.

The published code pads every text to 32 words. A padded word is a zero vector and changes nothing, so texts
here are as long as the longest in their batch, and the attention over dimensions never makes a matrix of
dimensions × dimensions for a text.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import spectral_norm

from shortlist.errors import OptionError

WIDTHS = (4, 8, 16)
LAST_WIDTH = 16
STRIDE = 4


class WordAttention(nn.Module):
    """`x + gate · (x·xᵀ)·(mix·x)`, words looking at words; the gate starts at zero: at first, nothing happens."""

    def __init__(self, max_words: int) -> None:
        super().__init__()
        self.mix = spectral_norm(nn.Linear(max_words, max_words, bias=False))
        self.gate = nn.Parameter(torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        n_words = x.shape[1]
        mix: Tensor = self.mix.weight  # type: ignore[assignment]
        return x + self.gate * ((x @ x.transpose(1, 2)) @ (mix[:n_words, :n_words] @ x))


class DimensionAttention(nn.Module):
    """The same with dimensions looking at dimensions: `q + gate · (q·kᵀ)·(mix·k)` for q = xᵀ and k = vectorsᵀ.

    There are far more dimensions than words, so it is computed the other way round: transposed, it is
    `x + gate · ((vectors·mixᵀ)·vectorsᵀ)·x`, in which everything but `mix` is as small as the text.
    """

    def __init__(self, dimensions: int) -> None:
        super().__init__()
        self.mix = spectral_norm(nn.Linear(dimensions, dimensions, bias=False))
        self.gate = nn.Parameter(torch.zeros(1))

    def forward(self, x: Tensor, vectors: Tensor) -> Tensor:
        return x + self.gate * ((self.mix(vectors) @ vectors.transpose(1, 2)) @ x)


class InceptionEncoder(nn.Module):
    """Word ids (batch × words, padding = `n_words`) to features (batch × `n_features`)."""

    def __init__(
        self,
        n_words: int,
        dimensions: int = 300,
        max_words: int = 32,
        channels: int = 32,
        dropout: float = 0.25,
        attention: bool = True,
    ) -> None:
        super().__init__()
        if dimensions < LAST_WIDTH * STRIDE:
            raise OptionError(f"word vectors need at least {LAST_WIDTH * STRIDE} dimensions here, not {dimensions}")
        self.padding = n_words
        self.max_words = max_words
        # Adam's state for words that are not in a batch must stay as it is: hence sparse gradients.
        self.words = nn.Embedding(n_words + 1, dimensions, padding_idx=n_words, sparse=True)
        self.attention = nn.ModuleList([WordAttention(max_words), DimensionAttention(dimensions)] if attention else [])
        self.project = nn.Linear(max_words, channels, bias=False)
        self.branches = nn.ModuleList(nn.Conv1d(channels, channels, width, STRIDE) for width in WIDTHS)
        self.branch_norm = nn.BatchNorm1d(len(WIDTHS) * channels)
        self.last = nn.Conv1d(len(WIDTHS) * channels, channels, LAST_WIDTH, STRIDE)
        self.last_norm = nn.BatchNorm1d(channels)
        self.dropout = nn.Dropout(dropout)
        branch_length = dimensions // STRIDE
        self.n_features = channels * ((branch_length - LAST_WIDTH) // STRIDE + 1)

    def forward(self, word_ids: Tensor) -> Tensor:
        n_words = word_ids.shape[1]
        vectors = self.words(word_ids)
        x = vectors
        if self.attention:
            by_word, by_dimension = self.attention
            x = by_dimension(by_word(vectors), vectors)
        x = self.project.weight[:, :n_words] @ x
        x = self.dropout(nn.functional.gelu(self.branch_norm(self._convolved(x))))
        x = nn.functional.gelu(self.last_norm(self.last(x)))
        return self.dropout(x.flatten(1))

    def _convolved(self, x: Tensor) -> Tensor:
        """All branches at once: windows of different width about the same middle are one window with zeros."""
        widest = max(WIDTHS)
        weights = [
            nn.functional.pad(branch.weight, ((widest - width) // 2,) * 2)  # type: ignore[arg-type]
            for branch, width in zip(self.branches, WIDTHS, strict=True)
        ]
        biases = [branch.bias for branch in self.branches]
        wrapped = nn.functional.pad(x, ((widest - STRIDE) // 2,) * 2, mode="circular")
        return nn.functional.conv1d(wrapped, torch.cat(weights), torch.cat(biases), STRIDE)  # type: ignore[arg-type]
