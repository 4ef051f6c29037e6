"""How evidence adds up: labels of taught texts, and labels that are known by name only."""

from __future__ import annotations

import numpy as np
import pytest

from shortlist.arrays import Ragged
from shortlist.stages.evidence import Evidence
from shortlist.stages.mixture import ByName, Mixture

N_LABELS, N_NEW = 30, 10  # the last ones are known by name only


def drawn(seed=0, n_texts=40, k=12):
    rng = np.random.default_rng(seed)
    ids = np.stack([rng.permutation(N_LABELS)[:k] for _ in range(n_texts)]).astype(np.int32)
    ids[rng.random(ids.shape) < 0.1] = -1
    known = (rng.random(ids.shape) < 0.1) & (rng.random(n_texts) < 0.3)[:, None] & (ids >= 0)
    names, parts, probabilities, words = rng.random((4, *ids.shape)).astype(np.float32)
    frequencies = np.where(np.arange(N_LABELS) < N_LABELS - N_NEW, rng.random(N_LABELS) + 0.1, 0).astype(np.float32)
    evidence = Evidence(ids, Ragged.from_lists([[]] * n_texts), names, known, known.any(axis=1), parts)
    return evidence, probabilities, words, frequencies


@pytest.mark.parametrize("seed", range(5))
def test_parts_that_do_not_count_change_nothing(seed):
    """Labels of taught texts come first by the same formula as in the kernel."""
    evidence, *others = drawn(seed)
    with_parts = Mixture().log_odds(evidence, *others)
    assert np.allclose(with_parts, Mixture().log_odds(evidence._replace(parts=None), *others), atol=1e-4)
    more = Mixture(parts=2.0, same_parts=1.0).log_odds(evidence, *others)
    plain = ~evidence.is_known[:, None] & (evidence.ids >= 0)
    added = 2 * evidence.parts + evidence.parts**4
    assert np.allclose(more[plain], with_parts[plain] + added[plain], atol=1e-4)


@pytest.mark.parametrize("seed", range(5))
def test_labels_known_by_name_come_first_only_with_the_margin(seed):
    evidence, *others = drawn(seed)
    evidence = evidence._replace(is_known=np.zeros(len(evidence.ids), bool), known=np.zeros(evidence.ids.shape, bool))
    by_name = ByName(names=4.0, parts=6.0, bias=-3.0, margin=1.5)
    learnt, odds = (Mixture().log_odds(evidence, *others, mixed) for mixed in (None, by_name))
    is_new = evidence.ids >= N_LABELS - N_NEW
    assert np.array_equal(odds[~is_new], learnt[~is_new])
    plain = by_name.log_odds(evidence)
    best = np.where(is_new, -np.inf, learnt).max(axis=1, keepdims=True)
    clear = is_new & (plain > best + 1.6)
    assert clear.any() and np.allclose(odds[clear], plain[clear] - 1.5, atol=1e-3) and (odds > best)[clear].all()
    assert not (odds > best)[is_new & (plain < best + 1.5)].any()
    below = is_new & (plain < best - 0.1)
    assert np.allclose(odds[below], plain[below], atol=1e-5)
    for row in range(len(odds)):  # among themselves, their order stays
        new = np.flatnonzero(is_new[row])
        assert np.array_equal(np.argsort(odds[row, new]), np.argsort(plain[row, new]))


def test_labels_known_by_name_alone_need_no_margin():
    evidence, *others = drawn()
    only = np.where(evidence.ids >= N_LABELS - N_NEW, evidence.ids, -1).astype(np.int32)
    evidence = evidence._replace(ids=only, is_known=np.zeros(len(only), bool))
    odds = Mixture().log_odds(evidence, *others, ByName())
    assert np.allclose(odds[only >= 0], ByName().log_odds(evidence)[only >= 0], atol=1e-5)
    assert np.isneginf(odds[only < 0]).all()
