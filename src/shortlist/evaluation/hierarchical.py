"""Hierarchical precision, recall and F1 (Kiritchenko et al., 2006): a near miss counts for what it shares with truth.

Predictions and truth are sets of labels with all their ancestors. The root of the hierarchy, if there is one above all
labels, is left out: it is always right.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from shortlist.arrays import Ragged
from shortlist.evaluation.filters import contains
from shortlist.evaluation.metrics import PerText
from shortlist.labels.hierarchy import Hierarchy


def hierarchical(
    ranked: np.ndarray, truth: Ragged, names: Sequence[str], hierarchy: Hierarchy, ks: Iterable[int]
) -> dict[str, PerText]:
    """hP@k, hR@k and hF1@k of ranked label ids (texts × places, -1 for none), positions in `names`.

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
