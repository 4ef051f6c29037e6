"""Measures one model for its report: an entry as in a comparison, and where the model goes wrong.

Scores use all test texts. Latency, robustness and examples use a sample drawn with the seed, and the report says so.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from shortlist.arrays import Ragged, random_generator
from shortlist.compare.machine import machine_facts
from shortlist.compare.measure import contributions
from shortlist.compare.peers.run_peer import measure_latency
from shortlist.compare.results import Entry
from shortlist.data.dataset import Dataset
from shortlist.data.describe import words_per_text
from shortlist.errors import DataError
from shortlist.evaluation import evaluate
from shortlist.evaluation.calibration import is_relevant, reliability_and_error
from shortlist.evaluation.filters import pair_keys, places_needed, unfiltered
from shortlist.evaluation.overlap import Unseen, find_leaks
from shortlist.evaluation.thresholds import (
    Judged,
    ThresholdRow,
    passing_row,
    risk_coverage,
    shown_thresholds,
    threshold_row,
)
from shortlist.model.model import Model
from shortlist.text import Tokenizer
from shortlist.text.perturb import PERTURBATIONS, perturb

K = 5
LATENCY_TEXTS = 500
ROBUSTNESS_TEXTS = 2000
EXAMPLES = 4  # of each kind
MISTAKES, WORST_LABELS, CONFUSIONS = 20, 15, 15
MIN_LABEL_TEXTS = 5  # test texts that a label needs to be reported as often missed
SHOWN_LABELS = 5  # true labels of a text that are named


class BadLabel(NamedTuple):
    """A label that is found, or wrong, in `n_counted` of `total` texts."""

    name: str
    training_texts: int | None
    total: int
    n_counted: int
    percentage: str


class Confusion(NamedTuple):
    """A true label that is not among the K best, and the wrong label that is ranked first."""

    label: str
    predicted: str
    texts: int
    example: str


class Mistake(NamedTuple):
    """A wrong first label with a high score."""

    text: str
    predicted: str
    score: float
    labels: str


@dataclass
class Measurements:
    """Everything that a model report shows."""

    entry: Entry
    card: dict[str, Any]
    machine: dict[str, Any]
    n_texts: int
    n_labels: int
    n_scored_texts: int
    n_left_out: int  # texts whose labels all do not count
    n_timed_texts: int
    words: dict[str, Any] | None  # histogram of words per text
    overlap_notes: list[str]  # leaks and unseen labels
    notes: list[str]
    missed_labels: list[BadLabel]
    overpredicted_labels: list[BadLabel]
    confusions: list[Confusion]
    confident_mistakes: list[Mistake]
    examples: dict[str, list[dict[str, Any]]]
    thresholds: list[ThresholdRow]
    threshold: ThresholdRow | None  # the model's own, if it has one
    risk_coverage: list[tuple[float, float]]


def measure_model(
    model: Model,
    test: Dataset,
    train: Dataset | None = None,
    *,
    name: str = "",
    unseen: Unseen = "count",
    drop_leaks: bool = False,
    seed: int = 0,
    threads: int | None = None,
) -> Measurements:
    """Measure a model on the test part.

    train       training part, for propensities, label frequencies, leaks and unseen labels
    name        name of the model in the report; its title by default
    unseen      whether labels that do not occur in the training part count as misses or are ignored
    drop_leaks  whether to leave out test texts that also occur in the training part
    seed        random seed for samples and perturbed texts
    threads     number of threads; all cores by default
    """
    if not len(test) or not len(test.labels.values):
        raise DataError("there is nothing to report on: the test data has no text with a label")
    rng = random_generator(seed)
    model.warm_up()
    start = time.perf_counter()
    predicted = model.predict_dataset(test, places_needed(K, test.filter_pairs), threads)
    seconds = time.perf_counter() - start
    texts_per_second = len(test) / seconds
    result = evaluate(predicted, test, train=train, unseen=unseen, drop_leaks=drop_leaks, intervals=True, seed=seed)
    if drop_leaks:
        leaks = find_leaks(test, train)
        assert leaks is not None  # evaluate has refused data without texts
        test, predicted = test.take(~leaks), predicted.take(~leaks)
    timed = rng.choice(len(test), min(LATENCY_TEXTS, len(test)), replace=False).tolist()
    inputs = [test.texts[row] if test.features is None else test.features[[row]] for row in timed]
    predict = model.predict if test.features is None else model.rank
    # One text at a time on one core, from the text to the names of its labels.
    latency = measure_latency(lambda one: predict(one, K, threads=1), inputs)
    machine = machine_facts()
    ranking = _rank(model, test, predicted, train)
    ranked, scored = ranking.ids >= 0, (ranking.ids, ranking.scores)
    judged = Judged(*scored, ranking.correct, test.labels.counts)
    on_test = reliability_and_error(ranking.scores[ranked], ranking.correct[ranked])
    entry = Entry(
        name=name or model.title,
        scores=result.values,
        intervals=result.intervals,
        ceilings=result.ceilings,
        by_quantile=contributions(result),
        ms_p50=latency["ms_p50"],
        ms_p99=latency["ms_p99"],
        bulk_texts_per_second=texts_per_second,
        model_bytes=model.card.get("size_bytes"),
        # An ensemble shows the training of its first member.
        curves=model.records,
        calibration=(model.card.get("calibration") or {}) | on_test,
    )
    words, examples = None, {}
    if test.features is None:
        entry.robustness = _robustness(model, test, train, unseen, seed, threads)
        tokenizer = model.tokenizer or Tokenizer()
        words = words_per_text(tokenizer.split_texts(test.texts)[2]) | {"texts": "test"}
        examples = _examples(ranking, rng)
    return Measurements(
        entry=entry,
        card=model.card,
        machine=machine,
        n_texts=len(test),
        n_labels=test.n_labels,
        n_scored_texts=result.texts,
        n_left_out=result.left_out,
        n_timed_texts=len(timed),
        words=words,
        overlap_notes=result.overlap_notes,
        notes=result.notes + (_unknown_labels(ranking) if train is None else []),
        missed_labels=_missed_labels(ranking),
        overpredicted_labels=_overpredicted_labels(ranking),
        confusions=_confusions(ranking),
        confident_mistakes=_confident_mistakes(ranking),
        examples=examples,
        thresholds=[threshold_row(judged, min_score) for min_score in shown_thresholds(judged)],
        threshold=None if model.thresholds is None else passing_row(judged, model.thresholds.passes(*scored)),
        risk_coverage=risk_coverage(judged),
    )


def _robustness(
    model: Model, test: Dataset, train: Dataset | None, unseen: Any, seed: int, threads: int | None
) -> dict[str, Any]:
    """Scores on a sample of the texts: the original ones, and perturbed in each way."""
    sample = test.take(np.sort(random_generator(seed).permutation(len(test))[:ROBUSTNESS_TEXTS]))
    texts = list(sample.texts)
    # Without its texts: looking for leaks once is enough.
    frequencies = None
    if train is not None:
        frequencies = dict(zip(train.label_names, train.label_frequencies.tolist(), strict=True)), len(train)
    scores: dict[str, Any] = {"texts": len(sample)}
    for how in ("original", *PERTURBATIONS):
        if how != "original":
            sample.texts = perturb(texts, how, seed, model.tokenizer)
        try:
            result = evaluate(model.predict_dataset(sample, K, threads), sample, train=frequencies, unseen=unseen)
        except DataError:  # no label of the sample occurs in the training part
            return {}
        scores[how] = result.values
    return scores


@dataclass(eq=False)
class _Ranking:
    """The K best labels of each test text, as ids of the model's labels (-1: none), and which of them are correct."""

    model: Model
    test: Dataset
    ids: np.ndarray
    scores: np.ndarray
    correct: np.ndarray
    truth: Ragged  # ids of the model's labels, without those that it does not know
    frequencies: np.ndarray | None  # training texts of each of the model's labels

    def text(self, row: int) -> str:
        return self.test.texts[row] if self.test.features is None else f"row {row}"

    def name(self, label: str) -> str:
        return self.test.display_names.get(label) or self.model.display_names.get(label, label)

    def name_of(self, label_id: int) -> str:
        return self.name(self.model.label_names[label_id])

    def true_names(self, row: int) -> list[str]:
        names = [self.name(label) for label in self.test.labels_of(row)]
        return names if len(names) <= SHOWN_LABELS else [*names[:SHOWN_LABELS], f"{len(names) - SHOWN_LABELS} more"]

    def bad_labels(self, label_ids: np.ndarray, totals: np.ndarray, counts: np.ndarray) -> list[BadLabel]:
        labels = []
        for label_id in label_ids.tolist():
            frequency = None if self.frequencies is None else int(self.frequencies[label_id])
            total, count = int(totals[label_id]), int(counts[label_id])
            labels.append(BadLabel(self.name_of(label_id), frequency, total, count, f"{100 * count / total:.0f} %"))
        return labels


def _rank(model: Model, test: Dataset, predicted: Dataset, train: Dataset | None) -> _Ranking:
    counts = predicted.labels.counts
    filled = np.arange(max(int(counts.max(initial=0)), 1)) < counts[:, None]
    ids, scores = np.full(filled.shape, -1, np.int64), np.zeros(filled.shape, np.float32)
    ids[filled], scores[filled] = predicted.labels.values, predicted.labels.weights
    known = test.relabelled(model.label_names)
    ids, scores = unfiltered(ids, scores, known.filter_pairs, K)  # such pairs are neither correct nor wrong
    correct = is_relevant(ids, known.labels, max(model.n_labels, 1))
    frequencies = None if train is None else train.relabelled(model.label_names).label_frequencies
    return _Ranking(model, test, ids, scores, correct, known.labels, frequencies)


def _unknown_labels(ranking: _Ranking) -> list[str]:
    given, known = ranking.test.labels.values, ranking.truth.values
    if len(given) == len(known):
        return []
    n_labels = len(np.unique(given)) - len(np.unique(known))
    return [f"The model does not know {n_labels:,} labels of the test texts ({len(given) - len(known):,} pairs)."]


def _missed_labels(ranking: _Ranking) -> list[BadLabel]:
    """Frequent labels that are among the K best for the smallest fraction of their texts."""
    n_labels = ranking.model.n_labels
    total = np.bincount(ranking.truth.values, minlength=n_labels)
    found = np.bincount(ranking.ids[ranking.correct], minlength=n_labels)
    frequent_from = max(MIN_LABEL_TEXTS, int(np.quantile(total[total > 0], 0.75))) if total.any() else MIN_LABEL_TEXTS
    frequent = np.flatnonzero(total >= frequent_from)
    order = frequent[np.lexsort((-total[frequent], found[frequent] / total[frequent]))][:WORST_LABELS]
    return ranking.bad_labels(order, total, found)


def _overpredicted_labels(ranking: _Ranking) -> list[BadLabel]:
    """Labels that are most often ranked first by mistake."""
    first, correct = ranking.ids[:, 0], ranking.correct[:, 0]
    total = np.bincount(first[first >= 0], minlength=ranking.model.n_labels)
    wrong = np.bincount(first[(first >= 0) & ~correct], minlength=ranking.model.n_labels)
    order = np.argsort(-wrong, kind="stable")[:WORST_LABELS]
    return ranking.bad_labels(order[wrong[order] > 0], total, wrong)


def _confusions(ranking: _Ranking) -> list[Confusion]:
    """The most frequent confusions."""
    rows, true = ranking.truth.row_ids, ranking.truth.values
    first = np.where(ranking.correct[:, 0], -1, ranking.ids[:, 0])
    missed = ~(ranking.ids[rows] == true[:, None]).any(axis=1)
    confused = (first[rows] >= 0) & missed
    rows, true = rows[confused], true[confused]
    _, pairs, counts = np.unique(pair_keys(true, first[rows]), return_index=True, return_counts=True)
    confusions = []
    for i in np.argsort(-counts, kind="stable")[:CONFUSIONS].tolist():
        row, label = int(rows[pairs[i]]), int(true[pairs[i]])
        if counts[i] > 1:
            names = ranking.name_of(label), ranking.name_of(int(first[row]))
            confusions.append(Confusion(*names, int(counts[i]), ranking.text(row)))
    return confusions


def _confident_mistakes(ranking: _Ranking) -> list[Mistake]:
    """The mistakes with the highest scores: errors of the model, or of the data."""
    first, scores = ranking.ids[:, 0], ranking.scores[:, 0]
    wrong = np.flatnonzero((first >= 0) & ~ranking.correct[:, 0] & (ranking.test.labels.counts > 0))
    order = wrong[np.argsort(-scores[wrong], kind="stable")][:MISTAKES]
    return [
        Mistake(ranking.text(row), ranking.name_of(first[row]), float(scores[row]), "; ".join(ranking.true_names(row)))
        for row in order.tolist()
    ]


def _examples(ranking: _Ranking, rng: np.random.Generator) -> dict[str, list[dict[str, Any]]]:
    """Random texts whose first label is correct, and others whose first label is wrong, with explanations."""
    first, usable = ranking.correct[:, 0], (ranking.truth.counts > 0) & (ranking.ids[:, 0] >= 0)
    examples: dict[str, list[dict[str, Any]]] = {}
    for kind, rows in (("correct", np.flatnonzero(first & usable)), ("wrong", np.flatnonzero(~first & usable))):
        examples[kind] = []
        for row in np.sort(rng.choice(rows, min(EXAMPLES, len(rows)), replace=False)).tolist():
            text, labels = ranking.test.texts[row], set(ranking.test.labels_of(row))
            predictions = ranking.model.predict(text, K, min_score=0, explain=True)
            correct = [prediction.label in labels for prediction in predictions]
            shown = {"text": text, "labels": ranking.true_names(row), "predictions": predictions, "correct": correct}
            examples[kind].append(shown)
    return examples
