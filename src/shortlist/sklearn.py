"""`ShortlistClassifier`: any recipe as a scikit-learn classifier, for pipelines, `GridSearchCV` and `cross_val_score`.

scikit-learn is not a dependency of Shortlist. This module needs it; nothing else does.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from shortlist.arrays import Ragged, counts_to_indptr
from shortlist.data.dataset import Dataset
from shortlist.data.read import read
from shortlist.errors import OptionError, ShortlistError
from shortlist.lazy import sparse
from shortlist.model.model import Model
from shortlist.text.texts import Texts
from shortlist.training.train import train

try:
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data
except ImportError:
    raise ShortlistError("shortlist.sklearn needs scikit-learn 1.6 or later: pip install scikit-learn") from None

MAX_PROBABILITIES = 1 << 30
EPSILON = 1e-9


class ShortlistClassifier(ClassifierMixin, BaseEstimator):
    """A recipe of Shortlist with the interface of scikit-learn.

    recipe     name of the recipe, see `shortlist.list_recipes()`; "auto" is astec for most data
    min_score  labels that `predict` gives for lists of labels and for indicator matrices: those with at least this
               score. If y has one label per text, `predict` always gives the best one
    k          and at most this many of them
    threads    number of threads; by default, all cores
    options    options of the recipe, such as `n_epochs=5`; they are parameters, too, as for `GridSearchCV`

    X is a list, array, Series or one-column frame of texts, or a matrix of features, dense or sparse. y is of one
    of three kinds, and `predict` gives the same kind:

    * one label per text: a list or array
    * an indicator matrix, dense or sparse (texts × labels), as `MultiLabelBinarizer` makes it
    * several labels per text: a list of lists. scikit-learn's own tools (scorers, `GridSearchCV`) refuse this kind

    `score` is P@1: the share of texts whose best label is right. After `fit`, `model_` is the `Model`.

    >>> classifier = ShortlistClassifier("centroid").fit(["red shoes", "blue hat"], ["shoes", "hats"])
    >>> classifier.predict(["a hat"]).tolist()
    ['hats']
    """

    model_: Model

    def __init__(
        self,
        recipe: str = "auto",
        *,
        min_score: float = 0.5,
        k: int = 5,
        threads: int | None = None,
        **options: Any,
    ) -> None:
        self.recipe, self.min_score, self.k, self.threads = recipe, min_score, k, threads
        for name, value in options.items():
            setattr(self, name, value)

    @property
    def _option_names(self) -> list[str]:
        """The recipe options that were given. What fit leaves ends in an underscore."""
        own = BaseEstimator.get_params(self, deep=False)
        return [name for name in vars(self) if name not in own and not name.startswith("_") and not name.endswith("_")]

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        return super().get_params(deep) | {name: getattr(self, name) for name in self._option_names}

    def set_params(self, **parameters: Any) -> ShortlistClassifier:
        """Set parameters, and options of the recipe. `fit` refuses options that the recipe does not have."""
        for name, value in parameters.items():
            setattr(self, name, value)
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.sparse = True
        tags.classifier_tags.multi_label = True
        return tags

    def fit(self, X: Any, y: Any) -> ShortlistClassifier:
        """Train the recipe. Texts without labels are ignored."""
        if y is None:
            raise OptionError("this classifier requires y to be passed, but the target y is None")
        texts, features = self._inputs(X, reset=True)
        labels, names = self._targets(y)
        if len(texts) != len(labels):
            raise OptionError(f"inconsistent numbers of samples: X has {len(texts):,}, y has {len(labels):,}")
        dataset = Dataset(texts, labels, names, features=features)
        options = {name: getattr(self, name) for name in self._option_names}
        if self.threads is not None:
            options["threads"] = self.threads
        self.model_ = train(dataset, self.recipe, **options)
        return self

    def predict(self, X: Any) -> Any:
        """The best label of each text, or all labels with at least `min_score`, in the form of the y of `fit`."""
        check_is_fitted(self)
        inputs = self._model_inputs(X)
        if self._kind == "single":
            ids = self.model_.rank(inputs, 1, self.threads, 0.0)[0][:, 0]
            return self.classes_[np.maximum(ids, 0)]
        ids, _ = self.model_.rank(inputs, self.k, self.threads, self.min_score)
        if self._kind == "lists":
            return [[str(self.classes_[i]) for i in row if i >= 0] for row in ids]
        found = ids >= 0
        matrix = sparse.csr_matrix(
            (np.ones(found.sum(), np.int64), ids[found], counts_to_indptr(found.sum(axis=1))),
            shape=(len(ids), len(self.classes_)),
        )
        return matrix if self._kind == "sparse" else matrix.toarray()

    def predict_proba(self, X: Any) -> np.ndarray:
        """The score of every label (texts × labels), in the order of `classes_`.

        If y has one label per text, the scores of a text are divided by their sum. With many labels, use
        `model_.predict` instead, which ranks labels without computing all of them.
        """
        check_is_fitted(self)
        inputs = self._model_inputs(X)
        n_texts, n_labels = len(inputs) if isinstance(inputs, Texts) else inputs.shape[0], len(self.classes_)
        if n_texts * n_labels > MAX_PROBABILITIES:
            raise OptionError(
                f"{n_texts:,} texts × {n_labels:,} labels are too many probabilities. "
                "Use model_.predict or model_.rank for the best few, or fewer texts at a time."
            )
        ids = np.tile(np.arange(n_labels, dtype=np.int32), (n_texts, 1))
        # No label is impossible, and none is certain.
        scores = np.clip(self.model_.scores(inputs, ids, self.threads).astype(np.float64), EPSILON, 1 - EPSILON)
        if self._kind != "single":
            return scores
        # Calibration gives equal scores to labels that differ a little: the one that `predict` gives comes first.
        best = self.model_.rank(inputs, 1, self.threads, 0.0)[0].clip(0)
        np.put_along_axis(scores, best, scores.max(axis=1, keepdims=True) * (1 + EPSILON), axis=1)
        return scores / scores.sum(axis=1, keepdims=True)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """P@1: the share of texts whose best label is one of their labels."""
        check_is_fitted(self)
        best = self.model_.rank(self._model_inputs(X), 1, self.threads, 0.0)[0][:, 0]
        if self._kind == "single":
            right = (best >= 0) & (self.classes_[np.maximum(best, 0)] == np.asarray(y))
        elif self._kind == "lists":
            right = np.asarray(
                [i >= 0 and self.classes_[i] in set(map(str, row)) for i, row in zip(best, y, strict=True)]
            )
        else:
            rows = sparse.csr_array(y)
            right = (best >= 0) & (np.asarray(rows[np.arange(len(best)), np.maximum(best, 0)]).ravel() > 0)
        return float(np.average(right, weights=sample_weight))

    def _model_inputs(self, X: Any) -> Any:
        texts, features = self._inputs(X, reset=False)
        return texts if features is None else features

    def _inputs(self, X: Any, reset: bool) -> tuple[Texts, Any]:
        """Texts, and features where X has these instead."""
        strings = _strings(X)
        if strings is not None:
            return Texts.from_strings(strings), None
        X = validate_data(self, X, reset=reset, accept_sparse="csr", dtype=np.float32)
        return Texts.from_strings([""] * X.shape[0]), X

    def _targets(self, y: Any) -> tuple[Ragged, list[str]]:
        """Label ids per text, and the names of the labels."""
        if isinstance(y, (list, tuple)) and any(isinstance(labels, (list, tuple, set)) for labels in y):
            self._kind = "lists"
            dataset = read([("", list(labels)) for labels in y], show_progress=False)
            self.classes_ = np.asarray(dataset.label_names, object)
            return dataset.labels, dataset.label_names
        y = y if sparse.issparse(y) else np.asarray(y)
        if y.ndim == 2 and y.shape[1] > 1:
            check_classification_targets(y)
            self._kind = "sparse" if sparse.issparse(y) else "dense"
            rows = sparse.csr_array(y)
            rows.eliminate_zeros()
            self.classes_ = np.arange(rows.shape[1])
            return Ragged(rows.indptr.astype(np.int64), rows.indices.astype(np.int32)), list(map(str, self.classes_))
        y = column_or_1d(y, warn=True)
        check_classification_targets(y)
        self._kind = "single"
        self.classes_, ids = np.unique(y, return_inverse=True)
        indptr = np.arange(len(ids) + 1, dtype=np.int64)
        return Ragged(indptr, ids.astype(np.int32)), [str(label) for label in self.classes_.tolist()]


def _strings(X: Any) -> list[str] | None:
    """The texts, if X is a column of strings in any container; None if it is something else."""
    if isinstance(X, str):
        raise OptionError("X is one string; expected a list of texts")
    if sparse.issparse(X):
        return None
    column = X if isinstance(X, (list, tuple)) else np.asarray(X)
    if isinstance(column, np.ndarray):
        if column.ndim == 2 and column.shape[1] == 1:
            column = column[:, 0]
        if column.ndim != 1 or column.dtype.kind not in "OUT":
            return None
    return [str(text) for text in column] if len(column) and all(isinstance(text, str) for text in column) else None
