"""How much names say about labels without training texts: measured on held-out texts, as if known labels were new."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from shortlist.evaluation.calibration import is_relevant
from shortlist.odds import fit_logistic
from shortlist.stages.evidence import Evidence
from shortlist.stages.mixture import ByName
from shortlist.stages.reranker import N_MORE
from shortlist.training.data import TrainingData

N_FOLDS = 5  # labels of one fold are new, those of all others known
MARGINS = [*(step / 4 for step in range(21)), 100.0]
MAX_LOSS = 0.001  # of P@1, on texts without new labels


def fit_by_name(evidence: Evidence, odds: np.ndarray, data: TrainingData) -> ByName:
    """How probable labels are by their names alone, and the margin with which they may come first.

    evidence  for the candidates of held-out texts, with parts of words
    odds      their log-odds by all evidence

    Similarities of names owe nothing to what was learnt, so all labels may stand for new ones. The candidates are those
    that would be found by name.
    """
    assert evidence.parts is not None
    ids, in_parts, labels = evidence.ids, evidence.parts, data.held_out_labels
    hits = is_relevant(ids, labels, data.n_labels) & (ids >= 0)
    least = -np.partition(-in_parts, min(N_MORE, ids.shape[1]) - 1, axis=1)[:, [min(N_MORE, ids.shape[1]) - 1]]
    found = (ids >= 0) & (in_parts > 0) & (in_parts >= least)
    if not hits[found].any():
        return ByName()
    columns, start = np.column_stack([evidence.names[found], in_parts[found]]), ByName()
    names, parts, bias = fit_logistic(columns, hits[found], np.array([start.names, start.parts, start.bias]))
    by_name = ByName(names, parts, bias)
    named = np.where(found, by_name.log_odds(evidence), -np.inf)
    return replace(by_name, margin=fit_margin(named, evidence, odds, hits, data))


def fit_margin(named: np.ndarray, evidence: Evidence, odds: np.ndarray, hits: np.ndarray, data: TrainingData) -> float:
    """The smallest margin that costs next to nothing on texts without new labels."""
    ids, labels = evidence.ids, data.held_out_labels
    fold_of = np.random.default_rng(0).integers(N_FOLDS, size=data.n_labels)
    lost, n_texts = np.zeros(len(MARGINS)), 0
    for fold in range(N_FOLDS):
        has_new = np.bincount(labels.row_ids[fold_of[labels.values] == fold], minlength=len(labels)) > 0
        texts = np.flatnonzero(~has_new & ~evidence.is_known)
        is_new = fold_of[ids[texts]] == fold
        known = np.where(is_new | (ids[texts] < 0), -np.inf, odds[texts])
        first = known.argmax(axis=1)[:, None]
        is_right = np.take_along_axis(hits[texts], first, axis=1)[:, 0]
        best = np.take_along_axis(known, first, axis=1)[:, 0]
        best[np.isneginf(best)] = np.inf  # without another candidate, none comes before it
        ahead = np.where(is_new, named[texts], -np.inf).max(axis=1, initial=-np.inf) - best
        lost += [np.sum(is_right & (ahead > margin)) for margin in MARGINS]
        n_texts += len(texts)
    return next(margin for margin, n in zip(MARGINS, lost, strict=True) if n <= MAX_LOSS * n_texts)
