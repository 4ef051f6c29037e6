"""Options that several families of recipes share."""

from __future__ import annotations

import math

from shortlist.kernels.threads import n_cores
from shortlist.recipes.options import DataSize, Option, choice, count, flag, fraction, rate


def default_dropout(size: DataSize) -> float:
    return round(min(max(0.85 - 0.27 * math.log10(size.scale), 0.25), 0.9), 2)


def epochs(factor: float, least: int, most: int) -> Option:
    return count(
        "n_epochs",
        lambda size: round(min(max(factor * size.scale**-0.5, least), most)),
        "passes over the training texts",
        f"{factor:g} / √(texts / 10,000), {least} to {most}",
    )


BATCH_SIZE = count(
    "batch_size",
    lambda size: 128 if size.n_texts < 200_000 else 256,
    "texts per step",
    "128; 256 from 200,000 texts on",
)
DROPOUT = fraction(
    "dropout",
    default_dropout,
    "share of the features that is dropped at random",
    "0.85 − 0.27 · log10(texts / 10,000), 0.25 to 0.9",
)
VALIDATION_FRACTION = fraction(
    "validation_fraction",
    lambda size: min(0.05, 5000 / size.n_texts),
    "share of the texts that is held out for early stopping, calibration and search effort",
    "0.05, at most 5,000 texts",
)
THREADS = count("threads", lambda size: n_cores(), "number of threads", "all cores")

TEXT_OPTIONS = (
    count("embedding_dim", 300, "dimensions of the word vectors"),
    Option(
        "vectors", (str,), "", "file of word vectors to start from (GloVe or fastText text, .npy); empty: learn them"
    ),
    count("min_count", 1, "leave out words with fewer occurrences"),
    Option(
        "subwords",
        (str,),
        "",
        'lengths of character n-grams, such as "3-4", that stand for words that are left out or unknown (needs '
        "min_count 2 or more); empty: none",
        pattern=r"(\d+(-\d+)?)?",
    ),
    count("max_words", 32, "words of a text that are read"),
    flag("label_texts", True, "learn from the names of labels, too, where these are words and not codes"),
    flag("reranker", True, "re-rank the best candidates with a linear classifier over words"),
    count("n_reranked", 100, "candidates that are re-ranked"),
    Option("C", (float,), 0.5, "inverse regularisation of the re-ranker, as in scikit-learn", low=0, open_low=True),
    VALIDATION_FRACTION,
    flag("store_examples", False, "store some held-out texts in the model card, for people to try"),
    count("patience", 10, "stop after this many epochs without improvement"),
    count("seed", 0, "random seed", low=0),
)
RUN = (
    THREADS,
    Option("device", (str,), "auto", "cpu, cuda, or auto: CUDA where it is available"),
    Option("checkpoint_dir", (str,), "", "folder for checkpoints; empty: none are written"),
    flag("resume", False, "continue from the checkpoint in checkpoint_dir"),
    Option("checkpoint_minutes", (float,), 10.0, "minutes between checkpoints", low=0),
)
LEARNING_RATE = rate("learning_rate", 0.004, "peak of the learning rate")

INCEPTION_OPTIONS = (
    count("channels", 32, "channels of the convolutions"),
    flag("attention", True, "let words and dimensions attend to each other before the convolutions"),
    flag("bag", True, "append the sum of the word vectors to the convolved features"),
    flag("shuffle_words", True, "shuffle the words of a text in every epoch"),
    count("dimension_permutation", 0, "seed of a permutation of the dimensions before training; 0: none", low=0),
)
CNN_OPTIONS = (
    count("channels", 128, "filters of each width"),
    count("n_chunks", 2, "chunks of a text; each filter keeps its maximum in each chunk"),
    count("hidden_size", 512, "size of the hidden layer, which gives the features"),
    fraction("dropout", 0.5, "share of the features that is dropped at random"),
)
HASHED_OPTIONS = (
    count("n_word_buckets", 65_536, "buckets that words are hashed into, if there are more words than that"),
    fraction("dropout", 0.5, "share of the features that is dropped at random"),
)

DEEPXML_OPTIONS = (
    BATCH_SIZE,
    choice(
        "surrogate",
        "clusters",
        "task that the features are learnt on: clusters of labels; hashed: random groups of labels; frequent: the most "
        "frequent labels; none: features stay as the word vectors give them",
        ("clusters", "hashed", "frequent", "none"),
    ),
    count(
        "n_clusters",
        lambda size: min(max(-(-size.n_labels // 8), 8192), 65_536, size.n_labels),
        "clusters, groups or labels of the surrogate task",
        "labels / 8, 8,192 to 65,536, at most the labels",
    ),
    count(
        "n_surrogate_epochs",
        lambda size: round(min(max(40 * size.scale**-0.5, 6), 60)),
        "passes over the texts in which the features are learnt",
        "40 / √(texts / 10,000), 6 to 60",
    ),
    rate("surrogate_learning_rate", 0.004, "peak of the learning rate on the surrogate task"),
    choice(
        "negative_sampling",
        "neighbours",
        "labels that a text is trained on beside its own: neighbours: candidates; slice: nearest label centres only; "
        "uniform or frequent: at random",
        ("neighbours", "slice", "uniform", "frequent"),
    ),
    count("n_candidates", 500, "candidates per text, in training and in prediction"),
    count("n_random_negatives", 50, "labels per text and step that are drawn at random", low=0),
    count("n_neighbours", 50, "training texts that vote for their labels"),
    count("texts_per_label", 10, "texts of each label that may vote"),
    Option(
        "vote_weight",
        (float,),
        0.0,
        "weight of these votes beside the cosines of label centres; 0: no index of texts, a smaller and faster model",
        low=0,
        high=1,
    ),
    epochs(20, 4, 20),
    rate("learning_rate", 0.002, "peak of the learning rate of the label rows"),
)
