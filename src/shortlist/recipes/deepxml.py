"""DeepXML's four modules, which recipes with different encoders share: their phases and options. And the recipe of the
modules on dense features, such as embeddings of images or texts: module I learns on top of them.
"""

from __future__ import annotations

from shortlist.recipes.common import (
    BATCH_SIZE,
    BLOCK_OPTIONS,
    HELD_OUT_OPTIONS,
    OPTIMIZATION_OPTIONS,
    RUN,
    decay_epoch,
    epochs,
    given_vectors,
    surrogate_epochs,
)
from shortlist.recipes.options import DataSize, Option, Published, by_size, choice, count, flag, fraction, rate, share
from shortlist.recipes.recipe import Recipe

DEEPXML_PHASES = ("surrogate", "candidates", "classifier")


def graph(name: str, what: str, otherwise: str) -> Option:
    """An option with the sizes of HNSW graphs."""
    help = f"{what} by HNSW graphs with these M/efConstruction/efSearch, such as 100/300/300 (extra ann); empty: "
    return Option(name, (str,), "", help + otherwise, pattern=r"([2-9]|[1-9]\d+)/[1-9]\d*/[1-9]\d*|")


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
        lambda size: min(max(-(-size.n_labels // 64), 1024), 8192, size.n_labels),
        "clusters, groups or labels of the surrogate task",
        "labels / 64, 1,024 to 8,192, at most the labels",
    ),
    flag("label_correlations", False, "put labels that share texts into the same clusters, too"),
    surrogate_epochs(12, 3, 20),
    rate("surrogate_learning_rate", 0.004, "peak of the learning rate on the surrogate task"),
    decay_epoch("surrogate_decay_epoch", "n_surrogate_epochs", "with schedule=step, on the surrogate task"),
    flag("identity_start", False, "the block of the surrogate task starts as the identity, as that of the rows does"),
    choice(
        "negative_sampling",
        "neighbours",
        "labels that a text is trained on besides its own: neighbours: candidates; slice: nearest label centres only; "
        "uniform or frequent: at random",
        ("neighbours", "slice", "uniform", "frequent"),
    ),
    # Many texts teach rows on fewer candidates as well, in half the time; few texts do not (docs/lab-book.md).
    count(
        "n_candidates",
        help="candidates per text, in training and in prediction",
        **by_size("texts", 500, (200_000, 200)),
    ),
    count(
        "n_nearest_labels",
        lambda size: size.options["n_candidates"],
        "candidates that come from the nearest label centres, at most; the others come from texts that vote",
        "all candidates",
    ),
    count("n_random_negatives", 50, "labels per text and step that are drawn at random", low=0),
    flag("unit_centres", True, "a label's centre is the mean of its texts' directions; false: of their features"),
    count(
        "n_head_labels",
        -1,
        "most frequent labels that have several centres; -1: those with more than 1 % of the texts",
        low=-1,
    ),
    count("n_head_centres", 50, "centres that such a label has besides its mean, at most one for two texts"),
    graph("centre_graph", "index of label centres", "cells"),
    graph("text_graph", "index of texts that vote", "exact search up to 100,000 texts, then 32/100/n_neighbours"),
    count("n_neighbours", 50, "training texts that vote for their labels"),
    count("texts_per_label", 10, "texts of each label that may vote; 0: all texts", low=0),
    choice(
        "voting",
        "powers",
        "votes of a label: powers: sum of the fourth powers of its texts' cosines, as a share of all votes; sums: sum "
        "of the cosines, as a share of the largest such sum",
        ("powers", "sums"),
    ),
    Option(
        "vote_weight",
        (float,),
        0.0,
        "weight of these votes; cosines of label centres have the rest; 0: no index of texts, a smaller, faster model",
        low=0,
        high=1,
    ),
    choice(
        "classifier",
        "rows",
        "how labels are scored: rows: label rows learnt together with the block; slice: a linear SVM per label on its "
        "texts and on those that it is a candidate for; dismec: the same on all texts; neighbours: by votes alone",
        ("rows", "slice", "dismec", "neighbours"),
    ),
    choice(
        "blend",
        "logistic",
        "how logits and similarities (cosines, votes) become scores: logistic: logistic regression on held-out texts; "
        "mean: alpha · σ(logit) + (1 − alpha) · σ(similarity); none: logits alone",
        ("logistic", "mean", "none"),
    ),
    share("alpha", 0.0, "with blend=mean: weight of the logits; 0: chosen on held-out texts from 0.1 to 0.9"),
    Option(
        "similarity_scale",
        (float,),
        1.0,
        "with blend=mean: factor of the similarity; 0: mean length of the label rows",
        low=0,
    ),
    flag(
        "rows_from_centres",
        True,
        "label rows start at the mean direction of the label's texts, which saves epochs; false: as row_init says",
    ),
    epochs(6, 2, 6),
    rate("learning_rate", 0.002, "peak of the learning rate of the label rows"),
    *OPTIMIZATION_OPTIONS,
    *BLOCK_OPTIONS,
)


# With these, what has a row per label can be sharded over the workers of a cluster.
DEEPXML_ON_CLUSTER = {
    "classifier": ("rows",),
    "negative_sampling": ("neighbours",),
    "vote_weight": (0.0,),
    "centre_graph": ("",),
    "blend": ("logistic", "none"),
    "loss_reduction": ("sum",),
    "block_norm": ("spectral", "none"),
    "reranker": ("words", "none"),
    "device": ("auto", "cpu"),
    "minutes": (0.0,),
}

FINETUNE_ENCODER = flag(
    "finetune_encoder",
    False,
    "keep training the encoder together with the label rows, and index the labels again afterwards",
)

# What Table 5 and the authors' program set for each data set, as rules of the number of texts and labels. By them, the
# data sets of the paper get their values: AmazonTitles-670K, WikiSeeAlsoTitles-350K, WikiTitles-500K, AmazonTitles-3M.
# For the sizes that the paper does not look at, the program's settings for EURLex-4K are the nearest.
FEW_TEXTS, MANY_TEXTS, MANY_LABELS = 100_000, 500_000, 1_000_000


def _surrogate_rate(size: DataSize) -> float:
    if size.n_labels >= MANY_LABELS:
        return 0.003
    return 0.01 if size.n_texts < FEW_TEXTS else 0.02 if size.n_texts < MANY_TEXTS else 0.005


WORDS_PUBLISHED = {
    "vector_init": given_vectors("DeepXML A.1: fastText vectors"),
    "max_words": Published(
        lambda size: size.longest_row or 500,
        "DeepXML §4: all words of a text",
        "500; the longest row of sparse features",
    ),
    "group_by_length": Published(False, "program: batches at random"),
    "label_texts": Published("never", "DeepXML §4: label features are beyond its scope"),
    "patience": Published(1000, "program: all epochs"),
    "tune_search": Published(False, "DeepXML A.1: efS as given"),
}
DEEPXML_PUBLISHED = {
    **WORDS_PUBLISHED,
    "reranker": Published("network", "DeepXML §4, re-ranking the labels"),
    "n_reranked": Published.by_size("program: 200 best predictions; 100 for EURLex-4K", "texts", 100, (FEW_TEXTS, 200)),
    "n_reranker_epochs": Published.by_size("program", "texts", 15, (FEW_TEXTS, 12)),
    "reranker_learning_rate": Published.by_size("program", "texts", 0.005, (FEW_TEXTS, 0.002)),
    "reranker_decay_epoch": Published.by_size("program", "texts", 10, (FEW_TEXTS, 8)),
    "beta": Published(0.0, "DeepXML §4: β, chosen on held-out texts; program: 0.6"),
    "batch_size": Published(255, "program"),
    "surrogate": Published("clusters", "DeepXML §4, module I"),
    "n_clusters": Published(lambda size: min(65_536, size.n_labels), "DeepXML A.1: 2¹⁶", "65,536, at most the labels"),
    "label_correlations": Published(True, "DeepXML A.2"),
    "n_surrogate_epochs": Published(20, "program"),
    "surrogate_learning_rate": Published(
        _surrogate_rate,
        "DeepXML Table 5; program (EURLex-4K) for few texts",
        "0.02; below 100,000 texts 0.01; from 500,000 on 0.005; from a million labels on 0.003",
    ),
    "surrogate_decay_epoch": Published(10, "program"),
    "identity_start": Published(True, "DeepXML A.1: residual matrices from the identity"),
    "negative_sampling": Published("neighbours", "DeepXML §4, module II"),
    "n_candidates": Published(500, "DeepXML §4, module II: up to 500; A.1"),
    "n_nearest_labels": Published(400, "program; the search keeps as many, where efS is less"),
    "n_random_negatives": Published(50, "DeepXML §4, module II: up to 50"),
    "unit_centres": Published(False, "DeepXML §4, module II: mean of v over the label's texts"),
    "n_head_labels": Published(4, "DeepXML A.4"),
    "n_head_centres": Published(300, "DeepXML A.4"),
    "centre_graph": Published("50/50/100", "DeepXML A.1: M, efC, efS of ANNS^μ; program: 100/300/400"),
    "text_graph": Published("100/300/300", "DeepXML A.1: M, efC, efS of ANNS^x; program: 50/50/100"),
    "n_neighbours": Published(300, "program; DeepXML A.1: efS of ANNS^x"),
    "texts_per_label": Published(0, "DeepXML §4, module II: all training points"),
    "voting": Published("sums", "program"),
    "vote_weight": Published(0.075, "program: γ"),
    "classifier": Published("rows", "DeepXML §4, module IV"),
    "blend": Published("mean", "DeepXML §4, log-time prediction"),
    "alpha": Published(0.0, "DeepXML A.1: α, chosen on held-out texts"),
    "similarity_scale": Published(1.0, "DeepXML §4: σ(s)"),
    "n_epochs": Published.by_size("program", "texts", 20, (FEW_TEXTS, 15)),
    "learning_rate": Published.by_size(
        "DeepXML Table 5; program (EURLex-4K) for few texts", "texts", 0.007, (FEW_TEXTS, 0.002), (1_000_000, 0.0005)
    ),
    "decay_epoch": Published(14, "program"),
    "optimizer": Published("adam", "DeepXML §4: Adam; program: SparseAdam for word vectors and label rows"),
    "loss_reduction": Published("sum", "DeepXML equation (1)"),
    "schedule": Published("step", "program: halved once"),
    "row_init": Published("xavier", "DeepXML A.1"),
    "rows_from_centres": Published(False, "DeepXML A.1: label rows start at random"),
    "bias_init": Published("none", "DeepXML §4: w · x̂; the program has biases"),
    "block": Published("residual", "DeepXML §4, modules I and III"),
    "block_norm": Published("spectral", "DeepXML §4: by power iteration"),
    "spectral_bound": Published(1.0, "DeepXML §4, module III: λ ≤ 1; program: 1"),
    "block_bias": Published(False, "DeepXML §4: ReLU(R · v), as Theorem 1 needs; program: a bias from 0"),
    "residual_dropout": Published(0.5, "DeepXML §4: after each ReLU; A.1: 0.5"),
    "dropout": Published(0.5, "DeepXML §4: after each ReLU; A.1: 0.5"),
}

# Given features are good to begin with: fewer epochs keep what they know.
N_SURROGATE_EPOCHS = surrogate_epochs(16, 4, 30)
DEEPXML_FEATURES = Recipe(
    name="deepxml-features",
    summary="dense features and a hidden layer that learns on top of them, in DeepXML's modules",
    cost="as astec",
    choose_when="for dense features instead of texts: embeddings of images or texts",
    encoder="dense",
    phases=DEEPXML_PHASES,
    options=(
        *HELD_OUT_OPTIONS,
        *(N_SURROGATE_EPOCHS if option.name == "n_surrogate_epochs" else option for option in DEEPXML_OPTIONS),
        count("hidden_size", 512, "size of the hidden layer"),
        fraction("dropout", 0.5, "share of the features that is dropped at random"),
        *RUN,
    ),
    takes=("dense",),
)
RECIPES = (DEEPXML_FEATURES,)
