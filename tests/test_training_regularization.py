"""Held-out texts decide how closely the re-ranker's labels follow their training texts."""

from __future__ import annotations

import numpy as np
import pytest

from shortlist.arrays import Ragged
from shortlist.stages.evidence import Evidence
from shortlist.training import regularization
from shortlist.training.regularization import DEFAULT_C, LARGE_C, choose_C, choose_labels

N_TEXTS, K, N_LABELS = 400, 5, 40


class Learnt:
    """A re-ranker whose word scores are given."""

    def __init__(self, scores: np.ndarray) -> None:
        self.scores = scores

    def word_scores(self, rows: Ragged, ids: np.ndarray) -> np.ndarray:
        return self.scores


def choice(better: float | None, is_tried: np.ndarray | None = None, any_hit: bool = True) -> float:
    """What is chosen where the scores by the C `better` say much about the hits, and those by the other C little."""
    rng = np.random.default_rng(0)
    ids = np.stack([rng.permutation(N_LABELS)[:K] for _ in range(N_TEXTS)]).astype(np.int32)
    hits = (rng.random(ids.shape) < 0.2) & any_hit
    noise = {C: rng.normal(size=ids.shape) for C in (DEFAULT_C, LARGE_C)}
    nothing = np.zeros(ids.shape, np.float32)
    evidence = Evidence(ids, Ragged.from_lists([[]] * N_TEXTS), nothing, nothing > 0, np.zeros(N_TEXTS, np.bool_))
    return choose_C(
        lambda C: Learnt((noise[C] + 3 * hits * (better == C)).astype(np.float32)),
        evidence,
        np.full(ids.shape, 0.2, np.float32),
        hits,
        np.zeros(N_LABELS, np.float32),
        np.ones(N_LABELS, np.bool_) if is_tried is None else is_tried,
    )


def test_the_better_one_is_chosen_and_the_default_where_neither_is():
    assert choice(better=LARGE_C) == LARGE_C
    assert choice(better=DEFAULT_C) == DEFAULT_C
    assert choice(better=None) == DEFAULT_C


def test_without_a_right_candidate_the_default_stays():
    assert choice(better=LARGE_C, any_hit=False) == DEFAULT_C
    assert choice(better=LARGE_C, is_tried=np.zeros(N_LABELS, np.bool_)) == DEFAULT_C


@pytest.mark.parametrize(("most", "n"), [(1, 1), (35, 3), (1_000_000, 6)])
def test_labels_are_tried_until_there_are_enough_pairs(monkeypatch, most, n):
    monkeypatch.setattr(regularization, "MAX_PAIRS", most)
    labels = Ragged.from_lists([[label] for label in range(8)])  # one text each
    candidates = np.tile(np.arange(8, dtype=np.int32), (9, 1))  # nine mistakes each
    wanted = np.arange(8) < 6
    chosen = choose_labels(labels, candidates, wanted, seed=0)
    assert chosen.sum() == n
    assert not chosen[6:].any()
