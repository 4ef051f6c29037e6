"""What the report of one model is made from: one row as in a comparison, and where the model goes wrong.

Scores are measured on all test texts. What is costly, one text at a time or with explanations, is measured on a part
of them drawn by the seed, and the report says so.
"""

from __future__ import annotations

import os
import platform
import time
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from shortlist.arrays import Ragged
from shortlist.data.dataset import Dataset
from shortlist.data.histogram import words_per_text
from shortlist.errors import DataError
from shortlist.evaluation import Evaluation, evaluate
from shortlist.evaluation.calibration import is_relevant, reliability_and_error
from shortlist.evaluation.filters import is_filtered, pair_keys, places_needed
from shortlist.model.base import Model
from shortlist.text import Tokenizer
from shortlist.text.perturb import PERTURBATIONS, perturb

PLACES = 5
LATENCY_TEXTS, WARM_UP_TEXTS = 500, 20
DISTURBED_TEXTS = 2000
EXAMPLES = 4  # of each kind
MISTAKES, WORST, CONFUSIONS = 20, 15, 15
FEWEST = 5  # test texts that a label must have to be called bad
MOST_SHOWN = 5  # true labels of a text that are named


@dataclass
class Found:
    """Everything the report shows, before it is put into words."""

    row: dict[str, Any]
    test: dict[str, Any]
    card: dict[str, Any]
    words: dict[str, Any] | None
    notes: list[str]
    worst_labels: list[dict[str, Any]]
    wrong_labels: list[dict[str, Any]]
    confusions: list[dict[str, Any]]
    mistakes: list[dict[str, Any]]
    examples: dict[str, list[dict[str, Any]]]


def measure_model(
    model: Model,
    test: Dataset,
    train: Dataset | None = None,
    *,
    name: str = "",
    unseen: Literal["count", "ignore"] = "count",
    seed: int = 0,
    threads: int | None = None,
) -> Found:
    """Measure a model on the test part; with the training part also by label frequency and propensity."""
    if not len(test) or not len(test.labels.values):
        raise DataError("there is nothing to report on: the test data has no text with a label")
    rng = np.random.default_rng(seed)
    name = name or model.title
    inputs = test.texts if test.features is None else test.features
    filtered = test.filter_pairs
    places = places_needed(PLACES, filtered)
    model.warm_up()
    start = time.perf_counter()
    predicted = model.predict_dataset(test, places, threads)
    seconds = time.perf_counter() - start
    result = evaluate(predicted, test, train=train, unseen=unseen, intervals=True, seed=seed)
    ranked = _Ranked.of(model, test, predicted, train)
    row = {
        "name": name,
        "kind": "recipe",
        "status": "done",
        **_row_of(result),
        **_latency(model, test, rng),
        "bulk_texts_per_second": len(test) / seconds,
        "model_bytes": model.card.get("size_bytes"),
        "curves": _curves(model),
        "calibration": _calibration(model, ranked),
    }
    words = None
    if test.features is None:
        row["robustness"] = _robustness(model, test, train, unseen, seed, threads)
        tokenizer = model.tokenizer or Tokenizer()
        words = words_per_text(tokenizer.split_texts(inputs)[2]) | {"texts": "test"}
    return Found(
        row=row,
        test={"texts": len(test), "labels": test.n_labels, "left_out": result.left_out, "counted": result.texts},
        card=model.card,
        words=words,
        notes=result.notes + ranked.unknown_notes(),
        worst_labels=ranked.worst_labels(),
        wrong_labels=ranked.wrong_labels(),
        confusions=ranked.confusions(),
        mistakes=ranked.mistakes(),
        examples=_examples(model, ranked, rng) if test.features is None else {},
    )


def _row_of(result: Evaluation) -> dict[str, Any]:
    return {
        "scores": result.values,
        "intervals": result.intervals,
        "by_quantile": [
            {"labels": part.labels, "from": part.lowest, "to": part.highest, **part.contributions}
            for part in result.quantiles
        ],
    }


def _curves(model: Model) -> list[dict[str, Any]]:
    """The records of its training; of an ensemble, those of the first member."""
    one = getattr(model, "members", [model])[0]
    return getattr(one, "records", [])


def _latency(model: Model, test: Dataset, rng: np.random.Generator) -> dict[str, Any]:
    """Milliseconds for one text at a time on one core, text in, names out; and how busy the machine was meanwhile."""
    rows = rng.choice(len(test), min(LATENCY_TEXTS, len(test)), replace=False).tolist()
    if test.features is None:
        texts = [test.texts[row] for row in rows]

        def one(i: int) -> None:
            model.predict(texts[i], PLACES, threads=1)
    else:
        features = [test.features[[row]] for row in rows]

        def one(i: int) -> None:
            model.rank(features[i], PLACES, threads=1)

    for i in range(min(WARM_UP_TEXTS, len(rows))):
        one(i)
    times = []
    for i in range(len(rows)):
        start = time.perf_counter()
        one(i)
        times.append(1000 * (time.perf_counter() - start))
    median, slowest = np.percentile(times, [50, 99])
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    machine = {"processor": platform.machine(), "cores": os.cpu_count(), "load": load}
    return {"ms_p50": float(median), "ms_p99": float(slowest), "latency_texts": len(rows), "machine": machine}


def _calibration(model: Model, ranked: _Ranked) -> dict[str, Any]:
    """What scores mean on these texts, beside what the model's card says."""
    there = ranked.ids >= 0
    return (model.card.get("calibration") or {}) | reliability_and_error(ranked.scores[there], ranked.right[there])


def _robustness(
    model: Model, test: Dataset, train: Dataset | None, unseen: Any, seed: int, threads: int | None
) -> dict[str, Any]:
    rows = np.random.default_rng(seed).permutation(len(test))[:DISTURBED_TEXTS]
    sample = test.take(np.sort(rows))
    texts = [sample.texts[i] for i in range(len(sample))]
    found: dict[str, Any] = {"texts": len(sample)}
    for how in ("as written", *PERTURBATIONS):
        if how != "as written":
            sample.texts = perturb(texts, how, seed, model.tokenizer)
        try:
            result = evaluate(model.predict_dataset(sample, PLACES, threads), sample, train=train, unseen=unseen)
        except DataError:  # none of the labels drawn occurs in training
            return {}
        found[how] = result.values
    return found


def _examples(model: Model, ranked: _Ranked, rng: np.random.Generator) -> dict[str, list[dict[str, Any]]]:
    """Some texts whose first label is right and some whose is wrong, with what each word did."""
    first = ranked.right[:, 0]
    labelled = (ranked.truth.counts > 0) & (ranked.ids[:, 0] >= 0)
    found = {}
    for kind, rows in (("right", np.flatnonzero(first & labelled)), ("wrong", np.flatnonzero(~first & labelled))):
        chosen = np.sort(rng.choice(rows, min(EXAMPLES, len(rows)), replace=False)).tolist()
        found[kind] = [
            {"text": text, "labels": ranked.true_names(row), "predictions": model.predict(text, PLACES, explain=True)}
            for row in chosen
            for text in [ranked.test.texts[row]]
        ]
        for one, row in zip(found[kind], chosen, strict=True):
            one["right"] = [p.label in set(ranked.test.labels_of(row)) for p in one["predictions"]]
    return found


@dataclass(eq=False)
class _Ranked:
    """Predictions as ids of the model's labels, and which of them are right."""

    model: Model
    test: Dataset
    ids: np.ndarray
    scores: np.ndarray
    right: np.ndarray
    truth: Ragged  # over the model's labels; those it does not know are not in it
    seen: np.ndarray | None  # training texts of each of the model's labels

    @staticmethod
    def of(model: Model, test: Dataset, predicted: Dataset, train: Dataset | None) -> _Ranked:
        counts = predicted.labels.counts
        width = max(int(counts.max(initial=0)), 1)
        there = np.arange(width) < counts[:, None]
        ids, scores = np.full(there.shape, -1, np.int64), np.zeros(there.shape, np.float32)
        ids[there], scores[there] = predicted.labels.values, predicted.labels.weights
        known = test.relabelled(model.label_names)
        if known.filter_pairs is not None and len(known.filter_pairs):  # these do not count, neither right nor wrong
            ids[is_filtered(ids, known.filter_pairs)] = -1
        order = np.argsort(ids < 0, axis=1, kind="stable")[:, :PLACES]
        ids, scores = np.take_along_axis(ids, order, axis=1), np.take_along_axis(scores, order, axis=1)
        right = is_relevant(ids, known.labels, max(model.n_labels, 1))
        seen = None if train is None else train.relabelled(model.label_names).label_frequencies
        return _Ranked(model, test, ids, scores, right, known.labels, seen)

    def unknown_notes(self) -> list[str]:
        pairs = len(self.test.labels.values) - len(self.truth.values)
        if not pairs:
            return []
        labels = len(np.unique(self.test.labels.values)) - len(np.unique(self.truth.values))
        return [f"Labels of the test texts that the model does not know: {labels:,}, in {pairs:,} pairs."]

    def shown(self, label: int) -> str:
        name = self.model.label_names[label]
        return self.test.display_names.get(name) or self.model.display_names.get(name, name)

    def true_names(self, row: int) -> list[str]:
        names = [self.test.display_names.get(n) or self.model.display_names.get(n, n) for n in self.test.labels_of(row)]
        return names if len(names) <= MOST_SHOWN else [*names[:MOST_SHOWN], f"{len(names) - MOST_SHOWN} more"]

    def _in_training(self, label: int) -> int | None:
        return None if self.seen is None else int(self.seen[label])

    def worst_labels(self) -> list[dict[str, Any]]:
        """Labels of many test texts that are found in the fewest of them."""
        n_labels = self.model.n_labels
        true = np.bincount(self.truth.values, minlength=n_labels)
        found = np.bincount(self.ids[self.right], minlength=n_labels)
        enough = max(FEWEST, int(np.quantile(true[true > 0], 0.75))) if (true > 0).any() else FEWEST
        often = np.flatnonzero(true >= enough)
        often = often if len(often) else np.flatnonzero(true >= FEWEST)
        order = often[np.lexsort((-true[often], found[often] / true[often]))][:WORST]
        return [
            {
                "label": self.shown(label),
                "training": self._in_training(label),
                "texts": int(true[label]),
                "found": int(found[label]),
            }
            for label in order.tolist()
        ]

    def wrong_labels(self) -> list[dict[str, Any]]:
        """Labels that are put first most often without being right."""
        first, right = self.ids[:, 0], self.right[:, 0]
        there = first >= 0
        said = np.bincount(first[there], minlength=self.model.n_labels)
        wrong = np.bincount(first[there & ~right], minlength=self.model.n_labels)
        order = np.argsort(-wrong, kind="stable")[:WORST]
        return [
            {
                "label": self.shown(label),
                "training": self._in_training(label),
                "first": int(said[label]),
                "wrong": int(wrong[label]),
            }
            for label in order.tolist()
            if wrong[label] > 0
        ]

    def confusions(self) -> list[dict[str, Any]]:
        """Which label is put first where which other one is true and is not among the best; the commonest pairs."""
        first = np.where(self.right[:, 0], -1, self.ids[:, 0])
        rows = self.truth.row_ids
        missed = ~(self.ids[rows] == self.truth.values[:, None]).any(axis=1)
        kept = (first[rows] >= 0) & missed
        keys, places, counts = np.unique(
            pair_keys(self.truth.values[kept], first[rows[kept]]), return_index=True, return_counts=True
        )
        order = np.argsort(-counts, kind="stable")[:CONFUSIONS]
        texts = rows[kept]
        return [
            {
                "true": self.shown(int(keys[i] >> 32)),
                "said": self.shown(int(keys[i] & 0xFFFFFFFF)),
                "texts": int(counts[i]),
                "example": self.test.texts[int(texts[places[i]])] if self.test.features is None else "",
            }
            for i in order.tolist()
            if counts[i] > 1
        ]

    def mistakes(self) -> list[dict[str, Any]]:
        """First labels that are wrong although the model was sure: its errors, or the data's."""
        wrong = np.flatnonzero((self.ids[:, 0] >= 0) & ~self.right[:, 0] & (self.test.labels.counts > 0))
        order = wrong[np.argsort(-self.scores[wrong, 0], kind="stable")][:MISTAKES]
        return [
            {
                "text": self.test.texts[row] if self.test.features is None else f"row {row}",
                "said": self.shown(int(self.ids[row, 0])),
                "score": float(self.scores[row, 0]),
                "labels": self.true_names(row),
            }
            for row in order.tolist()
        ]
