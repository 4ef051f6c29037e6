"""AttentionXML (You et al. 2019): each label attends to the words of a text, which a bidirectional LSTM has read."""

from __future__ import annotations

from shortlist.recipes.common import OPTIMIZATION_OPTIONS, RUN, TEXT_OPTIONS, clusters_searched, epochs, given_vectors
from shortlist.recipes.options import DataSize, Option, Published, by_size, choice, count, flag, fraction, rate, share
from shortlist.recipes.recipe import Recipe

# More labels than this are scored in two steps: clusters of labels first, then the labels of the best clusters.
LABELS_OF_ONE_LEVEL, LABELS_PER_CLUSTER = 4000, 16
# The paper has one setting for its sets of some 15,000 texts, and one for those of 500,000 texts and more.
FEW_TEXTS = 100_000


def _n_clusters(size: DataSize) -> int:
    return 1 if size.n_labels <= LABELS_OF_ONE_LEVEL else -(-size.n_labels // LABELS_PER_CLUSTER)


PROGRAM, TABLE = "program", "program (configure/models)"
ATTENTIONXML_PUBLISHED = {
    "vector_init": given_vectors("AttentionXML: GloVe, 300 dimensions"),
    "max_vocabulary": Published(500_000, "AttentionXML: 500,000 words"),
    "max_words": Published(500, "AttentionXML: texts are cut after 500 words"),
    "group_by_length": Published(False, PROGRAM),
    "label_texts": Published("never", "AttentionXML: texts only"),
    "reranker": Published("none", "AttentionXML: no re-ranker"),
    "patience": Published(1000, f"{PROGRAM}: all epochs"),
    "tune_search": Published(False, "AttentionXML: always the C best nodes"),
    "n_epochs": Published.by_size(TABLE, "texts", 30, (FEW_TEXTS, 10)),
    "batch_size": Published.by_size(TABLE, "texts", 40, (FEW_TEXTS, 200)),
    "learning_rate": Published(0.001, "AttentionXML: Adam, 0.001"),
    "optimizer": Published("adam", "AttentionXML: Adam"),
    "schedule": Published("step", "AttentionXML: a constant learning rate"),
    "decay_epoch": Published(lambda size: size.options["n_epochs"], "a constant learning rate", "all epochs"),
    "hidden_size": Published.by_size(TABLE, "texts", 256, (FEW_TEXTS, 512)),
    "linear_sizes": Published.by_size(TABLE, "texts", "256", (FEW_TEXTS, "512,256")),
    "word_dropout": Published(0.2, "AttentionXML: after the embedding"),
    "dropout": Published(0.5, "AttentionXML: after the LSTM"),
    "freeze_words": Published(
        lambda size: bool(size.options["vectors"]) and size.n_texts < FEW_TEXTS,
        TABLE,
        "true below 100,000 texts with a file of vectors; false otherwise",
    ),
    "query_init": Published("xavier", PROGRAM),
    "bias_init": Published("zero", PROGRAM),
    "averaging_start": Published.by_size(
        "AttentionXML: stochastic weight averaging; program: from epoch 10 of 30, or 2 of 10",
        "texts",
        1 / 3,
        (FEW_TEXTS, 0.2),
    ),
    "n_clusters": Published(
        lambda size: 1 if size.n_labels <= 50_000 else -(-size.n_labels // 64),
        f"{TABLE}: no tree up to 31,000 labels; 64 labels per cluster for 500,000",
        "1; labels / 64 from 50,000 labels on",
    ),
    "n_clusters_searched": Published(
        lambda size: min(15, size.options["n_clusters"]), f"{TABLE}: C = 15", "15, at most the clusters"
    ),
}

ATTENTIONXML = Recipe(
    name="attentionxml",
    summary="AttentionXML: a bidirectional LSTM, and for each label its own attention over the words",
    cost="minutes to hours on 2 cores; time grows with texts times labels, with many labels only slowly",
    choose_when="as a published model to compare with, or where a few words of a longer text decide",
    encoder="lstm",
    phases=("attention_clusters", "attention_labels"),
    options=(
        *TEXT_OPTIONS,
        epochs(10, 4, 30),
        count("batch_size", help="texts per step", **by_size("texts", 40, (FEW_TEXTS, 200))),
        rate("learning_rate", 0.002, "peak of the learning rate"),
        *(option for option in OPTIMIZATION_OPTIONS if option.name in ("optimizer", "schedule", "decay_epoch")),
        count("hidden_size", 128, "size of the LSTM's hidden state, in each direction"),
        Option(
            "linear_sizes",
            (str,),
            "128",
            "sizes of one or two fully connected layers after the attention, such as 512,256",
            pattern=r"[1-9]\d*(,[1-9]\d*)?",
        ),
        fraction("word_dropout", 0.3, "share of the word vectors' values that is dropped at random"),
        fraction("dropout", 0.7, "share of the hidden states' values that is dropped at random"),
        flag("freeze_words", False, "leave the word vectors as they start"),
        choice(
            "query_init",
            "centroids",
            "how the labels' queries start: centroids: at the mean hidden states of their texts; xavier: at random",
            ("centroids", "xavier"),
        ),
        choice(
            "bias_init",
            "prior",
            "how the bias of the output starts: prior: at the log-odds of the mean label probability; zero",
            ("prior", "zero"),
        ),
        share("averaging_start", 1.0, "share of the training after which weights are averaged; 1: never"),
        count(
            "n_clusters",
            _n_clusters,
            "clusters of labels, the upper level of the label tree; 1: no tree",
            "1 up to 4,000 labels; labels / 16",
        ),
        clusters_searched(n_labels_seen=960),
        *RUN,
    ),
    published=ATTENTIONXML_PUBLISHED,
)
RECIPES = (ATTENTIONXML,)
