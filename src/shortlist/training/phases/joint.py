"""The phase `joint`: the encoder and the label rows learn together (InceptionXML, InceptionXML+, XML-CNN)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from shortlist.arrays import Arrays
from shortlist.labels.tree import LabelTree
from shortlist.recipes.options import Options
from shortlist.stages.candidates import AllLabels, CandidateStage, TopClusters
from shortlist.stages.classifier import RowClassifier
from shortlist.stages.stage import with_prefix, without_prefix
from shortlist.training.build import Build
from shortlist.training.data import TrainingData
from shortlist.training.group import ALONE, Group, Shard
from shortlist.training.heads import EncoderOptions, HeadOptions
from shortlist.training.label_rows import rows_memory
from shortlist.training.learner import ClusterSearch, Learner
from shortlist.training.networks import EncoderNetwork, network_kind, new_network
from shortlist.training.sharding import ShardedClusters, ShardedRows


def joint(build: Build) -> None:
    """Learn the encoder and the label rows; with clusters, a meta-classifier that chooses candidates, too."""
    data, options, group = build.data, build.options, build.group
    tree = data.label_tree(options.n_clusters) if options.get("n_clusters", 0) else None
    if tree is None:
        build.shard = Shard.of(group, np.arange(data.n_labels))
    else:
        build.shard = Shard.of(group, tree.cluster_of_label, tree.order)
    network = new_network(build.recipe, data, options)
    learner = joint_learner(data, options, network, tree, group, build.shard)
    # With clusters, all labels of a text count: they say which clusters are its own.
    batches = network.batches(build.own_labels if tree is None else data.labels)
    detach = options.get("detach_fraction", 0.0)
    validation = JointValidation(build, network, tree)
    arrays = build.fit("joint", learner, batches, validation, options.n_epochs, options.learning_rate, detach)
    vars(build).update(joint_stages(build, network, tree, arrays))


def joint_learner(
    data: TrainingData,
    options: Options,
    network: EncoderNetwork,
    tree: LabelTree | None,
    group: Group = ALONE,
    shard: Shard | None = None,
) -> Learner:
    """What learns, at its start."""
    search = None
    if tree is not None:
        search = ClusterSearch(tree, options.n_clusters_searched, options.missing_positives == "clusters")
    labels_per_text = len(data.dataset.labels.values) / len(data.dataset)
    parts = HeadOptions.of(options), meta_head_options(options), EncoderOptions.of(options, options.learning_rate)
    sizes = data.n_labels, labels_per_text, search, options.seed, options.device
    own = None if shard is None else shard.labels
    return Learner(network.module, *sizes, *parts, group=group, own=own)


def meta_head_options(options: Options) -> HeadOptions:
    """The meta-classifier has the layers of the label rows, but no bottleneck; its own dropout; biases in any case."""
    head = HeadOptions.of(options)
    bias_init = "zero" if head.rows.bias_init == "none" else head.rows.bias_init
    dropout = options.get("meta_dropout", 0.0)
    return replace(head, rows=replace(head.rows, bias_init=bias_init), dropout=dropout, bottleneck=0)


def joint_stages(build: Build, network: EncoderNetwork, tree: LabelTree | None, arrays: Arrays) -> dict[str, Any]:
    """The stages that these arrays make up."""
    options, shard, rows = build.options, build.shard, without_prefix("rows", arrays)
    candidates: CandidateStage = AllLabels()
    if tree is not None:
        meta = with_prefix("meta", without_prefix("meta", arrays))
        of_tree = {"starts": tree.cluster_starts, "cluster_of_label": tree.cluster_of_label.astype(np.int32)}
        n_searched = options.n_clusters_searched
        config = {"n_searched": n_searched, "max_searched": n_searched, "use_logits": options.ranking == "product"}
        if shard is None:
            candidates, rows = TopClusters({**meta, **of_tree}, config), {**rows, "order": tree.order}
        else:
            candidates = ShardedClusters.of({**meta, **of_tree}, config, build.group)
    classifier = RowClassifier(rows) if shard is None else ShardedRows(rows, {}, shard)
    encoder = network.stage(without_prefix("encoder", arrays))
    return {"encoder": encoder, "candidates": candidates, "classifier": classifier}


class JointValidation:
    """Metrics of the whole pipeline, and P@1 of the meta-classifier on clusters."""

    def __init__(self, build: Build, network: EncoderNetwork, tree: LabelTree | None) -> None:
        self._build, self._network, self._tree = build, network, tree

    def measure(self, arrays: Arrays) -> dict[str, float]:
        data, stages = self._build.data, joint_stages(self._build, self._network, self._tree, arrays)
        pipeline = replace(self._build, **stages).pipeline
        ids, _ = pipeline.first_rank(data.held_out_inputs, 5, pipeline.candidates.n_searched)
        scores = data.measure(ids)
        if self._tree is not None and isinstance(pipeline.candidates, TopClusters):
            best = pipeline.candidates.best_clusters(pipeline.encoder.encode(data.held_out_inputs), 1)
            labels = data.held_out_labels
            right = self._tree.cluster_of_label[labels.values] == best[labels.row_ids, 0]
            hits = np.bincount(labels.row_ids[right], minlength=len(labels)) > 0
            scores["meta_P@1"] = 100 * float(hits.mean())
        return scores


def joint_memory(build: Build) -> dict[str, int]:
    data, options, kind = build.data, build.options, network_kind(build.recipe)
    n_features, n_clusters = kind.n_features(data, options), options.get("n_clusters", 0)
    width = options.get("bottleneck", 0) or n_features
    n_labels, n_clusters = (-(-n // build.group.size) for n in (data.n_labels, n_clusters))  # each worker has its own
    return {
        "label rows": rows_memory(n_labels, width, options) + rows_memory(n_clusters, n_features, options),
        "encoder": 4 * kind.n_floats(data, options),
        "a batch": 4 * options.batch_size * (kind.floats_per_text(options) + n_clusters + 3 * n_features),
    }
