"""Measuring: how good predictions are, the same for everybody; and how quick a model of ours is."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from shortlist.compare.parts import Parts
from shortlist.compare.peers.run_peer import TIMED_PLACES
from shortlist.evaluation import evaluate
from shortlist.evaluation.bootstrap import percentile_interval, resample
from shortlist.evaluation.calibration import is_relevant, reliability_and_error
from shortlist.evaluation.filters import is_filtered
from shortlist.evaluation.metrics import per_text
from shortlist.model.base import Model

KS = (1, 3, 5)
FAMILIES = ("P", "N", "PSP", "PSN", "R")
METRICS = tuple(f"{family}@{k}" for family in FAMILIES for k in KS)
DISTURBED_METRICS = tuple(f"{family}@{k}" for family in ("P", "PSP") for k in KS)
WARM_UP = 20


class Convention(msgspec.Struct, frozen=True):
    """How predictions are measured. Labels that do not occur in training are ignored, whatever is set here."""

    a: float = 0.55
    b: float = 1.5
    resamples: int = 1000
    seed: int = 0
    version: int = 2  # of this module: rows that another one measured are measured anew


def scores_of(
    ids: np.ndarray, parts: Parts, convention: Convention
) -> tuple[dict[str, float], dict[str, np.ndarray], list[dict[str, Any]]]:
    """Each metric in per cent; its values on resamples of the texts; and which labels, by frequency, earn P@k.

    Resamples are the same for all systems that are measured on the same texts, so that differences can be taken.
    """
    found = _evaluated(ids, parts, convention)
    shares = {name: share for name, share in per_text(found.hits, KS).items() if name in METRICS}
    resampled = {name: 100 * values for name, values in resample(shares, convention.resamples, convention.seed).items()}
    quantiles = [
        {"labels": one.labels, "from": one.lowest, "to": one.highest, **one.contributions} for one in found.quantiles
    ]
    return {name: found[name] for name in METRICS}, resampled, quantiles


def disturbed_scores(ids: np.ndarray, parts: Parts, convention: Convention) -> dict[str, float]:
    """The metrics of predictions for disturbed texts."""
    found = _evaluated(ids, parts, convention)
    return {name: found[name] for name in DISTURBED_METRICS}


def _evaluated(ids: np.ndarray, parts: Parts, convention: Convention) -> Any:
    train, test = parts.train, parts.test
    return evaluate(
        ids,
        test.labels,
        train=(train.label_frequencies, len(train)),
        k=KS,
        filter_pairs=test.filter_pairs,
        unseen="ignore",
        a=convention.a,
        b=convention.b,
    )


def calibration_on_test(predictions: dict[str, np.ndarray], parts: Parts) -> dict[str, Any]:
    """What scores turned out to mean, if they can be meant as probabilities."""
    ids, scores = (predictions[name][:, : max(KS)] for name in ("ids", "scores"))
    counts = (ids >= 0) & (parts.test.labels.counts > 0)[:, None]
    if parts.test.filter_pairs is not None:
        counts &= ~is_filtered(ids, parts.test.filter_pairs)
    return reliability_and_error(scores[counts], is_relevant(ids, parts.test.labels, parts.train.n_labels)[counts])


def intervals_of(resampled: dict[str, np.ndarray]) -> dict[str, tuple[float, float]]:
    return {name: percentile_interval(values) for name, values in resampled.items()}


def one_at_a_time(model: Model, inputs: Sequence[Any]) -> list[float]:
    """Milliseconds from each input to its labels, by name where it is a text, one after the other, on one thread."""
    times = []
    for i, one in enumerate([*inputs[:WARM_UP], *inputs]):
        start = time.perf_counter()
        if isinstance(one, str):
            model.predict(one, k=TIMED_PLACES, threads=1)
        else:
            model.rank(one, k=TIMED_PLACES, threads=1)
        if i >= min(WARM_UP, len(inputs)):
            times.append(1000 * (time.perf_counter() - start))
    return times
