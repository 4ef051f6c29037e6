"""Where labels are among the features: at the centre of their texts, and very common ones at several centres."""

from __future__ import annotations

import numpy as np

from shortlist.arrays import Ragged
from shortlist.lazy import sparse

KMEANS_PASSES = 10
ROWS_PER_BLOCK = 8192


def label_centres(
    features: np.ndarray, labels: Ragged, n_labels: int, common: float = 0.01, per_common: int = 50, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Representatives of the labels (rows × features), and the label of each.

    A label of more than the share `common` of the texts is in many places at once: it gets up to `per_common`
    further representatives, by k-means over its texts. A label without texts has a centre of zeros.
    """
    rows = np.ones(len(labels.values), np.float32)
    by_text = sparse.csr_array((rows, labels.values, labels.indptr), shape=(len(labels), n_labels))
    centres = [unit(by_text.T.tocsr() @ unit(features))]
    owners = [np.arange(n_labels, dtype=np.int32)]
    counts = np.bincount(labels.values, minlength=n_labels)
    for label in np.flatnonzero(counts > max(common * len(labels), 2 * per_common)):
        texts = labels.row_ids[labels.values == label]
        centres.append(kmeans(unit(features[texts]), per_common, np.random.default_rng([seed, int(label)])))
        owners.append(np.full(len(centres[-1]), label, np.int32))
    return np.concatenate(centres), np.concatenate(owners)


def unit(vectors: np.ndarray) -> np.ndarray:
    """Every row at length 1; zero stays zero."""
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)


def kmeans(vectors: np.ndarray, k: int, rng: np.random.Generator) -> np.ndarray:
    """k directions that the vectors gather about; fewer where some would be empty."""
    centres = vectors[rng.choice(len(vectors), k, replace=False)]
    for _ in range(KMEANS_PASSES):
        own = nearest(vectors, centres)
        members = sparse.csr_array((np.ones(len(vectors), np.float32), (own, np.arange(len(vectors)))))
        sums = members @ vectors
        full = np.linalg.norm(sums, axis=1) > 0
        if not full.any():  # all vectors are zero
            break
        centres = unit(sums[full])
    return centres.astype(np.float32)


def nearest(vectors: np.ndarray, centres: np.ndarray) -> np.ndarray:
    """The centre that each vector has the largest product with."""
    blocks = [slice(begin, begin + ROWS_PER_BLOCK) for begin in range(0, len(vectors), ROWS_PER_BLOCK)]
    return np.concatenate([np.zeros(0, np.int64), *((vectors[block] @ centres.T).argmax(axis=1) for block in blocks)])
