"""Encoders without torch: word ids, or rows of features, to one feature vector per text, or (LSTM) one per word."""

from __future__ import annotations

from shortlist.stages.encoders.bag import BagEncoder
from shortlist.stages.encoders.cnn import CNNEncoder
from shortlist.stages.encoders.combined import ParallelEncoders
from shortlist.stages.encoders.dense import DenseEncoder
from shortlist.stages.encoders.encoder import Encoder, FunctionEncoder
from shortlist.stages.encoders.given import GivenEncoder, NoEncoder, TfIdfEncoder, UnitRowsEncoder
from shortlist.stages.encoders.inception import InceptionEncoder
from shortlist.stages.encoders.lstm import LSTMEncoder
from shortlist.stages.encoders.transformer import TransformerEncoder

__all__ = [
    "ENCODERS",
    "BagEncoder",
    "CNNEncoder",
    "DenseEncoder",
    "Encoder",
    "FunctionEncoder",
    "GivenEncoder",
    "InceptionEncoder",
    "LSTMEncoder",
    "NoEncoder",
    "ParallelEncoders",
    "TfIdfEncoder",
    "TransformerEncoder",
    "UnitRowsEncoder",
]

ENCODERS: dict[str, type[Encoder]] = {
    encoder.kind: encoder
    for encoder in (
        BagEncoder,
        CNNEncoder,
        DenseEncoder,
        GivenEncoder,
        InceptionEncoder,
        LSTMEncoder,
        NoEncoder,
        ParallelEncoders,
        TfIdfEncoder,
        TransformerEncoder,
        UnitRowsEncoder,
    )
}
