"""Training for the recipes of DeepXML's framework: its modules one after the other, data in, a model out.

I    features are learnt on a surrogate task: which clusters of labels a text belongs to
II   they are frozen; two indexes over them, of the labels' centres and of the texts, shortlist labels for each text
III  a residual block may change the features a little more
IV   the labels' rows are learnt on each text's own labels and its shortlist
Then the words of each label learn from the mistakes of all that.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch

from shortlist.data.dataset import Dataset
from shortlist.encoders.bag import BagEncoder
from shortlist.encoders.given import GivenFeatures
from shortlist.errors import OptionError
from shortlist.evaluation import evaluate
from shortlist.heads.runtime import HeadRuntime
from shortlist.model.deepxml import Blend, DeepXMLModel, DeepXMLOptions, Pipeline, log_votes
from shortlist.model.inception import part_of
from shortlist.model.options import check_options, filled, size_of
from shortlist.model.prepared import MEASURED, Prepared, need_texts, show_settings
from shortlist.model.reranker import fit_odds, right_pairs
from shortlist.ragged import Ragged
from shortlist.shortlisters.centres import label_centres
from shortlist.shortlisters.merged import MergedShortlister
from shortlist.shortlisters.neighbours import NeighbourIndex
from shortlist.training.batches import FeatureBatches, WordBatches
from shortlist.training.checkpoints import Checkpoints
from shortlist.training.learner import Learner, distinct
from shortlist.training.loop import Plan, fit, tensorboard_writer
from shortlist.training.memory import need_memory

log = logging.getLogger("shortlist")

SURROGATES, SAMPLINGS = ("clusters", "hashed", "frequent", "none"), ("neighbours", "slice", "uniform", "frequent")
PHASES = ("surrogate", "extreme")

LABELS_PER_CLUSTER, FEW_CLUSTERS, MOST_CLUSTERS = 8, 8192, 65536
# Mean length of the word vectors at the start: longer ones learn more slowly, shorter ones forget where they began.
START_LENGTH = 2.5
AnyDeepXML = TypeVar("AnyDeepXML", bound=DeepXMLModel)


def train_deepxml(model_class: type[AnyDeepXML], dataset: Dataset, options: DeepXMLOptions) -> AnyDeepXML:
    """Train a model of a recipe that has DeepXML's modules."""
    need_texts(dataset, model_class.recipe)
    options = chosen(options, len(dataset), dataset.n_labels)
    _check(options)
    show_settings(options)
    if options.checkpoints and not options.resume:
        for phase in PHASES:
            Checkpoints(f"{options.checkpoints}/{phase}", {}).refuse_to_overwrite()
    prepared = Prepared(dataset, options)
    need_memory(
        memory_of(model_class, options, len(prepared.vocabulary), len(prepared.texts), dataset.n_labels),
        "Smaller dimensions, a smaller shortlist or a larger min_count need less.",
    )
    arrays, records = _learn_features(model_class, prepared, options)
    encoder = model_class.Runtime(part_of(arrays, "encoder"), options.max_words)
    features = encoder.encode(prepared.word_ids)
    shortlister = _shortlister(features, prepared, options)
    rows, more_records = _learn_rows(model_class, features, encoder, shortlister, prepared, options)
    head = HeadRuntime(part_of(rows, "extreme"), dataset.n_labels, encoder.n_features)
    pipeline = Pipeline(encoder, shortlister, head, options.shortlist)
    if len(prepared.validation):
        pipeline.blend = _blend(pipeline, prepared)
        log.info("weights: %s", ", ".join(f"{name} {value:.3f}" for name, value in vars(pipeline.blend).items()))
    reranker = prepared.reranker(lambda word_ids, k: pipeline.rank(word_ids, k, options.threads))
    common = {"label_names": dataset.label_names, "display_names": dataset.display_names}
    kept = {name: array for name, array in arrays.items() if name.startswith("encoder.")} | rows
    return model_class(
        pipeline, kept, prepared.vocabulary, records + more_records, reranker, options=options.kept(), **common
    )


def chosen(options: DeepXMLOptions, n_texts: int, n_labels: int) -> DeepXMLOptions:
    """The options with everything that was left open chosen from the size of the data; docs/lab-book.md says why."""
    size = size_of(n_texts)
    n_clusters = min(max(-(-n_labels // LABELS_PER_CLUSTER), FEW_CLUSTERS), MOST_CLUSTERS, n_labels)
    return filled(
        options,
        {
            "batch_size": 128 if n_texts < 200_000 else 256,
            "dropout": round(min(max(0.85 - 0.27 * float(np.log10(size)), 0.25), 0.9), 2),
            "clusters": n_clusters,
            "surrogate_epochs": round(min(max(40 * size**-0.5, 6), 60)),
            "surrogate_rate": 0.004,
            "epochs": round(min(max(20 * size**-0.5, 4), 20)),
            "rate": 0.002,
            "validation": min(0.05, 5000 / n_texts),
        },
    )


def _check(options: DeepXMLOptions) -> None:
    counts = ("batch_size", "clusters", "surrogate_epochs", "epochs", "shortlist", "neighbours")
    check_options(options, counts, ("dropout",), ("surrogate_rate", "rate"))
    for name, known in (("surrogate", SURROGATES), ("sampling", SAMPLINGS)):
        if getattr(options, name) not in known:
            raise OptionError(f"{name} is {getattr(options, name)!r}; it can be {', '.join(known)}")
    if not 0 <= options.share <= 1:
        raise OptionError(f"share is {options.share}; it is a share, from 0 to 1")
    if options.n_random < 0:
        raise OptionError(f"n_random is {options.n_random}; it must be at least 0")


def memory_of(
    model_class: type[DeepXMLModel], options: DeepXMLOptions, n_words: int, n_texts: int, n_labels: int
) -> dict[str, int]:
    """Bytes for what is large, beside the texts, which are there already."""
    width = 4 * model_class.count_features(options)
    return {
        "label rows": 2 * n_labels * width + 16 * n_labels,
        "word vectors": 2 * n_words * 4 * options.dimensions,
        "features and their index": 2 * n_texts * width + 300 * n_texts + n_labels * width,
        "shortlists": 4 * n_texts * options.shortlist + 8 * n_texts * options.candidates,
    }


def new_bag(prepared: Prepared, options: DeepXMLOptions) -> BagEncoder:
    """Astec's encoder as training finds it."""
    vectors = prepared.vectors()
    vectors *= START_LENGTH / max(float(np.linalg.norm(vectors, axis=1).mean()), 1e-9)
    torch.manual_seed(options.seed)
    encoder = BagEncoder(prepared.idf, vectors.shape[1], float(options.dropout or 0), options.relu)
    with torch.no_grad():
        encoder.words.weight[:-1] = torch.from_numpy(vectors)
    return encoder


# Encoders by name, each made as training finds it.
ENCODERS: dict[str, Callable[[Prepared, Any], Any]] = {"bag": new_bag}


def surrogate_of(labels: Ragged, prepared: Prepared, options: DeepXMLOptions) -> np.ndarray:
    """For each label the task it belongs to; -1 for none."""
    n_labels, n_tasks = prepared.n_labels, int(options.clusters or 1)
    if options.surrogate == "clusters":
        return prepared.tree(n_tasks).cluster_of_label
    if options.surrogate == "hashed":
        return np.random.default_rng(options.seed).permutation(n_labels) % n_tasks
    tasks = np.full(n_labels, -1)
    tasks[np.argsort(-prepared.train_frequencies, kind="stable")[:n_tasks]] = np.arange(min(n_tasks, n_labels))
    return tasks


def _learn_features(
    model_class: type[DeepXMLModel], prepared: Prepared, options: DeepXMLOptions
) -> tuple[dict[str, np.ndarray], list[dict[str, Any]]]:
    """Module I: the arrays of the encoder, and the records of its training."""
    encoder = ENCODERS[model_class.encoder](prepared, options)
    if options.surrogate == "none":
        return {f"encoder.{name}": array for name, array in encoder.to_arrays().items()}, []
    task_of_label = surrogate_of(prepared.labels, prepared, options)
    n_tasks = int(task_of_label.max()) + 1
    log.info("learning features on %s %s", f"{n_tasks:,}", options.surrogate)
    tasks, validation_tasks = (
        _tasks(labels, task_of_label, n_tasks) for labels in (prepared.labels, prepared.validation_labels)
    )
    per_text = len(tasks.values) / max(len(tasks), 1)
    learner = Learner(encoder, n_tasks, per_text, None, options.seed, options.threads, options.device)

    def validate(arrays: dict[str, np.ndarray]) -> dict[str, float]:
        runtime = model_class.Runtime(part_of(arrays, "encoder"), options.max_words)
        head = HeadRuntime(part_of(arrays, "extreme"), n_tasks, runtime.n_features)
        ids, _ = head.best(runtime.encode(prepared.validation_ids), 5, options.threads)
        result = evaluate(ids, validation_tasks, train=(np.bincount(tasks.values, minlength=n_tasks), len(tasks)))
        return {name: result[name] for name in MEASURED}

    batches = WordBatches(prepared.word_ids, tasks, options.max_words, encoder.padding)
    epochs, rate = int(options.surrogate_epochs or 1), float(options.surrogate_rate or 0)
    return _fit("surrogate", model_class, learner, epochs, rate, batches, validate, prepared, options)


def _tasks(labels: Ragged, task_of_label: np.ndarray, n_tasks: int) -> Ragged:
    """The tasks of each text, none twice."""
    tasks = Ragged(labels.indptr, task_of_label[labels.values])
    return distinct(tasks.keep(tasks.values >= 0), n_tasks)


def _shortlister(features: np.ndarray, prepared: Prepared, options: DeepXMLOptions) -> MergedShortlister:
    """Module II: the indexes."""
    centres, owner = label_centres(features, prepared.labels, prepared.n_labels, seed=options.seed)
    log.info("indexing %s centres of labels and %s texts", f"{len(centres):,}", f"{len(features):,}")
    texts = None
    if options.share > 0:
        texts = NeighbourIndex.build(features, seed=options.seed, threads=options.threads)
    return MergedShortlister(
        NeighbourIndex.build(centres, seed=options.seed, threads=options.threads),
        owner,
        texts,
        Ragged(prepared.labels.indptr, prepared.labels.values.astype(np.int32)),
        options.neighbours,
        options.share,
        prepared.n_labels,
    )


def _learn_rows(
    model_class: type[DeepXMLModel],
    features: np.ndarray,
    encoder: Any,
    shortlister: MergedShortlister,
    prepared: Prepared,
    options: DeepXMLOptions,
) -> tuple[dict[str, np.ndarray], list[dict[str, Any]]]:
    """Modules III and IV: the arrays of the labels' head, and the records of their training."""
    n_labels = prepared.n_labels
    shortlists = _shortlists(features, shortlister, prepared, options)
    log.info("learning the rows of %s labels on shortlists of %d", f"{n_labels:,}", shortlists.shape[1])
    batches = FeatureBatches(features, prepared.labels, n_labels, shortlists, min(options.n_random, n_labels))
    module = GivenFeatures(encoder.n_features, float(options.dropout or 0))
    per_text = len(prepared.labels.values) / max(len(prepared.labels), 1)
    torch.manual_seed(options.seed)
    learner = Learner(module, n_labels, per_text, None, options.seed, options.threads, options.device, identity=True)
    held_out = encoder.encode(prepared.validation_ids)
    candidates = shortlister.shortlist(held_out, options.shortlist, options.threads)[0]

    def validate(arrays: dict[str, np.ndarray]) -> dict[str, float]:
        head = HeadRuntime(part_of(arrays, "extreme"), n_labels, encoder.n_features)
        logits = head.logits_of(held_out, candidates, options.threads)
        return prepared.measure(
            np.take_along_axis(candidates, np.argsort(-logits, axis=1, kind="stable")[:, :5], axis=1)
        )

    epochs, rate = int(options.epochs or 1), float(options.rate or 0)
    return _fit("extreme", model_class, learner, epochs, rate, batches, validate, prepared, options)


def _shortlists(
    features: np.ndarray, shortlister: MergedShortlister, prepared: Prepared, options: DeepXMLOptions
) -> np.ndarray:
    """The labels that each text is trained on, beside its own."""
    size = (len(features), min(options.shortlist, prepared.n_labels))
    rng = np.random.default_rng(options.seed)
    if options.sampling == "uniform":
        return rng.integers(prepared.n_labels, size=size, dtype=np.int32)
    if options.sampling == "frequent":
        weights = prepared.train_frequencies**0.75
        return rng.choice(prepared.n_labels, size=size, p=weights / weights.sum()).astype(np.int32)
    if options.sampling == "slice":
        ids = shortlister.centres.search(features, size[1], options.threads)[0]
        return np.where(ids >= 0, shortlister.owner[ids], -1).astype(np.int32)
    return shortlister.shortlist(features, options.shortlist, options.threads)[0]


def _fit(
    phase: str,
    model_class: type[DeepXMLModel],
    learner: Learner,
    epochs: int,
    rate: float,
    batches: Any,
    validate: Any,
    prepared: Prepared,
    options: DeepXMLOptions,
) -> tuple[dict[str, np.ndarray], list[dict[str, Any]]]:
    """One phase of training, with checkpoints of its own."""
    checkpoints = prepared.checkpoints(model_class.recipe, phase)
    arrays, records = fit(
        learner,
        Plan(epochs, int(options.batch_size or 1), rate, 0.0, options.patience, options.seed),
        batches,
        validate if len(prepared.validation) else None,
        checkpoints,
        options.resume,
        tensorboard=tensorboard_writer(Path(options.checkpoints) / "tensorboard" / phase) if checkpoints else None,
    )
    return arrays, [{"phase": phase, **record} for record in records]


def _blend(pipeline: Pipeline, prepared: Prepared) -> Blend:
    """How much the classifier and the similarities count, from the texts held out."""
    ids, logits, cosines, votes = pipeline.parts(prepared.validation_ids, prepared.options.threads)
    there = ids >= 0
    inputs = np.stack([logits[there], cosines[there], log_votes(votes[there])], axis=1)
    right = right_pairs(ids, prepared.validation_labels, prepared.n_labels)[there]
    start = Blend()
    return Blend(*fit_odds(inputs, right, np.array(list(vars(start).values()))))
