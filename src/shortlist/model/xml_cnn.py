"""The recipe `xml-cnn`: XML-CNN's encoder, learnt together with the rows of all labels."""

from __future__ import annotations

from dataclasses import dataclass

from shortlist.encoders.cnn_runtime import CNNRuntime
from shortlist.model.inception import InceptionModel, JointOptions


@dataclass(frozen=True)
class CNNForm:
    """The encoder of XML-CNN.

    channels  filters of each width
    chunks    into how many parts a text is cut; of each, the most that a filter sees is kept
    hidden    how many features are made of that
    dropout   share of these that is left out at random
    """

    channels: int = 128
    chunks: int = 2
    hidden: int = 512
    dropout: float | None = 0.5


@dataclass(frozen=True)
class XMLCNNOptions(CNNForm, JointOptions):
    """How to train XML-CNN."""


class XMLCNNModel(InceptionModel):
    """Word vectors through XML-CNN's filters to features; every label scored by its row of weights."""

    recipe = "xml-cnn"
    Options = XMLCNNOptions
    encoder = "cnn"
    Runtime = CNNRuntime
