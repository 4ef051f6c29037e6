"""Training for `inceptionxml` and `inceptionxml+`: data in, settings chosen, a model out."""

from __future__ import annotations

import hashlib
import logging
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch

from shortlist.data.dataset import Dataset
from shortlist.encoders.inception import InceptionEncoder, count_features
from shortlist.errors import DataError, OptionError
from shortlist.evaluation import evaluate
from shortlist.labels.centroids import label_centroids
from shortlist.labels.tree import LabelTree
from shortlist.model.base import need_pairs
from shortlist.model.inception import InceptionModel, InceptionOptions, InceptionPlusOptions, Network
from shortlist.ragged import Ragged
from shortlist.text import TfIdf, Vocabulary, learn_vectors, load_vectors
from shortlist.training.checkpoints import Checkpoints
from shortlist.training.learner import Learner, Shortlisting
from shortlist.training.loop import Plan, fit, tensorboard_writer
from shortlist.training.memory import need_memory
from shortlist.training.validation import cut_validation

log = logging.getLogger("shortlist")

# Small clusters are the more accurate, and cost more the more there are of them.
LABELS_PER_CLUSTER, LABELS_PER_CLUSTER_OF_MANY, MANY_CLUSTERS = 8, 16, 8192
CANDIDATES = 1600  # labels that a text sees
AnyInception = TypeVar("AnyInception", bound=InceptionModel)


def train_inception(model_class: type[AnyInception], dataset: Dataset, options: InceptionOptions) -> AnyInception:
    """Train a model of either recipe."""
    need_pairs(dataset)
    if dataset.features is not None:
        raise OptionError(f"{model_class.recipe} learns from texts; the data set has a matrix of features")
    options = chosen(options, len(dataset), dataset.n_labels)
    _check(options)
    shown = kept_options(options) | {"vectors": options.vectors or "learnt"}
    log.info("settings: %s", ", ".join(f"{name} {value}" for name, value in shown.items()))
    if options.checkpoints and not options.resume:
        Checkpoints(options.checkpoints, {}).refuse_to_overwrite()  # before the work, not after it
    prepared = Prepared(dataset, options)
    need_memory(prepared.sizes(), "Smaller dimensions or channels, bag=false, or a larger min_count need less.")
    shortlisting = None
    if isinstance(options, InceptionPlusOptions):
        shortlisting = Shortlisting(prepared.tree(options), int(options.top or 1), options.form == "lightxml")
    encoder = prepared.encoder()
    learner = Learner(
        encoder,
        dataset.n_labels,
        len(dataset.labels.values) / len(dataset),
        shortlisting,
        options.seed,
        options.threads,
        options.device,
    )
    fixed = {} if shortlisting is None else {f"tree.{k}": v for k, v in shortlisting.tree.to_arrays().items()}
    checkpoints = None
    if options.checkpoints:
        identity = {"recipe": model_class.recipe, **kept_options(options), "data": prepared.fingerprint()}
        checkpoints = Checkpoints(options.checkpoints, identity, 60 * options.minutes_between_checkpoints)
    arrays, records = fit(
        learner,
        Plan(
            int(options.epochs or 0),
            int(options.batch_size or 1),
            float(options.rate or 0),
            options.max_words,
            getattr(options, "detached", 0.0),
            options.shuffle,
            options.patience,
            options.seed,
        ),
        prepared.word_ids,
        prepared.labels,
        prepared.validator(fixed, options) if len(prepared.validation) else None,
        checkpoints,
        options.resume,
        tensorboard=tensorboard_writer(Path(options.checkpoints) / "tensorboard") if checkpoints else None,
    )
    common = {"label_names": dataset.label_names, "display_names": dataset.display_names}
    return model_class(arrays | fixed, prepared.vocabulary, records, options=kept_options(options), **common)


def chosen(options: InceptionOptions, n_texts: int, n_labels: int) -> InceptionOptions:
    """The options with everything that was left open chosen from the size of the data; docs/lab-book.md says why."""
    size = min(max(n_texts / 10_000, 0.1), 100.0)
    values: dict[str, Any] = {
        "epochs": round(min(max(40 * size**-0.5, 5), 60)),
        "batch_size": 128 if n_texts < 200_000 else 256,
        "rate": 0.004,
        "dropout": round(min(max(0.85 - 0.27 * float(np.log10(size)), 0.25), 0.9), 2),
        "validation": min(0.05, 5000 / n_texts),
    }
    if isinstance(options, InceptionPlusOptions):
        of_many = max(-(-n_labels // LABELS_PER_CLUSTER_OF_MANY), MANY_CLUSTERS)
        n_clusters = min(options.clusters or -(-n_labels // LABELS_PER_CLUSTER), options.clusters or of_many, n_labels)
        top = min(max(-(-CANDIDATES * n_clusters // n_labels), 1), n_clusters)
        values |= {"clusters": n_clusters, "top": top}
    return replace(options, **{name: value for name, value in values.items() if getattr(options, name) is None})


def kept_options(options: InceptionOptions) -> dict[str, Any]:
    """What of the options makes the model what it is, and is kept with it."""
    passing = ("threads", "device", "checkpoints", "resume", "minutes_between_checkpoints")
    return {name: value for name, value in asdict(options).items() if name not in passing}


def _check(options: InceptionOptions) -> None:
    least = {"epochs": 1, "batch_size": 1, "min_count": 1, "max_words": 1, "channels": 1, "patience": 1}
    least |= {"clusters": 1, "top": 1, "threads": 1}
    for name, bound in least.items():
        value = getattr(options, name, None)
        if value is not None and value < bound:
            raise OptionError(f"{name} is {value}; it must be at least {bound}")
    for name in ("dropout", "validation", "detached"):
        share = getattr(options, name, 0.0)
        if not 0 <= share <= 1 or (share == 1 and name != "detached"):
            raise OptionError(f"{name} is {share}; it is a share, from 0 to below 1")
    if not 0 < float(options.rate or 0) < 1:
        raise OptionError(f"rate is {options.rate}; expected a number between 0 and 1, such as 0.004")
    if options.resume and not options.checkpoints:
        raise OptionError("resume needs checkpoints: the folder in which the training left off")
    if getattr(options, "form", "synchronised") not in ("synchronised", "lightxml"):
        raise OptionError(f"form is {options.form!r}; it is synchronised or lightxml")  # type: ignore[attr-defined]


class Prepared:
    """A data set as training sees it: words as ids, a part held out, and what the labels' names say."""

    def __init__(self, dataset: Dataset, options: InceptionOptions) -> None:
        self.dataset, self.options = dataset, options
        self.vocabulary, word_ids = Vocabulary.build_and_encode(dataset.texts, min_count=options.min_count)
        if not len(self.vocabulary):
            raise DataError(
                f"there are no words to learn from: no word occurs {options.min_count:,} times or more (min_count)."
            )
        share = float(options.validation or 0)
        train, self.validation = cut_validation(dataset.labels, dataset.n_labels, share, options.seed)
        self.validation_ids, self.validation_labels = (
            word_ids.take(self.validation),
            dataset.labels.take(self.validation),
        )
        self.word_ids, self.labels = word_ids.take(train), Ragged(*_rows(dataset.labels, train))
        self.train_frequencies = np.bincount(self.labels.values, minlength=dataset.n_labels)
        self.n_train = len(train)
        if options.label_texts:
            self._add_label_texts()

    def _add_label_texts(self) -> None:
        """Names of labels as further texts, where more than half of a name's words are known."""
        names = [self.dataset.display_name(name) for name in self.dataset.label_names]
        known = self.vocabulary.encode(names)
        all_words = Vocabulary.build_and_encode(names)[1]
        said = np.flatnonzero((2 * known.counts > all_words.counts) & (known.counts > 0))
        self.word_ids = Ragged.concatenate([self.word_ids, known.take(said)])
        of_names = Ragged(np.arange(len(said) + 1), said.astype(self.labels.values.dtype))
        self.labels = Ragged.concatenate([self.labels, of_names])
        if len(said):
            log.info("the names of %s labels are learnt from, too", f"{len(said):,}")

    def sizes(self) -> dict[str, int]:
        """Bytes for what is large, beside the texts, which are there already."""
        options = self.options
        n_features = count_features(options.dimensions, options.channels, options.bag)
        n_clusters = getattr(options, "clusters", 0) or 0
        n_rows, batch = self.dataset.n_labels + n_clusters, int(options.batch_size or 1)
        activations = batch * options.dimensions * (3 * options.channels // 4 + options.max_words)
        return {
            # Twice: where the best epoch is not the last, it is read back beside it.
            "label rows": 2 * 4 * n_rows * n_features + 16 * n_rows,
            # Twice: as they are learnt, and as they are trained.
            "word vectors": 2 * 4 * len(self.vocabulary) * options.dimensions,
            "a batch": 4 * (12 * activations + batch * (n_clusters + 3 * n_features)),
        }

    def encoder(self) -> InceptionEncoder:
        """The encoder as training finds it."""
        options, vectors = self.options, self._vectors()
        torch.manual_seed(options.seed)
        dropout = float(options.dropout or 0)
        sizes = (len(self.vocabulary), vectors.shape[1], options.max_words, options.channels)
        encoder = InceptionEncoder(*sizes, dropout, options.attention, options.bag)
        with torch.no_grad():
            encoder.words.weight[:-1] = torch.from_numpy(vectors)
        return encoder

    def _vectors(self) -> np.ndarray:
        """Word vectors to start from; a rare word has a long one, as it says more."""
        options, vocabulary = self.options, self.vocabulary
        if options.vectors:
            vectors, found = load_vectors(options.vectors, vocabulary.words, seed=options.seed)
            log.info("%s has vectors for %.0f %% of the words", options.vectors, 100 * found.mean())
        else:
            vectors = learn_vectors(
                self.word_ids,
                len(vocabulary),
                options.dimensions,
                labels=self.labels,
                n_labels=self.dataset.n_labels,
                seed=options.seed,
                threads=options.threads,
            )
        idf = TfIdf.fit(self.word_ids, len(vocabulary)).idf.astype(np.float32)
        return vectors * (idf / idf[self.word_ids.values].mean())[:, None]

    def tree(self, options: InceptionPlusOptions) -> LabelTree:
        """Clusters of labels with similar texts."""
        features = TfIdf.fit(self.word_ids, len(self.vocabulary)).transform(self.word_ids)
        centroids = label_centroids(features, self.labels, self.dataset.n_labels, options.threads)
        return LabelTree.build(
            centroids,
            n_clusters=min(int(options.clusters or 1), self.dataset.n_labels),
            seed=options.seed,
            threads=options.threads,
        )

    def validator(self, fixed: dict[str, np.ndarray], options: InceptionOptions) -> Any:
        """A function that measures arrays on the part held out."""

        def validate(arrays: dict[str, np.ndarray]) -> dict[str, float]:
            lightxml = getattr(options, "form", "") == "lightxml"
            network = Network(arrays | fixed, options.max_words, self.dataset.n_labels, lightxml)
            ids, _ = network.rank(self.validation_ids, 5, int(getattr(options, "top", 0) or 0), options.threads)
            result = evaluate(ids, self.validation_labels, train=(self.train_frequencies, self.n_train))
            scores = {name: result[name] for name in ("P@1", "P@3", "P@5", "N@5", "PSP@1", "PSP@3", "PSP@5")}
            if network.tree is not None:
                best = network.best_cluster(self.validation_ids)[self.validation_labels.row_of_value]
                right = network.tree.cluster_of_label[self.validation_labels.values] == best
                hits = np.bincount(self.validation_labels.row_of_value[right], minlength=len(self.validation)) > 0
                scores["meta_P@1"] = 100 * float(hits.mean())
            return scores

        return validate

    def fingerprint(self) -> str:
        digest = hashlib.sha256()
        for rows in (self.word_ids, self.labels, self.validation_ids, self.validation_labels):
            digest.update(rows.indptr.tobytes())
            digest.update(np.ascontiguousarray(rows.values).tobytes())
        return digest.hexdigest()[:16]


def _rows(labels: Ragged, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Bounds and values of some rows; weights of labels play no part in training."""
    part = labels.take(rows)
    return part.indptr, part.values
