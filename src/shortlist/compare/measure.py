"""Measures predictions, the same way for every system: metrics, intervals, calibration, differences to the best.

Metrics are stored for the same bootstrap resamples of the test texts for all systems. A paired difference is then a
subtraction, and adding an entry does not require resampling the others. `shortlist.evaluation.compare` gives the same
numbers for two systems. p-values are not corrected for the number of systems.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np

from shortlist.compare.results import Entry
from shortlist.compare.splits import PERTURBATIONS, Splits
from shortlist.evaluation import Evaluation, evaluate
from shortlist.evaluation.bootstrap import percentile_interval, resample, two_sided_p
from shortlist.evaluation.calibration import is_relevant, reliability_and_error
from shortlist.evaluation.filters import is_filtered
from shortlist.evaluation.metrics import per_text
from shortlist.evaluation.overlap import Unseen

KS = (1, 3, 5)
METRICS = tuple(f"{family}@{k}" for family in ("P", "N", "PSP", "PSN", "R") for k in KS)
PERTURBED_METRICS = tuple(f"{family}@{k}" for family in ("P", "PSP") for k in KS)


class Convention(msgspec.Struct, frozen=True):
    """How predictions are measured. `unseen` says whether labels that do not occur in training count."""

    unseen: Unseen = "count"
    a: float = 0.55
    b: float = 1.5
    resamples: int = 1000
    seed: int = 0
    version: int = 4  # of this module; entries of another version are measured again


def measure(
    entry: Entry, predictions: Mapping[str, np.ndarray], splits: Splits, convention: Convention
) -> dict[str, np.ndarray]:
    """Measure predictions: fill in the entry, and return each metric on the resamples."""
    found = _evaluate(predictions["ids"], splits, convention)
    assert found.hits is not None
    per_text_shares = {name: share for name, share in per_text(found.hits, KS).items() if name in METRICS}
    drawn = resample(per_text_shares, convention.resamples, convention.seed)
    resampled = {name: 100 * values for name, values in drawn.items()}
    entry.scores = {name: found[name] for name in METRICS}
    entry.intervals = {name: percentile_interval(values) for name, values in resampled.items()}
    entry.ceilings = {name: found.ceilings[name] for name in METRICS}
    entry.by_quantile = contributions(found)
    entry.calibration |= _calibration(predictions["ids"], predictions["scores"], splits, convention)
    for kind in PERTURBATIONS:
        if f"{kind}.ids" in predictions:
            perturbed = _evaluate(predictions[f"{kind}.ids"], splits, convention)
            entry.robustness[kind] = {name: perturbed[name] for name in PERTURBED_METRICS}
    entry.measured_with = msgspec.to_builtins(convention)
    return resampled


def contributions(found: Evaluation) -> list[dict[str, Any]]:
    """The contribution of the labels of each range of frequencies to P@k."""
    return [
        {"labels": part.labels, "from": part.lowest, "to": part.highest, **part.contributions}
        for part in found.quantiles
    ]


def _evaluate(ids: np.ndarray, splits: Splits, convention: Convention) -> Evaluation:
    truth = splits.truth
    frequencies = splits.train.label_frequencies
    return evaluate(
        ids,
        truth.labels,
        train=(np.pad(frequencies, (0, truth.n_labels - len(frequencies))), len(splits.train)),
        k=KS,
        filter_pairs=truth.filter_pairs,
        unseen=convention.unseen,
        a=convention.a,
        b=convention.b,
    )


def _calibration(ids: np.ndarray, scores: np.ndarray, splits: Splits, convention: Convention) -> dict[str, Any]:
    """How scores relate to precision on the test texts, if they can be probabilities."""
    test = splits.truth if convention.unseen == "count" else splits.test
    ids, scores = ids[:, : max(KS)], scores[:, : max(KS)]
    counts = (ids >= 0) & (test.labels.counts > 0)[:, None]
    if test.filter_pairs is not None:
        counts &= ~is_filtered(ids, test.filter_pairs)
    return reliability_and_error(scores[counts], is_relevant(ids, test.labels, test.n_labels)[counts])


def best_systems(scores: Mapping[str, Mapping[str, float]]) -> dict[str, str]:
    """The system with the highest value of each metric; the first one if several are equal.

    >>> best_systems({"one": {"P@1": 50.0}, "other": {"P@1": 51.0}})
    {'P@1': 'other'}
    """
    metrics = dict.fromkeys(metric for values in scores.values() for metric in values)
    return {metric: max(scores, key=lambda name: scores[name].get(metric, -np.inf)) for metric in metrics}


def differences_to_best(
    scores: Mapping[str, Mapping[str, float]], resampled: Mapping[str, Mapping[str, np.ndarray]]
) -> dict[str, dict[str, dict[str, float]]]:
    """By system and metric: the difference to the best system, with its 95 % interval and p-value (paired bootstrap).

    The best system itself is left out.
    """
    differences: dict[str, dict[str, dict[str, float]]] = {name: {} for name in scores}
    for metric, best in best_systems(scores).items():
        for name in scores:
            if name != best and metric in scores[name]:
                drawn = resampled[name][metric] - resampled[best][metric]
                low, high = percentile_interval(drawn)
                difference = {"difference": scores[name][metric] - scores[best][metric], "low": low, "high": high}
                differences[name][metric] = difference | {"p": two_sided_p(drawn)}
    return differences
