"""Encoders without torch: word ids, or rows of features, to one feature vector per text."""

from __future__ import annotations

from shortlist.stages.encoders.bag import BagEncoder
from shortlist.stages.encoders.cnn import CNNEncoder
from shortlist.stages.encoders.combined import ParallelEncoders
from shortlist.stages.encoders.encoder import Encoder, FunctionEncoder
from shortlist.stages.encoders.given import GivenEncoder, NoEncoder, TfIdfEncoder, UnitRowsEncoder
from shortlist.stages.encoders.inception import InceptionEncoder

__all__ = [
    "ENCODERS",
    "BagEncoder",
    "CNNEncoder",
    "Encoder",
    "FunctionEncoder",
    "GivenEncoder",
    "InceptionEncoder",
    "NoEncoder",
    "ParallelEncoders",
    "TfIdfEncoder",
    "UnitRowsEncoder",
]

ENCODERS: dict[str, type[Encoder]] = {
    encoder.kind: encoder
    for encoder in (
        BagEncoder,
        CNNEncoder,
        GivenEncoder,
        InceptionEncoder,
        NoEncoder,
        ParallelEncoders,
        TfIdfEncoder,
        UnitRowsEncoder,
    )
}
