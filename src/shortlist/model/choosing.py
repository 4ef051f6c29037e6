"""Choosing the thresholds of a model on texts with known labels."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np

from shortlist.data.dataset import Dataset
from shortlist.data.read import read
from shortlist.errors import DataError
from shortlist.evaluation.calibration import is_relevant
from shortlist.evaluation.filters import places_needed, unfiltered, without_pairs
from shortlist.evaluation.goals import Goal
from shortlist.evaluation.thresholds import Judged, ThresholdTable, choose_threshold
from shortlist.model.checks import check_same_fields
from shortlist.model.model import Model
from shortlist.stages.thresholds import Thresholds

log = logging.getLogger("shortlist")


def choose_and_store(
    model: Model, data: Any, goal: Goal, per_label: bool, k: int, threads: int | None
) -> ThresholdTable:
    """Choose the thresholds for this goal, and store them unless it cannot be reached."""
    dataset = data if isinstance(data, Dataset) else read(data, **model.reading)
    if not len(dataset.labels.values):
        raise DataError("there is nothing to choose a threshold on: the data has no text with a label")
    table = choose_threshold(judge(model, dataset, k, threads), goal, model.label_names, per_label)
    if not table.reached:
        log.warning("nothing is stored: %s", table.outcome())
        return table
    of_labels = None
    if table.label_min_scores:
        of_labels = np.full(model.n_labels, table.min_score, np.float32)
        id_of = {label: i for i, label in enumerate(model.label_names)}
        of_labels[[id_of[label] for label in table.label_min_scores]] = list(table.label_min_scores.values())
    model.thresholds = Thresholds.of(table.min_score, of_labels)
    in_use = table.with_own or table.chosen
    model.facts["threshold"] = {
        "goal": str(goal),
        "options": {name: value for name, value in vars(goal).items() if value is not None},
        "k": k,
        "texts": table.n_texts,
        "answered": round(in_use.answered.value, 4),
        "right": round(in_use.right.value, 4),
        "labels_with_own": len(table.label_min_scores),
    }
    return table


def judge(model: Model, dataset: Dataset, k: int, threads: int | None) -> Judged:
    """The k best labels of each text, whatever their score, and which of them are right."""
    known, labels, pairs = dataset.relabelled(model.label_names), dataset.labels, dataset.filter_pairs
    if pairs is not None:  # they are no true labels, either
        labels = without_pairs(labels, pairs)
    check_same_fields(dataset.text_fields, model.text_fields)
    inputs = dataset.texts if dataset.features is None else dataset.features
    ids, scores = model.rank(inputs, places_needed(k, known.filter_pairs), threads, min_score=0)
    ids, scores = unfiltered(ids, scores, known.filter_pairs, k)
    return Judged(ids, scores, is_relevant(ids, known.labels, model.n_labels), labels.counts)
