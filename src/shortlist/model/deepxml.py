"""DeepXML's pipeline: models that predict without torch, and the options with which they are trained."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from shortlist.arrays import Ragged
from shortlist.data.dataset import Dataset
from shortlist.encoders.bag_runtime import BagRuntime
from shortlist.errors import DataError, ModelError
from shortlist.heads.runtime import HeadRuntime
from shortlist.kernels.classifier import blend_odds
from shortlist.model.best import best_of
from shortlist.model.folder import ModelReader, ModelWriter, finite_number, whole_number
from shortlist.model.inception import part_of
from shortlist.model.options import TextOptions
from shortlist.model.text_model import ARRAYS, TextModel
from shortlist.odds import expit
from shortlist.shortlisters.cells import CellIndex
from shortlist.shortlisters.merged import MergedShortlister
from shortlist.shortlisters.neighbours import NeighbourIndex

TEXTS = "texts.safetensors"

# Votes of neighbouring texts below this count as none.
LEAST_VOTES = 0.01


@dataclass(frozen=True)
class DeepXMLOptions(TextOptions):
    """How to train; what is None is chosen from the data.

    batch_size        texts a step
    dropout           share of the features that is left out at random
    surrogate         what the features are learnt on: clusters of labels; hashed: labels thrown together at random;
                      frequent: the commonest labels alone; none: not at all, they stay as the word vectors give them
    clusters          how many clusters, or hashed or frequent labels
    surrogate_epochs  passes over the texts in which the features are learnt
    surrogate_rate    peak of the learning rate there
    sampling          which labels a text is trained on beside its own: neighbours, by both indexes; slice, by that of
                      the labels alone; uniform or frequent, drawn at random
    shortlist         how many of them, and how many candidates a text has in prediction
    n_random          how many more are drawn at random
    neighbours        training texts that vote for their labels
    texts_per_label   so many texts of each label are there to vote; all of them would make a large and slow index
    share             how much these votes count beside the labels' own similarities, in choosing the shortlist; without
                      any, as by default, there is no index of texts, and the model is smaller and quicker
    epochs            passes over the texts in which the labels' rows are learnt
    rate              peak of the learning rate there
    """

    batch_size: int | None = None
    dropout: float | None = None
    surrogate: str = "clusters"
    clusters: int | None = None
    surrogate_epochs: int | None = None
    surrogate_rate: float | None = None
    sampling: str = "neighbours"
    shortlist: int = 500
    n_random: int = 50
    neighbours: int = 50
    texts_per_label: int = 10
    share: float = 0.0
    epochs: int | None = None
    rate: float | None = None


@dataclass(frozen=True)
class Blend:
    """The log-odds of a candidate, from the classifier's logit, its cosine and the votes for it (α in the paper)."""

    classifier: float = 1.0
    cosine: float = 1.0
    votes: float = 0.1
    bias: float = 0.0

    def odds(self, logits: np.ndarray, cosines: np.ndarray, votes: np.ndarray) -> np.ndarray:
        odds = np.empty(logits.shape, np.float32)
        factors = self.classifier, self.cosine, self.votes, self.bias
        blend_odds(logits.ravel(), cosines.ravel(), votes.ravel(), *factors, LEAST_VOTES, odds.ravel())
        return odds


def log_votes(votes: np.ndarray) -> np.ndarray:
    return np.log(np.maximum(votes, np.float32(LEAST_VOTES)))


class Pipeline:
    """Encoder, shortlister and labels' head at work: word ids (what the encoder takes) to labels, without torch."""

    def __init__(self, encoder: Any, shortlister: MergedShortlister, head: HeadRuntime, n_candidates: int) -> None:
        self.encoder, self.shortlister, self.head = encoder, shortlister, head
        self.n_candidates = n_candidates
        self.blend = Blend()

    def parts(self, inputs: Any, n_cells: int, threads: int | None = None) -> tuple[np.ndarray, ...]:
        """Candidates of each text, and what speaks for each: logits, cosines, votes."""
        features = self.encoder.encode(inputs)
        ids, cosines, votes = self.shortlister.shortlist(features, self.n_candidates, n_cells, threads)
        return ids, self.head.logits_of(features, ids, threads), cosines, votes

    def rank(self, inputs: Any, k: int, n_cells: int, threads: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """The k best labels of each text and their probabilities."""
        ids, *scores = self.parts(inputs, n_cells, threads)
        return best_of(ids, self.blend.odds(*scores), k)

    def scores(self, inputs: Any, ids: np.ndarray, n_cells: int, threads: int | None = None) -> np.ndarray:
        """The probabilities of these labels (texts × K)."""
        features = self.encoder.encode(inputs)
        similarities = self.shortlister.similarities(features, ids, self.n_candidates, n_cells, threads)
        return expit(self.blend.odds(self.head.logits_of(features, ids, threads), *similarities))

    @property
    def most_cells(self) -> int:
        """More cells than these need not be searched: half of them have practically all neighbours."""
        return max(1, len(self.shortlister.centres.cells) // 2)


class DeepXMLModel(TextModel):
    """Features, shortlists from two neighbour indexes, one row of weights a label, and a re-ranker.

    A recipe says which encoder makes the features (a name in `new_encoders.ENCODERS`) and what it is in prediction.
    """

    Options: ClassVar[type[DeepXMLOptions]] = DeepXMLOptions
    encoder: ClassVar[str]
    Runtime: ClassVar[Any]
    takes_features: ClassVar[bool] = False

    def __init__(self, pipeline: Pipeline, arrays: dict[str, np.ndarray], **of_texts: Any) -> None:
        super().__init__(**of_texts)
        self.pipeline, self._arrays = pipeline, arrays

    @classmethod
    def train(cls, dataset: Dataset, options: DeepXMLOptions) -> DeepXMLModel:
        """Features on a surrogate task, shortlists by neighbours, rows on the shortlists, words on the mistakes."""
        from shortlist.model.deepxml_training import train_deepxml

        return train_deepxml(cls, dataset, options)

    @property
    def most_searched(self) -> int:
        return self.pipeline.most_cells

    def _first_rank(
        self, word_ids: Ragged, k: int, searched: int, threads: int | None
    ) -> tuple[np.ndarray, np.ndarray]:
        return self.pipeline.rank(word_ids, k, searched, threads)

    def _first_scores(self, word_ids: Ragged, ids: np.ndarray, threads: int | None) -> np.ndarray:
        return self.pipeline.scores(word_ids, ids, self.searched, threads)

    def _write(self, writer: ModelWriter) -> dict[str, Any]:
        shortlister = self.pipeline.shortlister
        writer.arrays(
            ARRAYS,
            self._arrays
            | {f"centres.{name}": array for name, array in shortlister.centres.to_arrays().items()}
            | {
                "owner": shortlister.owner,
                "text_labels.indptr": shortlister.text_labels.indptr,
                "text_labels.values": shortlister.text_labels.values,
            },
        )
        if shortlister.texts is not None:
            shortlister.texts.save(writer.path(TEXTS))
        return self._write_words(writer) | {"blend": vars(self.pipeline.blend)}

    @classmethod
    def _read(cls, reader: ModelReader, common: dict[str, Any]) -> DeepXMLModel:
        arrays = reader.arrays(ARRAYS, "extreme.weights", "extreme.biases", "owner", "text_labels.values")
        n_labels, options = len(common["label_names"]), common["options"]
        try:
            of_texts = cls._read_words(reader, n_labels)
            encoder = cls.Runtime(part_of(arrays, "encoder"), whole_number(options["max_words"], "max_words"))
            n_words = len(of_texts["vocabulary"])
            if encoder.n_words != n_words:
                raise ModelError(f"the vocabulary has {n_words:,} words, and there are {encoder.n_words:,} vectors")
            texts = None
            if reader.has(TEXTS):
                texts = NeighbourIndex.of_content(reader.content(TEXTS), reader.path(TEXTS), verify=False)
            shortlister = MergedShortlister(
                CellIndex.from_arrays(part_of(arrays, "centres")),
                arrays["owner"],
                texts,
                Ragged(arrays["text_labels.indptr"], arrays["text_labels.values"]),
                whole_number(options["neighbours"], "neighbours", 0 if texts is None else 1),
                finite_number(options["share"], "share", 0, 1),
                n_labels,
            )
            check_shortlister(shortlister, encoder.n_features)
            head = HeadRuntime(part_of(arrays, "extreme"), n_labels, encoder.n_features)
            pipeline = Pipeline(encoder, shortlister, head, whole_number(options["shortlist"], "shortlist"))
            blend = reader.config.extra["blend"].items()
            pipeline.blend = Blend(**{name: finite_number(value, name) for name, value in blend})
            own = {name: array for name, array in arrays.items() if name.startswith(("encoder.", "extreme."))}
            return cls(pipeline, own, **of_texts, **common)
        except (KeyError, TypeError, AttributeError, ValueError, DataError, ModelError) as error:
            raise reader.damaged(str(error)) from None


def check_shortlister(shortlister: MergedShortlister, n_features: int) -> None:
    """A compiled loop follows these arrays blindly, and they come from files."""
    owner, labels = shortlister.owner, shortlister.text_labels
    for name, array, kind in (
        ("owner", owner, np.int32),
        ("text_labels.indptr", labels.indptr, np.int64),
        ("text_labels.values", labels.values, np.int32),
    ):
        if array.dtype != kind or array.ndim != 1:
            raise ModelError(f"{name!r} is {array.dtype} {array.shape}; expected {kind.__name__} with 1 axis")
    if not 0 < len(owner) == len(shortlister.centres):
        raise ModelError(f"there are {len(shortlister.centres):,} centres and {len(owner):,} owners")
    # With a centre for each label, nothing is merged, and nobody asks whose a centre is.
    if len(owner) == shortlister.n_labels and not np.array_equal(owner, np.arange(len(owner))):
        raise ModelError("there are as many centres as labels, but not one for each")
    widths = {shortlister.centres.cells.shape[1]} | ({shortlister.texts.dimensions} if shortlister.texts else set())
    if widths != {n_features}:
        raise ModelError(f"features have {n_features} dimensions, and what they are compared with {sorted(widths)}")
    for ids in (owner, labels.values):
        if len(ids) and not 0 <= ids.min() <= ids.max() < shortlister.n_labels:
            raise ModelError(f"the shortlister names labels beyond the {shortlister.n_labels:,} there are")
    n_texts = 0 if shortlister.texts is None else len(shortlister.texts)
    if shortlister.texts is not None and not n_texts:
        raise ModelError("there are no texts in the index of texts")
    if len(labels) < n_texts or labels.indptr[0] != 0 or labels.indptr[-1] != len(labels.values):
        raise ModelError(f"there are {n_texts:,} texts in the index and labels of {len(labels):,}")
    if np.any(np.diff(labels.indptr) < 0):
        raise ModelError("the labels of the texts do not follow upon each other")


@dataclass(frozen=True)
class AstecOptions(DeepXMLOptions):
    """How to train DeepXML's modules with Astec's encoder.

    relu  whether features below zero are cut off, as published
    """

    relu: bool = False


class AstecModel(DeepXMLModel):
    """The features are the tf-idf weighted sum of learnt word vectors."""

    recipe = "astec"
    Options = AstecOptions
    encoder = "bag"
    Runtime = BagRuntime
