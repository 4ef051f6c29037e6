"""The phase `buckets` of MACH: labels are hashed several times, and a model is learnt for each hashing."""

from __future__ import annotations

import logging

import numpy as np

from shortlist.stages.classifier import BucketClassifier, bucket_arrays
from shortlist.stages.encoders import BagEncoder, ParallelEncoders
from shortlist.stages.stage import without_prefix
from shortlist.training.build import Build
from shortlist.training.hashing import HASHINGS
from shortlist.training.heads import HeadOptions
from shortlist.training.networks import network_kind, new_network
from shortlist.training.phases.surrogate import learn_tasks

log = logging.getLogger("shortlist")


def buckets(build: Build) -> None:
    """Learn the repetitions one after the other, each with a seed and checkpoints of its own."""
    data, options = build.data, build.options
    vectors = data.word_vectors()
    encoders, layers, hashings = [], [], []
    for repetition in range(options.n_repetitions):
        seed = options.seed * options.n_repetitions + repetition
        hashing = HASHINGS[options.hashing](data.n_labels, options.n_buckets, seed)
        phase = f"repetition-{repetition + 1}"
        log.info("%s of %d: %s buckets", phase, options.n_repetitions, f"{hashing.max() + 1:,}")
        network = new_network(build.recipe, data, options.replace(seed=seed), vectors)
        schedule = options.n_epochs, options.learning_rate, options.decay_epoch
        arrays = learn_tasks(build, phase, network, hashing, HeadOptions.of(options), *schedule, seed)
        encoder = network.stage(without_prefix("encoder", arrays))
        assert isinstance(encoder, BagEncoder)
        encoders.append(encoder)
        layers.append(without_prefix("rows", arrays))
        hashings.append(hashing)
    build.encoder = ParallelEncoders(encoders)
    build.classifier = BucketClassifier(bucket_arrays(layers, np.stack(hashings)))


def buckets_memory(build: Build) -> dict[str, int]:
    data, options, kind = build.data, build.options, network_kind(build.recipe)
    width, n_rows = 4 * options.embedding_dim, options.n_buckets
    n_kept = options.n_repetitions + 1  # the best epoch of one may be read back next to its last
    per_text = kind.floats_per_text(options) + 3 * options.embedding_dim + n_rows
    return {
        "buckets of labels": n_kept * n_rows * (width + 16) + 4 * options.n_repetitions * data.n_labels,
        "buckets of words": n_kept * min(options.n_word_buckets, data.n_words) * width,
        "word vectors": data.n_words * width,
        "a batch": 4 * options.batch_size * per_text,
        "scores": 4 * 512 * n_rows * options.n_repetitions,
    }
