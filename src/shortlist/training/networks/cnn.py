"""XML-CNN's encoder (Liu et al. 2017): convolutions over words, max pooling in chunks, then a hidden layer.

By default, chunks follow the length of the text, and padding belongs to no chunk: it changes nothing. As published
(`fixed_chunks`), a text is padded to `max_words` words, and its chunks are those of the padded text.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from shortlist.arrays import Arrays
from shortlist.stages.encoders.cnn import WIDTHS, chunk_bounds
from shortlist.training.networks.layers import Dropout, start_with_xavier


class CNNNetwork(nn.Module):
    """Word ids (batch × words, padding = `n_words`, after the words) to features (batch × `n_features`)."""

    def __init__(
        self,
        n_words: int,
        embedding_dim: int = 300,
        channels: int = 128,
        n_chunks: int = 2,
        hidden_size: int = 512,
        dropout: float = 0.5,
        word_dropout: float = 0.25,
        fixed_chunks: bool = False,
        max_words: int = 32,
        weight_init: str = "torch",
    ) -> None:
        super().__init__()
        self.padding, self.n_chunks, self.n_features = n_words, n_chunks, hidden_size
        self.fixed_chunks, self.max_words = fixed_chunks, max_words
        self.words = nn.Embedding(n_words + 1, embedding_dim, padding_idx=n_words, sparse=True)
        self.filters = nn.ModuleList(nn.Conv1d(embedding_dim, channels, width) for width in WIDTHS)
        self.hidden = nn.Linear(n_chunks * len(WIDTHS) * channels, hidden_size)
        self.word_dropout, self.dropout = Dropout(word_dropout), Dropout(dropout)
        if weight_init == "xavier":
            for layer in (*self.filters, self.hidden):
                start_with_xavier(layer)

    def forward(self, word_ids: Tensor) -> Tensor:
        if self.fixed_chunks:  # padding that sees words; the rest of it gives the filters' biases
            n_places = min(word_ids.shape[1] + max(WIDTHS), self.max_words)
            word_ids = nn.functional.pad(word_ids, (0, n_places - word_ids.shape[1]), value=self.padding)
        vectors = self.word_dropout(self.words(word_ids)).transpose(1, 2)
        windows = [nn.functional.pad(vectors, ((width - 1) // 2, width // 2)) for width in WIDTHS]
        filtered = torch.cat([filters(x) for filters, x in zip(self.filters, windows, strict=True)], dim=1)
        pooled = self._pool_fixed(filtered) if self.fixed_chunks else self._pool(filtered, word_ids)
        return self.dropout(torch.relu(self.hidden(torch.relu(torch.cat(pooled, dim=1)))))

    def _pool(self, filtered: Tensor, word_ids: Tensor) -> list[Tensor]:
        """The maximum of each filter in each chunk of the text."""
        n_words = (word_ids != self.padding).sum(dim=1, keepdim=True).clamp(min=1)
        place, n_chunks = torch.arange(word_ids.shape[1], device=word_ids.device), self.n_chunks
        pooled = []
        for chunk in range(n_chunks):  # as `chunk_bounds`, in whole numbers
            outside = (place < chunk * n_words // n_chunks) | (n_chunks * place >= (chunk + 1) * n_words)
            pooled.append(filtered.masked_fill(outside[:, None], -torch.inf).amax(dim=2))
        return pooled

    def _pool_fixed(self, filtered: Tensor) -> list[Tensor]:
        """The maximum of each filter in each chunk of the text, padded to `max_words` words."""
        n_places, biases = filtered.shape[2], self._biases().to(filtered.dtype).expand(len(filtered), -1)
        pooled = []
        for begin, end in chunk_bounds(self.max_words, self.n_chunks):
            parts = [filtered[:, :, begin:end].amax(dim=2)] if begin < n_places else []
            parts += [biases] if end > n_places else []
            pooled.append(torch.stack(parts).amax(dim=0))
        return pooled

    def _biases(self) -> Tensor:
        return torch.cat([filters.bias for filters in self.filters])  # type: ignore[misc]

    @torch.no_grad()
    def arrays(self) -> Arrays:
        """The taps of all filters side by side (dimensions × taps and channels), and the hidden layer."""
        taps = [filters.weight.permute(1, 2, 0).flatten(1) for filters in self.filters]  # type: ignore[operator]
        arrays = {
            "words": self.words.weight[:-1],
            "taps": torch.cat(taps, dim=1),
            "biases": self._biases(),
            "hidden": self.hidden.weight.T,
            "hidden_biases": self.hidden.bias,
        }
        return {name: array.float().contiguous().cpu().numpy() for name, array in arrays.items()}

    def config(self) -> dict[str, Any]:
        return {"fixed_chunks": self.fixed_chunks}
