"""DeepXML's module I, the phase `surrogate`: features are learnt on a surrogate task.

The modules are phases, for Astec, Slice and other encoders:

surrogate   I    features are learnt on a surrogate task: which clusters of labels a text belongs to
candidates  II   they are frozen; the nearest label centres (and texts) give the candidates of each text
classifier  III  a residual block may change the features a little more, while
            IV   the label rows are learnt on each text's own labels and its candidates
"""

from __future__ import annotations

import logging

import numpy as np

from shortlist.arrays import Arrays, Ragged
from shortlist.evaluation import evaluate
from shortlist.stages.output_layer import OutputLayer
from shortlist.stages.stage import without_prefix
from shortlist.training.build import Build
from shortlist.training.data import METRICS, TrainingData
from shortlist.training.group import Range, Shard, best_of_group
from shortlist.training.hashing import even_buckets
from shortlist.training.heads import EncoderOptions, HeadOptions, identity_head
from shortlist.training.networks import EncoderNetwork, new_learner, new_network

log = logging.getLogger("shortlist")


def surrogate(build: Build) -> None:
    """Module I: learn the features, unless the word vectors, a frozen encoder or the user give them."""
    data, options = build.data, build.options
    network = new_network(build.recipe, data, options)
    if options.surrogate == "none" or options.get("freeze_encoder", False):
        build.encoder = network.stage()
        build.shard = Shard.of(build.group, np.arange(data.n_labels))
        return
    task_of_label = surrogate_tasks(build)
    of_clusters = options.surrogate == "clusters"
    build.shard = Shard.of(build.group, task_of_label if of_clusters else np.arange(data.n_labels))
    log.info("learning features on %s %s", f"{int(task_of_label.max()) + 1:,}", options.surrogate)
    head = identity_head(options) if options.identity_start else HeadOptions.of(options)
    schedule = options.n_surrogate_epochs, options.surrogate_learning_rate, options.surrogate_decay_epoch
    arrays = learn_tasks(build, "surrogate", network, task_of_label, head, *schedule, options.seed)
    build.encoder = network.stage(without_prefix("encoder", arrays))


def surrogate_tasks(build: Build) -> np.ndarray:
    """The surrogate task that each label belongs to; -1 for none."""
    data, options = build.data, build.options
    n_labels, n_tasks = data.n_labels, options.n_clusters
    if options.surrogate == "clusters":
        return data.label_tree(n_tasks, options.label_correlations).cluster_of_label
    if options.surrogate == "hashed":
        return even_buckets(n_labels, n_tasks, options.seed)
    tasks = np.full(n_labels, -1)
    tasks[np.argsort(-data.label_frequencies, kind="stable")[:n_tasks]] = np.arange(min(n_tasks, n_labels))
    return tasks


def learn_tasks(
    build: Build,
    phase: str,
    network: EncoderNetwork,
    task_of_label: np.ndarray,
    head: HeadOptions,
    n_epochs: int,
    learning_rate: float,
    decay_epoch: int,
    seed: int,
) -> Arrays:
    """Train the network to predict the tasks that the labels of a text belong to."""
    data, options = build.data, build.options
    n_tasks = int(task_of_label.max()) + 1
    tasks = _tasks_of_texts(data.labels, task_of_label, n_tasks)
    per_text = len(tasks.values) / max(len(tasks), 1)
    encoder = EncoderOptions.of(options, learning_rate)
    held_out_tasks = _tasks_of_texts(data.held_out_labels, task_of_label, n_tasks)
    labels_per_task = np.bincount(task_of_label[task_of_label >= 0], minlength=n_tasks)
    own = Range.of(build.group, labels_per_task)
    module, group = network.module, build.group
    learner = new_learner(module, n_tasks, per_text, seed, options.device, head, encoder, None, group, own.ids)
    batches = network.batches(own.own_pairs(tasks))
    validation = TaskValidation(data, network, tasks, held_out_tasks, n_tasks, own)
    return build.fit(phase, learner, batches, validation, n_epochs, learning_rate, seed=seed, decay_epoch=decay_epoch)


def _tasks_of_texts(labels: Ragged, task_of_label: np.ndarray, n_tasks: int) -> Ragged:
    tasks = Ragged(labels.indptr, task_of_label[labels.values])
    return tasks.keep(tasks.values >= 0).distinct(n_tasks)


class TaskValidation:
    """Metrics of predicted tasks. The rows of this worker are those of the tasks `own`."""

    def __init__(
        self,
        data: TrainingData,
        network: EncoderNetwork,
        tasks: Ragged,
        held_out_tasks: Ragged,
        n_tasks: int,
        own: Range,
    ) -> None:
        self._data, self._network, self._held_out, self._own = data, network, held_out_tasks, own
        self._frequencies, self._n_texts = np.bincount(tasks.values, minlength=n_tasks), len(tasks)

    def measure(self, arrays: Arrays) -> dict[str, float]:
        encoder = self._network.stage(without_prefix("encoder", arrays))
        layer = OutputLayer(without_prefix("rows", arrays))
        ids, logits = layer.best(encoder.encode(self._data.held_out_inputs), 5)
        ids, _ = best_of_group(self._own.group, ids + np.int32(self._own.first), logits, 5)
        result = evaluate(ids, self._held_out, train=(self._frequencies, self._n_texts))
        return {name: result[name] for name in METRICS}
