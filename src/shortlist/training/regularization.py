"""How closely the re-ranker's labels follow their training texts: held-out texts decide."""

from __future__ import annotations

import logging
from collections.abc import Callable

import numpy as np

from shortlist.arrays import Ragged
from shortlist.odds import fit_logistic, log_odds
from shortlist.stages.evidence import Evidence
from shortlist.stages.mixture import Mixture
from shortlist.stages.reranker import Reranker

log = logging.getLogger("shortlist")

DEFAULT_C = 1.0
# Where the words of a text say nearly all about its labels, as in the terms of an ontology, more is much better.
LARGE_C = 4.0
# Both are tried on labels that have at most this many training texts and mistaken candidates together.
MAX_PAIRS = 1_000_000


def choose_labels(labels: Ragged, candidates: np.ndarray, wanted: np.ndarray, seed: int) -> np.ndarray:
    """Which labels to try values of C on: of those that are wanted, so many at random as `MAX_PAIRS` allows."""
    n_labels = len(wanted)
    pairs = np.bincount(labels.values, minlength=n_labels)
    pairs += np.bincount(candidates[candidates >= 0], minlength=n_labels)
    order = np.random.default_rng(seed).permutation(np.flatnonzero(wanted))
    chosen = np.zeros(n_labels, np.bool_)
    chosen[order[: max(int(np.searchsorted(np.cumsum(pairs[order]), MAX_PAIRS)), 1)]] = True
    return chosen


def choose_C(
    learn: Callable[[float], Reranker],
    evidence: Evidence,
    probabilities: np.ndarray,
    hits: np.ndarray,
    frequencies: np.ndarray,
    is_tried: np.ndarray,
) -> float:
    """`LARGE_C` where it tells right from wrong candidates better by more than a standard error, else `DEFAULT_C`.

    learn          a re-ranker whose labels `is_tried` were learnt with this C
    evidence       of held-out texts
    probabilities  of their candidates so far
    hits           which candidates are right
    frequencies    of labels, as the re-ranker has them

    What counts is the log-loss of the odds that each half of the texts predicts for the other.
    """
    tried = (evidence.ids >= 0) & is_tried[evidence.ids]
    texts, ids = np.nonzero(tried)[0], evidence.ids[tried]
    hits, names, first, frequency = hits[tried], evidence.names[tried], log_odds(probabilities)[tried], frequencies[ids]
    if not hits.any():
        return DEFAULT_C
    start = Mixture()
    weights = [start.first, start.words, start.names, start.same_name, start.frequency]
    losses = []
    for C in (DEFAULT_C, LARGE_C):
        words = learn(C).word_scores(evidence.rows, evidence.ids)[tried]
        columns = np.stack([first, words, names, names**4, frequency], axis=1)
        loss = np.empty(len(texts))
        for half in (texts % 2 == 0, texts % 2 == 1):
            *fitted, bias = fit_logistic(columns[half], hits[half], np.array([*weights, start.bias]))
            odds = columns[~half] @ fitted + bias
            loss[~half] = np.logaddexp(0, odds) - odds * hits[~half]
        losses.append(loss)
    gain = losses[0] - losses[1]
    deviation = gain.std() * len(gain) ** 0.5
    log.info(
        "re-ranker: C = %g instead of %g changes the log-loss per right label by %+.3f ± %.3f, on %s labels",
        LARGE_C,
        DEFAULT_C,
        -gain.sum() / hits.sum(),
        deviation / hits.sum(),
        f"{is_tried.sum():,}",
    )
    return LARGE_C if gain.sum() > deviation else DEFAULT_C
