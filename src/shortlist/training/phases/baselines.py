"""Baselines: frequencies of labels, and centroids of their texts. They need no torch."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from shortlist.arrays import Ragged
from shortlist.labels.centroids import label_centroids
from shortlist.lazy import sparse
from shortlist.stages.classifier import PriorClassifier, SparseClassifier
from shortlist.stages.encoders import TfIdfEncoder, UnitRowsEncoder
from shortlist.text import TfIdf
from shortlist.text.features import normalize_sparse_rows
from shortlist.training.build import Build
from shortlist.training.tune import RANKS


def frequencies(build: Build) -> None:
    """The share of the texts that have each label."""
    dataset = build.data.dataset
    build.classifier = PriorClassifier({"frequencies": (dataset.label_frequencies / len(dataset)).astype(np.float32)})


def centroids(build: Build) -> None:
    """The mean text of each label, from all texts. Calibration uses centroids without the held-out texts."""
    data, options, most = build.data, build.options, build.options.max_words_per_label
    if isinstance(data.inputs, Ragged):
        word_ids = Ragged.concatenate([data.word_ids, data.held_out_ids])
        tfidf = TfIdf.fit(word_ids, data.n_words)
        build.encoder, rows = TfIdfEncoder({"idf": tfidf.idf}), tfidf.transform(word_ids)
    else:
        rows = normalize_sparse_rows(sparse.csr_array(np.concatenate([data.inputs, data.held_out_inputs])))
        build.encoder = UnitRowsEncoder({}, {"n_features": int(rows.shape[1])})
    labels = Ragged.concatenate([data.labels, data.held_out_labels])
    build.classifier = SparseClassifier.of_rows(label_centroids(rows, labels, data.n_labels, options.threads, most))
    if len(data.held_out):
        rows = rows[: len(data.labels)]
        before = SparseClassifier.of_rows(label_centroids(rows, data.labels, data.n_labels, options.threads, most))
        pipeline = replace(build.pipeline, classifier=before)
        build.held_out_ranked = pipeline.first_rank(data.held_out_inputs, RANKS, pipeline.candidates.n_searched)
