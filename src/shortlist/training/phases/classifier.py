"""DeepXML's modules III and IV, the phase `classifier`: label rows, and a block that may change features a little more.

Linear classifiers over the same features can take their place (Table 6(c) of the paper): support vector machines with
squared hinge loss, as in LIBLINEAR. Slice learns a label on its texts and on those that it is a candidate for; DiSMEC
on all texts.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import numpy as np

from shortlist.arrays import Arrays, Ragged
from shortlist.errors import OptionError
from shortlist.labels.centroids import normalize_rows
from shortlist.lazy import sparse
from shortlist.stages.candidates import NearestLabels
from shortlist.stages.classifier import RowClassifier, VoteClassifier
from shortlist.stages.stage import without_prefix
from shortlist.training.batches import Batches, DenseBatches, ShortlistBatches
from shortlist.training.blending import fit_blend, hard_negatives
from shortlist.training.build import Build
from shortlist.training.group import Shard
from shortlist.training.heads import identity_head
from shortlist.training.label_rows import rows_memory
from shortlist.training.networks import EncoderNetwork, given_features, network_kind, new_learner, new_network
from shortlist.training.phases.candidates import index_labels
from shortlist.training.regularization import DEFAULT_C
from shortlist.training.sharding import EncodedTexts, ShardedRows, hard_negatives_of_group
from shortlist.training.starts import rows_at_centres
from shortlist.training.word_weights import learn_word_weights

log = logging.getLogger("shortlist")

# Of the linear classifiers: weights nearer to 0 become 0, as in the authors' programs.
MIN_WEIGHTS = {"slice": 1e-6, "dismec": 0.01}
PAIRS_PER_BLOCK = 1 << 24


def classifier(build: Build) -> None:
    """Modules III and IV: learn the classifier; then blend its logits with the evidence."""
    data, options = build.data, build.options
    if options.classifier == "neighbours":
        sizes = {"n_labels": data.n_labels, "n_features": build.encoder.n_features}
        build.classifier = VoteClassifier({}, sizes)
        return
    n_candidates = min(options.n_candidates, data.n_labels)
    log.info("learning the rows of %s labels on %d candidates per text", f"{data.n_labels:,}", n_candidates)
    build.classifier = stage = LEARNERS[options.classifier](build)
    stage.blend = fit_blend(build, stage)
    log.debug("blend: %s", ", ".join(f"{name} {value:.3f}" for name, value in vars(stage.blend).items()))
    features, k = build.features, options.get("n_reranked", 1)
    if isinstance(stage, ShardedRows) and isinstance(features, EncodedTexts):
        assert build.own_candidates is not None
        build.hard_negatives = hard_negatives_of_group(stage, features, build.own_candidates, n_candidates, k)
    elif isinstance(features, np.ndarray) and build.candidates_of is not None:
        ids, evidence = build.candidates_of
        if evidence is not None:
            build.hard_negatives = hard_negatives(stage, features, ids, evidence, k)


def learn_label_rows(build: Build) -> RowClassifier:
    """The residual block and the label rows, on each text's own labels, its candidates, and some random labels.

    Features stay as they are, or, with `finetune_encoder`, the encoder keeps learning; labels are then indexed again.
    """
    data, options, features, shard = build.data, build.options, build.features, build.shard
    candidates = build.own_candidates if build.candidates_of is None else build.candidates_of[0]
    assert features is not None and candidates is not None
    module = given_features(build.encoder.n_features, options)
    inputs: Batches = DenseBatches(features, build.own_labels)
    network = None
    if options.get("finetune_encoder", False):
        network = learnt_network(build)
        module, inputs = network.module, network.batches(build.own_labels)
    n_random = min(options.n_random_negatives, data.n_labels)
    batches = ShortlistBatches(inputs, data.n_labels, candidates, n_random, shard)
    sizes = (data.n_labels, data.labels_per_text)
    head, rows = identity_head(options), None
    if options.rows_from_centres:
        held_out = build.encoder.encode(data.held_out_inputs)
        rows = rows_at_centres(features, data.labels, held_out, data.held_out_labels, data.n_labels, head, shard)
    own = None if shard is None else shard.labels
    learner = new_learner(module, *sizes, options.seed, options.device, head, rows=rows, group=build.group, own=own)
    validation = CandidateValidation(build, network)
    arrays = build.fit("classifier", learner, batches, validation, options.n_epochs, options.learning_rate)
    if network is not None:
        build.encoder = network.stage(without_prefix("encoder", arrays))
        build.features = build.encoded_texts()
        if isinstance(build.candidates, NearestLabels):  # centres move with the features
            build.candidates = index_labels(build.features, build)
    return row_classifier(arrays, shard)


def row_classifier(arrays: Arrays, shard: Shard | None) -> RowClassifier:
    """The classifier with the arrays that a learner gives, before its blend is known."""
    rows = without_prefix("rows", arrays)
    return RowClassifier(rows, {"blend": {}}) if shard is None else ShardedRows(rows, {"blend": {}}, shard)


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
    assert isinstance(build.features, np.ndarray) and build.candidates_of is not None
    ids = build.candidates_of[0]
    rows = learn_svms(options.classifier, build.features, data.labels, data.n_labels, ids, options.C or DEFAULT_C)
    return RowClassifier(rows, {"blend": {}, "unit_features": True})


def learn_svms(
    kind: str, features: np.ndarray, labels: Ragged, n_labels: int, candidates: np.ndarray, C: float
) -> Arrays:
    """The weights and biases of all labels, over features of length 1.

    kind        "slice" or "dismec"
    candidates  texts × K label ids, -1 for none
    """
    unit = sparse.csr_array(normalize_rows(features))
    weights, biases = np.zeros((n_labels, features.shape[1]), np.float32), np.zeros(n_labels, np.float32)
    blocks = _all_texts(labels, n_labels) if kind == "dismec" else [(slice(0, n_labels), labels, candidates)]
    for block, own, of_texts in blocks:
        n_rows = block.stop - block.start
        learnt = learn_word_weights(unit, own, n_rows, of_texts, C, MIN_WEIGHTS[kind], "label rows")
        rows = (learnt["weights"], learnt["words"].astype(np.int32), learnt["starts"])
        weights[block] = sparse.csr_array(rows, shape=(n_rows, features.shape[1])).toarray()
        biases[block] = learnt["biases"]
    return {"weights": weights, "biases": biases}


def _all_texts(labels: Ragged, n_labels: int) -> Iterator[tuple[slice, Ragged, np.ndarray]]:
    """Blocks of labels for which every text is an example: the labels of texts within a block, numbered from 0."""
    per_block = max(1, PAIRS_PER_BLOCK // max(len(labels), 1))
    for begin in range(0, n_labels, per_block):
        end = min(begin + per_block, n_labels)
        own = labels.keep((labels.values >= begin) & (labels.values < end))
        every = np.broadcast_to(np.arange(end - begin, dtype=np.int32), (len(labels), end - begin))
        yield slice(begin, end), Ragged(own.indptr, own.values - begin, own.weights), every


LEARNERS: dict[str, Any] = {"rows": learn_label_rows, "slice": learn_linear, "dismec": learn_linear}


class CandidateValidation:
    """Metrics of the label rows on the candidates of held-out texts, which do not change.

    network  what encodes the texts; None: the features do not change, either
    """

    def __init__(self, build: Build, network: EncoderNetwork | None) -> None:
        self._data, self._network, self._shard = build.data, network, build.shard
        self._features = build.encoder.encode(self._data.held_out_inputs)
        found = build.candidates.find(self._features, build.candidates.n_searched_in_training).ids
        assert found is not None
        self._ids = found

    def measure(self, arrays: Arrays) -> dict[str, float]:
        features = self._features
        if self._network is not None:
            encoder = self._network.stage(without_prefix("encoder", arrays))
            features = encoder.encode(self._data.held_out_inputs)
        logits = row_classifier(arrays, self._shard).logits_of(features, self._ids)
        return self._data.measure_scores(self._ids, logits)


def classifier_memory(build: Build) -> dict[str, int]:
    data, options, kind = build.data, build.options, network_kind(build.recipe)
    n_features, n_texts, n_labels = kind.n_features(data, options), len(data.texts), data.n_labels
    width = 4 * n_features
    features = 2 * n_texts * width + 300 * n_texts + n_labels * width
    n_candidates = n_texts * options.n_candidates
    if build.group.size > 1:  # each worker has its own labels, and encodes texts when it needs them
        n_labels, n_candidates = -(-n_labels // build.group.size), n_candidates // build.group.size
        features = n_labels * width
    return {
        "label rows": rows_memory(n_labels, n_features, options),
        "encoder": 4 * kind.n_floats(data, options),
        "features and their index": features,
        "candidates": 8 * n_candidates + 8 * n_texts * options.get("n_reranked", 0),
        # The matrix, its gradient, and Adam's two.
        "residual block": 4 * n_features * width,
        "a batch": 4 * options.batch_size * (kind.floats_per_text(options) + 3 * n_features),
    }
