"""What a name tells of a new label: weights and margin from held-out texts."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from shortlist.arrays import Ragged
from shortlist.odds import expit
from shortlist.stages.evidence import Evidence
from shortlist.stages.mixture import ByName
from shortlist.training.by_name import MARGINS, fit_by_name

N_LABELS, N_TEXTS, K = 200, 3000, 30


def drawn(planted, noise=0.0, seed=0):
    """Candidates that are right as often as their names say; the odds by all evidence are these, and noise."""
    rng = np.random.default_rng(seed)
    ids = np.stack([rng.permutation(N_LABELS)[:K] for _ in range(N_TEXTS)]).astype(np.int32)
    names, parts = rng.random((2, *ids.shape)).astype(np.float32) ** 3
    evidence = Evidence(ids, Ragged.from_lists([]), names, np.zeros(ids.shape, bool), np.zeros(N_TEXTS, bool), parts)
    odds = planted.log_odds(evidence)
    hits = rng.random(ids.shape) < expit(odds)
    labels = Ragged.from_lists([row[right].tolist() for row, right in zip(ids, hits, strict=True)])
    data = SimpleNamespace(held_out_labels=labels, n_labels=N_LABELS)
    return evidence, (odds + noise * hits).astype(np.float32), data


def test_weights_are_found_again():
    planted = ByName(5.0, 3.0, -6.0)
    found = fit_by_name(*drawn(planted))
    assert (found.names, found.parts, found.bias) == pytest.approx((5.0, 3.0, -6.0), abs=0.5)


def test_the_margin_is_no_larger_than_it_must_be():
    """Where all other evidence tells what is right, new labels never beat it. Where it says no more, they often do."""
    planted = ByName(5.0, 3.0, -6.0)
    sure, unsure = (fit_by_name(*drawn(planted, noise)).margin for noise in (12.0, 0.0))
    assert sure == 0 < unsure < MARGINS[-1]


def test_without_labels_among_the_candidates_defaults_count():
    evidence, odds, _ = drawn(ByName())
    data = SimpleNamespace(held_out_labels=Ragged.empty(N_TEXTS), n_labels=N_LABELS)
    assert fit_by_name(evidence, odds, data) == ByName()
