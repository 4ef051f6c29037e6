"""MACH's encoder (Medini et al. 2019): hashed words with tf-idf weights, and a hidden layer with ReLU.

A layer over so many inputs, of which a text has a few, is the weighted sum of the rows of its words. Words are hashed
so that there are no more rows than wanted, however many words there are; those in one bucket share a row.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from shortlist.encoders.bag import unit_weights
from shortlist.encoders.dropout import Dropout


class MLPEncoder(nn.Module):
    """Word ids (batch × words, padding = number of words) to features: `relu(Σ x_t · rows[buckets[t]] + biases)`."""

    idf: Tensor
    buckets: Tensor

    def __init__(self, idf: np.ndarray, buckets: np.ndarray, dimensions: int = 300, dropout: float = 0.5) -> None:
        super().__init__()
        n_buckets = int(buckets.max(initial=-1)) + 1
        self.padding, self.n_features = len(idf), dimensions
        self.words = nn.Embedding(n_buckets + 1, dimensions, padding_idx=n_buckets, sparse=True)
        self.biases = nn.Parameter(torch.zeros(dimensions))
        self.register_buffer("idf", torch.from_numpy(np.append(idf, 0).astype(np.float32)))
        self.register_buffer("buckets", torch.from_numpy(np.append(buckets, n_buckets).astype(np.int64)))
        self.dropout = Dropout(dropout)

    def forward(self, word_ids: Tensor) -> Tensor:
        sums = torch.bmm(unit_weights(self.idf, word_ids)[:, None], self.words(self.buckets[word_ids])).squeeze(1)
        return self.dropout(torch.relu(sums + self.biases))

    @torch.no_grad()
    def to_arrays(self) -> dict[str, np.ndarray]:
        arrays = {"words": self.words.weight[:-1], "idf": self.idf[:-1], "biases": self.biases}
        made = {name: array.detach().contiguous().cpu().numpy() for name, array in arrays.items()}
        return made | {"buckets": self.buckets[:-1].cpu().numpy().astype(np.int32)}
