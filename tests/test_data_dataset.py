"""`Dataset.fingerprint`: equal for equal data, different for any difference that a model could learn from."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse

import shortlist
from shortlist.arrays import Ragged

ROWS = [("red shoes", {"shoes": 1.0, "red": 0.5}), ("blue hat", {"hats": 1.0})]


@pytest.fixture
def dataset():
    data = shortlist.read(ROWS)
    data.display_names = {"hats": "Hats and caps"}
    data.filter_pairs = np.asarray([[0, 2]])
    return data


def with_features(dataset, features, **more):
    empty = shortlist.read([("", dict.fromkeys(labels, 1.0)) for _, labels in ROWS])
    return replace(dataset, texts=empty.texts, features=features, **more)


FEATURES = np.asarray([[0, 1.5], [2, 0]], np.float32)

CHANGES = {
    "a text": lambda data: shortlist.read([("red shoe", ROWS[0][1]), ROWS[1]]),
    "where a text ends": lambda data: shortlist.read([("red shoesb", ROWS[0][1]), ("lue hat", ROWS[1][1])]),
    "the order of the rows": lambda data: data.take([1, 0]),
    "a label": lambda data: replace(data, labels=Ragged(data.labels.indptr, data.labels.values[::-1].copy())),
    "which text has a label": lambda data: replace(
        data, labels=replace(data.labels, indptr=np.asarray([0, 1, 3], np.int64))
    ),
    "a weight": lambda data: replace(data, labels=replace(data.labels, weights=np.ones(3, np.float32))),
    "no weights": lambda data: replace(data, labels=replace(data.labels, weights=None)),
    "a label name": lambda data: replace(data, label_names=["shoes", "red", "caps"]),
    "a display name": lambda data: replace(data, display_names={"hats": "Hats"}),
    "filter pairs": lambda data: replace(data, filter_pairs=np.asarray([[1, 0]])),
    "features": lambda data: with_features(data, FEATURES),
    "other features": lambda data: with_features(data, 2 * FEATURES),
    "label features": lambda data: with_features(data, FEATURES, label_features=np.eye(3, dtype=np.float32)),
}


def test_every_change_of_the_data_changes_the_fingerprint(dataset):
    fingerprints = {name: change(dataset).fingerprint() for name, change in CHANGES.items()}
    fingerprints["the original"] = dataset.fingerprint()
    assert len(set(fingerprints.values())) == len(fingerprints), fingerprints
    assert all(len(digits) == 16 and int(digits, 16) >= 0 for digits in fingerprints.values())


def test_equal_data_has_equal_fingerprints_whatever_the_layout(dataset, tmp_path):
    more = {"display_names": dataset.display_names, "filter_pairs": dataset.filter_pairs}
    longer = shortlist.read([("before", ["shoes"]), *ROWS, ("after", ["x"])])
    part = replace(longer.take([1, 2]), texts=longer.texts[1:3]).relabelled(dataset.label_names)
    dataset.write(tmp_path / "pairs.jsonl")
    for equal in (dataset.take([0, 1]), part, shortlist.read(tmp_path / "pairs.jsonl")):
        assert replace(equal, **more).fingerprint() == dataset.fingerprint()
    layouts = [FEATURES, sparse.csr_array(FEATURES), sparse.csc_array(FEATURES), FEATURES.astype(np.float64)]
    assert len({with_features(dataset, features).fingerprint() for features in layouts}) == 1


def test_fingerprint_ignores_times_and_the_report(dataset):
    timed = replace(dataset, times=np.asarray([1, 2]), report=shortlist.read([]).report)
    assert timed.fingerprint() == dataset.fingerprint()


def test_an_empty_data_set_has_a_fingerprint():
    assert len(shortlist.read([]).fingerprint()) == 16


def test_label_features_follow_the_labels_that_occur():
    data = shortlist.read([("x", ["a"]), ("y", ["b"])])
    data.label_features = np.asarray([[1.0], [2.0]])
    assert data.take([1]).without_unused_labels().label_features.tolist() == [[2.0]]
