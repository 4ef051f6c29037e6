"""The metrics of extreme classification over plain arrays: ids, ranked best first, against sets of true ids.

Everything follows from one pass that finds the hits; what each metric then means stands in docs/metrics.md.
Arrays are places × texts, so that a sum over the first k places runs along contiguous memory.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from shortlist.arrays import Ragged
from shortlist.errors import DataError, OptionError
from shortlist.kernels import metrics as kernels

DEFAULT_K = (1, 3, 5)
FAMILIES = ("P", "N", "PSP", "PSN", "R", "F1", "macro-F1", "coverage")


@dataclass(frozen=True, eq=False)
class Hits:
    """Which predictions are correct: row p of `ranked` and `correct` holds every text's p-th best label."""

    ranked: np.ndarray  # int32, places × texts; -1 is "nothing"
    correct: np.ndarray  # bool, places × texts
    n_true: np.ndarray  # int64, true labels of each text
    true_counts: np.ndarray  # int64, texts that each label truly belongs to
    gains: np.ndarray | None = None  # float64, what a hit of each label is worth: 1 / propensity; at -1 a zero
    best: np.ndarray | None = None  # float64, places × texts: the largest gains a text's truth offers

    @property
    def n_texts(self) -> int:
        return self.ranked.shape[1]


@dataclass(frozen=True, eq=False)
class PerText:
    """A metric's share of each text; the value is the mean, or sum / sum of the best where that is given."""

    score: np.ndarray
    best: np.ndarray | None = None

    @property
    def value(self) -> float:
        whole = float(len(self.score)) if self.best is None else float(self.best.sum())
        return float(self.score.sum()) / whole if whole else 0.0


def check_k(k: int | Iterable[int]) -> tuple[int, ...]:
    """The wanted cut-offs as ascending whole numbers, each once."""
    wanted = list(k) if isinstance(k, Iterable) else [k]
    if not wanted or any(not isinstance(one, int | np.integer) or one < 1 for one in wanted):
        raise OptionError(f"k must be one or more whole numbers from 1 upwards, such as (1, 3, 5), not {k!r}")
    return tuple(sorted({int(one) for one in wanted}))


def distinct_rows(rows: Ragged) -> Ragged:
    """The rows as sets: sorted, every value once."""
    values = rows.values.astype(np.int32)
    first = np.empty(len(values), np.bool_)
    kernels.sort_rows(rows.indptr, values, first)
    rows = Ragged(rows.indptr, values)
    return rows if first.all() else rows.keep(first)


def find_hits(
    predictions: np.ndarray, truth: Ragged, places: int, inverse_propensities: np.ndarray | None = None
) -> Hits:
    """Compare predictions (int array, texts × any width, best first, -1 = nothing) with the true ids.

    Only the first `places` columns are looked at. Labels predicted twice for a text count once.
    """
    if predictions.ndim != 2 or not np.issubdtype(predictions.dtype, np.integer):
        raise OptionError(
            "predictions must be a two-dimensional array of whole numbers (texts × places), "
            f"not {predictions.dtype} of shape {predictions.shape}"
        )
    n_texts = len(predictions)
    if n_texts != len(truth):
        raise DataError(f"there are predictions for {n_texts:,} texts but true labels for {len(truth):,}")
    if len(truth.values) and truth.values.min() < 0:
        raise DataError(f"true label ids must not be negative; there is a {truth.values.min()}")
    predictions = np.ascontiguousarray(predictions[:, :places], dtype=np.int32)
    truth = distinct_rows(truth)

    ranked = np.full((places, n_texts), kernels.NOTHING, np.int32)
    correct = np.zeros((places, n_texts), np.bool_)
    kernels.find_hits(predictions, truth.indptr, truth.values, ranked, correct)

    n_labels = 1 + max(int(ranked.max(initial=-1)), int(truth.values.max(initial=-1)))
    true_counts = np.bincount(truth.values, minlength=n_labels)
    if inverse_propensities is None:
        return Hits(ranked, correct, truth.counts, true_counts)
    if len(inverse_propensities) < n_labels:
        raise DataError(f"there are {len(inverse_propensities):,} propensities for {n_labels:,} labels")
    gains = np.append(np.asarray(inverse_propensities, np.float64), 0.0)  # -1, "nothing", finds the zero
    best = np.empty((places, n_texts), np.float64)
    kernels.best_gains(truth.indptr, truth.values, gains, best)
    return Hits(ranked, correct, truth.counts, true_counts, gains, best)


def discounts(k: int) -> np.ndarray:
    """What a hit at each of the first k places is worth in nDCG."""
    return 1.0 / np.log2(np.arange(2, k + 2))


def ideal_dcg(hits: Hits, k: int) -> np.ndarray:
    """The best DCG@k that each text's number of true labels allows; 1 where there are none."""
    reachable = np.concatenate([[1.0], np.cumsum(discounts(k))])
    return reachable[np.minimum(hits.n_true, k)]


def n_correct(hits: Hits, k: int) -> np.ndarray:
    return hits.correct[:k].sum(axis=0, dtype=np.int64)


def precision(hits: Hits, k: int) -> PerText:
    return PerText(n_correct(hits, k) / k)


def recall(hits: Hits, k: int) -> PerText:
    return PerText(n_correct(hits, k) / np.maximum(hits.n_true, 1))


def f1(hits: Hits, k: int) -> PerText:
    # The harmonic mean of c / k and c / t is 2 c / (k + t).
    return PerText(2 * n_correct(hits, k) / (k + hits.n_true))


def ndcg(hits: Hits, k: int) -> PerText:
    gained = sum_places(hits.correct[:k], discounts(k))
    return PerText(gained / ideal_dcg(hits, k))


def psp(hits: Hits, k: int) -> PerText:
    gained, best = propensity_scored(hits, k)
    weights = np.full(k, 1.0 / k)
    return PerText(sum_places(gained, weights), sum_places(best, weights))


def psndcg(hits: Hits, k: int) -> PerText:
    gained, best = propensity_scored(hits, k)
    ideal = ideal_dcg(hits, k)
    return PerText(sum_places(gained, discounts(k)) / ideal, sum_places(best, discounts(k)) / ideal)


def propensity_scored(hits: Hits, k: int) -> tuple[np.ndarray, np.ndarray]:
    """What was gained at each place, and what could have been."""
    if hits.gains is None or hits.best is None:
        raise OptionError("propensity-scored metrics need the labels' propensities: give the training data")
    return hits.gains[np.where(hits.correct[:k], hits.ranked[:k], kernels.NOTHING)], hits.best[:k]


def sum_places(array: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The weighted sum over places, in order: the same bits whatever the BLAS does."""
    total = np.zeros(array.shape[1])
    for place, weight in zip(array, weights, strict=False):
        total += weight * place
    return total


def macro_f1(hits: Hits, k: int) -> float:
    """The mean, over the labels that are true or predicted anywhere, of each label's F1."""
    predicted, correct = np.zeros_like(hits.true_counts), np.zeros_like(hits.true_counts)
    kernels.count_labels(hits.ranked[:k], hits.correct[:k], predicted, correct)
    present = predicted + hits.true_counts
    return float((2 * correct / np.maximum(present, 1)).sum() / max(np.count_nonzero(present), 1))


def coverage(hits: Hits, k: int) -> float:
    """The share of the labels in the truth that were correctly predicted at least once."""
    found = np.zeros(len(hits.true_counts), np.bool_)
    found[hits.ranked[:k][hits.correct[:k]]] = True
    return float(found.sum() / max(np.count_nonzero(hits.true_counts), 1))


def per_text(hits: Hits, ks: Iterable[int]) -> dict[str, PerText]:
    """Every metric that is made of shares of texts, by name ("P@1"); the others are not."""
    families = {"P": precision, "N": ndcg, "R": recall, "F1": f1}
    if hits.gains is not None:
        families |= {"PSP": psp, "PSN": psndcg}
    return {f"{family}@{k}": metric(hits, k) for family, metric in families.items() for k in ks}


def measure(hits: Hits, k: int | Iterable[int] = DEFAULT_K) -> dict[str, float]:
    """Every metric by name, from 0 to 1."""
    ks = check_k(k)
    values = {name: shares.value for name, shares in per_text(hits, ks).items()}
    for one in ks:
        values[f"macro-F1@{one}"] = macro_f1(hits, one)
        values[f"coverage@{one}"] = coverage(hits, one)
    order = [f"{family}@{one}" for family in FAMILIES for one in ks]
    return {name: values[name] for name in order if name in values}
