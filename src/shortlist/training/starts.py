"""Where label rows start: at the mean direction of each label's texts, at which rows that start at random arrive late.

A text's logit is then `slope · cosine + bias`. Both numbers are fitted on held-out texts.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from shortlist.arrays import Ragged
from shortlist.evaluation.calibration import is_relevant
from shortlist.labels.centroids import TEXTS_PER_BLOCK, normalize_rows, sums_of_texts, texts_by_label
from shortlist.odds import fit_logistic
from shortlist.training.group import Shard
from shortlist.training.heads import HeadOptions
from shortlist.training.label_rows import LabelRows

SLOPE, BIAS = 10.0, -5.0  # where there are no held-out texts
MAX_COSINES = 1 << 23  # at a time, each of which takes 16 bytes
MAX_TEXTS, MAX_LABELS = 1000, 200  # that the slope and the bias are fitted on: texts, and their nearest labels


def rows_at_centres(
    features: Any,
    labels: Ragged,
    held_out: np.ndarray,
    held_out_labels: Ragged,
    n_labels: int,
    head: HeadOptions,
    shard: Shard | None = None,
) -> LabelRows:
    """Label rows after a block that starts as the identity.

    features, labels            of the training texts
    held_out, held_out_labels   features and labels of the held-out texts
    shard                       the labels of this worker, whose rows these are; None: all labels
    """

    def direction(features: np.ndarray) -> np.ndarray:
        return normalize_rows(behind_identity(features, head))

    own = np.arange(n_labels) if shard is None else shard.labels
    by_label = texts_by_label(labels, n_labels)
    centres = normalize_rows(sums_of_texts(by_label, features, own, direction))
    blocks = (features[begin : begin + TEXTS_PER_BLOCK] for begin in range(0, len(features), TEXTS_PER_BLOCK))
    lengths = np.concatenate([np.linalg.norm(behind_identity(block, head), axis=1) for block in blocks])
    slope, bias = SLOPE, BIAS
    if len(held_out):
        held_out, held_out_labels = held_out[:MAX_TEXTS], held_out_labels[:MAX_TEXTS]
        ids, nearest = nearest_centres(direction(held_out), centres, min(MAX_LABELS, len(own)))
        if shard is not None:
            ids, nearest = shard.best(shard.labels[ids], nearest, MAX_LABELS)
        hits = is_relevant(ids, held_out_labels, n_labels)
        slope, bias = fit_logistic(nearest.reshape(-1, 1), hits.ravel(), np.array([SLOPE, BIAS]))
    scale = slope / max(float(lengths.mean()), 1e-9)
    bias = 0.0 if head.rows.bias_init == "none" else bias
    return LabelRows.of(np.ascontiguousarray(scale * centres, np.float32), head.rows, bias)


def nearest_centres(directions: np.ndarray, centres: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """The k nearest centres of each text, in any order, and their cosines: some texts at a time, to save memory."""
    found = []
    n_texts = max(1, MAX_COSINES // len(centres))
    for begin in range(0, len(directions), n_texts):
        cosines = directions[begin : begin + n_texts] @ centres.T
        ids = np.argpartition(-cosines, k - 1, axis=1)[:, :k]
        found.append((ids, np.take_along_axis(cosines, ids, axis=1)))
    ids, nearest = (np.concatenate(parts) for parts in zip(*found, strict=True))
    return ids, nearest


def behind_identity(features: np.ndarray, head: HeadOptions) -> np.ndarray:
    """What a block that is the identity makes of features; a GELU is taken for a ReLU, near enough for a start."""
    block = head.block
    if block is None:
        return features
    bound = block.spectral_bound if block.norm == "spectral" else 1.0
    active = np.maximum(np.float32(bound) * features, 0)
    return active + features if block.residual else active
