"""Other systems' features in DeepXML's pipeline, and Slice, which is the pipeline without learning any."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from shortlist.encoders.bag_runtime import BagRuntime
from shortlist.encoders.cnn_runtime import CNNRuntime
from shortlist.encoders.given_runtime import GivenRuntime
from shortlist.encoders.inception_runtime import InceptionRuntime
from shortlist.encoders.mlp_runtime import MLPRuntime
from shortlist.errors import OptionError
from shortlist.model.deepxml import AstecOptions, DeepXMLModel, DeepXMLOptions
from shortlist.model.inception import InceptionForm
from shortlist.model.mach import HashedForm
from shortlist.model.xml_cnn import CNNForm
from shortlist.text import Tokenizer


@dataclass(frozen=True)
class InceptionDeepXMLOptions(InceptionForm, DeepXMLOptions):
    """How to train DeepXML's modules with InceptionXML's encoder."""


class InceptionDeepXMLModel(DeepXMLModel):
    """The features are those of InceptionXML."""

    recipe = "inceptionxml-deepxml"
    Options = InceptionDeepXMLOptions
    encoder = "inception"
    Runtime = InceptionRuntime


@dataclass(frozen=True)
class CNNDeepXMLOptions(CNNForm, DeepXMLOptions):
    """How to train DeepXML's modules with XML-CNN's encoder."""


class CNNDeepXMLModel(DeepXMLModel):
    """The features are those of XML-CNN."""

    recipe = "deepxml-cnn"
    Options = CNNDeepXMLOptions
    encoder = "cnn"
    Runtime = CNNRuntime


@dataclass(frozen=True)
class MLPDeepXMLOptions(HashedForm, DeepXMLOptions):
    """How to train DeepXML's modules with MACH's encoder."""


class MLPDeepXMLModel(DeepXMLModel):
    """The features are those of MACH."""

    recipe = "deepxml-mlp"
    Options = MLPDeepXMLOptions
    encoder = "mlp"
    Runtime = MLPRuntime


@dataclass(frozen=True)
class SliceOptions(AstecOptions):
    """How to train Slice: features stay as they are, and only the index of the labels makes shortlists."""

    reranker: bool = False
    surrogate: str = "none"
    sampling: str = "slice"
    share: float = 0.0


def fixed_runtime(arrays: dict[str, np.ndarray], max_words: int) -> GivenRuntime | BagRuntime:
    """Features that were given, or sums of word vectors."""
    return GivenRuntime(arrays) if "scale" in arrays else BagRuntime(arrays, max_words)


class SliceModel(DeepXMLModel):
    """The features are given, as a matrix in place of the texts; of texts, the weighted sum of their word vectors."""

    recipe = "slice"
    Options = SliceOptions
    encoder = "fixed"
    Runtime = staticmethod(fixed_runtime)
    takes_features = True

    def _rank(self, inputs: Any, k: int, threads: int | None, search_effort: float) -> tuple[np.ndarray, np.ndarray]:
        if not self._takes(inputs):
            return super()._rank(inputs, k, threads, search_effort)
        return self.pipeline.rank(inputs, k, self._searched_with(search_effort), threads)

    def _scores(self, inputs: Any, ids: np.ndarray, threads: int | None) -> np.ndarray:
        if not self._takes(inputs):
            return super()._scores(inputs, ids, threads)
        return self.pipeline.scores(inputs, ids, self.searched, threads)

    @property
    def tokenizer(self) -> Tokenizer | None:
        return None if isinstance(self.pipeline.encoder, GivenRuntime) else super().tokenizer

    def _takes(self, inputs: Any) -> bool:
        """Whether these are features for a model that was trained on features."""
        if not isinstance(self.pipeline.encoder, GivenRuntime):
            return False
        if not hasattr(inputs, "shape"):
            raise OptionError("this model was trained on features; give it a matrix, one row a text")
        return True
