"""The data set as training sees it: words as ids (or features), a held-out part, and the names of labels as texts."""

from __future__ import annotations

import logging
from functools import cached_property
from typing import Any

import numpy as np

from shortlist.arrays import Ragged
from shortlist.data.dataset import Dataset
from shortlist.errors import DataError
from shortlist.evaluation import evaluate
from shortlist.kernels.top_k import best_of_candidates
from shortlist.labels.centroids import label_centroids
from shortlist.labels.correlation import correlated_centroids, label_correlations
from shortlist.labels.tree import LabelTree
from shortlist.lazy import sparse
from shortlist.recipes.options import Options
from shortlist.stages.candidates import Candidates
from shortlist.stages.classifier import SparseClassifier
from shortlist.stages.columns import Columns
from shortlist.stages.encoders.transformer import read_pieces
from shortlist.stages.evidence import remember_texts, taught_labels
from shortlist.text import TfIdf, Tokenizer, Vocabulary, learn_vectors, load_vectors
from shortlist.text.pretrained_vectors import load_rows, random_vectors
from shortlist.text.texts import Texts

log = logging.getLogger("shortlist")

METRICS = ("P@1", "P@3", "P@5", "N@5", "PSP@1", "PSP@3", "PSP@5")
TEXTS_PER_BLOCK = 1024  # that are encoded, or whose candidates are scored, at a time
# The name of a label counts as this many texts (docs/lab-book.md); as one where the re-ranker reads names, too.
COPIES_OF_NAMES = 2
FEW_VECTORS = 0.2  # share of the words below which a file of vectors is probably the wrong one
# Held-out texts that say whether names help. Fewer than this say too little: then names count as texts.
MIN_TEXTS_TO_CHOOSE_ON, MAX_TEXTS_TO_CHOOSE_ON = 50, 2000


class TrainingData:
    """Texts (or features) to learn from, and a held-out part.

    texts, labels      the training part; with `label_texts`, the names of labels are further texts
    inputs             what an encoder takes: word ids; word pieces, for a transformer; columns with weights, of sparse
                       features; or dense features
    held_out_…         the same for the held-out part, as a new text is read: without words that occur nowhere else
    names, name_ids    the names of labels that are words and not codes, and their word ids; `named` are these labels
    label_frequencies  of the training part, without names; so is `n_train`
    """

    def __init__(self, dataset: Dataset, options: Options) -> None:
        self.dataset, self.options = dataset, options
        self.vocabulary, inputs, self.names, self.named = read_inputs(dataset, options)
        fraction = options.get("validation_fraction", 0.0)
        train, self.held_out = cut_validation(dataset.labels, fraction, options.get("seed", 0))
        self.texts, self.held_out_texts = dataset.texts.take(train), dataset.texts.take(self.held_out)
        self.inputs, self.held_out_inputs = rows_of(inputs, train), rows_of(inputs, self.held_out)
        labels = weighted_labels(dataset.labels)
        self.labels, self.held_out_labels = labels.take(train), labels.take(self.held_out)
        self.n_train, self.label_frequencies = len(train), np.bincount(self.labels.values, minlength=dataset.n_labels)
        self.name_ids = inputs[len(dataset) :]
        # A label that occurs in held-out texts only would give itself away there.
        learnt = np.flatnonzero(self.label_frequencies[self.named])
        if len(learnt) and names_are_texts(self, learnt):
            log.info("learning from %s names of labels, too", f"{len(learnt):,}")
            self.texts, self.inputs, self.labels = with_names(self, learnt)
        self._words, self._held_out_words = self.inputs, self.held_out_inputs
        if isinstance(self.vocabulary, Vocabulary):
            self.held_out_inputs = self.held_out_known_ids
        if "transformer" in options:
            pieces = read_pieces(options.transformer, options.max_words)
            self.inputs, self.held_out_inputs = pieces.encode(self.texts), pieces.encode(self.held_out_texts)

    @property
    def word_ids(self) -> Ragged:
        """The inputs as words; columns of sparse features are words with weights."""
        assert isinstance(self._words, Ragged)
        return self._words

    @property
    def held_out_ids(self) -> Ragged:
        """All words of the held-out texts, for what learns from these, too."""
        assert isinstance(self._held_out_words, Ragged)
        return self._held_out_words

    @cached_property
    def held_out_known_ids(self) -> Ragged:
        """The words of the held-out texts as of new texts: without those that occur nowhere else."""
        if not isinstance(self.vocabulary, Vocabulary):
            return self.held_out_ids
        return self.held_out_ids.keep(self.is_learnt_word[self.held_out_ids.values])

    @cached_property
    def is_learnt_word(self) -> np.ndarray:
        """Which words of the vocabulary, which has those of held-out texts, too, occur in training texts or names."""
        is_learnt = np.bincount(self.word_ids.values, minlength=self.n_words) > 0
        names = self.name_ids.take(np.flatnonzero(self.label_frequencies[self.named]))
        is_learnt[names.values] = True
        return is_learnt

    @cached_property
    def names_answer(self) -> bool:
        """Whether training texts with the same words as a label's name mostly have that label; True if there are none.

        Where labels are what a text belongs to, as the parents of a term, the text that is a label's name has others.
        """
        if not len(self.names) or not isinstance(self.vocabulary, Vocabulary):
            return True
        tokenizer, of_names = self.vocabulary.tokenizer, Ragged(np.arange(len(self.named) + 1), self.named)
        names = remember_texts(self.names, of_names, tokenizer)
        named = taught_labels(names, self.texts[: self.n_train], tokenizer)
        pairs, given = (rows.row_ids * self.n_labels + rows.values for rows in (named, self.labels[: self.n_train]))
        return bool(2 * np.isin(pairs, given).sum() >= len(pairs))

    @property
    def n_labels(self) -> int:
        return self.dataset.n_labels

    @property
    def n_words(self) -> int:
        return len(self.vocabulary)

    @property
    def padding(self) -> int:
        """What pads the inputs of shorter texts in a batch."""
        return -1 if "transformer" in self.options else self.n_words

    @property
    def labels_per_text(self) -> float:
        return len(self.labels.values) / max(len(self.labels), 1)

    @property
    def held_out_raw(self) -> Any:
        """The held-out texts, or rows of features, as a user would give them to `predict`."""
        features = self.dataset.features
        if features is None:
            return self.held_out_texts
        return (sparse.csr_array(features) if sparse.issparse(features) else np.asarray(features))[self.held_out]

    def held_out_known_share(self) -> np.ndarray:
        """The share of each held-out text's words that are known from elsewhere: see `is_learnt_word`."""
        if not isinstance(self.vocabulary, Vocabulary) or not len(self.vocabulary):
            return np.ones(len(self.held_out))
        return self.vocabulary.known_share(self.held_out_texts, self.is_learnt_word)

    @cached_property
    def tfidf(self) -> TfIdf:
        return TfIdf.fit(self.word_ids, self.n_words)

    @property
    def idf(self) -> np.ndarray:
        return self.tfidf.idf

    def word_vectors(self) -> np.ndarray:
        """Word vectors to start from: random ones, those of the user's file, or vectors learnt from the texts."""
        options, vocabulary = self.options, self.vocabulary
        if isinstance(vocabulary, Columns):
            words = [str(column) for column in range(len(vocabulary))]
        else:
            words = [*vocabulary.words, *vocabulary.subwords]
        if options.vector_init == "random":
            return random_vectors(words, options.embedding_dim, options.seed)
        if options.vectors and isinstance(vocabulary, Columns):
            return load_rows(options.vectors, len(vocabulary))
        if options.vectors:
            vectors, found = load_vectors(options.vectors, words, seed=options.seed)
            log.info("%s has vectors for %.0f %% of the words", options.vectors, 100 * found.mean())
            if 0 < found.mean() < FEW_VECTORS:
                log.warning(
                    "%s covers few of the words; the others start at random. Is it for the same language? "
                    "Without a file, vectors are learned from your texts, which is often better.",
                    options.vectors,
                )
            return vectors
        return learn_vectors(
            self.word_ids,
            self.n_words,
            options.embedding_dim,
            labels=self.labels,
            n_labels=self.n_labels,
            seed=options.seed,
            threads=options.threads,
        )

    def label_tree(self, n_clusters: int, correlated: bool = False) -> LabelTree:
        """Clusters of labels with similar texts; if `correlated`, labels that share texts belong together, too."""
        threads = self.options.threads
        rows = self.tfidf.transform(self._words) if isinstance(self._words, Ragged) else self._words
        centroids = label_centroids(rows, self.labels, self.n_labels, threads)
        n_clusters, seed = min(n_clusters, self.n_labels), self.options.seed
        if correlated:
            correlations = label_correlations(self.labels, self.n_labels, seed=seed, threads=threads)
            centroids = correlated_centroids(centroids, correlations, threads)
        return LabelTree.build(centroids, n_clusters, seed=seed, threads=threads, normalize=not correlated)

    def measure_scores(self, ids: np.ndarray, scores: np.ndarray) -> dict[str, float]:
        """The metrics of these candidates (held-out texts × K, -1 for none), ranked by these scores, −∞ for none."""
        return self.measure(best_of_candidates(ids, scores, 5)[0])

    def measure(self, ids: np.ndarray) -> dict[str, float]:
        """The metrics of these labels (held-out texts × k)."""
        result = evaluate(ids, self.held_out_labels, train=(self.label_frequencies, self.n_train))
        return {name: result[name] for name in METRICS}


Inputs = tuple[Vocabulary | Columns, Any, Texts, np.ndarray]


def read_inputs(dataset: Dataset, options: Options) -> Inputs:
    """What reads the inputs, what it gives for them, and the names of labels, with their labels.

    The inputs of the names follow those of the texts.
    """
    no_names = Texts.from_strings([]), np.zeros(0, np.int32)
    if dataset.features is not None:
        columns = Columns(dataset.features.shape[1], dataset.input_kind == "dense")
        return columns, columns.encode(dataset.features), *no_names
    if "min_count" not in options:  # the recipe does not look at the texts
        return Vocabulary([], np.zeros(0)), Ragged.from_lists([[]] * len(dataset)), *no_names
    return read_words(dataset, options)


def read_words(dataset: Dataset, options: Options) -> Inputs:
    stop_words = options.get("stop_words", "")
    tokenizer = Tokenizer(
        options.get("split", "words"),
        stop_words=tuple(stop_words) if isinstance(stop_words, list) else stop_words or (),
    )
    sizes = {
        "min_count": options.min_count,
        "max_words": options.get("max_vocabulary", 0) or None,
        "subword_lengths": subword_lengths(options.get("subwords", "")),
        "subwords_of_all": options.get("subwords_of", "rare") == "all",
    }
    vocabulary, word_ids = Vocabulary.build_and_encode(dataset.texts, tokenizer, **sizes)
    if not len(vocabulary):
        raise DataError(
            f"there are no words to learn from: no word of the texts occurs {options.min_count:,} times or more. Lower "
            "min_count, or check the texts and the stop words."
        )
    names, named = Texts.from_strings([]), np.zeros(0, np.int32)
    if options.get("label_texts", "never") != "never" or options.get("reranker", "none") == "words":
        names, named = names_of_labels(dataset, vocabulary)
    if len(names):  # their words may occur in texts to come
        texts = Texts.concatenate([dataset.texts, names])
        vocabulary, word_ids = Vocabulary.build_and_encode(texts, tokenizer, **sizes)
    return vocabulary, word_ids, names, named


def rows_of(inputs: Any, rows: np.ndarray) -> Any:
    return inputs.take(rows) if isinstance(inputs, Ragged) else inputs[rows]


def subword_lengths(subwords: str) -> tuple[int, int] | None:
    """The shortest and the longest subword of "3-4"."""
    if not subwords:
        return None
    shortest, _, longest = subwords.partition("-")
    return int(shortest), int(longest or shortest)


def names_of_labels(dataset: Dataset, vocabulary: Vocabulary) -> tuple[Texts, np.ndarray]:
    """The names of labels, where they are words and not codes, and the label of each.

    A display name is words. A label that is its own name is words if more than half of them are known from the texts;
    if most labels are words, all are. Further names are words, too: a label may have several.
    """
    names = [dataset.display_name(label) for label in dataset.label_names]
    given = np.asarray([label in dataset.display_names for label in dataset.label_names], bool)
    n_words = Vocabulary.build_and_encode(names, vocabulary.tokenizer)[1].counts
    is_words = 2 * vocabulary.encode(names).counts > n_words
    if 2 * np.count_nonzero(is_words[~given]) > np.count_nonzero(~given):
        is_words[:] = True
    labels = np.flatnonzero((is_words | given) & (n_words > 0)).astype(np.int32)
    more = [(i, name) for i, label in enumerate(dataset.label_names) for name in dataset.more_names.get(label, ())]
    named = np.append(labels, np.array([i for i, _ in more], np.int32)).astype(np.int32)
    return Texts.from_strings([*(names[label] for label in labels), *(name for _, name in more)]), named


def with_names(data: TrainingData, names: np.ndarray) -> tuple[Texts, Ragged, Ragged]:
    """Texts, word ids and labels of the training part, followed by copies of some names."""
    copies = np.tile(names, 1 if data.options.get("reranker", "none") == "words" else COPIES_OF_NAMES)
    texts = Texts.concatenate([data.texts, data.names.take(copies)])
    inputs = Ragged.concatenate([data.inputs, data.name_ids.take(copies)])
    labels_of_names = Ragged(np.arange(len(copies) + 1), data.named[copies])
    return texts, inputs, Ragged.concatenate([data.labels, labels_of_names])


def names_are_texts(data: TrainingData, names: np.ndarray) -> bool:
    """Whether to learn from names as from texts.

    Where they mislead, as names of software libraries that descriptions use as common words, they cost points. Whether
    they do shows in seconds, before any training: centroids with names, or those without, rank held-out texts better.
    """
    wanted, rows = data.options.get("label_texts", "never"), slice(0, MAX_TEXTS_TO_CHOOSE_ON)
    if wanted == "auto" and not data.names_answer:
        log.info("not learning from names: texts with the same words as a label's name have other labels")
        return False
    if wanted != "auto" or len(data.held_out) < MIN_TEXTS_TO_CHOOSE_ON:
        return wanted != "never"
    held_out_labels = data.held_out_labels[rows]
    quality = {}
    for use_names in (False, True):
        _, word_ids, labels = with_names(data, names) if use_names else (None, data.inputs, data.labels)
        tfidf = TfIdf.fit(word_ids, data.n_words)
        centroids = label_centroids(tfidf.transform(word_ids), labels, data.n_labels, data.options.get("threads", None))
        classifier = SparseClassifier.of_rows(centroids)
        ids, _ = classifier.best(tfidf.transform(data.held_out_inputs[rows]), Candidates(), 5)
        quality[use_names] = evaluate(ids, held_out_labels, k=(5,))["N@5"]
    without, with_them = quality[False], quality[True]
    log.info("names of labels as texts (tried with centroids): nDCG@5 %.2f with them, %.2f without", with_them, without)
    return quality[True] >= quality[False]


def weighted_labels(labels: Ragged) -> Ragged:
    """The labels of each text with weights up to 1, or without if all are equal. With 0 or less, they are no labels."""
    if labels.weights is None or not len(labels.weights):
        return Ragged(labels.indptr, labels.values)
    labels = labels.keep(labels.weights > 0)
    assert labels.weights is not None
    weights = labels.weights / labels.weights.max(initial=0)
    return Ragged(labels.indptr, labels.values, None if (weights == 1).all() else weights.astype(np.float32))


def cut_validation(labels: Ragged, fraction: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows to train on and rows to hold out, both ascending. Held-out rows are drawn as new texts would fall.

    Labels that occur in held-out rows only stay unknown to what is learnt from the others, as are labels of new texts.

    >>> train, held_out = cut_validation(Ragged.from_lists([[0]] * 8), fraction=0.25, seed=0)
    >>> len(train), len(held_out)
    (6, 2)
    """
    order = np.random.default_rng(seed).permutation(len(labels))
    held_out = np.zeros(len(labels), bool)
    held_out[order[: round(fraction * len(labels))]] = True
    held_out &= labels.counts > 0
    if held_out.sum() == np.count_nonzero(labels.counts):
        held_out[:] = False  # there would be nothing to learn from
    return np.flatnonzero(~held_out), np.flatnonzero(held_out)
