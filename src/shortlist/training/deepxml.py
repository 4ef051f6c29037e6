"""DeepXML's modules as phases, for Astec, Slice and other encoders.

surrogate   I    features are learnt on a surrogate task: which clusters of labels a text belongs to
candidates  II   they are frozen; the nearest label centres (and texts) give the candidates of each text
classifier  III  a residual block may change the features a little more, while
            IV   the label rows are learnt on each text's own labels and its candidates
"""

from __future__ import annotations

import logging

import numpy as np
import torch

from shortlist.arrays import Arrays, Ragged
from shortlist.evaluation import evaluate
from shortlist.evaluation.calibration import is_relevant
from shortlist.labels.centroids import label_representatives
from shortlist.odds import fit_logistic
from shortlist.progress import Progress
from shortlist.stages.candidates import NearestLabels
from shortlist.stages.classifier import MIN_VOTES, Blend, RowClassifier
from shortlist.stages.encoders import Encoder
from shortlist.stages.neighbours import NeighbourIndex
from shortlist.stages.output_layer import OutputLayer
from shortlist.stages.stage import without_prefix
from shortlist.training.batches import FeatureBatches, WordBatches
from shortlist.training.build import Build
from shortlist.training.data import METRICS, TrainingData
from shortlist.training.learner import Learner
from shortlist.training.networks import EncoderNetwork, network_kind, new_network
from shortlist.training.networks.bag import GivenFeatures

log = logging.getLogger("shortlist")

TEXTS_PER_BLOCK = 4096


def surrogate(build: Build) -> None:
    """Module I: learn the features, unless the word vectors or the user give them."""
    data, options = build.data, build.options
    network = new_network(build.recipe, data, options)
    if options.surrogate == "none":
        build.encoder = network.stage()
        return
    task_of_label = surrogate_tasks(build)
    log.info("learning features on %s %s", f"{int(task_of_label.max()) + 1:,}", options.surrogate)
    epochs, learning_rate = options.n_surrogate_epochs, options.surrogate_learning_rate
    arrays = learn_tasks(build, "surrogate", network, task_of_label, epochs, learning_rate, options.seed)
    build.encoder = network.stage(without_prefix("encoder", arrays))


def surrogate_tasks(build: Build) -> np.ndarray:
    """The surrogate task that each label belongs to; -1 for none."""
    data, options = build.data, build.options
    n_labels, n_tasks = data.n_labels, options.n_clusters
    if options.surrogate == "clusters":
        return data.label_tree(n_tasks).cluster_of_label
    if options.surrogate == "hashed":
        return hash_labels(n_labels, n_tasks, options.seed)
    tasks = np.full(n_labels, -1)
    tasks[np.argsort(-data.label_frequencies, kind="stable")[:n_tasks]] = np.arange(min(n_tasks, n_labels))
    return tasks


def hash_labels(n_labels: int, n_buckets: int, seed: int) -> np.ndarray:
    """A random bucket for each label; sizes of buckets differ by at most one."""
    return (np.random.default_rng(seed).permutation(n_labels) % n_buckets).astype(np.int32)


def learn_tasks(
    build: Build,
    phase: str,
    network: EncoderNetwork,
    task_of_label: np.ndarray,
    n_epochs: int,
    learning_rate: float,
    seed: int,
) -> Arrays:
    """Train the network to predict the tasks that the labels of a text belong to."""
    data, options = build.data, build.options
    n_tasks = int(task_of_label.max()) + 1
    tasks = _tasks_of_texts(data.labels, task_of_label, n_tasks)
    per_text = len(tasks.values) / max(len(tasks), 1)
    learner = Learner(network.module, n_tasks, per_text, None, seed, options.device)
    shuffle = options.get("shuffle_words", False)
    batches = WordBatches(data.word_ids, tasks, options.max_words, data.n_words, shuffle)
    held_out_tasks = _tasks_of_texts(data.held_out_labels, task_of_label, n_tasks)
    validation = TaskValidation(data, network, tasks, held_out_tasks, n_tasks)
    return build.fit(phase, learner, batches, validation, n_epochs, learning_rate, seed=seed)


def _tasks_of_texts(labels: Ragged, task_of_label: np.ndarray, n_tasks: int) -> Ragged:
    tasks = Ragged(labels.indptr, task_of_label[labels.values])
    return tasks.keep(tasks.values >= 0).distinct(n_tasks)


class TaskValidation:
    """Metrics of predicted tasks."""

    def __init__(
        self, data: TrainingData, network: EncoderNetwork, tasks: Ragged, held_out_tasks: Ragged, n_tasks: int
    ) -> None:
        self._data, self._network, self._held_out = data, network, held_out_tasks
        self._frequencies, self._n_texts = np.bincount(tasks.values, minlength=n_tasks), len(tasks)

    def measure(self, arrays: Arrays) -> dict[str, float]:
        encoder = self._network.stage(without_prefix("encoder", arrays))
        layer = OutputLayer(without_prefix("rows", arrays))
        ids, _ = layer.best(encoder.encode(self._data.held_out_ids), 5)
        result = evaluate(ids, self._held_out, train=(self._frequencies, self._n_texts))
        return {name: result[name] for name in METRICS}


def candidates(build: Build) -> None:
    """Module II: index the label centres (and texts), and find the candidates of every training text."""
    data, options = build.data, build.options
    build.features = features = build.encoder.encode(data.inputs)
    centres, owner = label_representatives(features, data.labels, data.n_labels, seed=options.seed)
    texts, text_labels = None, None
    if options.vote_weight > 0:
        voters = few_of_each(data.labels, data.n_labels, options.texts_per_label, options.seed)
        log.info("indexing %s label centres and %s texts", f"{len(centres):,}", f"{len(voters):,}")
        texts = NeighbourIndex.build(features[voters], search_breadth=options.n_neighbours, seed=options.seed)
        text_labels = data.labels.take(voters)
    build.candidates = stage = NearestLabels.build(
        centres,
        owner,
        data.n_labels,
        options.n_candidates,
        texts,
        text_labels,
        options.n_neighbours,
        options.vote_weight,
        options.seed,
    )
    build.candidates_of = negatives(features, stage, build)


def few_of_each(labels: Ragged, n_labels: int, most: int, seed: int) -> np.ndarray:
    """Texts that have each label at least `most` times, or as often as it occurs, and not many more."""
    rows: list[int] = []
    counts = [0] * n_labels
    bounds, values = labels.indptr.tolist(), labels.values.tolist()
    for row in np.random.default_rng(seed).permutation(len(labels)).tolist():
        own = values[bounds[row] : bounds[row + 1]]
        if any(counts[label] < most for label in own):
            rows.append(row)
            for label in own:
                counts[label] += 1
    return np.sort(np.asarray(rows, np.int64))


def negatives(features: np.ndarray, stage: NearestLabels, build: Build) -> tuple[np.ndarray, np.ndarray | None]:
    """The labels that each text is trained on beside its own; and their evidence, if they are its candidates."""
    data, options = build.data, build.options
    size = (len(features), min(options.n_candidates, data.n_labels))
    rng = np.random.default_rng(options.seed)
    if options.negative_sampling == "uniform":
        return rng.integers(data.n_labels, size=size, dtype=np.int32), None
    if options.negative_sampling == "frequent":
        weights = data.label_frequencies**0.75
        return rng.choice(data.n_labels, size=size, p=weights / weights.sum()).astype(np.int32), None
    n_searched = stage.n_searched_in_training
    if options.negative_sampling == "slice":
        return stage.nearest_centres(features, n_searched), None
    ids = np.empty(size, np.int32)
    evidence = np.empty((2, *size), np.float16)  # it selects hard negatives, for which three digits will do
    with Progress("candidates", len(features), "texts") as progress:
        for begin in range(0, len(features), TEXTS_PER_BLOCK):
            block = slice(begin, begin + TEXTS_PER_BLOCK)
            found = stage.find(features[block], n_searched)
            ids[block], evidence[:, block] = found.ids, found.evidence
            progress.advance(len(ids[block]))
    return ids, evidence


def classifier(build: Build) -> None:
    """Modules III and IV: learn the residual block and the label rows; then blend logits with the evidence."""
    data, options, features = build.data, build.options, build.features
    assert isinstance(build.candidates, NearestLabels)
    assert features is not None
    assert build.candidates_of is not None
    ids, evidence = build.candidates_of
    log.info("learning the rows of %s labels on %d candidates per text", f"{data.n_labels:,}", ids.shape[1])
    n_random = min(options.n_random_negatives, data.n_labels)
    batches = FeatureBatches(features, data.labels, data.n_labels, ids, n_random)
    network = GivenFeatures(build.encoder.n_features, options.dropout)
    torch.manual_seed(options.seed)
    sizes = (data.n_labels, data.labels_per_text)
    learner = Learner(network, *sizes, None, options.seed, options.device, identity=True)
    validation = CandidateValidation(build.candidates, build.encoder, data)
    arrays = build.fit("classifier", learner, batches, validation, options.n_epochs, options.learning_rate)
    build.classifier = stage = RowClassifier(without_prefix("rows", arrays), {"blend": {}})
    if len(data.held_out):
        stage.blend = fit_blend(build, stage)
        log.info("blend: %s", ", ".join(f"{name} {value:.3f}" for name, value in vars(stage.blend).items()))
    if evidence is not None:
        build.hard_negatives = hard_negatives(stage, features, ids, evidence, options.get("n_reranked", 1))


class CandidateValidation:
    """Metrics of the label rows on the candidates of held-out texts, which do not change."""

    def __init__(self, stage: NearestLabels, encoder: Encoder, data: TrainingData) -> None:
        self._data, self._features = data, encoder.encode(data.held_out_inputs)
        found = stage.find(self._features, stage.n_searched_in_training).ids
        assert found is not None
        self._ids = found

    def measure(self, arrays: Arrays) -> dict[str, float]:
        logits = OutputLayer(without_prefix("rows", arrays)).logits_of(self._features, self._ids)
        best = np.argsort(-logits, axis=1, kind="stable")[:, :5]
        return self._data.measure(np.take_along_axis(self._ids, best, axis=1))


def fit_blend(build: Build, stage: RowClassifier) -> Blend:
    """How much the logit, the cosine and the votes count, by logistic regression on held-out candidates."""
    data, found = build.data, build.candidates
    features = build.encoder.encode(data.held_out_inputs)
    near = found.find(features, found.max_searched)
    assert near.ids is not None
    present = near.ids >= 0
    cosines, votes = near.evidence
    logits = stage.layer.logits_of(features, near.ids)
    log_votes = np.log(np.maximum(votes[present], np.float32(MIN_VOTES)))
    columns = np.stack([logits[present], cosines[present], log_votes], axis=1)
    hits = is_relevant(near.ids, data.held_out_labels, data.n_labels)[present]
    return Blend(*fit_logistic(columns, hits, np.array(list(vars(Blend()).values()))))


def hard_negatives(
    stage: RowClassifier, features: np.ndarray, ids: np.ndarray, evidence: np.ndarray, k: int
) -> np.ndarray:
    """The k candidates of each training text that the classifier ranks best, as it does in prediction."""
    assert stage.blend is not None
    k = min(k, ids.shape[1])
    best = np.empty((len(features), k), np.int32)
    for begin in range(0, len(features), TEXTS_PER_BLOCK):
        block = slice(begin, begin + TEXTS_PER_BLOCK)
        logits = stage.layer.logits_of(features[block], ids[block])
        odds = stage.blend.log_odds(logits, *evidence[:, block].astype(np.float32))
        order = np.argpartition(-odds, k - 1, axis=1)[:, :k]
        best[block] = np.take_along_axis(ids[block], order, axis=1)
    return best


def classifier_memory(build: Build) -> dict[str, int]:
    data, options, kind = build.data, build.options, network_kind(build.recipe)
    n_features, n_texts, n_labels = kind.n_features(data, options), len(data.texts), data.n_labels
    width = 4 * n_features
    return {
        "label rows": 2 * n_labels * width + 16 * n_labels,
        "word vectors": 2 * data.n_words * 4 * options.embedding_dim,
        "features and their index": 2 * n_texts * width + 300 * n_texts + n_labels * width,
        "candidates": 8 * n_texts * options.n_candidates + 8 * n_texts * options.n_reranked,
        # The matrix, its gradient, and Adam's two.
        "residual block": 4 * n_features * width,
        "a batch": 4 * options.batch_size * (kind.floats_per_text(options) + 3 * n_features),
    }
