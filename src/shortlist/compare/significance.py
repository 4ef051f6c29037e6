"""Is a system really behind the best, or were the texts unkind to it? Paired bootstrap, from stored resamples.

Every system's metrics are stored for the same resamples of the test texts. A difference on a resample is then a
subtraction, and nothing has to be drawn again when a row is added. `shortlist.evaluation.compare` gives the same
numbers for two systems. No correction is made for the number of systems that are compared.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from shortlist.evaluation.bootstrap import percentile_interval, two_sided_p

Scores = Mapping[str, float]


def best_of_each(scores: Mapping[str, Scores]) -> dict[str, str]:
    """For each metric the system with the highest value, of equals the first.

    >>> best_of_each({"one": {"P@1": 50.0}, "other": {"P@1": 51.0}})
    {'P@1': 'other'}
    """
    metrics = dict.fromkeys(metric for of_one in scores.values() for metric in of_one)
    return {metric: max(scores, key=lambda name: scores[name].get(metric, -np.inf)) for metric in metrics}


def differences_to_best(
    scores: Mapping[str, Scores], resampled: Mapping[str, Mapping[str, np.ndarray]]
) -> dict[str, dict[str, dict[str, float]]]:
    """By system and metric: the difference to the best one, its 95 % interval and p-value; not for the best itself."""
    best = best_of_each(scores)
    differences: dict[str, dict[str, dict[str, float]]] = {name: {} for name in scores}
    for name, of_one in scores.items():
        for metric, value in of_one.items():
            leader = best[metric]
            if leader == name:
                continue
            moved = resampled[name][metric] - resampled[leader][metric]
            low, high = percentile_interval(moved)
            differences[name][metric] = {
                "difference": value - scores[leader][metric],
                "low": low,
                "high": high,
                "p": two_sided_p(moved),
            }
    return differences
