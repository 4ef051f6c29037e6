"""Encoders by name, as training finds them: what they start from, and how much they take up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch

from shortlist.encoders.bag import BagEncoder
from shortlist.encoders.cnn import CNNEncoder
from shortlist.encoders.cnn_runtime import WIDTHS
from shortlist.encoders.given_runtime import GivenRuntime, dense
from shortlist.encoders.inception import InceptionEncoder, count_features
from shortlist.encoders.mlp import MLPEncoder
from shortlist.model.prepared import Prepared

# Mean length of the word vectors at the start: longer ones learn more slowly, shorter ones forget where they began.
START_LENGTH = 2.5
# Options of encoders that are at least 1.
SIZES = ("channels", "chunks", "hidden", "word_buckets")


class EncoderKind(NamedTuple):
    """How an encoder is made, how many features it gives, and about how many numbers a text of a batch takes up."""

    new: Callable[[Prepared, Any], Any]
    n_features: Callable[[Prepared, Any], int]
    per_text: Callable[[Any], int]


def new_bag(prepared: Prepared, options: Any) -> BagEncoder:
    """Astec's encoder."""
    vectors = short_vectors(prepared)
    torch.manual_seed(options.seed)
    encoder = BagEncoder(prepared.idf, vectors.shape[1], float(options.dropout or 0), options.relu)
    return _with_words(encoder, vectors)


def new_inception(prepared: Prepared, options: Any) -> InceptionEncoder:
    """InceptionXML's encoder."""
    vectors = _long_vectors(prepared)
    if options.dimension_order:
        vectors = vectors[:, np.random.default_rng(options.dimension_order).permutation(vectors.shape[1])]
    torch.manual_seed(options.seed)
    sizes = (len(vectors), vectors.shape[1], options.max_words, options.channels)
    encoder = InceptionEncoder(*sizes, float(options.dropout or 0), options.attention, options.bag)
    return _with_words(encoder, vectors)


def new_cnn(prepared: Prepared, options: Any) -> CNNEncoder:
    """XML-CNN's encoder."""
    vectors = _long_vectors(prepared)
    torch.manual_seed(options.seed)
    sizes = (len(vectors), vectors.shape[1], options.channels, options.chunks, options.hidden)
    return _with_words(CNNEncoder(*sizes, float(options.dropout or 0)), vectors)


def new_mlp(prepared: Prepared, options: Any, vectors: np.ndarray | None = None) -> MLPEncoder:
    """MACH's encoder. Words are dealt out to the buckets at random; those of one bucket start at their mean."""
    vectors = short_vectors(prepared) if vectors is None else vectors
    n_buckets = min(options.word_buckets, len(vectors))
    buckets = np.random.default_rng([options.seed, 1]).permutation(len(vectors)) % n_buckets
    rows = np.zeros((n_buckets, vectors.shape[1]), np.float32)
    np.add.at(rows, buckets, vectors)
    rows /= np.bincount(buckets, minlength=n_buckets).astype(np.float32)[:, None]
    torch.manual_seed(options.seed)
    return _with_words(MLPEncoder(prepared.idf, buckets, vectors.shape[1], float(options.dropout or 0)), rows)


def new_fixed(prepared: Prepared, options: Any) -> Any:
    """Slice's: the features that are given, at the length that Astec's start with; of texts, these."""
    if prepared.dataset.features is None:
        return new_bag(prepared, options)
    return GivenRuntime.fit(dense(prepared.inputs), START_LENGTH)


def short_vectors(prepared: Prepared) -> np.ndarray:
    """Word vectors at the length that sums of them learn well from."""
    vectors = prepared.vectors()
    vectors *= START_LENGTH / max(float(np.linalg.norm(vectors, axis=1).mean()), 1e-9)
    return vectors


def _long_vectors(prepared: Prepared) -> np.ndarray:
    """Word vectors for convolutions; a rare word has a long vector, as it says more."""
    vectors, idf = prepared.vectors(), prepared.idf
    vectors *= (idf / idf[prepared.word_ids.values].mean())[:, None]
    return vectors


def _with_words(encoder: Any, vectors: np.ndarray) -> Any:
    with torch.no_grad():
        encoder.words.weight[:-1] = torch.from_numpy(vectors)
    return encoder


def _fixed_size(prepared: Prepared, options: Any) -> int:
    features = prepared.dataset.features
    return int(options.dimensions if features is None else features.shape[1])


ENCODERS = {
    "bag": EncoderKind(new_bag, lambda _, o: o.dimensions, lambda o: 3 * o.max_words * o.dimensions),
    "inception": EncoderKind(
        new_inception,
        lambda _, o: count_features(o.dimensions, o.channels, o.bag),
        lambda o: 12 * o.dimensions * (3 * o.channels // 4 + o.max_words),
    ),
    "cnn": EncoderKind(
        new_cnn,
        lambda _, o: o.hidden,
        lambda o: o.max_words * ((2 + sum(WIDTHS)) * o.dimensions + (4 + 2 * o.chunks) * len(WIDTHS) * o.channels),
    ),
    "mlp": EncoderKind(new_mlp, lambda _, o: o.dimensions, lambda o: 3 * o.max_words * o.dimensions),
    "fixed": EncoderKind(new_fixed, _fixed_size, lambda _: 0),
}
