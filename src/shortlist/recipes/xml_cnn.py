"""XML-CNN on all labels, and its encoder in DeepXML's modules."""

from __future__ import annotations

from shortlist.recipes.common import CNN_OPTIONS, RUN, TEXT_OPTIONS
from shortlist.recipes.deepxml import DEEPXML_OPTIONS, DEEPXML_PHASES, DEEPXML_PUBLISHED
from shortlist.recipes.inceptionxml import ENCODER_PUBLISHED, JOINT_OPTIONS, JOINT_PUBLISHED
from shortlist.recipes.options import Published
from shortlist.recipes.recipe import Recipe

# InceptionXML reads texts "following (Liu et al., 2017)": as here. "Implementations" are public ones by others.
CNN_PUBLISHED = {
    **{name: ENCODER_PUBLISHED[name] for name in ("vector_init", "split", "stop_words", "group_by_length")},
    "max_vocabulary": Published(30_000, "XML-CNN: the 30,000 most frequent words"),
    "max_words": Published(500, "XML-CNN: texts of 500 words, padded or cut"),
    "label_texts": Published("never", "XML-CNN: labels have no names"),
    "channels": Published.by_size(
        "XML-CNN: 128 feature maps on small data sets, 32 on large ones", "labels", 128, (50_000, 32)
    ),
    "n_chunks": Published(32, "XML-CNN: p chunks; 32 in implementations"),
    "fixed_chunks": Published(True, "XML-CNN: chunks of the padded text"),
    "hidden_size": Published(512, "XML-CNN: bottleneck of 512 units"),
    "word_dropout": Published(0.25, "implementations"),
    "dropout": Published(0.5, "XML-CNN"),
    "weight_init": Published("xavier", "implementations"),
}

XML_CNN = Recipe(
    name="xml-cnn",
    summary="XML-CNN: convolutions over neighbouring words, every text trained on all labels",
    cost="as inceptionxml",
    choose_when="as a published model to compare with, or where word order matters",
    encoder="cnn",
    phases=("joint",),
    options=(*JOINT_OPTIONS, *CNN_OPTIONS, *RUN),
    published={
        **CNN_PUBLISHED,
        **{name: JOINT_PUBLISHED[name] for name in ("optimizer", "patience")},
        "loss_reduction": Published("sum", "XML-CNN: 1/n · ΣΣ over texts and labels"),
        "reranker": Published("none", "XML-CNN"),
        "schedule": Published("step", "implementations: constant"),
        "decay_epoch": Published(1000, "implementations: never halved"),
        "learning_rate": Published(0.001, "implementations"),
        "n_epochs": Published(30, "implementations"),
        "batch_size": Published(128, "implementations"),
        "row_init": Published("xavier", "implementations"),
        "bias_init": Published("zero", "XML-CNN"),
        "block": Published("none", "XML-CNN: the bottleneck is the last hidden layer"),
    },
)
DEEPXML_CNN = Recipe(
    name="deepxml-cnn",
    summary="XML-CNN's encoder in DeepXML's modules",
    cost="about three times as much as astec",
    choose_when="as xml-cnn, for more labels",
    encoder="cnn",
    phases=DEEPXML_PHASES,
    options=(*TEXT_OPTIONS, *DEEPXML_OPTIONS, *CNN_OPTIONS, *RUN),
    published={**DEEPXML_PUBLISHED, **CNN_PUBLISHED},
)
RECIPES = (XML_CNN, DEEPXML_CNN)
