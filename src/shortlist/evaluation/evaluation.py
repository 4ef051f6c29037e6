"""`evaluate`: anybody's predictions against the truth, in any form, to an `Evaluation` that prints itself."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from shortlist.data.dataset import Dataset
from shortlist.errors import DataError, OptionError
from shortlist.evaluation.bootstrap import percentile_interval, resample
from shortlist.evaluation.filters import drop_pairs, most_per_text, split_pairs
from shortlist.evaluation.inputs import Merged, Train, merge, read_predictions, read_truth
from shortlist.evaluation.metrics import DEFAULT_K, FAMILIES, Hits, check_k, find_hits, measure, per_text
from shortlist.evaluation.quantiles import Quantile, label_quantiles
from shortlist.labels.propensity import propensities
from shortlist.tables import Table, Tabular


@dataclass
class Evaluation(Tabular):
    """What was measured, in per cent. `evaluation["P@1"]` is one number; `print(evaluation)` shows all."""

    values: dict[str, float]
    k: tuple[int, ...]
    texts: int  # texts that count
    left_out: int  # texts left out because none of their labels occurs in training
    labels: int  # different labels in the truth that counts
    intervals: dict[str, tuple[float, float]] = field(default_factory=dict)  # 95 %, by bootstrap
    quantiles: list[Quantile] = field(default_factory=list)  # the most frequent labels first
    notes: list[str] = field(default_factory=list)
    hits: Hits | None = field(default=None, repr=False, compare=False)  # for `compare`

    def __getitem__(self, name: str) -> float:
        try:
            return self.values[name]
        except KeyError:
            raise KeyError(f"{name!r} was not measured; there are {', '.join(self.values)}") from None

    def to_json(self) -> dict[str, Any]:
        """Everything as plain dictionaries, lists and numbers."""
        return {
            "texts": self.texts,
            "left_out": self.left_out,
            "labels": self.labels,
            "values": dict(self.values),
            "intervals": {name: list(interval) for name, interval in self.intervals.items()},
            "quantiles": [
                {
                    "labels": one.labels,
                    "mean_frequency": one.mean_frequency,
                    "contributions": one.contributions,
                }
                for one in self.quantiles
            ],
            "notes": list(self.notes),
        }

    def _render(self, table: Table) -> str:
        families = [family for family in FAMILIES if f"{family}@{self.k[0]}" in self.values]
        rows = [[family, *(self._cell(f"{family}@{k}") for k in self.k)] for family in families]
        parts = [table(["%", *(f"@{k}" for k in self.k)], rows)]
        counts = f"texts: {self.texts:,}   labels in the truth: {self.labels:,}"
        parts.append(counts + (f"   texts left out: {self.left_out:,}" if self.left_out else ""))
        if self.quantiles:
            names = list(self.quantiles[0].contributions)
            header = [
                "labels by frequency",
                "labels",
                "mean frequency",
                *(f"part of {name}" for name in names),
            ]
            titles = ["most frequent", *(f"bin {i}" for i in range(2, len(self.quantiles))), "rarest"]
            rows = [
                [title, f"{one.labels:,}", f"{one.mean_frequency:,.1f}"]
                + [f"{one.contributions[name]:.2f}" for name in names]
                for title, one in zip(titles, self.quantiles, strict=False)
            ]
            parts.append(table(header, rows))
        parts += self.notes
        return "\n\n".join(parts)

    def _cell(self, name: str) -> str:
        if name not in self.intervals:
            return f"{self.values[name]:.2f}"
        low, high = self.intervals[name]
        return f"{self.values[name]:.2f} [{low:.2f}, {high:.2f}]"


def evaluate(
    predictions: Any,
    truth: Any,
    *,
    train: Train | None = None,
    k: int | Iterable[int] = DEFAULT_K,
    filter_pairs: Any = None,
    unseen: Literal["count", "ignore"] = "count",
    a: float = 0.55,
    b: float = 1.5,
    intervals: bool = False,
    resamples: int = 1000,
    seed: int = 0,
) -> Evaluation:
    """Measure ranked predictions against the true labels.

    predictions: per text a list of names or of (name, score, ...) tuples; or a `Dataset` whose labels are
        the predictions (with their weights as scores); an int array of ids, texts × places, best first,
        -1 for nothing; a `Ragged` of ids; or a scipy sparse matrix of scores, texts × labels.
    truth: a `Dataset`, a list of names per text, a `Ragged` of ids or a sparse matrix. Names are compared
        with names and ids with ids.
    train: the training `Dataset`, or (label frequencies, number of texts). Needed for propensity-scored
        metrics (with `a` and `b`), the frequency quantiles and `unseen="ignore"`. Ids are its positions.
    filter_pairs: (text row, label) pairs that must not count; those of the truth's `Dataset` by default.
    unseen: "ignore" removes labels without training examples from the truth, and leaves out the texts
        that have no label then.
    intervals: also estimate 95 % intervals from this many bootstrap resamples of the texts.

    >>> print(evaluate([["shoes", "hats"]], [["hats"]], k=(1, 2))["P@2"])
    50.0
    """
    ks = check_k(k)
    if unseen not in ("count", "ignore"):
        raise OptionError(f'unseen must be "count" or "ignore", not {unseen!r}')
    if unseen == "ignore" and train is None:
        raise OptionError('unseen="ignore" needs the training data: give train=')
    if filter_pairs is None and isinstance(truth, Dataset):
        filter_pairs = truth.filter_pairs

    true = read_truth(truth)
    pair_rows, pair_labels = split_pairs([] if filter_pairs is None else filter_pairs, len(true.ids))
    predicted = read_predictions(predictions, max(ks) + most_per_text(pair_rows))
    merged = merge(predicted, true, train, isinstance(truth, Dataset))
    ranked, true_rows = merged.predictions, merged.truth
    notes = row_notes(predictions, truth) + unknown_notes(merged)
    if len(pair_rows):
        ranked, true_rows = drop_pairs(ranked, true_rows, pair_rows, merged.label_ids(pair_labels))
        notes.append(f"Filter pairs that do not count: {len(pair_rows):,}.")
    n_texts = len(true_rows)
    if unseen == "ignore" and merged.frequencies is not None:
        true_rows = true_rows.keep(merged.frequencies[true_rows.values] > 0)
        kept = np.flatnonzero(true_rows.counts)
        ranked, true_rows = ranked[kept], true_rows.take(kept)
    if len(true_rows) == 0:
        raise DataError(f"there is nothing to evaluate: of {n_texts:,} texts none is left")

    inverse_propensities = None
    if merged.frequencies is None:
        notes.append("PSP, PSN and frequency quantiles need the training data.")
    else:
        inverse_propensities = 1.0 / propensities(merged.frequencies, merged.n_train_texts, a, b)
    hits = find_hits(ranked, true_rows, max(ks), inverse_propensities)
    notes += prediction_notes(hits, ranked)
    evaluation = Evaluation(
        values={name: 100 * value for name, value in measure(hits, ks).items()},
        k=ks,
        texts=hits.n_texts,
        left_out=n_texts - hits.n_texts,
        labels=int(np.count_nonzero(hits.true_counts)),
        notes=notes,
        hits=hits,
    )
    if merged.frequencies is not None:
        known = np.arange(merged.n_known)
        labels = known[merged.frequencies[known] > 0] if unseen == "ignore" else known
        evaluation.quantiles = label_quantiles(hits, merged.frequencies, labels, ks)
    if intervals:
        for name, values in resample(per_text(hits, ks), resamples, seed).items():
            evaluation.intervals[name] = percentile_interval(100 * values)
    return evaluation


def prediction_notes(hits: Hits, ranked: np.ndarray) -> list[str]:
    """What about the predictions a reader of the numbers should know."""
    notes = []
    there = hits.ranked >= 0
    without = int(hits.n_texts - there.any(axis=0).sum())
    if without:
        notes.append(f"Texts without any prediction: {without:,}. They count as misses.")
    places = len(hits.ranked)
    if not there[-1].any():
        notes.append(f"No text has {places} predictions; missing places count as misses.")
    repeats = int((ranked[:, :places] >= 0).sum() - there.sum())
    if repeats:
        notes.append(f"Predictions that repeat a label of the same text: {repeats:,}. They count as misses.")
    return notes


def unknown_notes(merged: Merged) -> list[str]:
    """Names that nobody else uses are often a mistake: other labels' file, or ids in place of names."""
    if merged.position is None:
        return []
    unknown = merged.predictions[merged.predictions >= merged.n_known]
    if not len(unknown):
        return []
    example = list(merged.position)[int(unknown[0])]
    return [f"Predicted labels that occur neither in the truth nor in training: {len(unknown):,}, such as {example!r}."]


def row_notes(predictions: Any, truth: Any) -> list[str]:
    """A warning when both sides bring texts and these differ: the rows may be in another order."""
    if not (isinstance(predictions, Dataset) and isinstance(truth, Dataset)):
        return []
    if not predictions.texts.sizes.any() or not truth.texts.sizes.any():
        return []
    for row, (one, other) in enumerate(zip(predictions.texts, truth.texts, strict=True)):
        if one != other:
            return [f"Text {row} differs between predictions and truth: are the rows in the same order?"]
    return []
