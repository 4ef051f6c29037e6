"""Recipes whose encoder and labels' rows learn together: models that predict without torch, and how they are trained.

`inceptionxml` and `inceptionxml+` are here; `xml-cnn` is the first of them with another encoder.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from shortlist.arrays import Ragged
from shortlist.data.dataset import Dataset
from shortlist.encoders.inception_runtime import InceptionRuntime
from shortlist.errors import DataError, ModelError
from shortlist.heads.runtime import HeadRuntime
from shortlist.labels.tree import LabelTree
from shortlist.model.folder import ModelReader, ModelWriter, whole_number
from shortlist.model.options import TextOptions
from shortlist.model.text_model import ARRAYS, TextModel
from shortlist.odds import expit
from shortlist.shortlisters.clusters import top_clusters


@dataclass(frozen=True)
class JointOptions(TextOptions):
    """How to train; what is None is chosen from the data.

    epochs       passes over the texts
    batch_size   texts a step
    rate         peak of the learning rate
    dropout      share of the features that is left out at random
    """

    epochs: int | None = None
    batch_size: int | None = None
    rate: float | None = None
    dropout: float | None = None


@dataclass(frozen=True)
class InceptionForm:
    """The encoder of InceptionXML.

    channels     of the convolutions
    attention    whether words and dimensions look at each other before the convolutions
    bag          whether the sum of the word vectors stands beside the convolutions' features
    shuffle      put the words of a text in another order each time
    dimension_order
                 order of the word vectors' dimensions before training: 0 as they come, else drawn by this number
    """

    channels: int = 32
    attention: bool = True
    bag: bool = True
    shuffle: bool = True
    dimension_order: int = 0


@dataclass(frozen=True)
class InceptionOptions(InceptionForm, JointOptions):
    """How to train InceptionXML."""


@dataclass(frozen=True)
class InceptionPlusOptions(InceptionOptions):
    """How to train with shortlists.

    clusters  of labels; None: so many that each holds 8 labels, of very many labels 16
    top       clusters whose labels a text sees
    detached  share of the training in which the labels' head does not move the encoder
    form      synchronised, or lightxml: no residual in the meta head, and scores multiplied with its scores
    """

    clusters: int | None = None
    top: int | None = None
    detached: float = 0.25
    form: str = "synchronised"


# Of the logits of all clusters, or of a block of labels, so many texts are held at once.
TEXTS_PER_BLOCK = 512


class Network:
    """The arrays of a model at work: word ids to labels, without torch."""

    def __init__(
        self, runtime: Any, arrays: dict[str, np.ndarray], max_words: int, n_labels: int, lightxml: bool = False
    ) -> None:
        """`runtime`: the class of the encoder."""
        self.lightxml = lightxml
        self.encoder = runtime(part_of(arrays, "encoder"), max_words)
        self.n_words = self.encoder.n_words
        self.extreme = HeadRuntime(part_of(arrays, "extreme"), n_labels, self.encoder.n_features)
        self.tree = self.meta = None
        # Where there is any of it, all is needed: without, rows in the order of the tree would pass for labels.
        if any(name.startswith(("meta.", "tree.")) for name in arrays):
            self.tree = LabelTree.from_arrays(part_of(arrays, "tree"))
            if self.tree.n_labels != n_labels:
                raise ModelError(f"the label tree has {self.tree.n_labels:,} labels, and there are {n_labels:,}")
            self.meta = HeadRuntime(part_of(arrays, "meta"), self.tree.n_clusters, self.encoder.n_features)

    def rank(self, word_ids: Ragged, k: int, top: int = 0, threads: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """The k best labels of each text and their probabilities; `top`: in how many clusters to look for them."""
        blocks = [self._rank_block(word_ids.take(rows), k, top, threads) for rows in _in_blocks(len(word_ids))]
        ids, scores = (np.concatenate(parts) for parts in zip(*blocks, strict=True))
        return ids, scores

    def _rank_block(self, word_ids: Ragged, k: int, top: int, threads: int | None) -> tuple[np.ndarray, np.ndarray]:
        features = self.encoder.encode(word_ids)
        if self.tree is None or self.meta is None:
            ids, logits = self.extreme.best(features, k, threads)
            return ids, expit(logits)
        cluster_logits = self.meta.logits(features, threads)
        clusters = top_clusters(cluster_logits, min(top, self.tree.n_clusters), threads)
        multiplied_by = cluster_logits if self.lightxml else None
        rows, scores = self.extreme.best_of(features, clusters, self.tree.cluster_starts, k, multiplied_by, threads)
        ids = np.where(rows >= 0, self.tree.order[rows], -1).astype(np.int32)
        return ids, np.exp(scores) if self.lightxml else expit(scores)

    def scores(self, word_ids: Ragged, ids: np.ndarray, threads: int | None = None) -> np.ndarray:
        """The probabilities of these labels (texts × K)."""
        features = self.encoder.encode(word_ids)
        if self.tree is None or self.meta is None:
            return expit(self.extreme.logits_of(features, ids, threads))
        rows = self._row_of_label[ids]
        probabilities = expit(self.extreme.logits_of(features, rows, threads))
        if self.lightxml:
            clusters = self.tree.cluster_of_label[ids].astype(np.int32)
            probabilities *= expit(self.meta.logits_of(features, clusters, threads))
        return probabilities

    @cached_property
    def _row_of_label(self) -> np.ndarray:
        """Rows are stored cluster by cluster."""
        assert self.tree is not None
        rows = np.empty(self.tree.n_labels, np.int32)
        rows[self.tree.order] = np.arange(self.tree.n_labels, dtype=np.int32)
        return rows

    def best_cluster(self, word_ids: Ragged) -> np.ndarray:
        """The cluster of each text that the meta head ranks first."""
        assert self.meta is not None
        blocks = [self.meta.logits(self.encoder.encode(word_ids.take(rows))) for rows in _in_blocks(len(word_ids))]
        return np.concatenate([logits.argmax(axis=1) for logits in blocks])


def _in_blocks(n_texts: int) -> list[np.ndarray]:
    """The rows of each block; one that is empty where there are no texts."""
    return [
        np.arange(start, min(start + TEXTS_PER_BLOCK, n_texts)) for start in range(0, max(n_texts, 1), TEXTS_PER_BLOCK)
    ]


def part_of(arrays: dict[str, np.ndarray], name: str) -> dict[str, np.ndarray]:
    """The arrays called `name.…`, without that."""
    return {key.removeprefix(f"{name}."): array for key, array in arrays.items() if key.startswith(f"{name}.")}


class InceptionModel(TextModel):
    """Word vectors through InceptionXML's convolutions to features; every label scored by its row of weights.

    With another encoder (a name in `new_encoders.ENCODERS`, and what it is in prediction) it is another recipe.
    """

    recipe = "inceptionxml"
    Options: ClassVar[type[JointOptions]] = InceptionOptions
    encoder: ClassVar[str] = "inception"
    Runtime: ClassVar[Any] = InceptionRuntime
    needed: ClassVar[tuple[str, ...]] = ("extreme.weights", "extreme.biases")

    def __init__(self, arrays: dict[str, np.ndarray], **of_texts: Any) -> None:
        super().__init__(**of_texts)
        self._arrays = arrays
        self._network = self.at_work(arrays, self.options, self.n_labels)
        n_words = len(self.vocabulary)
        if self._network.n_words != n_words:
            raise ModelError(f"the vocabulary has {n_words:,} words, and there are {self._network.n_words:,} vectors")

    @classmethod
    def at_work(cls, arrays: dict[str, np.ndarray], options: dict[str, Any], n_labels: int) -> Any:
        """The arrays of a model with these options, ready to rank."""
        max_words = whole_number(options["max_words"], "max_words")
        return Network(cls.Runtime, arrays, max_words, n_labels, options.get("form") == "lightxml")

    @classmethod
    def train(cls, dataset: Dataset, options: JointOptions) -> InceptionModel:
        """Train the encoder and the rows of labels together."""
        from shortlist.model.inception_training import train_inception

        return train_inception(cls, dataset, options)

    @property
    def most_searched(self) -> int:
        return int(self.options.get("top") or 1)

    def _first_rank(
        self, word_ids: Ragged, k: int, searched: int, threads: int | None
    ) -> tuple[np.ndarray, np.ndarray]:
        return self._network.rank(word_ids, k, searched, threads)

    def _first_scores(self, word_ids: Ragged, ids: np.ndarray, threads: int | None) -> np.ndarray:
        return self._network.scores(word_ids, ids, threads)

    def _write(self, writer: ModelWriter) -> dict[str, Any]:
        writer.arrays(ARRAYS, self._arrays)
        return self._write_words(writer)

    @classmethod
    def _read(cls, reader: ModelReader, common: dict[str, Any]) -> InceptionModel:
        arrays = reader.arrays(ARRAYS, *cls.needed)
        try:
            return cls(arrays, **cls._read_words(reader, len(common["label_names"])), **common)
        except (KeyError, TypeError, AttributeError, ValueError, DataError, ModelError) as error:
            raise reader.damaged(str(error)) from None


class InceptionPlusModel(InceptionModel):
    """The same encoder with a meta head that shortlists clusters of labels, in training and in prediction."""

    recipe = "inceptionxml+"
    Options = InceptionPlusOptions
    needed = (*InceptionModel.needed, "meta.weights", "meta.biases", "tree.order", "tree.cluster_starts")
