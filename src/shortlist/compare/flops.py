"""SHIM, to delete when `Model.multiply_adds` is merged (with tests/test_compare_flops.py).

How much arithmetic a prediction is: multiply-adds a text, from the shapes of a model.

A multiply-add counts once, as in the tables of InceptionXML's paper (fvcore); additions alone, comparisons and what it
takes to find the words of a text do not count. Shortlists are searched as far as the model does at an effort of 1.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from shortlist.encoders.bag_runtime import BagRuntime
from shortlist.encoders.cnn_runtime import CNNRuntime
from shortlist.encoders.given_runtime import GivenRuntime
from shortlist.encoders.inception_runtime import STRIDE, InceptionRuntime
from shortlist.encoders.mlp_runtime import MLPRuntime
from shortlist.heads.runtime import HeadRuntime
from shortlist.model.base import Model
from shortlist.model.baselines import CentroidModel, PopularModel
from shortlist.model.deepxml import Pipeline
from shortlist.model.ensemble import EnsembleModel
from shortlist.model.inception import Network
from shortlist.model.mach import Repetitions
from shortlist.model.text_model import TextModel


def multiply_adds(model: Model, inputs: Any) -> float | None:
    """Of one prediction, on average over these texts (or rows of features); None where it cannot be told."""
    if isinstance(model, EnsembleModel):
        members = [multiply_adds(member, inputs) for member in model.members]
        return None if None in members else float(sum(member for member in members if member is not None))
    if isinstance(model, PopularModel):
        return 0.0
    if isinstance(model, CentroidModel):
        features = model._features(inputs)
        labels_of_word = np.diff(model._labels_of_word.indptr)
        return float(labels_of_word[features.indices].sum() / max(features.shape[0], 1))
    if not isinstance(model, TextModel):
        return None
    counts, n_features = None, 0.0
    if not hasattr(inputs, "shape"):
        word_ids = model.vocabulary.encode(inputs)
        counts = word_ids.counts
        if model.reranker is not None:
            n_features = float(model.reranker.features.rows(inputs, word_ids).counts.mean())
    first = _of_first_stage(model, counts)
    if first is None or model.reranker is None:
        return first
    # At most: words of the text that a label has no weight for cost nothing.
    return first + model.reranker.n_candidates * n_features


def _of_first_stage(model: Any, counts: np.ndarray | None) -> float | None:
    work = model.pipeline if hasattr(model, "pipeline") else model._network
    if isinstance(work, Network):
        return of_network(work, model.searched, counts)
    if isinstance(work, Repetitions):
        pairs = zip(work.encoders, work.heads, strict=True)
        return sum(of_encoder(encoder, counts) + of_head(head, len(head.rows)) for encoder, head in pairs)
    return of_pipeline(work, model.searched, counts) if isinstance(work, Pipeline) else None


def of_network(network: Network, searched: int, counts: np.ndarray | None) -> float:
    """An encoder, and the rows of all labels or of those in the best clusters."""
    encoder, n_labels = of_encoder(network.encoder, counts), len(network.extreme.rows)
    if network.tree is None or network.meta is None:
        return encoder + of_head(network.extreme, n_labels)
    n_clusters = network.tree.n_clusters
    seen = n_labels * min(searched, n_clusters) / n_clusters
    return encoder + of_head(network.meta, n_clusters) + of_head(network.extreme, seen)


def of_pipeline(pipeline: Pipeline, searched: int, counts: np.ndarray | None) -> float | None:
    """An encoder, the search among the labels' centres, and the rows of the shortlist."""
    shortlister = pipeline.shortlister
    if shortlister.texts is not None:
        return None  # how far a search goes through a graph of texts, only the search knows
    cells, vectors = shortlister.centres.cells.values, shortlister.centres.vectors.values
    search = cells.size + vectors.size * min(searched, len(cells)) / len(cells)
    n_candidates = min(pipeline.n_candidates, shortlister.n_labels)
    return of_encoder(pipeline.encoder, counts) + search + of_head(pipeline.head, n_candidates)


def of_head(head: HeadRuntime, n_rows: float) -> float:
    """The residual block, and so many rows."""
    return (0 if head.block is None else head.block.size) + n_rows * head.rows.shape[1]


def of_encoder(encoder: Any, counts: np.ndarray | None) -> float:
    """Words (so many in each text) to features."""
    if isinstance(encoder, GivenRuntime) or counts is None:
        return float(encoder.n_features)
    words = np.minimum(counts, encoder.max_words).astype(float)
    if isinstance(encoder, BagRuntime | MLPRuntime):
        return float(words.mean() * encoder.n_features)
    if isinstance(encoder, CNNRuntime):
        return float(words.mean() * encoder._taps.size + encoder._hidden.size)
    assert isinstance(encoder, InceptionRuntime)
    return float(_of_inception(encoder, words).mean())


def _of_inception(encoder: InceptionRuntime, words: np.ndarray) -> np.ndarray:
    """Of texts of so many words: attention, projection, both convolutions."""
    dimensions, channels = encoder.dimensions, encoder._project.shape[1]
    cost = dimensions * words * channels
    if encoder._mixes is not None:
        # Dimensions mixed; two matrices words × words; each of them, and the mix of words, times the projection.
        cost += words * dimensions**2 + 2 * words**2 * dimensions + 3 * words**2 * channels
    branches = len(encoder._wrapped) // STRIDE * encoder._branches[0].size
    last = encoder._n_branch // STRIDE * encoder._last[0].size
    return cost + branches + last
