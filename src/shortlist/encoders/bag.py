"""Astec's encoder: the tf-idf weighted sum of a text's word vectors.

The paper puts a ReLU behind the sum. Here that costs 3 to 6 points of P@1 (docs/lab-book.md), so it is an option.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from shortlist.encoders.dropout import Dropout


class BagEncoder(nn.Module):
    """Word ids (batch × words, padding = `n_words`) to features (batch × `n_features`): `Σ x_t · e_t`.

    x is the text's tf-idf vector at length 1, e the vectors that are learnt. Words that a text has twice count twice.
    """

    idf: Tensor

    def __init__(self, idf: np.ndarray, dimensions: int = 300, dropout: float = 0.5, relu: bool = False) -> None:
        super().__init__()
        n_words = len(idf)
        self.padding = n_words
        self.words = nn.Embedding(n_words + 1, dimensions, padding_idx=n_words, sparse=True)
        self.register_buffer("idf", torch.from_numpy(np.append(idf, 0).astype(np.float32)))
        self.dropout, self.relu = Dropout(dropout), relu
        self.n_features = dimensions

    def forward(self, word_ids: Tensor) -> Tensor:
        bags = torch.bmm(unit_weights(self.idf, word_ids)[:, None], self.words(word_ids)).squeeze(1)
        return self.dropout(torch.relu(bags) if self.relu else bags)

    @torch.no_grad()
    def to_arrays(self) -> dict[str, np.ndarray]:
        arrays = {"words": self.words.weight[:-1], "idf": self.idf[:-1]}
        if self.relu:
            arrays["relu"] = torch.ones(1)
        return {name: array.float().contiguous().cpu().numpy() for name, array in arrays.items()}


def unit_weights(idf: Tensor, word_ids: Tensor) -> Tensor:
    """The weights of each text's words, at length 1 together."""
    weights = idf[word_ids]
    return weights / weights.square().sum(dim=1, keepdim=True).sqrt().clamp(min=1e-6)
