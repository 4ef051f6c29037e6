"""XML-CNN on all labels, and its encoder in DeepXML's modules."""

from __future__ import annotations

from shortlist.recipes.astec import DEEPXML_PHASES
from shortlist.recipes.common import CNN_OPTIONS, DEEPXML_OPTIONS, RUN, TEXT_OPTIONS
from shortlist.recipes.inceptionxml import JOINT_OPTIONS
from shortlist.recipes.recipe import Recipe

XML_CNN = Recipe(
    name="xml-cnn",
    summary="XML-CNN: convolutions over neighbouring words, every text trained on all labels",
    cost="as inceptionxml",
    choose_when="as a published model to compare with, or where word order says much",
    encoder="cnn",
    phases=("joint",),
    options=(*JOINT_OPTIONS, *CNN_OPTIONS, *RUN),
)
DEEPXML_CNN = Recipe(
    name="deepxml-cnn",
    summary="XML-CNN's encoder in DeepXML's modules",
    cost="about three times as much as astec",
    choose_when="as xml-cnn, for more labels",
    encoder="cnn",
    phases=DEEPXML_PHASES,
    options=(*TEXT_OPTIONS, *DEEPXML_OPTIONS, *CNN_OPTIONS, *RUN),
)
RECIPES = (XML_CNN, DEEPXML_CNN)
