"""How far a number would move with other texts of the same kind: the bootstrap over texts.

Texts are drawn with replacement; a resample is then nothing but a count for each text, and all metrics
of many resamples are one matrix product. Numerators and denominators are summed apart, so that metrics
which are ratios of sums (PSP, PSnDCG) are resampled as such.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from shortlist.errors import OptionError
from shortlist.evaluation.metrics import PerText
from shortlist.progress import Progress

LEVEL = 0.95
CELLS_AT_ONCE = 8_000_000  # counts held at a time: 64 MB


def resample(shares: Mapping[str, PerText], resamples: int, seed: int) -> dict[str, np.ndarray]:
    """Each metric's value on every resample; the same seed draws the same texts."""
    if resamples < 1:
        raise OptionError(f"resamples must be at least 1, not {resamples}")
    n_texts = len(next(iter(shares.values())).score)
    ones = np.ones(n_texts)
    columns = np.stack(
        [part for one in shares.values() for part in (one.score, ones if one.best is None else one.best)]
    )
    rng = np.random.default_rng(seed)
    at_once = max(1, min(resamples, CELLS_AT_ONCE // n_texts))
    sums = np.empty((resamples, len(columns)))
    with Progress("bootstrap", total=resamples, unit="resamples") as progress:
        for start in range(0, resamples, at_once):
            block = sums[start : start + at_once]
            counts = np.empty((len(block), n_texts))
            for row in counts:
                row[:] = np.bincount(rng.integers(n_texts, size=n_texts), minlength=n_texts)
            block[:] = counts @ columns.T
            progress.advance(len(block))
    scores, wholes = sums[:, 0::2], sums[:, 1::2]
    values = np.divide(scores, wholes, out=np.zeros_like(scores), where=wholes > 0)
    return dict(zip(shares, values.T, strict=True))


def percentile_interval(values: np.ndarray, level: float = LEVEL) -> tuple[float, float]:
    """The middle part of the resampled values that holds this share of them."""
    low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def two_sided_p(differences: np.ndarray) -> float:
    """How readily the resampled differences fall on the other side of zero; never quite 0."""
    other_side = min(int((differences <= 0).sum()), int((differences >= 0).sum()))
    return min(1.0, 2 * (1 + other_side) / (1 + len(differences)))
