"""A part of the training texts held out to see how well training goes."""

from __future__ import annotations

import numpy as np

from shortlist.arrays import Ragged


def cut_validation(labels: Ragged, n_labels: int, share: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows to train on and rows to validate on, both rising. Every label keeps a text to train on.

    >>> train, validation = cut_validation(Ragged.from_lists([[0]] * 8 + [[1]]), 2, share=0.25, seed=0)
    >>> len(train), len(validation), 8 in train
    (7, 2, True)
    """
    order = np.random.default_rng(seed).permutation(len(labels))
    held_out = np.zeros(len(labels), bool)
    held_out[order[: round(share * len(labels))]] = True
    left = np.bincount(labels.values[~held_out[labels.row_ids]], minlength=n_labels)
    held_out[labels.row_ids[left[labels.values] == 0]] = False
    held_out &= labels.counts > 0
    return np.flatnonzero(~held_out), np.flatnonzero(held_out)
