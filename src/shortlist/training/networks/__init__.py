"""Encoders in training, and the stage that each becomes.

Bags of word vectors learn without torch (training/plain.py) or, on a device, in torch, as all other encoders do.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from shortlist.arrays import Arrays, Ragged
from shortlist.errors import OptionError
from shortlist.recipes.options import Options
from shortlist.recipes.recipe import CustomEncoder, Recipe
from shortlist.stages.encoders import (
    BagEncoder,
    CNNEncoder,
    DenseEncoder,
    Encoder,
    FunctionEncoder,
    GivenEncoder,
    InceptionEncoder,
    TransformerEncoder,
)
from shortlist.stages.encoders.cnn import WIDTHS
from shortlist.training.batches import Batches, DenseBatches, input_batches
from shortlist.training.data import TrainingData
from shortlist.training.group import ALONE, Group
from shortlist.training.hashing import HASHINGS
from shortlist.training.heads import OUR_ENCODER, EncoderOptions, HeadOptions
from shortlist.training.label_rows import LabelRows
from shortlist.training.plain import PlainBag, PlainFeatures, PlainLearner
from shortlist.training.remembered import Remembered

# Encoders that learn without torch.
PLAIN_ENCODERS = ("none", "tfidf", "bag", "mlp", "fixed")

# Mean length of the word vectors at the start: longer ones learn more slowly, shorter ones forget where they began.
START_LENGTH = 2.5

# The options of networks, which take them by these names.
OF_INCEPTION = ("max_words", "channels", "dropout", "attention", "bag", "attention_value", "norm_first", "project_norm",
                "word_dropout", "project_dropout", "branch_dropout", "weight_init")  # fmt: skip
OF_CNN = ("channels", "n_chunks", "hidden_size", "dropout", "word_dropout", "fixed_chunks", "max_words", "weight_init")

Vectors = np.ndarray | None


class NetworkKind(NamedTuple):
    """How an encoder's network is made, which stage its arrays become, and the sizes that memory is planned by.

    n_floats       that training the encoder keeps; by default word vectors as they are learnt, and as they are trained
    takes_vectors  whether it starts from word vectors
    """

    new: Callable[[TrainingData, Options, Any], Any]
    stage: Callable[[Arrays, dict[str, Any]], Encoder]
    n_features: Callable[[TrainingData, Options], int]
    floats_per_text: Callable[[Options], int]
    n_floats: Callable[[TrainingData, Options], int] = lambda data, options: 2 * data.n_words * options.embedding_dim
    takes_vectors: bool = True


class EncoderNetwork:
    """A network, the batches that it learns from, and the stage that it becomes.

    `stage(arrays)` is the encoder with these arrays; of built-in encoders, only transformers need torch there.
    """

    def __init__(self, kind: NetworkKind, module: Any, data: TrainingData, options: Options) -> None:
        self._kind, self.module, self._data, self._options = kind, module, data, options
        config = module.config() if hasattr(module, "config") else {}
        self._config = {
            "inputs": data.dataset.input_kind,
            "max_words": options.get("max_words", 1),
            "n_words": data.n_words,
            **config,
        }

    def stage(self, arrays: Arrays | None = None) -> Encoder:
        return self._kind.stage(self.module.arrays() if arrays is None else arrays, self._config)

    def batches(self, labels: Ragged) -> Batches:
        """The training texts with these labels."""
        return input_batches(self._data, labels, self._options)


class FrozenNetwork(EncoderNetwork):
    """An encoder that does not learn: texts are encoded once, and what follows learns on their features."""

    def __init__(self, encoder: Encoder, data: TrainingData, options: Options) -> None:
        from shortlist.training.networks.bag import GivenFeatures

        self._encoder, self._data = Remembered(encoder), data
        self.module = GivenFeatures(encoder.n_features, options.dropout)

    def stage(self, arrays: Arrays | None = None) -> Encoder:
        return self._encoder

    def batches(self, labels: Ragged) -> Batches:
        return DenseBatches(self._encoder.encode(self._data.inputs), labels)


def new_network(recipe: Recipe, data: TrainingData, options: Options, vectors: Vectors = None) -> EncoderNetwork:
    """The network of a recipe's encoder at its start; `vectors` to start from, else those of the data."""
    kind = network_kind(recipe)
    if vectors is None and isinstance(data.inputs, Ragged) and kind.takes_vectors:
        vectors = data.word_vectors()
    network = EncoderNetwork(kind, kind.new(data, options, vectors), data, options)
    return FrozenNetwork(network.stage(), data, options) if options.get("freeze_encoder", False) else network


def network_kind(recipe: Recipe) -> NetworkKind:
    if isinstance(recipe.encoder, CustomEncoder):
        own = recipe.encoder
        return NetworkKind(
            lambda data, options, vectors: _seeded(own.network, options, data, options, vectors),
            lambda arrays, config: FunctionEncoder(arrays, config, own.name, own.encode),
            lambda data, options: options.get("embedding_dim", data.n_words),
            lambda options: 3 * options.get("max_words", 1) * options.get("embedding_dim", 1),
        )
    if recipe.encoder not in NETWORKS:
        raise OptionError(
            f"recipe {recipe.name!r}: there is no encoder {recipe.encoder!r} that learns; "
            f"use {', '.join(NETWORKS)}, or a CustomEncoder"
        )
    return NETWORKS[recipe.encoder]


def needs_torch(recipe: Recipe, options: Options) -> bool:
    """Whether this recipe, with these options, trains with torch."""
    if recipe.is_baseline or not recipe.phases:
        return False
    return recipe.encoder not in PLAIN_ENCODERS or in_torch(options)


def in_torch(options: Options) -> bool:
    """Whether layers that could learn without torch learn with it: on a device, or with a batch norm."""
    if options.get("block_norm", "") == "batch" or options.get("device", "cpu") not in ("auto", "cpu"):
        return True
    # Where the encoder has loaded torch, and it has found a device, all that follows learns there, too.
    torch: Any = sys.modules.get("torch")
    return options.get("device", "cpu") == "auto" and torch is not None and torch.cuda.is_available()


def new_learner(
    network: Any,
    n_labels: int,
    labels_per_text: float,
    seed: int,
    device: str,
    head: HeadOptions,
    encoder: EncoderOptions = OUR_ENCODER,
    rows: LabelRows | None = None,
    group: Group = ALONE,
    own: np.ndarray | None = None,
) -> Any:
    """What trains the network and its label rows: `PlainLearner`, or `Learner` for a torch module.

    rows        where the label rows start, if not at random
    group, own  workers that train together, and the rows of this one
    """
    if isinstance(network, (PlainBag, PlainFeatures)):
        if rows is None:
            rows = LabelRows.start(n_labels, network.n_features, labels_per_text / n_labels, seed, head.rows, own)
        return PlainLearner(network, rows, seed, head, group)
    from shortlist.training.learner import Learner

    sizes = n_labels, labels_per_text, None, seed, device
    return Learner(network, *sizes, head, encoder=encoder, rows=rows, group=group, own=own)


def given_features(n_features: int, options: Options) -> Any:
    """Features in and out, some of them dropped in training."""
    if not in_torch(options):
        return PlainFeatures(n_features, options.dropout)
    from shortlist.training.networks.bag import GivenFeatures

    return GivenFeatures(n_features, options.dropout)


def _seeded(new: Callable[..., Any], options: Options, *arguments: Any, named: Iterable[str] = ()) -> Any:
    """A network that starts from the seed; `named` are options that it takes under the same names."""
    import torch

    torch.manual_seed(options.seed)
    return new(*arguments, **{name: getattr(options, name) for name in named})


def new_bag(data: TrainingData, options: Options, vectors: np.ndarray) -> Any:
    vectors = _scaled(vectors, options)
    if not in_torch(options):
        return PlainBag(data.idf, vectors, options.dropout, options.relu, optimizer=options.optimizer)
    from shortlist.training.networks.bag import BagNetwork

    network = _seeded(BagNetwork, options, data.idf, vectors.shape[1], options.dropout, options.relu)
    return _with_vectors(network, vectors)


def new_inception(data: TrainingData, options: Options, vectors: np.ndarray) -> Any:
    from shortlist.training.networks.inception import InceptionNetwork

    vectors = _scaled_by_idf(data, vectors, options)
    if options.dimension_permutation:
        vectors = vectors[:, np.random.default_rng(options.dimension_permutation).permutation(vectors.shape[1])]
    return _with_vectors(_seeded(InceptionNetwork, options, *vectors.shape, named=OF_INCEPTION), vectors)


def new_cnn(data: TrainingData, options: Options, vectors: np.ndarray) -> Any:
    from shortlist.training.networks.cnn import CNNNetwork

    vectors = _scaled_by_idf(data, vectors, options)
    return _with_vectors(_seeded(CNNNetwork, options, *vectors.shape, named=OF_CNN), vectors)


def new_hashed_bag(data: TrainingData, options: Options, vectors: np.ndarray) -> Any:
    """Words are hashed into buckets; those of one bucket start at their mean."""
    vectors = _scaled(vectors, options)
    n_buckets = min(options.n_word_buckets, len(vectors))
    buckets = HASHINGS[options.hashing](len(vectors), n_buckets, [options.seed, 1])
    rows = np.zeros((int(buckets.max(initial=-1)) + 1, vectors.shape[1]), np.float32)
    np.add.at(rows, buckets, vectors)
    rows /= np.maximum(np.bincount(buckets), 1).astype(np.float32)[:, None]
    if not in_torch(options):
        return PlainBag(data.idf, rows, options.dropout, buckets=buckets, optimizer=options.optimizer)
    from shortlist.training.networks.bag import HashedBagNetwork

    return _with_vectors(_seeded(HashedBagNetwork, options, data.idf, buckets, vectors.shape[1], options.dropout), rows)


class _GivenNetwork:
    """Features that the user gives: nothing to learn, so no module; only a scale."""

    def __init__(self, encoder: GivenEncoder) -> None:
        self.n_features, self._arrays = encoder.n_features, encoder.arrays()

    def arrays(self) -> Arrays:
        return self._arrays


def new_fixed(data: TrainingData, options: Options, vectors: np.ndarray | None) -> Any:
    """Slice's encoder: dense features, scaled to the length that Astec's start with; of words, Astec's bags."""
    if vectors is not None:
        return new_bag(data, options, vectors)
    if options.surrogate != "none":
        raise OptionError(f"surrogate is {options.surrogate!r}: it is for words, and dense features stay as they are")
    return _GivenNetwork(GivenEncoder.fit(data.inputs, START_LENGTH))


def new_dense(data: TrainingData, options: Options, vectors: Vectors) -> Any:
    """Features of the length that Astec's start with, and a hidden layer next to them."""
    from shortlist.training.networks.dense import DenseNetwork

    scale = GivenEncoder.fit(data.inputs, START_LENGTH).arrays()["scale"]
    return _seeded(DenseNetwork, options, scale, options.hidden_size, options.dropout)


def _fixed_stage(arrays: Arrays, config: dict[str, Any]) -> Encoder:
    return GivenEncoder(arrays) if "scale" in arrays else BagEncoder(arrays, config)


def _fixed_size(data: TrainingData, options: Options) -> int:
    return int(options.embedding_dim if isinstance(data.inputs, Ragged) else data.n_words)


def _inception_features(data: TrainingData, options: Options) -> int:
    from shortlist.training.networks.inception import count_features

    return count_features(options.embedding_dim, options.channels, options.bag)


def _transformer_module() -> Any:
    """Imported when needed: it takes seconds, and the library transformers."""
    from shortlist.training.networks import transformer

    return transformer


def _scaled(vectors: np.ndarray, options: Options) -> np.ndarray:
    """Word vectors of the length that sums of them learn well from, unless they are to stay as they are."""
    if options.vector_init != "scaled":
        return vectors
    return vectors * (START_LENGTH / max(float(np.linalg.norm(vectors, axis=1).mean()), 1e-9))


def _scaled_by_idf(data: TrainingData, vectors: np.ndarray, options: Options) -> np.ndarray:
    """Word vectors for convolutions: a rare word has a long vector, because it says more. See `_scaled`."""
    if options.vector_init != "scaled":
        return vectors
    return vectors * (data.idf / data.idf[data.word_ids.values].mean())[:, None]


def _with_vectors(network: Any, vectors: np.ndarray) -> Any:
    import torch

    with torch.no_grad():
        network.words.weight[:-1] = torch.from_numpy(vectors)
    return network


NETWORKS = {
    "bag": NetworkKind(new_bag, BagEncoder, lambda _, o: o.embedding_dim, lambda o: 3 * o.max_words * o.embedding_dim),
    "inception": NetworkKind(
        new_inception,
        InceptionEncoder,
        _inception_features,
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
    "transformer": NetworkKind(
        lambda data, o, vectors: _seeded(_transformer_module().new_transformer, o, data, o, START_LENGTH),
        TransformerEncoder,
        lambda _, o: _transformer_module().n_features(o),
        lambda o: _transformer_module().floats_per_text(o),
        lambda data, o: _transformer_module().n_floats(data, o),
        takes_vectors=False,
    ),
    "dense": NetworkKind(
        new_dense,
        DenseEncoder,
        lambda data, _: data.n_words,
        lambda o: 3 * o.hidden_size,
        lambda data, o: 8 * data.n_words * o.hidden_size,  # two matrices, each with its gradient and Adam's two
        takes_vectors=False,
    ),
    "fixed": NetworkKind(new_fixed, _fixed_stage, _fixed_size, lambda _: 0),
}
