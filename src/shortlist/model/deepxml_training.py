"""Training for the recipes of DeepXML's framework: its modules one after the other, data in, a model out.

I    features are learnt on a surrogate task: which clusters of labels a text belongs to
II   they are frozen; two indexes over them, of the labels' centres and of the texts, shortlist labels for each text
III  a residual block may change the features a little more
IV   the labels' rows are learnt on each text's own labels and its shortlist
Then the words of each label learn from the mistakes of all that.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch

from shortlist.arrays import Ragged
from shortlist.data.dataset import Dataset
from shortlist.encoders.given import GivenFeatures
from shortlist.errors import DataError, OptionError
from shortlist.evaluation import evaluate
from shortlist.evaluation.calibration import is_relevant
from shortlist.heads.runtime import HeadRuntime
from shortlist.model.base import need_pairs
from shortlist.model.calibration import fit_odds
from shortlist.model.deepxml import Blend, DeepXMLModel, DeepXMLOptions, Pipeline, log_votes
from shortlist.model.finish import finish
from shortlist.model.inception import part_of
from shortlist.model.new_encoders import ENCODERS, SIZES
from shortlist.model.options import check_options, filled, size_of
from shortlist.model.prepared import MEASURED, Prepared, need_texts, show_settings
from shortlist.progress import Progress
from shortlist.shortlisters.cells import CellIndex
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
TEXTS_PER_BLOCK = 4096
PHASES = ("surrogate", "extreme")

LABELS_PER_CLUSTER, FEW_CLUSTERS, MOST_CLUSTERS = 8, 8192, 65536
AnyDeepXML = TypeVar("AnyDeepXML", bound=DeepXMLModel)


def train_deepxml(model_class: type[AnyDeepXML], dataset: Dataset, options: DeepXMLOptions) -> AnyDeepXML:
    """Train a model of a recipe that has DeepXML's modules."""
    _need_inputs(model_class, dataset, options)
    options = chosen(options, len(dataset), dataset.n_labels)
    _check(options)
    show_settings(options)
    if options.checkpoints and not options.resume:
        for phase in PHASES:
            Checkpoints(f"{options.checkpoints}/{phase}", {}).refuse_to_overwrite()
    prepared = Prepared(dataset, options)
    need_memory(
        memory_of(model_class, prepared, options),
        "Smaller dimensions, a smaller shortlist or a larger min_count need less."
        if dataset.features is None
        else f"The matrix of features is {dataset.features.shape[0]:,} × {dataset.features.shape[1]:,}, and all of it "
        "is held, zeros too: make fewer columns of it, some hundreds (SVD), or use centroid.",
    )
    arrays, records = _learn_features(model_class, prepared, options)
    encoder = model_class.Runtime(part_of(arrays, "encoder"), options.max_words)
    features = encoder.encode(prepared.inputs)
    shortlister = _shortlister(features, prepared, options)
    shortlists = _shortlists(features, shortlister, prepared, options)
    rows, more_records = _learn_rows(model_class, features, shortlists.ids, encoder, shortlister, prepared, options)
    head = HeadRuntime(part_of(rows, "extreme"), dataset.n_labels, encoder.n_features)
    pipeline = Pipeline(encoder, shortlister, head, options.shortlist)
    if len(prepared.validation):
        pipeline.blend = _blend(pipeline, prepared)
        log.info("weights: %s", ", ".join(f"{name} {value:.3f}" for name, value in vars(pipeline.blend).items()))
    mistakes = None if shortlists.similarities is None else _best_of_shortlists(pipeline, features, shortlists, options)
    reranker = prepared.reranker(lambda ids, k: pipeline.rank(ids, k, pipeline.most_cells, options.threads), mistakes)
    kept = {name: array for name, array in arrays.items() if name.startswith("encoder.")} | rows
    model = model_class(pipeline, kept, **prepared.of_texts(records + more_records, reranker))
    finish(model, prepared)
    return model


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
    counts = ("batch_size", "clusters", "surrogate_epochs", "epochs", "shortlist", "neighbours", "texts_per_label")
    check_options(options, (*counts, *SIZES), ("dropout",), ("surrogate_rate", "rate"))
    for name, known in (("surrogate", SURROGATES), ("sampling", SAMPLINGS)):
        if getattr(options, name) not in known:
            raise OptionError(f"{name} is {getattr(options, name)!r}; it can be {', '.join(known)}")
    if not 0 <= options.share <= 1:
        raise OptionError(f"share is {options.share}; it is a share, from 0 to 1")
    if options.n_random < 0:
        raise OptionError(f"n_random is {options.n_random}; it must be at least 0")


def _need_inputs(model_class: type[DeepXMLModel], dataset: Dataset, options: DeepXMLOptions) -> None:
    """Refuse a data set that the recipe cannot learn from."""
    if dataset.features is None or not model_class.takes_features:
        need_texts(dataset, model_class.recipe)
        return
    need_pairs(dataset)
    shape = dataset.features.shape
    if len(shape) != 2 or shape[0] != len(dataset) or not shape[1]:
        raise DataError(f"the features are {shape}; expected a matrix of {len(dataset):,} rows, one a text")
    if options.surrogate != "none" or options.reranker or options.vectors:
        raise OptionError(
            "surrogate, reranker and vectors are for texts, and the data set has a matrix of features: leave them out"
        )


def memory_of(model_class: type[DeepXMLModel], prepared: Prepared, options: DeepXMLOptions) -> dict[str, int]:
    """Bytes for what is large, beside the texts, which are there already."""
    kind = ENCODERS[model_class.encoder]
    n_features = kind.n_features(prepared, options)
    n_words, n_texts, n_labels = len(prepared.vocabulary), len(prepared.texts), prepared.n_labels
    width = 4 * n_features
    return {
        "label rows": 2 * n_labels * width + 16 * n_labels,
        "word vectors": 2 * n_words * 4 * options.dimensions,
        "features and their index": 2 * n_texts * width + 300 * n_texts + n_labels * width,
        "shortlists": 8 * n_texts * options.shortlist + 8 * n_texts * options.candidates,
        # The matrix, its gradient, and Adam's two.
        "residual block": 4 * n_features * width,
        "a batch": 4 * int(options.batch_size or 1) * (kind.per_text(options) + 3 * n_features),
    }


def surrogate_of(prepared: Prepared, options: DeepXMLOptions) -> np.ndarray:
    """For each label the task it belongs to; -1 for none."""
    n_labels, n_tasks = prepared.n_labels, int(options.clusters or 1)
    if options.surrogate == "clusters":
        return prepared.tree(n_tasks).cluster_of_label
    if options.surrogate == "hashed":
        return hashed(n_labels, n_tasks, options.seed)
    tasks = np.full(n_labels, -1)
    tasks[np.argsort(-prepared.train_frequencies, kind="stable")[:n_tasks]] = np.arange(min(n_tasks, n_labels))
    return tasks


def hashed(n_labels: int, n_tasks: int, seed: int) -> np.ndarray:
    """A task for each label, at random; none has more labels than another by more than one."""
    return (np.random.default_rng(seed).permutation(n_labels) % n_tasks).astype(np.int32)


def _learn_features(
    model_class: type[DeepXMLModel], prepared: Prepared, options: DeepXMLOptions
) -> tuple[dict[str, np.ndarray], list[dict[str, Any]]]:
    """Module I: the arrays of the encoder, and the records of its training."""
    encoder = ENCODERS[model_class.encoder].new(prepared, options)
    if options.surrogate == "none":
        return {f"encoder.{name}": array for name, array in encoder.to_arrays().items()}, []
    task_of_label = surrogate_of(prepared, options)
    log.info("learning features on %s %s", f"{int(task_of_label.max()) + 1:,}", options.surrogate)
    epochs, rate = int(options.surrogate_epochs or 1), float(options.surrogate_rate or 0)
    return learn_tasks("surrogate", model_class, encoder, task_of_label, epochs, rate, prepared, options)


def learn_tasks(
    phase: str,
    model_class: Any,
    encoder: Any,
    task_of_label: np.ndarray,
    epochs: int,
    rate: float,
    prepared: Prepared,
    options: Any,
) -> tuple[dict[str, np.ndarray], list[dict[str, Any]]]:
    """An encoder and a head that learn which tasks the labels of a text belong to: their arrays and records."""
    n_tasks = int(task_of_label.max()) + 1
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

    shuffle = getattr(options, "shuffle", False)
    batches = WordBatches(prepared.word_ids, tasks, options.max_words, encoder.padding, shuffle)
    return _fit(phase, model_class, learner, epochs, rate, batches, validate, prepared, options)


def _tasks(labels: Ragged, task_of_label: np.ndarray, n_tasks: int) -> Ragged:
    """The tasks of each text, none twice."""
    tasks = Ragged(labels.indptr, task_of_label[labels.values])
    return distinct(tasks.keep(tasks.values >= 0), n_tasks)


def _shortlister(features: np.ndarray, prepared: Prepared, options: DeepXMLOptions) -> MergedShortlister:
    """Module II: the indexes."""
    centres, owner = label_centres(features, prepared.labels, prepared.n_labels, seed=options.seed)
    voters = np.zeros(0, np.int64)
    texts = None
    if options.share > 0:
        voters = few_of_each(prepared.labels, prepared.n_labels, options.texts_per_label, options.seed)
        log.info("indexing %s centres of labels and %s texts", f"{len(centres):,}", f"{len(voters):,}")
        texts = NeighbourIndex.build(
            features[voters], search_effort=options.neighbours, seed=options.seed, threads=options.threads
        )
    labels = prepared.labels.take(voters)
    return MergedShortlister(
        CellIndex.build(centres, options.seed),
        owner,
        texts,
        Ragged(labels.indptr, labels.values.astype(np.int32)),
        options.neighbours,
        options.share,
        prepared.n_labels,
    )


def cells_in_training(shortlister: MergedShortlister) -> int:
    """An eighth of the cells has nearly all neighbours, of which none is missed here."""
    return max(1, len(shortlister.centres.cells) // 8)


def few_of_each(labels: Ragged, n_labels: int, most: int, seed: int) -> np.ndarray:
    """Rows in which every label stands at least `most` times, or as often as it does at all; not many more."""
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


def _learn_rows(
    model_class: type[DeepXMLModel],
    features: np.ndarray,
    shortlists: np.ndarray,
    encoder: Any,
    shortlister: MergedShortlister,
    prepared: Prepared,
    options: DeepXMLOptions,
) -> tuple[dict[str, np.ndarray], list[dict[str, Any]]]:
    """Modules III and IV: the arrays of the labels' head, and the records of their training."""
    n_labels = prepared.n_labels
    log.info("learning the rows of %s labels on shortlists of %d", f"{n_labels:,}", shortlists.shape[1])
    batches = FeatureBatches(features, prepared.labels, n_labels, shortlists, min(options.n_random, n_labels))
    module = GivenFeatures(encoder.n_features, float(options.dropout or 0))
    per_text = len(prepared.labels.values) / max(len(prepared.labels), 1)
    torch.manual_seed(options.seed)
    learner = Learner(module, n_labels, per_text, None, options.seed, options.threads, options.device, identity=True)
    held_out = encoder.encode(prepared.validation_inputs)
    n_cells = cells_in_training(shortlister)
    candidates = shortlister.shortlist(held_out, options.shortlist, n_cells, options.threads)[0]

    def validate(arrays: dict[str, np.ndarray]) -> dict[str, float]:
        head = HeadRuntime(part_of(arrays, "extreme"), n_labels, encoder.n_features)
        logits = head.logits_of(held_out, candidates, options.threads)
        return prepared.measure(
            np.take_along_axis(candidates, np.argsort(-logits, axis=1, kind="stable")[:, :5], axis=1)
        )

    epochs, rate = int(options.epochs or 1), float(options.rate or 0)
    return _fit("extreme", model_class, learner, epochs, rate, batches, validate, prepared, options)


class Shortlists(NamedTuple):
    """Labels for each text (texts × K), and their cosines and votes, where neighbours were looked for."""

    ids: np.ndarray
    similarities: np.ndarray | None = None


def _shortlists(
    features: np.ndarray, shortlister: MergedShortlister, prepared: Prepared, options: DeepXMLOptions
) -> Shortlists:
    """The labels that each text is trained on, beside its own."""
    size = (len(features), min(options.shortlist, prepared.n_labels))
    rng = np.random.default_rng(options.seed)
    if options.sampling == "uniform":
        return Shortlists(rng.integers(prepared.n_labels, size=size, dtype=np.int32))
    if options.sampling == "frequent":
        weights = prepared.train_frequencies**0.75
        return Shortlists(rng.choice(prepared.n_labels, size=size, p=weights / weights.sum()).astype(np.int32))
    if options.sampling == "slice":
        ids = shortlister.centres.search(features, size[1], cells_in_training(shortlister), options.threads)[0]
        return Shortlists(np.where(ids >= 0, shortlister.owner[ids], -1).astype(np.int32))
    ids = np.empty(size, np.int32)
    similarities = np.empty((2, *size), np.float16)  # they choose candidates, for which three digits will do
    n_cells = cells_in_training(shortlister)
    with Progress("shortlists", len(features), "texts") as progress:
        for begin in range(0, len(features), TEXTS_PER_BLOCK):
            block = slice(begin, begin + TEXTS_PER_BLOCK)
            ids[block], *found = shortlister.shortlist(features[block], options.shortlist, n_cells, options.threads)
            similarities[:, block] = found
            progress.advance(len(ids[block]))
    return Shortlists(ids, similarities)


def _best_of_shortlists(
    pipeline: Pipeline, features: np.ndarray, shortlists: Shortlists, options: DeepXMLOptions
) -> np.ndarray:
    """The labels of each shortlist that the pipeline ranks best, as it does in prediction."""
    assert shortlists.similarities is not None
    k = min(options.candidates, shortlists.ids.shape[1])
    best = np.empty((len(features), k), np.int32)
    for begin in range(0, len(features), TEXTS_PER_BLOCK):
        block = slice(begin, begin + TEXTS_PER_BLOCK)
        logits = pipeline.head.logits_of(features[block], shortlists.ids[block], options.threads)
        odds = pipeline.blend.odds(logits, *shortlists.similarities[:, block].astype(np.float32))
        order = np.argpartition(-odds, k - 1, axis=1)[:, :k]
        best[block] = np.take_along_axis(shortlists.ids[block], order, axis=1)
    return best


def _fit(
    phase: str,
    model_class: Any,
    learner: Learner,
    epochs: int,
    rate: float,
    batches: Any,
    validate: Any,
    prepared: Prepared,
    options: Any,
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
    threads = prepared.options.threads
    ids, logits, cosines, votes = pipeline.parts(prepared.validation_inputs, pipeline.most_cells, threads)
    there = ids >= 0
    inputs = np.stack([logits[there], cosines[there], log_votes(votes[there])], axis=1)
    right = is_relevant(ids, prepared.validation_labels, prepared.n_labels)[there]
    start = Blend()
    return Blend(*fit_odds(inputs, right, np.array(list(vars(start).values()))))
