"""Two simple recipes that every other has to beat: the commonest labels, and the nearest label centroid."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from shortlist.arrays import Ragged
from shortlist.data.dataset import Dataset
from shortlist.data.texts import Texts
from shortlist.errors import DataError, OptionError
from shortlist.kernels.candidates import top_labels
from shortlist.kernels.threads import use_threads
from shortlist.labels.centroids import label_centroids
from shortlist.lazy import sparse
from shortlist.model.base import Model, as_texts, need_pairs
from shortlist.model.calibration import FEWEST_PAIRS
from shortlist.model.finish import PLACES, calibrate
from shortlist.model.folder import ModelReader, ModelWriter
from shortlist.model.names import LabelTexts
from shortlist.text import TfIdf, Tokenizer, Vocabulary
from shortlist.text.bag import unit_rows
from shortlist.training.validation import cut_validation

ARRAYS, VOCABULARY = "arrays.safetensors", "vocabulary.txt"


@dataclass(frozen=True)
class PopularOptions:
    """There are none."""


@dataclass(frozen=True)
class CentroidOptions:
    """How to average.

    min_count            words with fewer occurrences are left out
    stop_words           words that do not count: a list, or a language
    label_texts          learn from the labels' names, too, where these are words and not codes
    max_words_per_label  of a label's words the heaviest are kept
    """

    min_count: int = 1
    stop_words: str | list[str] = ""
    label_texts: bool = True
    max_words_per_label: int = 1000
    threads: int | None = None


class PopularModel(Model):
    """Always the labels that were commonest in training; the score is their share of the texts."""

    recipe = "popular"
    Options = PopularOptions

    def __init__(self, shares: np.ndarray, **common: Any) -> None:
        super().__init__(**common)
        self.shares = shares
        self._by_share = np.argsort(-shares, kind="stable").astype(np.int32)

    @staticmethod
    def train(dataset: Dataset, options: PopularOptions) -> PopularModel:
        """Count the labels."""
        need_pairs(dataset)
        shares = (dataset.label_frequencies / len(dataset)).astype(np.float32)
        return PopularModel(shares, label_names=dataset.label_names, display_names=dataset.display_names, options={})

    def _rank(self, inputs: Any, k: int, threads: int | None, search_effort: float) -> tuple[np.ndarray, np.ndarray]:
        n_texts = inputs.shape[0] if hasattr(inputs, "shape") else len(inputs)
        best = self._by_share[:k]
        best = best[self.shares[best] > 0]
        return np.tile(best, (n_texts, 1)), np.tile(self.shares[best], (n_texts, 1))

    def _scores(self, inputs: Any, ids: np.ndarray, threads: int | None) -> np.ndarray:
        return self.shares[ids]

    def _write(self, writer: ModelWriter) -> dict[str, Any]:
        writer.arrays(ARRAYS, {"shares": self.shares})
        return {}

    @classmethod
    def _read(cls, reader: ModelReader, common: dict[str, Any]) -> PopularModel:
        shares = reader.arrays(ARRAYS, "shares")["shares"]
        if shares.dtype.kind != "f" or shares.shape != (len(common["label_names"]),):
            raise reader.damaged("it does not have one share for each label")
        if not 0 <= shares.min() <= shares.max() <= 1:  # nor is it so for NaN
            raise reader.damaged("its shares are not from 0 to 1")
        return cls(shares, **common)


class CentroidModel(Model):
    """The labels whose average training text points in the direction of the text.

    They are ranked by the cosine; the score is what that turned out to mean.

    A text is its tf-idf weighted bag of words, or its row of the feature matrix where the data set has one.
    """

    recipe = "centroid"
    Options = CentroidOptions

    def __init__(
        self, centroids: sparse.csr_array, vocabulary: Vocabulary | None, tf_idf: TfIdf | None, **common: Any
    ) -> None:
        super().__init__(**common)
        self.vocabulary, self.tf_idf = vocabulary, tf_idf
        words = self._labels_of_word = sparse.csr_array(centroids.T)
        self._index = (
            words.indptr.astype(np.int64, copy=False),
            words.indices.astype(np.int32, copy=False),
            words.data.astype(np.float32, copy=False),
        )

    @staticmethod
    def train(dataset: Dataset, options: CentroidOptions) -> CentroidModel:
        """Average the texts of each label. What scores mean is learnt on a part held out from another such model."""
        model = CentroidModel._average(dataset, options)
        share = min(0.05, 5000 / len(dataset))
        train, held_out = cut_validation(dataset.labels, dataset.n_labels, share, seed=0)
        if len(held_out) * PLACES >= FEWEST_PAIRS:
            rest = dataset.take(held_out)
            inputs = rest.texts if rest.features is None else rest.features
            before = CentroidModel._average(dataset.take(train), options)
            calibrate(model, *before._rank(inputs, PLACES, options.threads, 1.0), rest.labels)
        return model

    @staticmethod
    def _average(dataset: Dataset, options: CentroidOptions) -> CentroidModel:
        min_count, stop_words, most = options.min_count, options.stop_words, options.max_words_per_label
        for name, value in (("min_count", min_count), ("max_words_per_label", most)):
            if value < 1:
                raise OptionError(f"{name} is {value}; it must be at least 1")
        need_pairs(dataset)
        vocabulary = tf_idf = None
        labels = dataset.labels
        if dataset.features is None:
            tokenizer = Tokenizer(stop_words=tuple(stop_words) if isinstance(stop_words, list) else stop_words or ())
            vocabulary, word_ids = Vocabulary.build_and_encode(dataset.texts, tokenizer, min_count=min_count)
            if not len(vocabulary):
                raise DataError(
                    "there are no words to learn from: no word of the texts that is not a stop word occurs "
                    f"{min_count:,} times or more (min_count). Lower min_count, or check the texts."
                )
            names = LabelTexts.of(dataset, vocabulary) if options.label_texts else LabelTexts.none()
            if len(names):
                texts = Texts.concatenate([dataset.texts, names.texts])
                vocabulary, word_ids = Vocabulary.build_and_encode(texts, tokenizer, min_count=min_count)
                labels = Ragged.concatenate([labels, names.labels])
            tf_idf = TfIdf.fit(word_ids, len(vocabulary))
            features = tf_idf.transform(word_ids)
        else:
            features = unit_rows(sparse.csr_array(dataset.features))
        centroids = label_centroids(features, labels, dataset.n_labels, options.threads, most)
        kept = {
            "min_count": min_count,
            "stop_words": stop_words,
            "label_texts": options.label_texts,
            "max_words_per_label": most,
        }
        common = {"label_names": dataset.label_names, "display_names": dataset.display_names, "options": kept}
        return CentroidModel(centroids, vocabulary, tf_idf, **common)

    def _rank(self, inputs: Any, k: int, threads: int | None, search_effort: float) -> tuple[np.ndarray, np.ndarray]:
        features = self._features(inputs)
        k = min(k, max(self.n_labels, 1))
        ids = np.empty((features.shape[0], k), np.int32)
        scores = np.empty((features.shape[0], k), np.float32)
        with use_threads(threads):
            top_labels(
                features.indptr.astype(np.int64),
                features.indices.astype(np.int32),
                features.data.astype(np.float32),
                *self._index,
                self.n_labels,
                ids,
                scores,
            )
        return ids, scores

    def _scores(self, inputs: Any, ids: np.ndarray, threads: int | None) -> np.ndarray:
        all_scores = (self._features(inputs) @ self._labels_of_word).toarray()
        return np.take_along_axis(all_scores, ids, axis=1)

    @property
    def tokenizer(self) -> Tokenizer | None:
        return None if self.vocabulary is None else self.vocabulary.tokenizer

    def _features(self, inputs: Any) -> sparse.csr_array:
        if self.vocabulary is not None and self.tf_idf is not None:
            return self.tf_idf.transform(self.vocabulary.encode(as_texts(inputs)))
        if not hasattr(inputs, "shape"):
            raise OptionError("this model was trained on features; give it a matrix, one row a text")
        if inputs.shape[1] != self._labels_of_word.shape[0]:
            raise OptionError(
                f"this model knows {self._labels_of_word.shape[0]:,} features; the matrix has {inputs.shape[1]:,}"
            )
        return unit_rows(sparse.csr_array(inputs))

    def _write(self, writer: ModelWriter) -> dict[str, Any]:
        words = self._labels_of_word
        arrays = {"indptr": words.indptr, "labels": words.indices, "weights": words.data}
        if self.vocabulary is None or self.tf_idf is None:
            writer.arrays(ARRAYS, arrays)
            return {}
        writer.arrays(ARRAYS, {**arrays, "idf": self.tf_idf.idf})
        self.vocabulary.save(writer.path(VOCABULARY))
        return {"vocabulary": self.vocabulary.to_config()}

    @classmethod
    def _read(cls, reader: ModelReader, common: dict[str, Any]) -> CentroidModel:
        arrays = reader.arrays(ARRAYS, "indptr", "labels", "weights")
        indptr, labels, weights = arrays["indptr"], arrays["labels"], arrays["weights"]
        n_labels = len(common["label_names"])
        _check_rows(reader, indptr, labels, weights, n_labels)
        words = sparse.csr_array((weights, labels, indptr), shape=(len(indptr) - 1, n_labels))
        vocabulary = tf_idf = None
        if reader.has(VOCABULARY) or "idf" in arrays:
            vocabulary, tf_idf = _read_vocabulary(reader), TfIdf(reader.arrays(ARRAYS, "idf")["idf"])
            if (
                tf_idf.idf.dtype.kind != "f"
                or tf_idf.idf.shape != (len(vocabulary),)
                or len(vocabulary) != words.shape[0]
            ):
                raise reader.damaged("its vocabulary, the idf and the rows of weights are not of one length")
            if not np.isfinite(tf_idf.idf).all():
                raise reader.damaged("its idf holds numbers that are infinite or none")
        return cls(sparse.csr_array(words.T), vocabulary, tf_idf, **common)


def _check_rows(
    reader: ModelReader, indptr: np.ndarray, labels: np.ndarray, weights: np.ndarray, n_labels: int
) -> None:
    """Compiled loops follow these numbers blindly, so they are looked at before."""
    if (indptr.dtype.kind, labels.dtype.kind, weights.dtype.kind) != ("i", "i", "f") or indptr.ndim != 1:
        raise reader.damaged("its arrays are of the wrong type")
    if labels.ndim != 1 or labels.shape != weights.shape:
        raise reader.damaged("its labels and weights are not of one length")
    if not len(indptr) or indptr[0] != 0 or indptr[-1] != len(labels) or (indptr[1:] < indptr[:-1]).any():
        raise reader.damaged("the bounds of its rows do not rise from 0 to the number of weights")
    if len(labels) and not 0 <= labels.min() <= labels.max() < n_labels:
        raise reader.damaged(f"label ids run from {labels.min()} to {labels.max()}, and there are {n_labels:,} labels")


def _read_vocabulary(reader: ModelReader) -> Vocabulary:
    try:
        config = reader.config.extra["vocabulary"]
        return Vocabulary.of_content(reader.content(VOCABULARY), reader.path(VOCABULARY), config)
    except (KeyError, TypeError, AttributeError, ValueError, DataError) as error:
        raise reader.damaged(f"its vocabulary cannot be read: {error!r}") from None
