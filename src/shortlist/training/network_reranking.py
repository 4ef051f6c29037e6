"""Learning the re-ranker of the DeepXML paper: a second network, trained on what the first one confuses.

It starts where the first one started, from the same word vectors, and sees for each text its labels and the labels that
the first stages rank best. The encoder is not frozen: nothing was indexed with it.
"""

from __future__ import annotations

import logging

import numpy as np

from shortlist.arrays import Arrays
from shortlist.stages.network_reranker import NetworkReranker
from shortlist.stages.output_layer import OutputLayer
from shortlist.stages.pipeline import Pipeline
from shortlist.stages.stage import without_prefix
from shortlist.training.batches import ShortlistBatches
from shortlist.training.blending import choose_weight
from shortlist.training.build import Build
from shortlist.training.data import TrainingData
from shortlist.training.heads import EncoderOptions, identity_head
from shortlist.training.label_rows import rows_memory
from shortlist.training.networks import EncoderNetwork, network_kind, new_learner, new_network

log = logging.getLogger("shortlist")

DEFAULT_BETA = 0.6  # the authors' program, where there are no held-out texts to choose it on


def learn_network_reranker(pipeline: Pipeline, build: Build) -> NetworkReranker:
    """Learn from the mistakes of the pipeline so far. Held-out texts set how much the second network counts."""
    data, options = build.data, build.options
    k, n_searched = min(options.n_reranked, data.n_labels), pipeline.candidates.max_searched
    mistakes = build.hard_negatives
    if mistakes is None:
        mistakes, _ = pipeline.first_rank(data.inputs, k, n_searched)
    network = new_network(build.recipe, data, options)
    sizes = (data.n_labels, data.labels_per_text)
    encoder = EncoderOptions.of(options, options.reranker_learning_rate)
    head = identity_head(options)
    learner = new_learner(network.module, *sizes, options.seed, options.device, head, encoder)
    batches = ShortlistBatches(network.batches(data.labels), data.n_labels, mistakes)
    ids, probabilities = pipeline.first_rank(data.held_out_inputs, k, n_searched)
    arrays = build.fit(
        "reranker",
        learner,
        batches,
        RerankerValidation(data, network, ids),
        options.n_reranker_epochs,
        options.reranker_learning_rate,
        decay_epoch=options.reranker_decay_epoch,
    )
    config = {"n_candidates": k, "beta": options.beta or DEFAULT_BETA}
    reranker = NetworkReranker(network.stage(without_prefix("encoder", arrays)), without_prefix("rows", arrays), config)
    if len(data.held_out) and not options.beta:
        logits = reranker.logits(data.held_out_inputs, ids)

        def mixed(beta: float) -> np.ndarray:
            reranker.beta = beta
            return reranker.mix(probabilities, logits)

        reranker.beta = choose_weight(data, ids, mixed)
        log.info("weight of the re-ranker: %.1f", reranker.beta)
    return reranker


class RerankerValidation:
    """Metrics of the second network alone, on what the first stages rank best for held-out texts."""

    def __init__(self, data: TrainingData, network: EncoderNetwork, ids: np.ndarray) -> None:
        self._data, self._network, self._ids = data, network, np.ascontiguousarray(ids, np.int32)

    def measure(self, arrays: Arrays) -> dict[str, float]:
        encoder = self._network.stage(without_prefix("encoder", arrays))
        features = encoder.encode(self._data.held_out_inputs)
        logits = OutputLayer(without_prefix("rows", arrays)).logits_of(features, self._ids)
        return self._data.measure_scores(self._ids, logits)


def memory(build: Build) -> dict[str, int]:
    data, options, kind = build.data, build.options, network_kind(build.recipe)
    n_features = kind.n_features(data, options)
    rows = rows_memory(data.n_labels, n_features, options)
    return {"re-ranker": rows + 4 * kind.n_floats(data, options)}
