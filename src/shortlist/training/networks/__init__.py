"""Encoders in training, as torch modules, and the torch-free stage that each becomes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch

from shortlist.arrays import Arrays
from shortlist.errors import OptionError
from shortlist.recipes.options import Options
from shortlist.recipes.recipe import CustomEncoder, Recipe
from shortlist.stages.encoders import BagEncoder, CNNEncoder, Encoder, FunctionEncoder, GivenEncoder, InceptionEncoder
from shortlist.stages.encoders.cnn import WIDTHS
from shortlist.stages.encoders.given import dense
from shortlist.training.data import TrainingData
from shortlist.training.networks.bag import BagNetwork, HashedBagNetwork
from shortlist.training.networks.cnn import CNNNetwork
from shortlist.training.networks.inception import InceptionNetwork, count_features

# Mean length of the word vectors at the start: longer ones learn more slowly, shorter ones forget where they began.
START_LENGTH = 2.5

Vectors = np.ndarray | None


class NetworkKind(NamedTuple):
    """How an encoder's network is made, which stage its arrays become, and the sizes that memory is planned by."""

    new: Callable[[TrainingData, Options, Any], Any]
    stage: Callable[[Arrays, dict[str, Any]], Encoder]
    n_features: Callable[[TrainingData, Options], int]
    floats_per_text: Callable[[Options], int]


class EncoderNetwork:
    """A network and the stage that it becomes: `stage(arrays)` is the encoder with these arrays, without torch."""

    def __init__(self, kind: NetworkKind, module: Any, data: TrainingData, options: Options) -> None:
        self._kind, self.module = kind, module
        config = module.config() if hasattr(module, "config") else {}
        self._config = {"max_words": options.max_words, "n_words": data.n_words, **config}

    def stage(self, arrays: Arrays | None = None) -> Encoder:
        return self._kind.stage(self.module.arrays() if arrays is None else arrays, self._config)


def new_network(recipe: Recipe, data: TrainingData, options: Options, vectors: Vectors = None) -> EncoderNetwork:
    """The network of a recipe's encoder at its start; `vectors` to start from, else those of the data."""
    kind = network_kind(recipe)
    vectors = data.word_vectors() if vectors is None and data.n_words else vectors
    return EncoderNetwork(kind, kind.new(data, options, vectors), data, options)


def network_kind(recipe: Recipe) -> NetworkKind:
    if isinstance(recipe.encoder, CustomEncoder):
        own = recipe.encoder
        return NetworkKind(
            lambda data, options, vectors: _seeded(own.network, options, data, options, vectors),
            lambda arrays, config: FunctionEncoder(arrays, config, own.name, own.encode),
            lambda data, options: options.embedding_dim,
            lambda options: 3 * options.max_words * options.embedding_dim,
        )
    if recipe.encoder not in NETWORKS:
        raise OptionError(
            f"recipe {recipe.name!r}: there is no encoder {recipe.encoder!r} that learns; "
            f"use {', '.join(NETWORKS)}, or a CustomEncoder"
        )
    return NETWORKS[recipe.encoder]


def _seeded(new: Callable[..., Any], options: Options, *arguments: Any) -> Any:
    torch.manual_seed(options.seed)
    return new(*arguments)


def new_bag(data: TrainingData, options: Options, vectors: np.ndarray) -> BagNetwork:
    vectors = _scaled(vectors)
    network = _seeded(BagNetwork, options, data.idf, vectors.shape[1], options.dropout, options.relu)
    return _with_vectors(network, vectors)


def new_inception(data: TrainingData, options: Options, vectors: np.ndarray) -> InceptionNetwork:
    vectors = _scaled_by_idf(data, vectors)
    if options.dimension_permutation:
        vectors = vectors[:, np.random.default_rng(options.dimension_permutation).permutation(vectors.shape[1])]
    sizes = (len(vectors), vectors.shape[1], options.max_words, options.channels)
    network = _seeded(InceptionNetwork, options, *sizes, options.dropout, options.attention, options.bag)
    return _with_vectors(network, vectors)


def new_cnn(data: TrainingData, options: Options, vectors: np.ndarray) -> CNNNetwork:
    vectors = _scaled_by_idf(data, vectors)
    sizes = (len(vectors), vectors.shape[1], options.channels, options.n_chunks, options.hidden_size)
    return _with_vectors(_seeded(CNNNetwork, options, *sizes, options.dropout), vectors)


def new_hashed_bag(data: TrainingData, options: Options, vectors: np.ndarray) -> HashedBagNetwork:
    """Words are dealt out to buckets at random; those of one bucket start at their mean."""
    vectors = _scaled(vectors)
    n_buckets = min(options.n_word_buckets, len(vectors))
    buckets = np.random.default_rng([options.seed, 1]).permutation(len(vectors)) % n_buckets
    rows = np.zeros((n_buckets, vectors.shape[1]), np.float32)
    np.add.at(rows, buckets, vectors)
    rows /= np.bincount(buckets, minlength=n_buckets).astype(np.float32)[:, None]
    return _with_vectors(_seeded(HashedBagNetwork, options, data.idf, buckets, vectors.shape[1], options.dropout), rows)


class _GivenNetwork:
    """Features that the user gives: nothing to learn, so no module; only a scale."""

    def __init__(self, encoder: GivenEncoder) -> None:
        self.n_features, self._arrays = encoder.n_features, encoder.arrays()

    def arrays(self) -> Arrays:
        return self._arrays


def new_fixed(data: TrainingData, options: Options, vectors: np.ndarray | None) -> Any:
    """Slice's encoder: the given features, scaled to the length that Astec's start with; of texts, Astec's bags."""
    if data.dataset.features is None:
        assert vectors is not None
        return new_bag(data, options, vectors)
    return _GivenNetwork(GivenEncoder.fit(dense(data.inputs), START_LENGTH))


def _fixed_stage(arrays: Arrays, config: dict[str, Any]) -> Encoder:
    return GivenEncoder(arrays) if "scale" in arrays else BagEncoder(arrays, config)


def _fixed_size(data: TrainingData, options: Options) -> int:
    features = data.dataset.features
    return int(options.embedding_dim if features is None else features.shape[1])


def _scaled(vectors: np.ndarray) -> np.ndarray:
    """Word vectors of the length that sums of them learn well from."""
    return vectors * (START_LENGTH / max(float(np.linalg.norm(vectors, axis=1).mean()), 1e-9))


def _scaled_by_idf(data: TrainingData, vectors: np.ndarray) -> np.ndarray:
    """Word vectors for convolutions: a rare word has a long vector, because it says more."""
    return vectors * (data.idf / data.idf[data.word_ids.values].mean())[:, None]


def _with_vectors(network: Any, vectors: np.ndarray) -> Any:
    with torch.no_grad():
        network.words.weight[:-1] = torch.from_numpy(vectors)
    return network


NETWORKS = {
    "bag": NetworkKind(new_bag, BagEncoder, lambda _, o: o.embedding_dim, lambda o: 3 * o.max_words * o.embedding_dim),
    "inception": NetworkKind(
        new_inception,
        InceptionEncoder,
        lambda _, o: count_features(o.embedding_dim, o.channels, o.bag),
        lambda o: 12 * o.embedding_dim * (3 * o.channels // 4 + o.max_words),
    ),
    "cnn": NetworkKind(
        new_cnn,
        CNNEncoder,
        lambda _, o: o.hidden_size,
        lambda o: o.max_words * ((2 + sum(WIDTHS)) * o.embedding_dim + (4 + 2 * o.n_chunks) * len(WIDTHS) * o.channels),
    ),
    "mlp": NetworkKind(
        new_hashed_bag, BagEncoder, lambda _, o: o.embedding_dim, lambda o: 3 * o.max_words * o.embedding_dim
    ),
    "fixed": NetworkKind(new_fixed, _fixed_stage, _fixed_size, lambda _: 0),
}
