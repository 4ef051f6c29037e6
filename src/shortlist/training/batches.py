"""Batches of texts of about equal length: short texts then do not wait for long ones."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from shortlist.ragged import Ragged

# Texts are shuffled, then sorted by length within runs of so many batches, so that batches stay random enough.
BATCHES_PER_RUN = 50


def epoch_batches(lengths: np.ndarray, batch_size: int, seed: int, epoch: int) -> Iterator[np.ndarray]:
    """The rows of each batch of one epoch; the same seed and epoch give the same batches."""
    rng = np.random.default_rng([seed, epoch])
    order = rng.permutation(len(lengths))
    run = batch_size * BATCHES_PER_RUN
    batches = []
    for start in range(0, len(order), run):
        rows = order[start : start + run]
        rows = rows[np.argsort(lengths[rows], kind="stable")]
        batches += [rows[i : i + batch_size] for i in range(0, len(rows), batch_size)]
    for index in rng.permutation(len(batches)):
        yield batches[index]


def padded(word_ids: Ragged, rows: np.ndarray, max_words: int, padding: int) -> np.ndarray:
    """The first `max_words` word ids of each row, side by side, as wide as the longest of them."""
    part = word_ids.take(rows)
    counts = np.minimum(part.counts, max_words)
    width = max(int(counts.max(initial=0)), 1)
    columns = np.arange(width)
    there = columns < counts[:, None]
    out = np.full((len(rows), width), padding, np.int64)
    out[there] = part.values[(part.indptr[:-1, None] + columns)[there]]
    return out
