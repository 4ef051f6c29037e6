"""The metrics of extreme classification over arrays: ranked label ids against sets of true ids.

One pass finds the hits, and all metrics follow from them; docs/metrics.md defines each one. Arrays are places × texts,
so that a sum over the first k places reads contiguous memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from shortlist.arrays import Ragged
from shortlist.errors import OptionError
from shortlist.evaluation.filters import contains
from shortlist.kernels import metrics as kernels
from shortlist.labels.hierarchy import Hierarchy

DEFAULT_K = (1, 3, 5)
FAMILIES = ("P", "N", "PSP", "PSN", "R", "F1", "macro-F1", "coverage", "hP", "hR", "hF1")
N_QUANTILES = 5


@dataclass(frozen=True, eq=False)
class Hits:
    """Which predictions are correct: row p of `ranked` and `correct` is the p-th best label of every text."""

    ranked: np.ndarray  # int32, places × texts; -1 for none
    correct: np.ndarray  # bool, places × texts
    n_true: np.ndarray  # int64, number of true labels of each text
    true_counts: np.ndarray  # int64, number of texts that each label is true for
    gains: np.ndarray | None = None  # float64, 1 / propensity of each label, then a zero for -1
    best_gains: np.ndarray | None = None  # float64, places × texts: the largest gains among the true labels
    # If true labels have weights, float64, places × texts: those of the predictions, 0 for wrong ones; and the largest.
    relevance: np.ndarray | None = None
    best_relevance: np.ndarray | None = None

    @property
    def n_texts(self) -> int:
        return self.ranked.shape[1]


@dataclass(frozen=True, eq=False)
class PerText:
    """A metric of each text. The value over all texts is the mean, or sum(score) / sum(best) if `best` is given."""

    score: np.ndarray
    best: np.ndarray | None = None

    @property
    def value(self) -> float:
        total = float(len(self.score)) if self.best is None else float(self.best.sum())
        return float(self.score.sum()) / total if total else 0.0


@dataclass(frozen=True)
class Quantile:
    """A fifth of the labels by training frequency, and its contribution to each P@k in per cent."""

    labels: int
    mean_frequency: float
    lowest: int
    highest: int
    contributions: dict[str, float]


def check_k(k: int | Iterable[int]) -> tuple[int, ...]:
    """Return the cut-offs in ascending order without duplicates."""
    ks = list(k) if isinstance(k, Iterable) else [k]
    if not ks or any(not isinstance(one, int | np.integer) or one < 1 for one in ks):
        raise OptionError(f"k must be one or more positive integers, such as (1, 3, 5), not {k!r}")
    return tuple(sorted({int(one) for one in ks}))


def sort_unique(rows: Ragged) -> Ragged:
    """Sort every row and remove duplicates. Of these, the first keeps its weight."""
    if rows.weights is not None:
        order = np.lexsort((rows.values, rows.row_ids))
        values, row_ids = rows.values[order], rows.row_ids
        is_first = np.append(True, (np.diff(values) != 0) | (np.diff(row_ids) != 0))[: len(values)]
        return Ragged(rows.indptr, values.astype(np.int32), rows.weights[order]).keep(is_first)
    values = rows.values.astype(np.int32)
    is_first = np.empty(len(values), np.bool_)
    kernels.sort_rows(rows.indptr, values, is_first)
    rows = Ragged(rows.indptr, values)
    return rows if is_first.all() else rows.keep(is_first)


def find_hits(
    predictions: np.ndarray, truth: Ragged, places: int, inverse_propensities: np.ndarray | None = None
) -> Hits:
    """Compare the first `places` columns of ranked ids (texts × K, -1 for none) with the true ids.

    A label that is predicted twice for a text counts once.
    """
    n_texts = len(predictions)
    predictions = np.ascontiguousarray(predictions[:, :places], dtype=np.int32)
    truth = sort_unique(truth)
    ranked = np.full((places, n_texts), kernels.NOTHING, np.int32)
    correct = np.zeros((places, n_texts), np.bool_)
    kernels.find_hits(predictions, truth.indptr, truth.values, ranked, correct)
    n_labels = 1 + max(int(ranked.max(initial=-1)), int(truth.values.max(initial=-1)))
    true_counts = np.bincount(truth.values, minlength=n_labels)
    graded = _relevance(ranked, correct, truth, n_labels)
    if inverse_propensities is None:
        return Hits(ranked, correct, truth.counts, true_counts, None, None, *graded)
    gains = np.append(np.asarray(inverse_propensities, np.float64), 0.0)
    best_gains = np.empty((places, n_texts), np.float64)
    kernels.best_gains(truth.indptr, truth.values, gains, best_gains)
    return Hits(ranked, correct, truth.counts, true_counts, gains, best_gains, *graded)


def _relevance(
    ranked: np.ndarray, correct: np.ndarray, truth: Ragged, n_labels: int
) -> tuple[np.ndarray | None, np.ndarray | None]:
    """The weight of each correct prediction, and the largest weights of each text (places × texts); None without."""
    if truth.weights is None or (truth.weights == 1).all():
        return None, None
    weights = np.maximum(truth.weights.astype(np.float64), 0)
    places, texts = np.nonzero(correct)
    at = np.searchsorted(truth.row_ids * n_labels + truth.values, texts * n_labels + ranked[places, texts])
    found, best = np.zeros(ranked.shape), np.empty(ranked.shape)
    found[places, texts] = weights[at]
    kernels.best_gains(truth.indptr, np.arange(len(weights), dtype=np.int32), weights, best)
    return found, best


def per_text(hits: Hits, ks: Iterable[int]) -> dict[str, PerText]:
    """Return the metrics that are means or ratios of sums over texts, by name such as "P@1"."""
    metrics = {}
    for k in ks:
        correct = hits.correct[:k]
        n_correct = correct.sum(axis=0, dtype=np.int64)
        discounts = 1 / np.log2(np.arange(2, k + 2))
        ideal_dcg = np.append(1.0, np.cumsum(discounts))[np.minimum(hits.n_true, k)]  # 1 for texts without labels
        metrics[f"P@{k}"] = PerText(n_correct / k)
        metrics[f"R@{k}"] = PerText(n_correct / np.maximum(hits.n_true, 1))
        metrics[f"F1@{k}"] = PerText(2 * n_correct / (k + hits.n_true))
        metrics[f"N@{k}"] = PerText(_ndcg(hits, discounts, ideal_dcg))
        if hits.gains is None or hits.best_gains is None:
            continue
        gained, best = hits.gains[np.where(correct, hits.ranked[:k], kernels.NOTHING)], hits.best_gains[:k]
        equal = np.full(k, 1 / k)
        metrics[f"PSP@{k}"] = PerText(_weighted_sum(gained, equal), _weighted_sum(best, equal))
        metrics[f"PSN@{k}"] = PerText(
            _weighted_sum(gained, discounts) / ideal_dcg, _weighted_sum(best, discounts) / ideal_dcg
        )
    return metrics


def _ndcg(hits: Hits, discounts: np.ndarray, ideal_dcg: np.ndarray) -> np.ndarray:
    if hits.relevance is None or hits.best_relevance is None:
        return _weighted_sum(hits.correct, discounts) / ideal_dcg
    gained, best = (_weighted_sum(values, discounts) for values in (hits.relevance, hits.best_relevance))
    return np.divide(gained, best, out=np.zeros_like(gained), where=best > 0)


def _weighted_sum(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Sum over places, in order: a BLAS product would depend on the number of its threads."""
    total = np.zeros(values.shape[1])
    for place, weight in zip(values, weights, strict=False):
        total += weight * place
    return total


def macro_f1(hits: Hits, k: int) -> float:
    """Return the mean F1 of all labels that are true or predicted."""
    predicted, correct = np.zeros_like(hits.true_counts), np.zeros_like(hits.true_counts)
    kernels.count_labels(hits.ranked[:k], hits.correct[:k], predicted, correct)
    present = predicted + hits.true_counts
    return float((2 * correct / np.maximum(present, 1)).sum() / max(np.count_nonzero(present), 1))


def coverage(hits: Hits, k: int) -> float:
    """Return the share of true labels that are predicted correctly at least once."""
    found = np.zeros(len(hits.true_counts), np.bool_)
    found[hits.ranked[:k][hits.correct[:k]]] = True
    return float(found.sum() / max(np.count_nonzero(hits.true_counts), 1))


def measure(hits: Hits, k: int | Iterable[int] = DEFAULT_K) -> dict[str, float]:
    """Return all metrics by name, between 0 and 1."""
    ks = check_k(k)
    values = {name: metric.value for name, metric in per_text(hits, ks).items()}
    for one in ks:
        values[f"macro-F1@{one}"] = macro_f1(hits, one)
        values[f"coverage@{one}"] = coverage(hits, one)
    names = [f"{family}@{one}" for family in FAMILIES for one in ks]
    return {name: values[name] for name in names if name in values}


def ceilings(hits: Hits, k: int | Iterable[int] = DEFAULT_K) -> dict[str, float]:
    """Return the largest value that any ranking could reach, between 0 and 1, of the metrics of `per_text`.

    A text with two labels has at most two hits among its first five places.
    """
    places = np.arange(len(hits.ranked))[:, None]
    ideal = Hits(hits.ranked, places < hits.n_true, hits.n_true, hits.true_counts)
    found = {name: metric.value for name, metric in per_text(ideal, check_k(k)).items()}
    if hits.gains is not None:  # both are ratios to the best ranking
        found |= {f"{family}@{one}": float(hits.n_true.any()) for family in ("PSP", "PSN") for one in check_k(k)}
    return found


def label_quantiles(hits: Hits, frequencies: np.ndarray, labels: np.ndarray, ks: Iterable[int]) -> list[Quantile]:
    """Divide labels by training frequency into bins of equal size, most frequent first (Astec, Figure 3).

    The contributions of the bins add up to P@k. `labels` are all ids that can be hits; ties go by id.
    """
    order = labels[np.argsort(-frequencies[labels], kind="stable")]
    bins = [ids for ids in np.array_split(order, N_QUANTILES) if len(ids)]
    n_hits = {k: np.bincount(hits.ranked[:k][hits.correct[:k]], minlength=len(frequencies)) for k in ks}
    return [
        Quantile(
            len(ids),
            float(frequencies[ids].mean()),
            int(frequencies[ids].min()),
            int(frequencies[ids].max()),
            {f"P@{k}": float(100 * of_label[ids].sum() / (k * max(hits.n_texts, 1))) for k, of_label in n_hits.items()},
        )
        for ids in bins
    ]


def hierarchical(
    ranked: np.ndarray, truth: Ragged, names: Sequence[str], hierarchy: Hierarchy, ks: Iterable[int]
) -> dict[str, PerText]:
    """Return hP@k, hR@k and hF1@k of ranked label ids (texts × places, -1 for none), positions in `names`.

    Hierarchical precision, recall and F1 (Kiritchenko et al., 2006): a near miss counts for what it shares with truth.
    Predictions and truth are sets of labels with all their ancestors. The root of the hierarchy, if there is one above
    all labels, is left out: it is always right.

    >>> tree = Hierarchy([("", "boots", "shoes"), ("", "shoes", "clothes"), ("", "clothes", "all")])
    >>> found = hierarchical(np.array([[0]]), Ragged.from_lists([[1]]), ["boots", "shoes"], tree, [1])
    >>> {name: round(metric.value, 2) for name, metric in found.items()}
    {'hP@1': 0.67, 'hR@1': 1.0, 'hF1@1': 0.8}
    """
    above = hierarchy.numbered(names)
    n_labels = len(above.labels)
    right = _with_ancestors(truth, above, hierarchy)
    right_keys, n_right = right.row_ids * n_labels + right.values, right.counts.astype(np.float64)
    metrics = {}
    for k in ks:
        places = ranked[:, :k]
        rows = Ragged(np.arange(len(places) + 1) * places.shape[1], places.ravel())
        found = _with_ancestors(rows.keep(rows.values >= 0), above, hierarchy)
        is_right = contains(right_keys, found.row_ids * n_labels + found.values)
        n_shared = np.bincount(found.row_ids[is_right], minlength=len(places)).astype(np.float64)
        n_found = found.counts.astype(np.float64)
        metrics[f"hP@{k}"] = PerText(n_shared, n_found)
        metrics[f"hR@{k}"] = PerText(n_shared, n_right)
        metrics[f"hF1@{k}"] = PerText(2 * n_shared, n_found + n_right)
    return metrics


def _with_ancestors(rows: Ragged, above: Hierarchy, hierarchy: Hierarchy) -> Ragged:
    """Each row with the ancestors of its labels, each once, without the root."""
    all_of = above.ancestors.take(rows.values)
    counts = np.bincount(np.repeat(rows.row_ids, all_of.counts), minlength=len(rows))
    found = Ragged(np.append(0, np.cumsum(counts)), all_of.values).distinct(len(above.labels))
    root = None if hierarchy.root is None else above.ids[hierarchy.labels[hierarchy.root]]
    return found if root is None else found.keep(found.values != root)
