"""Options that several families of recipes share."""

from __future__ import annotations

import math
from dataclasses import replace

from shortlist.arrays import MAX_SEED
from shortlist.kernels.threads import n_cores
from shortlist.recipes.options import DataSize, Option, Published, by_size, choice, count, flag, fraction, rate, share


def default_dropout(size: DataSize) -> float:
    return round(min(max(0.85 - 0.27 * math.log10(size.scale), 0.25), 0.9), 2)


def epochs(
    factor: float, least: int, most: int, name: str = "n_epochs", help: str = "passes over the training texts"
) -> Option:
    rule = f"{factor:g} / √(texts / 10,000), {least} to {most}"
    return count(name, lambda size: round(min(max(factor * size.scale**-0.5, least), most)), help, rule)


def surrogate_epochs(factor: float, least: int, most: int) -> Option:
    help = "passes over the texts in which the features are learnt"
    return epochs(factor, least, most, "n_surrogate_epochs", help)


def clusters_searched(n_labels_seen: int) -> Option:
    """So many clusters that a text sees about this many labels."""

    def default(size: DataSize) -> int:
        n_clusters = min(size.options["n_clusters"], size.n_labels)
        return min(max(-(-n_labels_seen * n_clusters // size.n_labels), 1), max(n_clusters, 1))

    help = "clusters whose labels a text sees"
    return count("n_clusters_searched", default, help, f"{n_labels_seen:,} labels' worth")


def given_vectors(source: str) -> Published:
    """In a published form: word vectors start as those of a file, if there is one."""
    rule = "given, with a file of vectors; random without"
    return Published(lambda size: "given" if size.options["vectors"] else "random", source, rule)


def decay_epoch(name: str, n_epochs: str, when: str) -> Option:
    return count(
        name,
        lambda size: -(-size.options[n_epochs] // 2),
        f"{when}: halve the learning rate after this many epochs",
        "half of the epochs",
    )


BATCH_SIZE = count("batch_size", help="texts per step", **by_size("texts", 128, (200_000, 256)))
DROPOUT = fraction(
    "dropout",
    default_dropout,
    "share of the features that is dropped at random",
    "0.85 − 0.27 · log10(texts / 10,000), 0.25 to 0.9",
)
VALIDATION_FRACTION = fraction(
    "validation_fraction",
    lambda size: min(max(0.05, min(0.1, 800 / size.n_texts)), 5000 / size.n_texts),
    "share of the texts that is held out, to choose weights and to calibrate scores",
    "0.05; up to 0.1 where that is fewer than 800 texts; at most 5,000 texts",
)
MAX_TAIL_LOSS = Option(
    "max_tail_loss",
    (float,),
    0.5,
    "how many points of P@1 on held-out texts tail=auto, which ranks rare labels higher, may cost",
    low=0,
)
THREADS = count("threads", lambda size: n_cores(), "number of threads", "all cores")
SEED = Option("seed", (int,), 0, "random seed", low=0, high=MAX_SEED)

LABEL_TEXTS = replace(
    choice(
        "label_texts",
        "auto",
        "whether label names are additional training texts, where they are words and not codes; auto: if centroids "
        "then find the labels of held-out texts better",
        ("auto", "always", "never"),
    ),
    aliases=((True, "always"), (False, "never")),
)
STOP_WORDS = Option("stop_words", (str, list), "", "words to ignore: a list, or the name of a language")

RERANKER_OPTIONS = (
    replace(
        choice(
            "reranker",
            "words",
            "what re-ranks the best candidates: words: a sparse linear classifier per label over words; network: a "
            "second network, trained on the mistakes of the first; none",
            ("words", "network", "none"),
        ),
        aliases=((True, "words"), (False, "none")),
    ),
    count("n_reranked", 50, "candidates that are re-ranked"),
    Option(
        "C",
        (float,),
        0.0,
        "inverse regularisation of linear classifiers (reranker=words, classifier=slice or dismec), as in "
        "scikit-learn; 0: 1, or 4 for a re-ranker if that is clearly better on held-out texts",
        low=0,
    ),
    count("n_reranker_epochs", 12, "with reranker=network: passes over the texts"),
    rate("reranker_learning_rate", 0.002, "with reranker=network: peak of the learning rate"),
    decay_epoch("reranker_decay_epoch", "n_reranker_epochs", "with reranker=network and schedule=step"),
    share("beta", 0.0, "with reranker=network: its weight; 0: chosen on held-out texts from 0.1 to 0.9"),
)
# What every recipe with a seed has: how held-out texts decide.
HELD_OUT_OPTIONS = (
    VALIDATION_FRACTION,
    flag("tune_search", True, "search and re-rank less in prediction if that costs almost nothing on held-out texts"),
    MAX_TAIL_LOSS,
    count("patience", 10, "stop after this many epochs without improvement"),
    SEED,
)
TEXT_OPTIONS = (
    count("embedding_dim", 300, "dimensions of the word vectors"),
    Option(
        "vectors",
        (str,),
        "",
        "word vectors to start from: GloVe or fastText text, .npy, or a folder of static embeddings; empty: learn them",
    ),
    choice(
        "vector_init",
        "scaled",
        "how word vectors start: scaled: those of the file, or learnt ones, at the length that the encoder learns best "
        "from; given: the same as they are; random: U(−0.25, 0.25), like words that are not in the file",
        ("scaled", "given", "random"),
    ),
    choice("split", "words", "split texts at word boundaries, or at white space only", ("words", "whitespace")),
    STOP_WORDS,
    count("min_count", 1, "leave out words with fewer occurrences"),
    count("max_vocabulary", 0, "keep only this many of the most frequent words; 0: all", low=0),
    Option(
        "subwords",
        (str,),
        "",
        'lengths of character n-grams, such as "3-4", that stand for words that are left out or unknown (needs '
        "min_count 2 or more); empty: none",
        pattern=r"(\d+(-\d+)?)?",
    ),
    choice(
        "subwords_of",
        "rare",
        "whether subwords stand for words that are left out or unknown (rare), or follow every word (all)",
        ("rare", "all"),
    ),
    count(
        "max_words",
        lambda size: size.longest_row or 32,
        "words of a text that are read; of sparse features, the columns with the largest weights",
        "32; the longest row of sparse features",
    ),
    flag("group_by_length", True, "make batches of texts of about equal length, which is faster; false: at random"),
    LABEL_TEXTS,
    *RERANKER_OPTIONS,
    flag("store_examples", False, "store some held-out texts in the model card, for people to try"),
    count("keep_texts", 0, "training texts to store in the model, so that updates know what is not a new label", low=0),
    *HELD_OUT_OPTIONS,
)
RUN = (
    THREADS,
    Option(
        "device",
        (str,),
        "auto",
        "cpu, cuda (cuda:1 is the second GPU), or auto: CUDA if available, except for bags of words",
        pattern=r"auto|cpu|cuda(:\d+)?",
    ),
    Option("checkpoint_dir", (str,), "", "folder for checkpoints; empty: none are written"),
    flag("resume", False, "continue from the checkpoint in checkpoint_dir"),
    Option("checkpoint_minutes", (float,), 10.0, "minutes between checkpoints", low=0),
    Option(
        "minutes", (float,), 0.0, "time limit for training, in minutes, met by running fewer epochs; 0: no limit", low=0
    ),
)
LEARNING_RATE = rate("learning_rate", 0.004, "peak of the learning rate")
# How label rows and word vectors learn. Behind `n_epochs`, which one of the defaults needs.
OPTIMIZATION_OPTIONS = (
    choice(
        "optimizer",
        "row-adam",
        "optimiser of label rows and word vectors: row-adam: Adam without momentum, one second moment per row; adam: "
        "Adam on the rows of a batch (SparseAdam)",
        ("row-adam", "adam"),
    ),
    choice(
        "loss_reduction",
        "sum",
        "the loss of a text: the sum over its labels or candidates, or their mean",
        ("sum", "mean"),
    ),
    choice(
        "schedule",
        "one-cycle",
        "learning-rate schedule: one-cycle: up for 30 % of the training, then down to almost 0; one-cycle-published: "
        "up for 33 %, from a tenth of the peak; step: constant, halved once after decay_epoch",
        ("one-cycle", "one-cycle-published", "step"),
    ),
    decay_epoch("decay_epoch", "n_epochs", "with schedule=step"),
    choice(
        "row_init",
        "normal",
        "how label rows start: normal: small and normally distributed; xavier: Xavier's uniform distribution",
        ("normal", "xavier"),
    ),
    choice(
        "bias_init",
        "prior",
        "how the biases of label rows start: prior: at the log-odds of the mean label probability; zero; none: there "
        "are no biases",
        ("prior", "zero", "none"),
    ),
)

# The layers before the label rows, and how they start.
BLOCK_OPTIONS = (
    choice("weight_init", "torch", "how layers start: torch's default, or Xavier's, biases at 0", ("torch", "xavier")),
    choice(
        "block",
        "residual",
        "block before the label rows: residual: f(R·h) + h; linear: f(R·h), fully connected; or none",
        ("residual", "linear", "none"),
    ),
    choice("block_activation", "relu", "f of the block", ("relu", "gelu")),
    choice(
        "block_norm",
        "spectral",
        "norm of the block: spectral: the spectral norm of R is spectral_bound; batch: batch norm of f(R·h); or none",
        ("spectral", "batch", "none"),
    ),
    Option("spectral_bound", (float,), 1.0, "spectral norm of R (λ); 0: not bounded", low=0),
    flag("block_bias", False, "whether R has a bias"),
    fraction("block_dropout", 0.0, "share of the block's input that is dropped at random"),
    fraction("residual_dropout", 0.0, "share of f(R·h) that is dropped at random before h is added"),
    fraction("head_dropout", 0.0, "share of the block's output that is dropped at random"),
)

INCEPTION_OPTIONS = (
    count("channels", 32, "channels of the convolutions"),
    flag("attention", True, "let words and dimensions attend to each other before the convolutions"),
    choice(
        "attention_value",
        "vectors",
        "value of the attention over dimensions: the word vectors, or its query: what the attention over words gave",
        ("vectors", "query"),
    ),
    flag("norm_first", True, "batch norm before the GELU of each convolution; false: after it"),
    flag("project_norm", False, "a bias, GELU and batch norm after the projection of words to channels"),
    fraction("word_dropout", 0.0, "share of the numbers of the word vectors that is dropped at random"),
    fraction("project_dropout", 0.0, "share that is dropped after project_norm"),
    fraction("branch_dropout", 0.25, "share of the output of the three parallel convolutions that is dropped"),
    flag("bag", True, "append the sum of the word vectors to the convolved features"),
    flag("shuffle_words", True, "shuffle the words of a text in every epoch"),
    count("dimension_permutation", 0, "seed of a permutation of the dimensions before training; 0: none", low=0),
)
CNN_OPTIONS = (
    count("channels", 128, "filters of each width"),
    count("n_chunks", 2, "chunks of a text; each filter keeps its maximum in each chunk"),
    count("hidden_size", 512, "size of the hidden layer, which gives the features"),
    fraction("dropout", 0.5, "share of the features that is dropped at random"),
    fraction("word_dropout", 0.25, "share of the numbers of the word vectors that is dropped at random"),
    flag("fixed_chunks", False, "chunks of the text padded to max_words, not of the text"),
)
HASHED_OPTIONS = (
    count("n_word_buckets", 65_536, "buckets that words are hashed into, if there are more words than that"),
    choice(
        "hashing",
        "even",
        "how words and labels are hashed: even: at random, in equal numbers; universal: by a universal hash function",
        ("even", "universal"),
    ),
    fraction("dropout", 0.5, "share of the features that is dropped at random"),
)
