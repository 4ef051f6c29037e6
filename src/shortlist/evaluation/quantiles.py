"""Which labels earn the precision: head, middle or tail (the analysis of Astec's Figure 3)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from shortlist.evaluation.metrics import Hits

BINS = 5


@dataclass(frozen=True)
class Quantile:
    """A fifth of the labels, by training frequency, and what it adds to each P@k (in per cent)."""

    labels: int
    mean_frequency: float
    lowest: int
    highest: int
    contributions: dict[str, float]


def label_quantiles(
    hits: Hits, frequencies: np.ndarray, labels: np.ndarray, ks: Iterable[int], bins: int = BINS
) -> list[Quantile]:
    """Bins of equally many labels, the most frequent first; their contributions add up to P@k.

    `labels` are the ids to divide, all that can be a hit; of equally frequent ones the smaller id comes first.
    """
    order = labels[np.argsort(-frequencies[labels], kind="stable")]
    members = [part for part in np.array_split(order, bins) if len(part)]
    bin_of_label = np.zeros(len(frequencies), np.int64)
    for number, ids in enumerate(members):
        bin_of_label[ids] = number
    contributions = {}
    for k in ks:
        hit_labels = hits.ranked[:k][hits.correct[:k]]
        found = np.bincount(bin_of_label[hit_labels], minlength=len(members))
        contributions[f"P@{k}"] = 100 * found / (k * max(hits.n_texts, 1))
    return [
        Quantile(
            len(ids),
            float(frequencies[ids].mean()),
            int(frequencies[ids].min()),
            int(frequencies[ids].max()),
            {name: float(shares[number]) for name, shares in contributions.items()},
        )
        for number, ids in enumerate(members)
    ]
