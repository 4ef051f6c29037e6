"""XML-CNN's encoder (Liu et al. 2017): convolutions over words, max pooling in chunks, then a hidden layer.

Chunks follow the length of the text ("dynamic" pooling). Padding belongs to no chunk: it changes nothing.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from shortlist.arrays import Arrays
from shortlist.stages.encoders.cnn import WIDTHS
from shortlist.training.networks.dropout import Dropout

WORD_DROPOUT = 0.25  # as published


class CNNNetwork(nn.Module):
    """Word ids (batch × words, padding = `n_words`, behind the words) to features (batch × `n_features`)."""

    def __init__(
        self,
        n_words: int,
        embedding_dim: int = 300,
        channels: int = 128,
        n_chunks: int = 2,
        hidden_size: int = 512,
        dropout: float = 0.5,
    ) -> None:
        super().__init__()
        self.padding, self.n_chunks, self.n_features = n_words, n_chunks, hidden_size
        self.words = nn.Embedding(n_words + 1, embedding_dim, padding_idx=n_words, sparse=True)
        self.filters = nn.ModuleList(nn.Conv1d(embedding_dim, channels, width) for width in WIDTHS)
        self.hidden = nn.Linear(n_chunks * len(WIDTHS) * channels, hidden_size)
        self.word_dropout, self.dropout = Dropout(WORD_DROPOUT), Dropout(dropout)

    def forward(self, word_ids: Tensor) -> Tensor:
        vectors = self.word_dropout(self.words(word_ids)).transpose(1, 2)
        windows = [nn.functional.pad(vectors, ((width - 1) // 2, width // 2)) for width in WIDTHS]
        filtered = torch.cat([filters(x) for filters, x in zip(self.filters, windows, strict=True)], dim=1)
        n_words = (word_ids != self.padding).sum(dim=1, keepdim=True).clamp(min=1)
        place, n_chunks = torch.arange(word_ids.shape[1], device=word_ids.device), self.n_chunks
        pooled = []
        for chunk in range(n_chunks):  # as `chunk_bounds`, in whole numbers
            outside = (place < chunk * n_words // n_chunks) | (n_chunks * place >= (chunk + 1) * n_words)
            pooled.append(filtered.masked_fill(outside[:, None], -torch.inf).amax(dim=2))
        return self.dropout(torch.relu(self.hidden(torch.relu(torch.cat(pooled, dim=1)))))

    @torch.no_grad()
    def arrays(self) -> Arrays:
        """The taps of all filters side by side (dimensions × taps and channels), and the hidden layer."""
        taps = [filters.weight.permute(1, 2, 0).flatten(1) for filters in self.filters]  # type: ignore[operator]
        arrays = {
            "words": self.words.weight[:-1],
            "taps": torch.cat(taps, dim=1),
            "biases": torch.cat([filters.bias for filters in self.filters]),  # type: ignore[misc]
            "hidden": self.hidden.weight.T,
            "hidden_biases": self.hidden.bias,
        }
        return {name: array.float().contiguous().cpu().numpy() for name, array in arrays.items()}

    def config(self) -> dict[str, Any]:
        return {}
