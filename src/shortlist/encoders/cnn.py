"""XML-CNN's encoder (Liu et al. 2017): windows over the words of a text, pooled in chunks, then a narrow layer.

Filters of several widths stand about each word, with zeros where there is no word. A text is cut into a fixed number
of chunks ("dynamic" pooling: they follow its own length), of each chunk the most that a filter sees is kept, and a
layer with ReLU makes few features of that. Padding has no window of its own and no chunk: it changes nothing.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from shortlist.encoders.cnn_runtime import WIDTHS
from shortlist.encoders.dropout import Dropout

WORD_DROPOUT = 0.25  # as published


class CNNEncoder(nn.Module):
    """Word ids (batch × words, padding = `n_words`, behind the words) to features (batch × `n_features`)."""

    def __init__(
        self,
        n_words: int,
        dimensions: int = 300,
        channels: int = 128,
        chunks: int = 2,
        hidden: int = 512,
        dropout: float = 0.5,
    ) -> None:
        """channels: filters of each width; hidden: how many features there are."""
        super().__init__()
        self.padding, self.chunks, self.n_features = n_words, chunks, hidden
        self.words = nn.Embedding(n_words + 1, dimensions, padding_idx=n_words, sparse=True)
        self.filters = nn.ModuleList(nn.Conv1d(dimensions, channels, width) for width in WIDTHS)
        self.hidden = nn.Linear(chunks * len(WIDTHS) * channels, hidden)
        self.word_dropout, self.dropout = Dropout(WORD_DROPOUT), Dropout(dropout)

    def forward(self, word_ids: Tensor) -> Tensor:
        vectors = self.word_dropout(self.words(word_ids)).transpose(1, 2)
        windows = [nn.functional.pad(vectors, ((width - 1) // 2, width // 2)) for width in WIDTHS]
        filtered = torch.cat([filters(x) for filters, x in zip(self.filters, windows, strict=True)], dim=1)
        n_words = (word_ids != self.padding).sum(dim=1, keepdim=True).clamp(min=1)
        place, n_chunks = torch.arange(word_ids.shape[1], device=word_ids.device), self.chunks
        pooled = []
        for chunk in range(n_chunks):  # as `chunk_bounds` says, in whole numbers
            outside = (place < chunk * n_words // n_chunks) | (n_chunks * place >= (chunk + 1) * n_words)
            pooled.append(filtered.masked_fill(outside[:, None], -torch.inf).amax(dim=2))
        return self.dropout(torch.relu(self.hidden(torch.relu(torch.cat(pooled, dim=1)))))

    @torch.no_grad()
    def to_arrays(self) -> dict[str, np.ndarray]:
        """What `CNNRuntime` needs: the taps of all filters side by side (dimensions × taps and channels)."""
        taps = [filters.weight.permute(1, 2, 0).flatten(1) for filters in self.filters]  # type: ignore[operator]
        arrays = {
            "words": self.words.weight[:-1],
            "taps": torch.cat(taps, dim=1),
            "biases": torch.cat([filters.bias for filters in self.filters]),  # type: ignore[misc]
            "hidden": self.hidden.weight.T,
            "hidden_biases": self.hidden.bias,
        }
        return {name: array.float().contiguous().cpu().numpy() for name, array in arrays.items()}
