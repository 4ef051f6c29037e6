"""A trained model learns from further texts: only labels that these texts have change, all others stay bit for bit.

Some of the new texts are held out at first, if there are enough: they say what the update gained, and whether
calibration and threshold still fit. Then the model learns from all of them.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import numpy as np

from shortlist.arrays import Ragged, random_generator
from shortlist.data.dataset import Dataset
from shortlist.data.read import read
from shortlist.errors import DataError, OptionError
from shortlist.evaluation.calibration import is_relevant
from shortlist.evaluation.goals import Goal
from shortlist.kernels.threads import use_cores, use_threads
from shortlist.labels.propensity import frequencies_of, propensities
from shortlist.model.checks import check_same_fields
from shortlist.model.kept_texts import kept_after, kept_texts, right
from shortlist.model.labelling import relabelled, word_limits
from shortlist.model.model import Model
from shortlist.model.uninformed import RankOptions
from shortlist.stages.more_words import with_more_words
from shortlist.stages.pipeline import Pipeline
from shortlist.stages.reranker import Reranker
from shortlist.stages.tail import TailRanking
from shortlist.text.texts import Texts
from shortlist.training.calibrate import ANY_SCORES, RERANKED, fit_calibration
from shortlist.training.learning_on import Lesson, learn_on
from shortlist.training.tune import CALIBRATED_RANKS, RANKS

log = logging.getLogger("shortlist")

# Share of the new texts that is held out, if that is at least the first number of texts; never more than the second.
HELD_OUT_SHARE, MIN_HELD_OUT, MAX_HELD_OUT = 0.2, 200, 2000
MIN_SUBWORD_COUNT = 2  # as when the re-ranker is learnt
# Number of old texts used as negatives of new labels: a multiple of the new texts, within bounds.
REPLAYED, MIN_REPLAYED, MAX_REPLAYED = 20, 10_000, 500_000


def update(model: Model, data: Any, replay: Any = None, threads: int | None = None, seed: int = 0) -> Model:
    """A new model that has learnt from further texts; the other model stays as it is.

    >>> import shortlist
    >>> model = shortlist.train(["red shoes", "blue hat"], ["shoes", "hats"])
    >>> update(model, [("blue shoes", ["blue things"])]).label_names
    ['shoes', 'hats', 'blue things']
    """
    require_learning(model)
    rng = random_generator(seed)
    dataset = data if isinstance(data, Dataset) else read(data, **model.reading)
    old = replay if isinstance(replay, Dataset) or replay is None else read(replay, **model.reading)
    require_pairs(model, dataset, "the new data")
    if old is not None:
        require_pairs(model, old, "replay")
    else:
        old = kept_texts(model)
    is_right = dataset.labels.weights is None or dataset.labels.weights > 0
    new = sorted({dataset.label_names[i] for i in np.unique(dataset.labels.values[is_right])} - set(model.labels.ids))
    import scipy.linalg  # noqa: F401 - here, so that `use_cores` limits it

    with use_cores(1), use_threads(threads):
        names = {label: dataset.display_names.get(label, "") for label in new}
        about = {"texts": len(dataset), "pairs": int(np.sum(right(dataset).counts)), "new_labels": len(new)}
        used, ids = dataset.without_unused_labels().label_names, model.labels.ids
        known = [ids[label] for label in used if label in ids]
        is_of_use = any(isinstance(pipeline.reranker, Reranker) for pipeline in model.pipelines)
        is_of_use &= bool(names) or bool(known_by_name(model)[known].any())
        if replay is not None and not is_of_use:
            log.warning("replay is for labels that are new, and for their words: there are none, so it is not used")
        old = old if is_of_use else None
        if old is not None:
            n_replayed = min(max(REPLAYED * len(dataset), MIN_REPLAYED), MAX_REPLAYED)
            old = old.take(np.sort(rng.permutation(len(old))[:n_replayed]))
        rows = rng.permutation(len(dataset))
        n_held_out = min(int(HELD_OUT_SHARE * len(rows)), MAX_HELD_OUT)
        changed = taught(model, names, dataset, old)
        refreshed: dict[str, Any] = {}
        if n_held_out >= MIN_HELD_OUT:
            held_out = dataset.take(np.sort(rows[:n_held_out])).relabelled(changed.label_names)
            learnt = taught(model, names, dataset.take(np.sort(rows[n_held_out:])), old)
            refreshed = refresh(model, learnt, held_out)
            changed.calibration, changed.thresholds, changed.facts = learnt.calibration, learnt.thresholds, learnt.facts
    n_before = model.facts.get("data", {}).get("texts", 0) + sum(one["texts"] for one in model.facts.get("updates", []))
    changed.kept_texts = kept_after(model, dataset, n_before, seed)
    changed.facts["updates"] = [*model.facts.get("updates", []), {**about, **refreshed}]
    return changed


def require_learning(model: Model) -> None:
    """Raise an error unless all stages can keep learning."""
    for pipeline in model.pipelines:
        for stage in (pipeline.candidates, pipeline.classifier, pipeline.reranker):
            if stage is not None and not stage.learns_on:
                raise OptionError(
                    f"this model ({model.recipe}) has a stage of kind {stage.kind!r}, which cannot be updated: its "
                    "labels share what was learnt. Train again on all data. Models that can be updated have one row "
                    "per label: centroid, astec, slice, deepxml-…"
                )


def require_pairs(model: Model, dataset: Dataset, what: str) -> None:
    """Raise an error unless there are texts with labels, of the kind that the model reads."""
    if not len(dataset.labels.values):
        raise DataError(f"there is nothing to learn from: {what} has no text with a label")
    if (dataset.features is None) != (model.columns is None):
        has = "texts" if dataset.features is None else f"{dataset.input_kind} features"
        raise DataError(f"this model was trained on {model.inputs}, and {what} has {has}")
    check_same_fields(dataset.text_fields, model.text_fields)
    if model.columns is not None:
        model.columns.encode(dataset.features[:1])  # raises unless it has the same columns
        labels = sorted(set(dataset.label_names) - set(model.labels.ids))
        if labels:
            raise DataError(
                f"{what} has labels that the model does not know, such as {labels[0]!r:.80}. New labels are added by "
                f"name, and this model takes {model.inputs}: leave them out, or train again."
            )


def wrong(dataset: Dataset) -> Ragged:
    labels = dataset.labels
    if labels.weights is None:
        return Ragged.empty(len(dataset))
    return Ragged(labels.indptr, labels.values).keep(labels.weights <= 0)


def taught(model: Model, names: dict[str, str], dataset: Dataset, old: Dataset | None) -> Model:
    """The model after it has learnt from the data set, with new labels, {label: name}."""
    n_texts = model.facts.get("data", {}).get("texts", 0)
    grown = with_new(model, names, dataset.texts)
    dataset = dataset.relabelled(grown.label_names)
    counts = np.append(label_counts(model), np.zeros(len(names), np.int64))
    unlearnt = np.append(known_by_name(model), np.ones(len(names), bool))
    counts[unlearnt] = 0
    replayed = None if old is None else (inputs_of(old), right(old.relabelled(grown.label_names)))
    lesson = Lesson(inputs_of(dataset), right(dataset), wrong(dataset), counts, unlearnt, model.options, replayed)
    pipelines: list[Pipeline] = [learn_on(pipeline, lesson) for pipeline in grown.pipelines]
    changed = relabelled(grown, pipelines, grown.label_names, grown.display_names)
    if changed.tail_ranking is not None and n_texts:
        counts = counts + np.bincount(lesson.labels.values, minlength=len(counts))
        inverse = changed.tail_ranking.arrays()["inverse_propensities"].copy()
        learning = lesson.learning
        inverse[learning] = 1 / propensities(counts[learning], n_texts)
        changed.tail_ranking = TailRanking({"inverse_propensities": inverse}, changed.tail_ranking.config())
    return changed


def with_new(model: Model, names: dict[str, str], texts: Texts) -> Model:
    """The model with the words and the labels that are new."""
    if model.vocabulary is not None:
        limits = *word_limits(model), model.options.get("min_count", 1), MIN_SUBWORD_COUNT
        pipelines = [with_more_words(pipeline, texts, *limits) for pipeline in model.pipelines]
        model = relabelled(model, pipelines, model.label_names, model.display_names)
    return model.add_labels(names) if names else model


def label_counts(model: Model) -> np.ndarray:
    """The number of texts that each label was learnt from, computed from its propensity."""
    n_texts = model.facts.get("data", {}).get("texts", 0)
    if model.tail_ranking is None:
        return np.zeros(model.n_labels, np.int64)
    return frequencies_of(1 / model.tail_ranking.arrays()["inverse_propensities"], n_texts)


def known_by_name(model: Model) -> np.ndarray:
    """Which labels were added by name, and have had no text since."""
    reranker = model.pipelines[0].reranker
    if not isinstance(reranker, Reranker):
        return np.zeros(model.n_labels, bool)
    return np.asarray(reranker.arrays()["frequencies"] == 0)


def inputs_of(dataset: Dataset) -> Any:
    return dataset.texts if dataset.features is None else dataset.features


def refresh(before: Model, model: Model, held_out: Dataset) -> dict[str, Any]:
    """Fit calibration and threshold of the model again, on new texts that it has not learnt from; what they showed."""
    inputs, labels = inputs_of(held_out), right(held_out)
    ids, scores = model.raw_rank(inputs, RANKS)
    hits = is_relevant(ids, labels, model.n_labels)[:, :CALIBRATED_RANKS]
    first = is_relevant(before.raw_rank(inputs, 1)[0], labels, model.n_labels)
    facts: dict[str, Any] = {
        "held_out_texts": len(held_out),
        "P@1_before": round(100 * float(first.mean()), 2),
        "P@1": round(100 * float(hits[:, 0].mean()), 2),
    }
    scores, known = np.where(ids >= 0, scores, 0), model.known_share(inputs)
    prior = RERANKED if isinstance(model.pipelines[0].reranker, Reranker) else ANY_SCORES
    fitted, _, unseen = fit_calibration(scores, hits, known, prior)
    as_before = model.calibrated(inputs, scores, how=RankOptions(RANKS))[:, :CALIBRATED_RANKS]
    losses = [float(((guesses - hits) ** 2).mean()) for guesses in (as_before, unseen)]
    facts["calibration"] = "refreshed" if losses[1] < losses[0] else "kept"
    if losses[1] < losses[0]:
        model.calibration = fitted
    goal = model.facts.get("threshold", {}).get("options")
    if goal and model.thresholds is not None:
        from shortlist.model.choosing import choose_and_store

        own, k = bool(model.facts["threshold"]["labels_with_own"]), model.facts["threshold"]["k"]
        texts = replace(held_out, labels=labels)
        table = choose_and_store(model, texts, Goal(**goal), own, k, None)
        facts["threshold"] = "refreshed" if table.reached else "kept"
    log.info("update: %s", ", ".join(f"{name} {value}" for name, value in facts.items()))
    return facts
