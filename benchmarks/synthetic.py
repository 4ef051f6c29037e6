"""Synthetic data and models for benchmarks, of realistic shape and any size."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from scipy import sparse

import shortlist
from common import unit
from shortlist.arrays import Ragged, counts_to_indptr
from shortlist.model import Model
from shortlist.recipes.options import resolve
from shortlist.stages.candidates import NearestLabels
from shortlist.stages.classifier import RowClassifier
from shortlist.stages.encoders import BagEncoder
from shortlist.stages.evidence import index_names, remember_texts
from shortlist.stages.pages import paged_weights
from shortlist.stages.pipeline import Pipeline
from shortlist.stages.reranker import Mixture, Reranker
from shortlist.text import Vocabulary
from shortlist.text.texts import Texts

DIGITS = 7
LABELS_PER_TOPIC = 50


def random_dataset(n_texts, n_labels, n_words):
    """Texts of about nine words with a long-tailed distribution, and one or more uniformly random labels each."""
    rng = np.random.default_rng(0)
    lengths = np.clip(rng.poisson(9, n_texts), 1, 32)
    words = np.minimum(n_words * rng.random(lengths.sum()) ** 4, n_words - 1).astype(np.int64)
    letters = np.empty((len(words), DIGITS + 1), np.uint8)
    for place in range(DIGITS):
        letters[:, DIGITS - 1 - place] = ord("a") + words // 10**place % 10
    letters[:, DIGITS] = ord(" ")
    texts = Texts(letters.reshape(-1), counts_to_indptr(lengths) * (DIGITS + 1))
    labels = random_labels(n_texts, n_labels, 2.5, rng)
    return shortlist.Dataset(texts, labels, [f"label {i}" for i in range(n_labels)])


def random_labels(n_texts, n_labels, labels_per_text, rng):
    """One label or more per text, no label twice."""
    texts = np.repeat(np.arange(n_texts), 1 + rng.poisson(labels_per_text - 1, n_texts))
    return distinct(texts, rng.integers(0, n_labels, len(texts)), n_texts)


def distinct(rows, values, n_rows):
    """The values of each row, sorted and without repeats."""
    n_values = int(values.max(initial=0)) + 1
    rows, values = np.divmod(np.unique(rows.astype(np.int64) * n_values + values), n_values)
    return Ragged(counts_to_indptr(np.bincount(rows, minlength=n_rows)), values.astype(np.int32))


def label_centres(n_labels, n_features, rng):
    """Unit vectors in groups, as labels are grouped in topics."""
    topics = unit(rng.standard_normal((-(-n_labels // LABELS_PER_TOPIC), n_features), dtype=np.float32))
    return unit(np.repeat(topics, LABELS_PER_TOPIC, axis=0)[:n_labels] + random_directions(n_labels, n_features, rng))


def random_directions(n, n_features, rng):
    return unit(rng.standard_normal((n, n_features), dtype=np.float32))


def label_index(centres, n_candidates):
    """The candidate stage over these label centres, in 8 bits, as prediction uses it."""
    n_labels = len(centres)
    return NearestLabels.build(centres, np.arange(n_labels, dtype=np.int32), n_labels, n_candidates).quantized()


def astec_model(n_labels, folder: Path, n_texts):
    """Save an `astec` model of random numbers with the usual shape; return texts for it."""
    rng = np.random.default_rng(0)
    n_words, n_subwords, n_features, words_per_label = 200_000, 30_000, 300, 60
    words = [f"w{number:x}" for number in range(n_words)]
    vocabulary = Vocabulary(words, np.ones(n_words))
    subwords = Vocabulary([f"{number:04x}" for number in range(n_subwords)], np.ones(n_subwords))
    idf, subword_idf = np.ones(n_words, np.float32), np.ones(n_subwords, np.float32)
    vectors = random_directions(n_words, n_features, rng)
    # The centre of a label is close to the words that it has.
    topics = random_directions(-(-n_labels // LABELS_PER_TOPIC), n_features, rng)
    centres = unit(np.repeat(topics, LABELS_PER_TOPIC, axis=0)[:n_labels] + vectors[np.arange(n_labels) % n_words])
    candidates = label_index(centres, 500)
    candidates.n_searched = max(1, candidates.max_searched // 16)
    classifier = {
        "weights": 4 * centres,
        "biases": np.full(n_labels, -6, np.float32),
        "block": np.zeros((n_features, n_features), np.float32),
    }
    n_lexical = n_words + n_subwords
    words_of_labels = np.sort(rng.integers(n_lexical, size=(n_labels, words_per_label), dtype=np.int32), axis=1)
    weights = rng.standard_normal(words_of_labels.size, dtype=np.float32)
    bounds = np.arange(0, words_of_labels.size + 1, words_per_label)
    reranker = paged_weights(bounds, words_of_labels.ravel(), weights, np.zeros(n_labels, np.float32), n_lexical)
    reranker |= {"idf": idf, "subword_idf": subword_idf, "frequencies": np.ones(n_labels, np.float32)}
    # The name of a label is two of its words; each label has a text of nine words that was taught.
    in_names = np.arange(0, 2 * n_labels + 1, 2), words_of_labels[:, :2].ravel()
    names = sparse.csr_array((np.full(2 * n_labels, 0.5, np.float32), in_names[1], in_names[0]), (n_labels, n_lexical))
    taught = [" ".join(words[i] for i in row) for row in rng.integers(n_words, size=(n_labels, 9))]
    own = Ragged(np.arange(n_labels + 1), np.arange(n_labels, dtype=np.int32))
    reranker |= index_names(names) | remember_texts(taught, own, vocabulary.tokenizer)
    pipeline = Pipeline(
        vocabulary,
        BagEncoder({"words": vectors, "idf": idf}, {"max_words": 32}),
        candidates,
        RowClassifier(classifier, {"blend": {}}),
        Reranker(reranker, {"n_candidates": 100, "mixture": vars(Mixture())}, vocabulary, subwords),
    )
    options = resolve("astec", shortlist.get_recipe("astec").options, {}, n_labels=n_labels).model_options()
    Model("astec", options, [pipeline], [f"label {number}" for number in range(n_labels)]).save(folder)
    return [" ".join(words[i] for i in rng.integers(n_words, size=9)) for _ in range(n_texts)]
