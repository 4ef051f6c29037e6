"""Bags of word vectors: Astec's encoder, MACH's, and features that are given."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from shortlist.arrays import Arrays
from shortlist.training.networks.layers import Dropout


class BagNetwork(nn.Module):
    """Word ids (batch × words, padding = number of words) to the tf-idf weighted sum of their vectors.

    The tf-idf weights of a text have length 1; words that occur twice count twice. The paper applies a ReLU to the sum,
    which costs 3 to 6 points of P@1 here (docs/lab-book.md): hence an option.
    """

    idf: Tensor

    def __init__(self, idf: np.ndarray, embedding_dim: int = 300, dropout: float = 0.5, relu: bool = False) -> None:
        super().__init__()
        self.words = nn.Embedding(len(idf) + 1, embedding_dim, padding_idx=len(idf), sparse=True)
        self.register_buffer("idf", torch.from_numpy(np.append(idf, 0).astype(np.float32)))
        self.dropout, self.relu, self.n_features = Dropout(dropout), relu, embedding_dim

    def forward(self, word_ids: Tensor, weights: Tensor | None = None) -> Tensor:
        bags = torch.bmm(unit_weights(self.idf, word_ids, weights)[:, None], self.words(word_ids)).squeeze(1)
        return self.dropout(torch.relu(bags) if self.relu else bags)

    @torch.no_grad()
    def arrays(self) -> Arrays:
        return {"words": self.words.weight[:-1].cpu().numpy(), "idf": self.idf[:-1].cpu().numpy()}

    @torch.no_grad()
    def load(self, arrays: Arrays) -> None:
        """Continue from these arrays."""
        self.words.weight[:-1] = torch.from_numpy(arrays["words"])

    def config(self) -> dict[str, Any]:
        return {"relu": self.relu}


class HashedBagNetwork(nn.Module):
    """MACH's encoder (Medini et al. 2019): `relu(Σ x_t · rows[buckets[t]] + biases)`, words hashed into buckets.

    A hidden layer over tf-idf features, of which a text has a few, is the weighted sum of the rows of its words.
    """

    idf: Tensor
    buckets: Tensor

    def __init__(self, idf: np.ndarray, buckets: np.ndarray, embedding_dim: int = 300, dropout: float = 0.5) -> None:
        super().__init__()
        n_buckets = int(buckets.max(initial=-1)) + 1
        self.words = nn.Embedding(n_buckets + 1, embedding_dim, padding_idx=n_buckets, sparse=True)
        self.biases = nn.Parameter(torch.zeros(embedding_dim))
        self.register_buffer("idf", torch.from_numpy(np.append(idf, 0).astype(np.float32)))
        self.register_buffer("buckets", torch.from_numpy(np.append(buckets, n_buckets).astype(np.int64)))
        self.dropout, self.n_features = Dropout(dropout), embedding_dim

    def forward(self, word_ids: Tensor, weights: Tensor | None = None) -> Tensor:
        unit = unit_weights(self.idf, word_ids, weights)
        sums = torch.bmm(unit[:, None], self.words(self.buckets[word_ids])).squeeze(1)
        return self.dropout(torch.relu(sums + self.biases))

    @torch.no_grad()
    def arrays(self) -> Arrays:
        arrays = {"words": self.words.weight[:-1], "idf": self.idf[:-1], "biases": self.biases}
        made = {name: array.detach().contiguous().cpu().numpy() for name, array in arrays.items()}
        return made | {"buckets": self.buckets[:-1].cpu().numpy().astype(np.int32)}

    @torch.no_grad()
    def load(self, arrays: Arrays) -> None:
        """Continue from these arrays."""
        self.words.weight[:-1] = torch.from_numpy(arrays["words"])
        self.biases.copy_(torch.from_numpy(arrays["biases"]))

    def config(self) -> dict[str, Any]:
        return {"relu": True}


class GivenFeatures(nn.Module):
    """Features in and out; in training, some of them are dropped."""

    def __init__(self, n_features: int, dropout: float = 0.5) -> None:
        super().__init__()
        self.dropout, self.n_features = Dropout(dropout), n_features

    def forward(self, features: Tensor) -> Tensor:
        return self.dropout(features)

    def arrays(self) -> Arrays:
        return {}


def unit_weights(idf: Tensor, word_ids: Tensor, weights: Tensor | None = None) -> Tensor:
    """The weights of each text's words, idf times those that they come with, scaled to length 1."""
    weights = idf[word_ids] if weights is None else idf[word_ids] * weights
    return weights / weights.square().sum(dim=1, keepdim=True).sqrt().clamp(min=1e-6)
