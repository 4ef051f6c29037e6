"""The phases of AttentionXML: the levels of a shallow label tree learn one after the other.

`attention_clusters` learns which clusters of labels a text belongs to; with few labels there are no clusters, and it
does nothing. `attention_labels` starts from its network and learns the labels of each text's best clusters, or all
labels. A label's probability is the product along its path.
"""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import torch

from shortlist.arrays import Arrays, Ragged
from shortlist.evaluation import evaluate
from shortlist.labels.centroids import normalize_rows
from shortlist.labels.tree import LabelTree
from shortlist.progress import Progress
from shortlist.stages.attention_layer import AttentionLayer, rows_of_clusters
from shortlist.stages.candidates import AttentionClusters, top_clusters
from shortlist.stages.classifier import AttentionClassifier
from shortlist.stages.encoders import LSTMEncoder
from shortlist.stages.pipeline import Pipeline
from shortlist.stages.stage import with_prefix, without_prefix
from shortlist.training.attention_learner import AttentionLearner
from shortlist.training.batches import Batch, WordBatches
from shortlist.training.build import Build
from shortlist.training.data import METRICS
from shortlist.training.networks.attention import AttentionNetwork

log = logging.getLogger("shortlist")

TEXTS_PER_BLOCK = 512
# Mean length of word vectors, and length of queries, at the start. Both are longer than torch's: attention is then far
# enough from even to learn (docs/lab-book.md).
VECTOR_LENGTH, QUERY_LENGTH = 7.5, 5.0
ONE_LEVEL = {"level": 0, "n_levels": 1}


def attention_clusters(build: Build) -> None:
    """Learn the upper level of the label tree, unless the tree has one level only."""
    data, options = build.data, build.options
    if options.n_clusters == 1:
        return
    tree = data.label_tree(options.n_clusters)
    log.info("learning %s clusters of labels", f"{tree.n_clusters:,}")
    clusters, held_out = (clusters_of(labels, tree) for labels in (data.labels, data.held_out_labels))
    network = new_network(build, tree.n_clusters, clusters)
    validation = ClusterValidation(build, clusters, held_out, tree)
    arrays = fit(build, "attention_clusters", network, word_batches(build, clusters), validation)
    build.encoder = level_encoder(build, without_prefix("encoder", arrays))
    of_tree = {"starts": tree.cluster_starts, "cluster_of_label": tree.cluster_of_label}
    searched = {"n_searched": options.n_clusters_searched, "max_searched": options.n_clusters_searched}
    meta = with_prefix("meta", without_prefix("rows", arrays))
    build.candidates = AttentionClusters({**meta, **of_tree}, {**searched, **ONE_LEVEL, "use_logits": True})


def attention_labels(build: Build) -> None:
    """Learn the labels: of each text's best clusters, starting from the level above, or all of them."""
    data, above = build.data, build.candidates
    if isinstance(above, AttentionClusters):
        tree, start = tree_of(above), with_prefix("rows", without_prefix("meta", above.arrays()))
        start |= with_prefix("encoder", build.encoder.arrays())
        network = new_network(build, data.n_labels, data.labels, start)
        batches: Any = ClusterBatches(build, tree, candidate_clusters(build, above, tree))
    else:
        network = new_network(build, data.n_labels, data.labels)
        batches = word_batches(build, data.labels)
    arrays = fit(build, "attention_labels", network, batches, LabelValidation(build))
    pipeline = with_labels(build, arrays)
    build.encoder, build.candidates, build.classifier = pipeline.encoder, pipeline.candidates, pipeline.classifier


def clusters_of(labels: Ragged, tree: LabelTree) -> Ragged:
    """The clusters of each text's labels."""
    return Ragged(labels.indptr, tree.cluster_of_label[labels.values]).distinct(tree.n_clusters)


def tree_of(stage: AttentionClusters) -> LabelTree:
    return LabelTree.from_clusters(stage.arrays()["cluster_of_label"])


def new_network(build: Build, n_rows: int, rows: Ragged, start: Arrays | None = None) -> AttentionNetwork:
    """The network of a level at its start.

    rows   the right rows (labels or clusters) of each training text
    start  arrays of the level above, which it continues from; its texts then score candidates only
    """
    data, options = build.data, build.options
    sizes = (data.n_words, n_rows, options.embedding_dim, options.hidden_size, linear_sizes(options.linear_sizes))
    torch.manual_seed(options.seed)
    network = AttentionNetwork(*sizes, options.word_dropout, options.dropout, sparse=start is not None)
    network.words.weight.requires_grad_(not options.freeze_words)
    with torch.no_grad():
        if start is not None:
            network.start_from(start)
        else:
            network.words.weight[:-1] = torch.from_numpy(start_vectors(build))
            per_text = len(rows.values) / len(rows)
            prior = float(np.log(per_text / max(n_rows - per_text, 1)))
            network.output.bias.fill_(prior if options.bias_init == "prior" else 0)
        if options.query_init == "centroids":
            encoder = level_encoder(build, without_prefix("encoder", network.arrays()))
            network.queries.weight.copy_(torch.from_numpy(centroid_queries(encoder, data.word_ids, rows, n_rows)))
    return network


def start_vectors(build: Build) -> np.ndarray:
    """Word vectors to start from, at the length that the LSTM learns best from unless they are to stay as they are."""
    vectors = build.data.word_vectors()
    if build.options.vector_init != "scaled":
        return vectors
    return vectors * (VECTOR_LENGTH / max(float(np.linalg.norm(vectors, axis=1).mean()), 1e-9))


def centroid_queries(encoder: LSTMEncoder, word_ids: Ragged, rows: Ragged, n_rows: int) -> np.ndarray:
    """For each row the mean hidden state of its texts, as a direction from the mean of all: it attends to its words.

    From random queries, all labels start alike and take epochs to part.
    """
    means = np.empty((len(word_ids), encoder.n_features), np.float32)
    for begin in range(0, len(word_ids), TEXTS_PER_BLOCK):
        block = slice(begin, begin + TEXTS_PER_BLOCK)
        states = encoder.encode(word_ids[block])
        means[block] = np.add.reduceat(states.values, states.indptr[:-1]) / states.counts[:, None]
    sums = rows.to_csr(n_rows).T @ (means - means.mean(axis=0))
    return np.float32(QUERY_LENGTH) * normalize_rows(sums)


def linear_sizes(option: str) -> tuple[int, ...]:
    """The sizes in the option `linear_sizes`.

    >>> linear_sizes("512,256")
    (512, 256)
    """
    return tuple(int(size) for size in option.split(","))


def fit(build: Build, phase: str, network: AttentionNetwork, batches: Any, validation: Any) -> Arrays:
    """Run the training loop for one level."""
    options = build.options
    n_steps = options.n_epochs * -(-len(batches.lengths) // options.batch_size)
    averaged_from = round(options.averaging_start * n_steps)
    learner = AttentionLearner(network, averaged_from, options.optimizer, options.device)
    return build.fit(phase, learner, batches, validation, options.n_epochs, options.learning_rate)


def candidate_clusters(build: Build, above: AttentionClusters, tree: LabelTree) -> np.ndarray:
    """The clusters whose labels each training text sees: those of its own labels, then the best by the level above."""
    data, k = build.data, min(build.options.n_clusters_searched, tree.n_clusters)
    own = clusters_of(data.labels, tree)
    found = np.empty((len(own), k), np.int32)
    with Progress("candidates", len(own), "texts") as progress:
        for begin in range(0, len(own), TEXTS_PER_BLOCK):
            block = slice(begin, begin + TEXTS_PER_BLOCK)
            logits = above.meta.logits(build.encoder.encode(data.word_ids[block]))
            logits[own[block].row_ids, own[block].values] = np.inf
            found[block] = top_clusters(logits, k)
            progress.advance(len(logits))
    return found


def word_batches(build: Build, rows: Ragged) -> WordBatches:
    data, options = build.data, build.options
    return WordBatches(data.word_ids, rows, options.max_words, data.n_words, group=options.group_by_length)


class ClusterBatches:
    """Texts as word ids; their labels, and their candidates from the given clusters, as rows of the classifier."""

    def __init__(self, build: Build, tree: LabelTree, clusters: np.ndarray) -> None:
        labels = build.data.labels
        self._batches = word_batches(build, Ragged(labels.indptr, np.argsort(tree.order)[labels.values]))
        self._clusters, self._starts, self.lengths = clusters, tree.cluster_starts, self._batches.lengths

    def take(self, rows: np.ndarray, rng: np.random.Generator) -> Batch:
        return self._batches.take(rows, rng)._replace(candidates=rows_of_clusters(self._clusters[rows], self._starts))


class ClusterValidation:
    """Metrics of predicted clusters."""

    def __init__(self, build: Build, clusters: Ragged, held_out: Ragged, tree: LabelTree) -> None:
        self._build, self._held_out = build, held_out
        self._train = np.bincount(clusters.values, minlength=tree.n_clusters), len(clusters)

    def measure(self, arrays: Arrays) -> dict[str, float]:
        encoder = level_encoder(self._build, without_prefix("encoder", arrays))
        layer = AttentionLayer(without_prefix("rows", arrays), ONE_LEVEL)
        ids, _ = layer.best(encoder.encode(self._build.data.held_out_ids), 5)
        result = evaluate(ids, self._held_out, train=self._train)
        return {name: result[name] for name in METRICS}


class LabelValidation:
    """Metrics of the whole pipeline."""

    def __init__(self, build: Build) -> None:
        self._build = build

    def measure(self, arrays: Arrays) -> dict[str, float]:
        data, pipeline = self._build.data, with_labels(self._build, arrays)
        ids, _ = pipeline.first_rank(data.held_out_ids, 5, pipeline.candidates.n_searched)
        return data.measure(ids)


def level_encoder(build: Build, arrays: Arrays) -> LSTMEncoder:
    return LSTMEncoder(arrays, {"max_words": build.options.max_words})


def with_labels(build: Build, arrays: Arrays) -> Pipeline:
    """The pipeline with these arrays as its last level; the states of the level above come before its own."""
    encoder, rows = without_prefix("encoder", arrays), without_prefix("rows", arrays)
    candidates, level = build.candidates, ONE_LEVEL
    if isinstance(candidates, AttentionClusters):
        above = build.encoder.arrays()
        encoder = {name: np.concatenate([above[name], own], int(name == "words")) for name, own in encoder.items()}
        rows, level = {**rows, "order": tree_of(candidates).order}, {"level": 1, "n_levels": 2}
        candidates = AttentionClusters(candidates.arrays(), {**candidates.config(), "n_levels": 2})
    classifier = AttentionClassifier(rows, level)
    return Pipeline(build.data.vocabulary, level_encoder(build, encoder), candidates, classifier)


def attention_labels_memory(build: Build) -> dict[str, int]:
    data, options = build.data, build.options
    n_clusters, n_states, n_linear = (
        options.n_clusters,
        2 * options.hidden_size,
        sum(linear_sizes(options.linear_sizes)),
    )
    n_levels, n_rows, n_seen = 1, data.n_labels, data.n_labels
    if n_clusters > 1:
        n_levels, n_rows = 2, data.n_labels + n_clusters
        n_seen = max(options.n_clusters_searched * -(-data.n_labels // n_clusters), n_clusters)
    n_words = min(options.max_words, int(data.word_ids.counts.max(initial=1)))
    per_row = 3 * n_words + 4 * n_linear + (n_levels - 1) * 2 * n_states
    return {
        # Weights, gradient, two moments, and the best epoch.
        "queries": 5 * 4 * n_rows * n_states,
        "word vectors": 5 * 4 * n_levels * data.n_words * options.embedding_dim,
        "candidates": 4 * (n_levels - 1) * len(data.texts) * options.n_clusters_searched,
        "a batch": 4 * options.batch_size * (n_seen * per_row + 12 * n_words * n_states),
    }
