"""InceptionXML's encoder: convolutions along the dimensions of the word vectors, not along the words.

A text of S words is an S × d picture. Two gated self-attention layers let words, then dimensions, speak to each
other; a projection turns the word axis into channels, after which the order of the words is gone; three
convolutions of different width and a last one over their outputs give the features.

The published code pads every text to 32 words. A padded word is a zero vector and changes nothing, so texts
here are as long as the longest in their batch, and the attention (X·Yᵀ)·(C·X) is computed as X·(Yᵀ·(C·X)),
which is the same and cheaper.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import spectral_norm

from shortlist.errors import OptionError

WIDTHS = (4, 8, 16)
LAST_WIDTH = 16
STRIDE = 4


class GatedAttention(nn.Module):
    """`x + gate · (q·kᵀ)·(mix·v)` over the second axis, with a gate that starts at zero: at first, nothing happens."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.mix = spectral_norm(nn.Linear(size, size, bias=False))
        self.gate = nn.Parameter(torch.zeros(1))

    def forward(self, query: Tensor, key: Tensor, used: int) -> Tensor:
        """`query` and `key` are batch × size × other; of the axis of `size` only the first `used` are there."""
        weight: Tensor = self.mix.weight  # type: ignore[assignment]
        mix = weight[:used, :used]
        return query + self.gate * (query @ (key.transpose(1, 2) @ (mix @ key)))


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
        self.attention = nn.ModuleList([GatedAttention(max_words), GatedAttention(dimensions)] if attention else [])
        self.project = nn.Linear(max_words, channels, bias=False)
        self.branches = nn.ModuleList(
            nn.Conv1d(channels, channels, width, STRIDE, padding=(width - STRIDE) // 2, padding_mode="circular")
            for width in WIDTHS
        )
        self.branch_norms = nn.ModuleList(nn.BatchNorm1d(channels) for _ in WIDTHS)
        self.last = nn.Conv1d(len(WIDTHS) * channels, channels, LAST_WIDTH, STRIDE)
        self.last_norm = nn.BatchNorm1d(channels)
        self.dropout = nn.Dropout(dropout)
        branch_length = min(self._branch_length(width, dimensions) for width in WIDTHS)
        self.n_features = channels * ((branch_length - LAST_WIDTH) // STRIDE + 1)

    @staticmethod
    def _branch_length(width: int, dimensions: int) -> int:
        return (dimensions + 2 * ((width - STRIDE) // 2) - width) // STRIDE + 1

    def forward(self, word_ids: Tensor) -> Tensor:
        n_words = word_ids.shape[1]
        vectors = self.words(word_ids)
        x = vectors
        if self.attention:
            by_word, by_dimension = self.attention
            x = by_word(vectors, vectors, n_words)
            across = vectors.transpose(1, 2)
            x = by_dimension(x.transpose(1, 2), across, vectors.shape[2]).transpose(1, 2)
        x = self.project.weight[:, :n_words] @ x
        outputs = [
            nn.functional.gelu(norm(branch(x))) for branch, norm in zip(self.branches, self.branch_norms, strict=True)
        ]
        x = self.dropout(torch.cat(outputs, dim=1))
        x = nn.functional.gelu(self.last_norm(self.last(x)))
        return self.dropout(x.flatten(1))
