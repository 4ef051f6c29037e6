"""`evaluate`: predictions in any form against the truth."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from shortlist.arrays import Ragged
from shortlist.data.dataset import Dataset
from shortlist.data.read import read
from shortlist.errors import DataError, OptionError
from shortlist.evaluation.bootstrap import percentile_interval, resample
from shortlist.evaluation.filters import places_needed, split_pairs, unfiltered, without_pairs
from shortlist.evaluation.inputs import Aligned, Train, align, convert_predictions, convert_truth, top_k
from shortlist.evaluation.metrics import (
    DEFAULT_K,
    FAMILIES,
    Hits,
    PerText,
    Quantile,
    ceilings,
    check_k,
    find_hits,
    hierarchical,
    label_quantiles,
    measure,
    per_text,
    sort_unique,
)
from shortlist.evaluation.overlap import UNKNOWN, Overlap, Unseen, find_leaks
from shortlist.labels.hierarchy import HierarchySource, read_hierarchy
from shortlist.labels.propensity import propensities
from shortlist.lazy import sparse
from shortlist.tables import Table, Tabular, wrapped

AT_MOST = "  at most"


@dataclass
class Evaluation(Tabular):
    """All metrics in per cent. `evaluation["P@1"]` is one value; `print(evaluation)` shows all."""

    values: dict[str, float]
    k: tuple[int, ...]
    texts: int  # texts that count
    left_out: int  # texts left out because none of their labels occurs in the training data
    labels: int  # distinct true labels
    hits: Hits = field(repr=False, compare=False)
    notes: list[str] = field(default_factory=list)
    quantiles: list[Quantile] = field(default_factory=list)  # most frequent labels first
    intervals: dict[str, tuple[float, float]] = field(default_factory=dict)  # 95 %, by bootstrap
    ceilings: dict[str, float] = field(default_factory=dict)  # the largest value that any ranking could reach
    overlap: Overlap | None = None  # None without training data

    def __getitem__(self, name: str) -> float:
        try:
            return self.values[name]
        except KeyError:
            raise KeyError(f"{name!r} was not measured; available: {', '.join(self.values)}") from None

    def to_json(self) -> dict[str, Any]:
        """Return plain dictionaries, lists and numbers."""
        columns = ("labels", "mean_frequency", "contributions")
        return {
            "texts": self.texts,
            "left_out": self.left_out,
            "labels": self.labels,
            "values": dict(self.values),
            "intervals": {name: list(interval) for name, interval in self.intervals.items()},
            "at_most": dict(self.ceilings),
            "quantiles": [{name: getattr(one, name) for name in columns} for one in self.quantiles],
            "overlap": None if self.overlap is None else asdict(self.overlap),
            "notes": [*self.overlap_notes, *self.notes],
        }

    @property
    def overlap_notes(self) -> list[str]:
        """What to know about training and test data to read the values."""
        return [UNKNOWN] if self.overlap is None else self.overlap.notes()

    def _render(self, table: Table) -> str:
        parts = [metrics_table(table, self.k, {name: self._cell(name) for name in self.values}, self.ceilings)]
        counts = f"texts: {self.texts:,}   labels in the truth: {self.labels:,}"
        parts.append(counts + (f"   texts left out: {self.left_out:,}" if self.left_out else ""))
        if self.quantiles:
            names = list(self.quantiles[0].contributions)
            titles = ["most frequent", *(f"bin {i}" for i in range(2, len(self.quantiles))), "rarest"]
            rows = [
                [title, f"{one.labels:,}", f"{one.mean_frequency:,.1f}"]
                + [f"{one.contributions[name]:.2f}" for name in names]
                for title, one in zip(titles, self.quantiles, strict=False)
            ]
            header = ["label frequency", "labels", "mean frequency", *(f"part of {name}" for name in names)]
            parts.append(table(header, rows))
        return "\n\n".join(parts + [wrapped(note) for note in (*self.overlap_notes, *self.notes)])

    def _cell(self, name: str) -> str:
        if name not in self.intervals:
            return f"{self.values[name]:.2f}"
        low, high = self.intervals[name]
        return f"{self.values[name]:.2f} [{low:.2f}, {high:.2f}]"


def metrics_table(table: Table, ks: Iterable[int], cells: Mapping[str, str], ceilings: Mapping[str, float]) -> str:
    """One row per kind of metric, followed by the largest value that any ranking could reach, where that is not 100."""
    rows: list[list[str]] = []
    for family in FAMILIES:
        names = [f"{family}@{k}" for k in ks]
        if names[0] in cells:
            rows.append([family, *(cells[name] for name in names)])
            if any(ceilings.get(name, 100) < 100 for name in names):
                rows.append([AT_MOST, *(f"{ceilings[name]:.2f}" for name in names)])
    text = table(["%", *(f"@{k}" for k in ks)], rows)
    if any(row[0] == AT_MOST for row in rows):
        text += "\n\nat most: the value of a perfect ranking. With 2 labels, P@5 is at most 40."
    return text


def evaluate(
    predictions: Any,
    truth: Any,
    *,
    train: Train | None = None,
    k: int | Iterable[int] = DEFAULT_K,
    filter_pairs: Any = None,
    unseen: Unseen = "count",
    drop_leaks: bool = False,
    a: float = 0.55,
    b: float = 1.5,
    intervals: bool = False,
    resamples: int = 1000,
    seed: int = 0,
    in_order: bool = False,
    hierarchy: HierarchySource | None = None,
) -> Evaluation:
    """Measure ranked predictions, or a model, against the true labels.

    predictions   a model, which then predicts the texts of the truth; a list of names, or of (name, score, ...)
                  tuples, per text; a `Dataset` whose labels are the predictions and whose weights are their scores;
                  an integer array of ids, texts × places, best first, -1 for none; a `Ragged` of ids; or a
                  scipy sparse matrix of scores, texts × labels
    truth         a `Dataset`, a list of names per text, a `Ragged` of ids, or a sparse matrix. Names are compared with
                  names and ids with ids. With a model: a `Dataset`, or anything that `shortlist.read` reads
    train         the training `Dataset`, or (label frequencies, number of texts); ids are positions in its labels.
                  Needed for PSP and PSN, frequency quantiles, and `unseen="ignore"`
    k             one or more cut-offs
    filter_pairs  (text row, label) pairs that must not count; by default those of a `Dataset` given as truth
    unseen        "ignore" removes labels without training texts from the truth, and texts without any label left
    drop_leaks    leave out the texts that also occur in the training data. Needs texts: truth and train as `Dataset`
    a, b          propensity model, see `shortlist.labels.propensities`
    intervals     also estimate 95 % intervals by bootstrap over texts, with `resamples` and `seed`
    in_order      rank predictions with scores as they are listed, not by score: for predictions made with a `tail`
    hierarchy     also measure hierarchical precision, recall and F1; a `Hierarchy`, a file, or (child, parent) pairs

    >>> print(evaluate([["shoes", "hats"]], [["hats"]], k=(1, 2))["P@2"])
    50.0
    """
    ks = check_k(k)
    if unseen not in ("count", "ignore"):
        raise OptionError(f'unseen must be "count" or "ignore", not {unseen!r}')
    if unseen == "ignore" and train is None:
        raise OptionError('unseen="ignore" needs the training data: give train=')
    if isinstance(predictions, str | Path):
        what = f"predictions: expected one list of labels per text, not {type(predictions).__name__}"
        raise OptionError(f"{what}; for a model, give shortlist.load({str(predictions)!r})")
    is_model = hasattr(predictions, "predict_dataset")
    if is_model and not isinstance(truth, Dataset):
        truth = read(truth)
    leaks = find_leaks(truth, train)
    if drop_leaks and leaks is None:
        raise OptionError("drop_leaks needs the texts of both parts: give truth and train= as Datasets with texts")
    if filter_pairs is None and isinstance(truth, Dataset):
        filter_pairs = truth.filter_pairs

    if is_model:
        filtered_rows, _ = split_pairs([] if filter_pairs is None else filter_pairs, len(truth))
        predictions = predictions.predict_dataset(truth, places_needed(max(ks), filtered_rows[:, None]))
    given = convert_predictions(predictions)
    if in_order:
        given.rows = Ragged(given.rows.indptr, given.rows.values)
    aligned = align(given, convert_truth(truth), train, isinstance(truth, Dataset))
    true_labels, frequencies = sort_unique(aligned.truth), aligned.frequencies
    n_texts = len(true_labels)
    pair_rows, pair_labels = split_pairs([] if filter_pairs is None else filter_pairs, n_texts)
    ranked = top_k(aligned.predictions, places_needed(max(ks), pair_rows[:, None]))
    notes = _order_notes(predictions, truth) + _unknown_notes(aligned, ranked)
    if not sparse.issparse(predictions):  # which has no order of its own
        notes += _score_notes(aligned.predictions)
    if len(pair_rows):
        pairs = np.column_stack([pair_rows, aligned.label_ids(pair_labels)])
        ranked, _ = unfiltered(ranked, ranked, pairs, ranked.shape[1])
        true_labels = without_pairs(true_labels, pairs)
        notes.append(f"Filter pairs that do not count: {len(pair_rows):,}.")
    if drop_leaks and leaks is not None:
        ranked, true_labels = ranked[~leaks], true_labels.take(~leaks)
    n_tested = len(true_labels)
    overlap = None if frequencies is None else Overlap.count(true_labels, frequencies, leaks, unseen, drop_leaks)
    if unseen == "ignore" and frequencies is not None:
        true_labels = true_labels.keep(frequencies[true_labels.values] > 0)
        kept = np.flatnonzero(true_labels.counts)
        ranked, true_labels = ranked[kept], true_labels.take(kept)
    if len(true_labels) == 0:
        raise DataError(f"there is nothing to evaluate: none of the {n_texts:,} texts is left")

    inverse_propensities, quantile_labels = None, np.arange(aligned.n_known)
    if frequencies is None:
        notes.append("PSP, PSN and frequency quantiles need the training data.")
    else:
        inverse_propensities = 1.0 / propensities(frequencies, aligned.n_train_texts, a, b)
        if unseen == "ignore":
            quantile_labels = quantile_labels[frequencies[quantile_labels] > 0]
    hits = find_hits(ranked, true_labels, max(ks), inverse_propensities)
    evaluation = Evaluation(
        values={name: 100 * value for name, value in measure(hits, ks).items()},
        k=ks,
        texts=hits.n_texts,
        left_out=n_tested - hits.n_texts,
        labels=int(np.count_nonzero(hits.true_counts)),
        hits=hits,
        notes=notes + _prediction_notes(hits, ranked),
        quantiles=[] if frequencies is None else label_quantiles(hits, frequencies, quantile_labels, ks),
        ceilings={name: 100 * value for name, value in ceilings(hits, ks).items()},
        overlap=overlap,
    )
    of_levels = {} if hierarchy is None else _hierarchical(ranked, true_labels, aligned, hierarchy, ks)
    evaluation.values |= {name: 100 * metric.value for name, metric in of_levels.items()}
    if intervals:
        for name, values in resample(per_text(hits, ks) | of_levels, resamples, seed).items():
            evaluation.intervals[name] = percentile_interval(100 * values)
    return evaluation


def _hierarchical(
    ranked: np.ndarray, truth: Ragged, aligned: Aligned, source: HierarchySource, ks: tuple[int, ...]
) -> dict[str, PerText]:
    if aligned.id_of_name is None:
        raise OptionError("a hierarchy has the names of labels, but predictions and truth have ids: give names")
    names = list(aligned.id_of_name)
    hierarchy = read_hierarchy(source, names)
    if not aligned.id_of_name.keys() & hierarchy.ids.keys():
        raise DataError(
            f"the hierarchy has none of the labels that are measured: it has {hierarchy.labels[0]!r:.60} and others, "
            f"the data {names[0]!r:.60} and others"
        )
    return hierarchical(ranked, truth, names, hierarchy, ks)


def _prediction_notes(hits: Hits, ranked: np.ndarray) -> list[str]:
    notes = []
    is_label = hits.ranked >= 0
    places = len(hits.ranked)
    if n_empty := int(hits.n_texts - is_label.any(axis=0).sum()):
        notes.append(f"Texts without any prediction: {n_empty:,}. They count as misses.")
    if not is_label[-1].any():
        notes.append(f"No text has {places} predictions; missing places count as misses.")
    if n_repeated := int((ranked[:, :places] >= 0).sum() - is_label.sum()):
        notes.append(f"Predictions that repeat a label of the same text: {n_repeated:,}. They count as misses.")
    return notes


def _unknown_notes(aligned: Aligned, ranked: np.ndarray) -> list[str]:
    """Predicted names that occur nowhere else are often a mistake, such as another label file or ids as names."""
    unknown = ranked[ranked >= aligned.n_known]
    if aligned.id_of_name is None or not len(unknown):
        return []
    example = list(aligned.id_of_name)[int(unknown[0])]
    where = "not in the truth" if aligned.frequencies is None else "neither in the truth nor in training"
    return [f"Predicted labels that are {where}: {len(unknown):,}, such as {example!r}."]


def _score_notes(rows: Ragged) -> list[str]:
    """Predictions made with a tail are not listed by score; ranking them by score undoes the tail."""
    if rows.weights is None or len(rows.values) < 2:
        return []
    same_text = rows.row_ids[1:] == rows.row_ids[:-1]
    n_texts = len(np.unique(rows.row_ids[1:][same_text & (np.diff(rows.weights) > 0)]))
    if not n_texts:
        return []
    return [
        f"Texts whose labels are not listed by score: {n_texts:,}. They were ranked by score. If the order of the list "
        "counts, as it does with a tail, use in_order (--in-order)."
    ]


def _order_notes(predictions: Any, truth: Any) -> list[str]:
    """If predictions and truth both have texts and these differ, the rows may be in different order."""
    if not (isinstance(predictions, Dataset) and isinstance(truth, Dataset)):
        return []
    if not predictions.texts.sizes.any() or not truth.texts.sizes.any():
        return []
    for row, (one, other) in enumerate(zip(predictions.texts, truth.texts, strict=True)):
        if one != other:
            return [f"Text {row} differs between predictions and truth: are the rows in the same order?"]
    return []
