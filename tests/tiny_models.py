"""Small models and data sets for tests of what models do with any recipe."""

from __future__ import annotations

import numpy as np

import shortlist
from shortlist.labels.centroids import normalize_rows
from shortlist.model.model import Model
from shortlist.stages.candidates import NearestLabels
from shortlist.stages.classifier import RowClassifier
from shortlist.stages.columns import Columns
from shortlist.stages.encoders import GivenEncoder
from shortlist.stages.pipeline import Pipeline

N_LABELS, N_FEATURES = 3000, 64


def model_over_features(seed: int = 0) -> tuple[Model, np.ndarray]:
    """A model with several cells whose labels are points in groups; the row of a label is its point. And queries."""
    rng = np.random.default_rng(seed)
    groups = rng.standard_normal((60, N_FEATURES))
    points = normalize_rows(
        np.repeat(groups, N_LABELS // 60, axis=0) + rng.standard_normal((N_LABELS, N_FEATURES))
    ).astype("f4")
    owner = np.arange(N_LABELS, dtype=np.int32)
    rows = {"weights": 10 * points, "biases": np.full(N_LABELS, -8, np.float32)}
    pipeline = Pipeline(
        Columns(N_FEATURES, dense=True),
        GivenEncoder({"scale": np.ones(N_FEATURES, np.float32)}),
        NearestLabels.build(points, owner, N_LABELS, n_candidates=50),
        RowClassifier(rows, {"blend": {}}),
    )
    model = Model("slice", {}, [pipeline], [f"label {i}" for i in range(N_LABELS)])
    queries = normalize_rows(
        points[rng.integers(N_LABELS, size=100)] + normalize_rows(rng.standard_normal((100, N_FEATURES)))
    ).astype("f4")
    return model, queries


def colours(n_texts: int = 400, seed: int = 0) -> shortlist.Dataset:
    """One word of each text decides its label."""
    rng = np.random.default_rng(seed)
    names = ["rot", "grün", "blau", "gelb"]
    drawn = [names[i] for i in rng.integers(4, size=n_texts)]
    return shortlist.read([(f"ding{rng.integers(9)} {name} zeug{rng.integers(9)}", [f"code {name}"]) for name in drawn])
