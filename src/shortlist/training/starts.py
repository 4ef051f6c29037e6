"""Where label rows start: at the mean direction of each label's texts, at which rows that start at random arrive late.

A text's logit is then `slope · cosine + bias`. Held-out texts tell both numbers.
"""

from __future__ import annotations

import numpy as np

from shortlist.arrays import Ragged
from shortlist.evaluation.calibration import is_relevant
from shortlist.labels.centroids import normalize_rows, texts_by_label
from shortlist.odds import fit_logistic
from shortlist.training.heads import HeadOptions
from shortlist.training.label_rows import LabelRows

SLOPE, BIAS = 10.0, -5.0  # where there are no held-out texts
MAX_TEXTS, MAX_LABELS = 1000, 200  # that the slope and the bias are fitted on: texts, and their nearest labels


def rows_at_centres(
    features: np.ndarray,
    labels: Ragged,
    held_out: np.ndarray,
    held_out_labels: Ragged,
    n_labels: int,
    head: HeadOptions,
) -> LabelRows:
    """Label rows behind a block that starts as the identity.

    features, labels            of the training texts
    held_out, held_out_labels   features and labels of the held-out texts
    """
    hidden = behind_identity(features, head)
    lengths = np.linalg.norm(hidden, axis=1)
    centres = normalize_rows(texts_by_label(Ragged(labels.indptr, labels.values), n_labels) @ normalize_rows(hidden))
    slope, bias = SLOPE, BIAS
    if len(held_out):
        held_out, held_out_labels = held_out[:MAX_TEXTS], held_out_labels[:MAX_TEXTS]
        cosines = normalize_rows(behind_identity(held_out, head)) @ centres.T
        k = min(MAX_LABELS, n_labels)
        ids = np.argpartition(-cosines, k - 1, axis=1)[:, :k]
        hits = is_relevant(ids, held_out_labels, n_labels)
        nearest = np.take_along_axis(cosines, ids, axis=1)
        slope, bias = fit_logistic(nearest.reshape(-1, 1), hits.ravel(), np.array([SLOPE, BIAS]))
    scale = slope / max(float(lengths.mean()), 1e-9)
    bias = 0.0 if head.rows.bias_init == "none" else bias
    return LabelRows.of(np.ascontiguousarray(scale * centres, np.float32), head.rows, bias)


def behind_identity(features: np.ndarray, head: HeadOptions) -> np.ndarray:
    """What a block that is the identity makes of features; a GELU is taken for a ReLU, near enough for a start."""
    block = head.block
    if block is None:
        return features
    bound = block.spectral_bound if block.norm == "spectral" else 1.0
    active = np.maximum(np.float32(bound) * features, 0)
    return active + features if block.residual else active
