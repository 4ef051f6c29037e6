"""InceptionXML on all labels, InceptionXML+ (SyncXML) on clusters of labels, and its encoder in DeepXML's modules."""

from __future__ import annotations

from shortlist.recipes.astec import DEEPXML_PHASES
from shortlist.recipes.common import (
    BATCH_SIZE,
    DEEPXML_OPTIONS,
    DROPOUT,
    INCEPTION_OPTIONS,
    LEARNING_RATE,
    RUN,
    TEXT_OPTIONS,
    epochs,
)
from shortlist.recipes.options import DataSize, choice, count, share
from shortlist.recipes.recipe import Recipe

# Small clusters are more accurate, and cost more the more of them there are.
LABELS_PER_CLUSTER, LABELS_PER_CLUSTER_OF_MANY, MANY_CLUSTERS = 8, 16, 8192
LABELS_SEEN = 1600

JOINT_OPTIONS = (*TEXT_OPTIONS, epochs(40, 5, 60), BATCH_SIZE, LEARNING_RATE)


def _n_clusters(size: DataSize) -> int:
    of_many = max(-(-size.n_labels // LABELS_PER_CLUSTER_OF_MANY), MANY_CLUSTERS)
    return min(-(-size.n_labels // LABELS_PER_CLUSTER), of_many, size.n_labels)


def _n_clusters_searched(size: DataSize) -> int:
    n_clusters = min(size.options["n_clusters"], size.n_labels)
    return min(max(-(-LABELS_SEEN * n_clusters // size.n_labels), 1), n_clusters)


INCEPTIONXML = Recipe(
    name="inceptionxml",
    summary="convolutions over word vectors, every text trained on all labels",
    cost="minutes to an hour on 2 cores; time grows with texts times labels",
    choose_when="for the best accuracy with up to about 50,000 labels",
    encoder="inception",
    phases=("joint",),
    options=(*JOINT_OPTIONS, DROPOUT, *INCEPTION_OPTIONS, *RUN),
)
INCEPTIONXML_PLUS = Recipe(
    name="inceptionxml+",
    summary="the same encoder, every text trained on the labels of its best clusters only",
    cost="minutes to hours on 2 cores; hardly grows with the number of labels",
    choose_when="for many labels, up to millions",
    encoder="inception",
    phases=("joint",),
    options=(
        *JOINT_OPTIONS,
        DROPOUT,
        *INCEPTION_OPTIONS,
        count("n_clusters", _n_clusters, "clusters of labels", "labels / 8; of very many labels, labels / 16"),
        count("n_clusters_searched", _n_clusters_searched, "clusters whose labels a text sees", "1,600 labels' worth"),
        share("detach_fraction", 0.25, "share of the training in which the label rows do not move the encoder"),
        choice(
            "variant",
            "syncxml",
            "syncxml, or lightxml: no residual block in the meta-classifier, and scores multiplied by its scores",
            ("syncxml", "lightxml"),
        ),
        *RUN,
    ),
)
INCEPTIONXML_DEEPXML = Recipe(
    name="inceptionxml-deepxml",
    summary="InceptionXML's encoder in DeepXML's modules",
    cost="about three times as much as astec",
    choose_when="to see what the encoder alone changes",
    encoder="inception",
    phases=DEEPXML_PHASES,
    options=(*TEXT_OPTIONS, *DEEPXML_OPTIONS, DROPOUT, *INCEPTION_OPTIONS, *RUN),
)
RECIPES = (INCEPTIONXML, INCEPTIONXML_PLUS, INCEPTIONXML_DEEPXML)
