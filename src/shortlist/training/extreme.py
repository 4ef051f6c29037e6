"""DeepXML's modules III and IV, the phase `classifier`: label rows, and a block that may change features a little more.

Other classifiers over the same features can take their place (Table 6(c) of the paper).
"""

from __future__ import annotations

import logging
from typing import Any

import numpy as np

from shortlist.arrays import Arrays
from shortlist.errors import OptionError
from shortlist.stages.candidates import NearestLabels
from shortlist.stages.classifier import RowClassifier, VoteClassifier
from shortlist.stages.output_layer import OutputLayer
from shortlist.stages.stage import without_prefix
from shortlist.training.batches import Batches, DenseBatches, ShortlistBatches
from shortlist.training.blending import fit_blend, hard_negatives
from shortlist.training.build import Build
from shortlist.training.heads import identity_head
from shortlist.training.label_rows import rows_memory
from shortlist.training.linear import learn_rows
from shortlist.training.networks import EncoderNetwork, given_features, network_kind, new_learner, new_network
from shortlist.training.shortlisting import index_labels
from shortlist.training.starts import rows_at_centres

log = logging.getLogger("shortlist")


def classifier(build: Build) -> None:
    """Modules III and IV: learn the classifier; then blend its logits with the evidence."""
    data, options = build.data, build.options
    assert build.candidates_of is not None
    ids, evidence = build.candidates_of
    if options.classifier == "neighbours":
        sizes = {"n_labels": data.n_labels, "n_features": build.encoder.n_features}
        build.classifier = VoteClassifier({}, sizes)
        return
    log.info("learning the rows of %s labels on %d candidates per text", f"{data.n_labels:,}", ids.shape[1])
    build.classifier = stage = LEARNERS[options.classifier](build)
    stage.blend = fit_blend(build, stage)
    log.info("blend: %s", ", ".join(f"{name} {value:.3f}" for name, value in vars(stage.blend).items()))
    if evidence is not None:
        assert build.features is not None
        build.hard_negatives = hard_negatives(stage, build.features, ids, evidence, options.get("n_reranked", 1))


def learn_label_rows(build: Build) -> RowClassifier:
    """The residual block and the label rows, on each text's own labels, its candidates, and some random labels.

    Features stay as they are, or, with `finetune_encoder`, the encoder learns on; then labels are indexed again.
    """
    data, options, features = build.data, build.options, build.features
    assert isinstance(build.candidates, NearestLabels)
    assert features is not None and build.candidates_of is not None
    module = given_features(build.encoder.n_features, options)
    inputs: Batches = DenseBatches(features, data.labels)
    network = None
    if options.get("finetune_encoder", False):
        network = learnt_network(build)
        module, inputs = network.module, network.batches(data.labels)
    n_random = min(options.n_random_negatives, data.n_labels)
    batches = ShortlistBatches(inputs, data.n_labels, build.candidates_of[0], n_random)
    sizes = (data.n_labels, data.labels_per_text)
    head, rows = identity_head(options), None
    if options.rows_from_centres:
        held_out = build.encoder.encode(data.held_out_inputs)
        rows = rows_at_centres(features, data.labels, held_out, data.held_out_labels, data.n_labels, head)
    learner = new_learner(module, *sizes, options.seed, options.device, head, rows=rows)
    validation = CandidateValidation(build, network)
    arrays = build.fit("classifier", learner, batches, validation, options.n_epochs, options.learning_rate)
    if network is not None:
        build.encoder = network.stage(without_prefix("encoder", arrays))
        build.features = build.encoder.encode(data.inputs)
        build.candidates = index_labels(build.features, build)
    return RowClassifier(without_prefix("rows", arrays), {"blend": {}})


def learnt_network(build: Build) -> EncoderNetwork:
    """The network of the encoder as module I left it."""
    network = new_network(build.recipe, build.data, build.options)
    if not hasattr(network.module, "load"):
        raise OptionError("finetune_encoder: dense features stay as they are")
    network.module.load(build.encoder.arrays())
    return network


def learn_linear(build: Build) -> RowClassifier:
    """A support vector machine per label over the features as they are."""
    data, options = build.data, build.options
    assert build.features is not None and build.candidates_of is not None
    ids = build.candidates_of[0]
    rows = learn_rows(options.classifier, build.features, data.labels, data.n_labels, ids, options.C)
    return RowClassifier(rows, {"blend": {}, "unit_features": True})


LEARNERS: dict[str, Any] = {"rows": learn_label_rows, "slice": learn_linear, "dismec": learn_linear}


class CandidateValidation:
    """Metrics of the label rows on the candidates of held-out texts, which do not change.

    network  what encodes the texts; None: the features do not change, either
    """

    def __init__(self, build: Build, network: EncoderNetwork | None) -> None:
        assert isinstance(build.candidates, NearestLabels)
        self._data, self._network = build.data, network
        self._features = build.encoder.encode(self._data.held_out_inputs)
        found = build.candidates.find(self._features, build.candidates.n_searched_in_training).ids
        assert found is not None
        self._ids = found

    def measure(self, arrays: Arrays) -> dict[str, float]:
        features = self._features
        if self._network is not None:
            encoder = self._network.stage(without_prefix("encoder", arrays))
            features = encoder.encode(self._data.held_out_inputs)
        logits = OutputLayer(without_prefix("rows", arrays)).logits_of(features, self._ids)
        best = np.argsort(-logits, axis=1, kind="stable")[:, :5]
        return self._data.measure(np.take_along_axis(self._ids, best, axis=1))


def classifier_memory(build: Build) -> dict[str, int]:
    data, options, kind = build.data, build.options, network_kind(build.recipe)
    n_features, n_texts, n_labels = kind.n_features(data, options), len(data.texts), data.n_labels
    width = 4 * n_features
    return {
        "label rows": rows_memory(n_labels, n_features, options),
        "encoder": 4 * kind.n_floats(data, options),
        "features and their index": 2 * n_texts * width + 300 * n_texts + n_labels * width,
        "candidates": 8 * n_texts * options.n_candidates + 8 * n_texts * options.get("n_reranked", 0),
        # The matrix, its gradient, and Adam's two.
        "residual block": 4 * n_features * width,
        "a batch": 4 * options.batch_size * (kind.floats_per_text(options) + 3 * n_features),
    }
