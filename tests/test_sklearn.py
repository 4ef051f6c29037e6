"""`ShortlistClassifier` is a scikit-learn classifier: its own checks, grid search, pipelines, all kinds of labels."""

from __future__ import annotations

import numpy as np
import pandas
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.metrics import f1_score
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MultiLabelBinarizer
from sklearn.utils.estimator_checks import check_estimator

from shortlist.errors import OptionError
from shortlist.sklearn import ShortlistClassifier

TEXTS = [f"{colour} {thing} {i}" for i in range(8) for colour in ("red", "blue") for thing in ("shoes", "hat")]
THINGS = [text.split()[1] for text in TEXTS]
BOTH = [text.split()[:2] for text in TEXTS]

EXPECTED_FAILURES = {
    "check_classifiers_multilabel_representation_invariance": "a list of lists has labels, not an indicator matrix",
}


@pytest.mark.slow
def test_checks_of_scikit_learn():
    results = check_estimator(ShortlistClassifier("centroid"), expected_failed_checks=EXPECTED_FAILURES, on_fail=None)
    failed = {result["check_name"]: result["exception"] for result in results if result["status"] == "failed"}
    assert not failed
    assert {r["check_name"] for r in results if r["status"] == "xfail"} == set(EXPECTED_FAILURES)
    assert sum(result["status"] == "passed" for result in results) > 50


@pytest.mark.parametrize("column", [list, np.asarray, pandas.Series, lambda texts: pandas.DataFrame({"x": texts})])
def test_one_label_per_text(column):
    classifier = ShortlistClassifier("centroid").fit(column(TEXTS), THINGS)
    assert classifier.predict(column(["green hat", "shoes"])).tolist() == ["hat", "shoes"]
    assert classifier.score(column(TEXTS), THINGS) == 1
    probabilities = classifier.predict_proba(column(["green hat"]))
    assert classifier.classes_.tolist() == ["hat", "shoes"]
    assert probabilities.sum() == pytest.approx(1) and probabilities[0, 0] > probabilities[0, 1]


def test_lists_of_labels():
    classifier = ShortlistClassifier("centroid", min_score=0.3).fit(TEXTS, BOTH)
    assert [sorted(labels) for labels in classifier.predict(["red hat", "blue shoes"])] == [
        ["hat", "red"],
        ["blue", "shoes"],
    ]
    assert classifier.score(TEXTS, BOTH) == 1
    assert classifier.score(TEXTS, [["other"]] * len(TEXTS)) == 0


@pytest.mark.parametrize("is_sparse", [False, True])
def test_indicator_matrix(is_sparse):
    y = MultiLabelBinarizer(sparse_output=is_sparse).fit_transform(BOTH)
    classifier = ShortlistClassifier("centroid", min_score=0.3, k=2).fit(TEXTS, y)
    predicted = classifier.predict(TEXTS)
    assert sparse.issparse(predicted) == is_sparse
    assert f1_score(y, predicted, average="micro") == 1
    assert classifier.score(TEXTS, y) == 1
    assert classifier.set_params(min_score=1.0).predict(TEXTS).sum() == 0


def test_options_are_parameters():
    classifier = ShortlistClassifier("centroid", min_count=2)
    assert clone(classifier).get_params() == {
        "k": 5, "min_count": 2, "min_score": 0.5, "recipe": "centroid", "threads": None,
    }  # fmt: skip
    assert repr(classifier) == "ShortlistClassifier(min_count=2, recipe='centroid')"
    assert "7" not in classifier.fit(TEXTS, THINGS).set_params(min_count=5).fit(TEXTS, THINGS).model_.vocabulary.words
    with pytest.raises(OptionError, match="did you mean 'min_count'"):
        ShortlistClassifier("centroid").set_params(min_cuont=1).fit(TEXTS, THINGS)


@pytest.mark.slow
def test_grid_search_and_pipeline():
    y = MultiLabelBinarizer().fit_transform(BOTH)
    search = GridSearchCV(ShortlistClassifier("centroid"), {"min_count": [1, 1000]}, cv=2).fit(TEXTS, y)
    assert search.best_params_ == {"min_count": 1} and search.best_score_ == 1
    pipeline = make_pipeline(TfidfVectorizer(), ShortlistClassifier("centroid"))
    assert cross_val_score(pipeline, TEXTS, THINGS, cv=2).tolist() == [1, 1]
    wanted = GridSearchCV(pipeline, {"shortlistclassifier__recipe": ["popular", "centroid"]}, cv=2).fit(TEXTS, THINGS)
    assert wanted.best_params_ == {"shortlistclassifier__recipe": "centroid"}


def test_messages():
    with pytest.raises(OptionError, match="X has 2, y has 1"):
        ShortlistClassifier().fit(["a", "b"], ["x"])
    with pytest.raises(OptionError, match="X is one string"):
        ShortlistClassifier().fit("a", ["x"])
