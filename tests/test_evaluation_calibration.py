"""Hits of predictions, filter pairs, and how far scores are from probabilities."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shortlist.arrays import Ragged
from shortlist.evaluation.calibration import calibration_error, is_relevant, reliability, reliability_and_error
from shortlist.evaluation.filters import is_filtered, places_needed

N_LABELS = 6
id_lists = st.lists(st.lists(st.integers(-1, N_LABELS - 1), min_size=3, max_size=3), min_size=1, max_size=6)
label_lists = st.lists(st.lists(st.integers(0, N_LABELS - 1), max_size=4), min_size=6, max_size=6)


@given(id_lists, label_lists)
def test_hits_and_filtered_labels(ids, labels):
    labels = labels[: len(ids)]
    expected = [[label in true for label in row] for row, true in zip(ids, labels, strict=True)]
    assert is_relevant(np.asarray(ids), Ragged.from_lists(labels), N_LABELS).tolist() == expected
    pairs = np.asarray([(row, label) for row, true in enumerate(labels) for label in true], np.int64).reshape(-1, 2)
    assert is_filtered(np.asarray(ids), pairs).tolist() == expected


def test_places_needed():
    assert places_needed(5, None) == places_needed(5, np.zeros((0, 2), int)) == 5
    assert places_needed(5, np.asarray([[3, 1], [0, 1], [3, 2]])) == 7


def test_scores_that_are_probabilities_have_no_error():
    rng = np.random.default_rng(0)
    scores = rng.random(100_000)
    assert calibration_error(scores, rng.random(100_000) < scores) < 0.01
    assert calibration_error(scores, rng.random(100_000) < scores / 2) == pytest.approx(0.25, abs=0.01)


def test_reliability_and_error_of_scores_between_0_and_1():
    scores, is_hit = np.asarray([0.05, 1.0, 0.97]), np.asarray([False, True, True])
    found = reliability_and_error(scores, is_hit)
    assert found == {"test": reliability(scores, is_hit), "test_error": calibration_error(scores, is_hit)}
    assert [(row["from"], row["labels"], row["right"]) for row in found["test"]] == [(0.0, 1, 0.0), (0.9, 2, 1.0)]
    for odd in ([], [0.5, 1.5], [-0.1]):
        assert reliability_and_error(np.asarray(odd), np.ones(len(odd), bool)) == {}
