"""Confidence intervals and paired comparisons by bootstrap over texts.

A resample draws texts with replacement, so it is a count per text, and all metrics of many resamples are one matrix
product. Numerators and denominators are summed separately: PSP and PSN are ratios of sums.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from shortlist.arrays import random_generator
from shortlist.errors import OptionError
from shortlist.evaluation.metrics import PerText, per_text
from shortlist.progress import Progress
from shortlist.tables import Table, Tabular

if TYPE_CHECKING:
    from shortlist.evaluation.evaluation import Evaluation

CONFIDENCE_LEVEL = 0.95
MAX_COUNTS = 8_000_000  # counts in memory at a time: 64 MB


def resample(metrics: Mapping[str, PerText], resamples: int, seed: int) -> dict[str, np.ndarray]:
    """Return the value of each metric on every resample; the same seed draws the same texts."""
    if resamples < 1:
        raise OptionError(f"resamples must be at least 1, not {resamples}")
    n_texts = len(next(iter(metrics.values())).score)
    numerators = np.stack([metric.score for metric in metrics.values()])
    denominators = np.stack([np.ones(n_texts) if metric.best is None else metric.best for metric in metrics.values()])
    columns = np.concatenate([numerators, denominators]).T
    sums = np.empty((resamples, columns.shape[1]))
    rng = random_generator(seed)
    block_size = max(1, min(resamples, MAX_COUNTS // n_texts))
    with Progress("bootstrap", total=resamples, unit="resamples") as progress:
        for start in range(0, resamples, block_size):
            block = sums[start : start + block_size]
            draws = (rng.integers(n_texts, size=n_texts) for _ in block)
            block[:] = np.stack([np.bincount(texts, minlength=n_texts) for texts in draws]).astype(float) @ columns
            progress.advance(len(block))
    scores, best = sums[:, : len(metrics)], sums[:, len(metrics) :]
    values = np.divide(scores, best, out=np.zeros_like(scores), where=best > 0)
    return dict(zip(metrics, values.T, strict=True))


def percentile_interval(values: np.ndarray, level: float = CONFIDENCE_LEVEL) -> tuple[float, float]:
    """Return the central interval that contains this share of the resampled values."""
    low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def two_sided_p(differences: np.ndarray) -> float:
    """Return the two-sided p-value of resampled differences; never 0."""
    n_opposite = min(int((differences <= 0).sum()), int((differences >= 0).sum()))
    return min(1.0, 2 * (1 + n_opposite) / (1 + len(differences)))


@dataclass(frozen=True)
class Difference:
    """First minus second system in percentage points, with 95 % interval and two-sided p-value."""

    value: float
    low: float
    high: float
    p: float


@dataclass
class Comparison(Tabular):
    """`comparison["P@1"]` is a `Difference`; `print(comparison)` shows all metrics."""

    differences: dict[str, Difference]
    texts: int
    resamples: int

    def __getitem__(self, name: str) -> Difference:
        try:
            return self.differences[name]
        except KeyError:
            raise KeyError(f"{name!r} was not compared; available: {', '.join(self.differences)}") from None

    def to_json(self) -> dict[str, Any]:
        """Return plain dictionaries and numbers."""
        return asdict(self)

    def _render(self, table: Table) -> str:
        rows = [
            [name, f"{one.value:+.2f}", f"[{one.low:+.2f}, {one.high:+.2f}]", f"{one.p:.3f}"]
            for name, one in self.differences.items()
        ]
        return table(["%", "difference", "95 % interval", "p"], rows)


def compare(first: Evaluation, second: Evaluation, *, resamples: int = 1000, seed: int = 0) -> Comparison:
    """Compare two systems evaluated on the same texts: first minus second, by paired bootstrap.

    Both are measured on the same resamples, so that texts that are hard for both cancel out. Macro-F1 and coverage
    are not means over texts and are left out.

    first, second  results of `evaluate` with the same truth, train, unseen and filter_pairs
    resamples      number of bootstrap resamples
    seed           random seed

    >>> from shortlist.evaluation import evaluate
    >>> truth = [["hats"], ["shoes"]]
    >>> better, worse = evaluate([["hats"], ["shoes"]], truth), evaluate([["hats"], ["hats"]], truth)
    >>> compare(better, worse)["P@1"].value
    50.0
    """
    if not np.array_equal(first.hits.n_true, second.hits.n_true):
        raise OptionError(
            f"the two systems were not evaluated on the same truth ({first.texts:,} and {second.texts:,} texts): "
            "evaluate both with the same truth, train, unseen and filter_pairs"
        )
    ks = [k for k in first.k if k in second.k]
    firsts, seconds = per_text(first.hits, ks), per_text(second.hits, ks)
    names = [name for name in first.values if name in firsts and name in seconds]
    if not names:
        raise OptionError(f"the two systems have no metric in common: k is {first.k} and {second.k}")
    # The same seed draws the same texts for both, which pairs them.
    resampled = [resample({name: metrics[name] for name in names}, resamples, seed) for metrics in (firsts, seconds)]
    differences = {}
    for name in names:
        resampled_differences = 100 * (resampled[0][name] - resampled[1][name])
        value = 100 * (firsts[name].value - seconds[name].value)
        interval = percentile_interval(resampled_differences)
        differences[name] = Difference(value, *interval, two_sided_p(resampled_differences))
    return Comparison(differences, first.texts, resamples)
