"""A data set as training sees it: words as ids (or features), a part held out, and what the labels' names say."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from shortlist.arrays import Ragged
from shortlist.data.dataset import Dataset
from shortlist.data.texts import Texts
from shortlist.errors import DataError, OptionError
from shortlist.evaluation import evaluate
from shortlist.labels.centroids import label_centroids
from shortlist.labels.tree import LabelTree
from shortlist.lazy import sparse
from shortlist.model.base import need_pairs
from shortlist.model.names import LabelTexts
from shortlist.model.options import TextOptions
from shortlist.model.reranker import Reranker
from shortlist.progress import Progress
from shortlist.text import TfIdf, Vocabulary, learn_vectors, load_vectors
from shortlist.training.checkpoints import Checkpoints
from shortlist.training.validation import cut_validation

log = logging.getLogger("shortlist")

Rank = Callable[[Ragged, int], tuple[np.ndarray, np.ndarray]]
TEXTS_PER_BLOCK = 4096
MEASURED = ("P@1", "P@3", "P@5", "N@5", "PSP@1", "PSP@3", "PSP@5")


class Prepared:
    """Texts, word ids and labels to learn from, and those held out (`validation_…`).

    `inputs` is what an encoder takes: the word ids, or rows of features where the data set has these instead.
    """

    def __init__(self, dataset: Dataset, options: TextOptions) -> None:
        self.dataset, self.options = dataset, options
        texts = dataset.texts if dataset.features is None else Texts.from_strings([""] * len(dataset))
        build = partial(Vocabulary.build_and_encode, min_count=options.min_count, subword_lengths=options.part_sizes)
        self.vocabulary, word_ids = build(texts)
        if not len(self.vocabulary) and dataset.features is None:
            raise DataError(
                f"there are no words to learn from: no word occurs {options.min_count:,} times or more (min_count)."
            )
        from_names = options.label_texts and dataset.features is None
        names = LabelTexts.of(dataset, self.vocabulary) if from_names else LabelTexts.none()
        if len(names):  # their words may stand in texts to come
            self.vocabulary, word_ids = build(Texts.concatenate([texts, names.texts]))
        share = float(options.validation or 0)
        train, self.validation = cut_validation(dataset.labels, dataset.n_labels, share, options.seed)
        self.texts, self.validation_texts = texts.take(train), texts.take(self.validation)
        self.word_ids, self.validation_ids = word_ids.take(train), word_ids.take(self.validation)
        # Weights of labels play no part in training.
        labels = Ragged(dataset.labels.indptr, dataset.labels.values)
        self.labels, self.validation_labels = labels.take(train), labels.take(self.validation)
        self.train_frequencies = np.bincount(self.labels.values, minlength=dataset.n_labels)
        self.n_train = len(train)
        if len(names):
            log.info("the names of %s labels are learnt from, too", f"{len(np.unique(names.labels.values)):,}")
            of_names = word_ids.take(np.arange(len(texts), len(word_ids)))
            self.texts = Texts.concatenate([self.texts, names.texts])
            self.word_ids = Ragged.concatenate([self.word_ids, of_names])
            self.labels = Ragged.concatenate([self.labels, names.labels])
        self.inputs: Any = self.word_ids
        self.validation_inputs: Any = self.validation_ids
        if dataset.features is not None:
            features = _indexable(dataset.features)
            self.inputs, self.validation_inputs = features[train], features[self.validation]

    @property
    def n_labels(self) -> int:
        return self.dataset.n_labels

    @property
    def idf(self) -> np.ndarray:
        """How much each word says."""
        return TfIdf.fit(self.word_ids, len(self.vocabulary)).idf.astype(np.float32)

    def vectors(self) -> np.ndarray:
        """Word vectors to start from."""
        options, vocabulary = self.options, self.vocabulary
        if options.vectors:
            vectors, found = load_vectors(options.vectors, [*vocabulary.words, *vocabulary.subwords], seed=options.seed)
            log.info("%s has vectors for %.0f %% of the words", options.vectors, 100 * found.mean())
            return vectors
        return learn_vectors(
            self.word_ids,
            len(vocabulary),
            options.dimensions,
            labels=self.labels,
            n_labels=self.n_labels,
            seed=options.seed,
            threads=options.threads,
        )

    def tree(self, n_clusters: int) -> LabelTree:
        """Clusters of labels with similar texts."""
        features = TfIdf.fit(self.word_ids, len(self.vocabulary)).transform(self.word_ids)
        centroids = label_centroids(features, self.labels, self.n_labels, self.options.threads)
        n_clusters = min(n_clusters, self.n_labels)
        return LabelTree.build(centroids, n_clusters=n_clusters, seed=self.options.seed, threads=self.options.threads)

    def measure(self, ids: np.ndarray) -> dict[str, float]:
        """How good these labels (held-out texts × k) are."""
        result = evaluate(ids, self.validation_labels, train=(self.train_frequencies, self.n_train))
        return {name: result[name] for name in MEASURED}

    def reranker(self, rank: Rank, candidates: np.ndarray | None = None) -> Reranker | None:
        """The second look at what this first stage ranks best.

        rank        word ids and k, to the k best labels of each text and their probabilities
        candidates  the labels that it ranks best for the texts to learn from, where they are known
        """
        if not self.options.reranker:
            return None
        if candidates is None:
            candidates, _ = ranked(rank, self.word_ids, min(self.options.candidates, self.n_labels))
        return Reranker.learn(
            self.vocabulary,
            (self.texts, self.labels),
            candidates,
            (self.validation_texts, self.validation_labels),
            ranked(rank, self.validation_ids, candidates.shape[1]),
            self.n_labels,
            self.options.cost,
            self.options.threads,
        )

    def of_texts(self, records: list[dict[str, Any]], reranker: Reranker | None) -> dict[str, Any]:
        """The arguments of `TextModel.__init__`."""
        return {
            "vocabulary": self.vocabulary,
            "records": records,
            "reranker": reranker,
            "options": self.options.kept(),
            "label_names": self.dataset.label_names,
            "display_names": self.dataset.display_names,
        }

    def checkpoints(self, recipe: str, phase: str = "") -> Checkpoints | None:
        """Where this training, or a phase of it, leaves its checkpoints."""
        if not self.options.checkpoints:
            return None
        identity = {"recipe": recipe, **self.options.kept(), "data": self._fingerprint()}
        folder = f"{self.options.checkpoints}/{phase}" if phase else self.options.checkpoints
        return Checkpoints(folder, identity, 60 * self.options.minutes_between_checkpoints)

    def _fingerprint(self) -> str:
        digest = hashlib.sha256()
        for rows in (self.word_ids, self.labels, self.validation_ids, self.validation_labels):
            digest.update(rows.indptr.tobytes())
            digest.update(np.ascontiguousarray(rows.values).tobytes())
        if self.dataset.features is not None:
            for matrix in (self.inputs, self.validation_inputs):
                parts = (matrix.indptr, matrix.indices, matrix.data) if sparse.issparse(matrix) else (matrix,)
                for part in parts:
                    digest.update(np.ascontiguousarray(part).tobytes())
        return digest.hexdigest()[:16]


def ranked(rank: Rank, word_ids: Ragged, k: int) -> tuple[np.ndarray, np.ndarray]:
    """The k best labels of many texts and their probabilities; -1 and 0 where there are fewer."""
    ids, probabilities = np.full((len(word_ids), k), -1, np.int32), np.zeros((len(word_ids), k), np.float32)
    with Progress("candidates", len(word_ids), "texts") as progress:
        for begin in range(0, len(word_ids), TEXTS_PER_BLOCK):
            block = np.arange(begin, min(begin + TEXTS_PER_BLOCK, len(word_ids)))
            found, scores = rank(word_ids.take(block), k)
            ids[block, : found.shape[1]], probabilities[block, : found.shape[1]] = found, scores
            progress.advance(len(block))
    return ids, probabilities


def _indexable(features: Any) -> Any:
    return sparse.csr_array(features) if sparse.issparse(features) else np.asarray(features)


def need_texts(dataset: Dataset, recipe: str) -> None:
    """Refuse a data set without labels or without texts."""
    need_pairs(dataset)
    if dataset.features is not None:
        raise OptionError(f"{recipe} learns from texts; the data set has a matrix of features")


def show_settings(options: TextOptions) -> None:
    """Say what was chosen."""
    shown = options.kept() | {"vectors": options.vectors or "learnt"}
    log.info("settings: %s", ", ".join(f"{name} {value}" for name, value in shown.items()))
