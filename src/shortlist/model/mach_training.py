"""Training for `mach`: a model for each hashing of the labels, which is the first of DeepXML's modules and no more."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import numpy as np

from shortlist.data.dataset import Dataset
from shortlist.model.deepxml_training import hashed, learn_tasks
from shortlist.model.finish import finish
from shortlist.model.inception_training import chosen as chosen_jointly
from shortlist.model.mach import MachModel, MachOptions
from shortlist.model.new_encoders import ENCODERS, SIZES, new_mlp, short_vectors
from shortlist.model.options import check_options, filled, size_of
from shortlist.model.prepared import Prepared, need_texts, show_settings
from shortlist.training.checkpoints import Checkpoints
from shortlist.training.memory import need_memory

log = logging.getLogger("shortlist")


def train_mach(dataset: Dataset, options: MachOptions) -> MachModel:
    """Train the repetitions one after the other, each with a seed and checkpoints of its own."""
    need_texts(dataset, MachModel.recipe)
    options = chosen(options, len(dataset), dataset.n_labels)
    check_options(options, ("epochs", "batch_size", "repetitions", "buckets", *SIZES), ("dropout",), ("rate",))
    show_settings(options)
    phases = [f"repetition-{repetition + 1}" for repetition in range(options.repetitions)]
    if options.checkpoints and not options.resume:
        for phase in phases:
            Checkpoints(f"{options.checkpoints}/{phase}", {}).refuse_to_overwrite()
    prepared = Prepared(dataset, options)
    need_memory(
        memory_of(prepared, options),
        "Fewer repetitions, buckets or word_buckets, or smaller dimensions need less.",
    )
    vectors = short_vectors(prepared)
    epochs, rate = int(options.epochs or 1), float(options.rate or 0)
    arrays: dict[str, np.ndarray] = {}
    records: list[dict[str, Any]] = []
    buckets = []
    for repetition, phase in enumerate(phases):
        own = replace(options, seed=options.seed * options.repetitions + repetition)
        buckets.append(hashed(dataset.n_labels, int(options.buckets or 1), own.seed))
        log.info("%s of %d: %s buckets", phase, len(phases), f"{buckets[-1].max() + 1:,}")
        encoder = new_mlp(prepared, own, vectors)
        learnt, curve = learn_tasks(phase, MachModel, encoder, buckets[-1], epochs, rate, prepared, own)
        arrays |= {f"{repetition}.{name}": array for name, array in learnt.items()}
        records += curve
    arrays["buckets"] = np.stack(buckets)
    network = MachModel.at_work(arrays, options.kept(), dataset.n_labels)
    reranker = prepared.reranker(lambda word_ids, k: network.rank(word_ids, k, threads=options.threads))
    model = MachModel(arrays, **prepared.of_texts(records, reranker))
    finish(model, prepared)
    return model


def chosen(options: MachOptions, n_texts: int, n_labels: int) -> MachOptions:
    """The options with what was left open chosen from the size of the data.

    16 · √L buckets are, with 8 repetitions, a third of the rows of 131,000 labels and a sixth of those of 670,000;
    up to 256 labels there is a bucket for each. That a wrong label shares all 8 buckets with a right one is then
    beyond chance (B⁻⁸); what is left is the noise of the other labels in the buckets, √8 smaller in the mean. A sum
    of vectors learns in fewer epochs than convolutions do, and there are 8 of them to train.
    """
    own = {
        "buckets": min(n_labels, round(16 * n_labels**0.5)),
        "epochs": round(min(max(20 * size_of(n_texts) ** -0.5, 4), 20)),
    }
    return chosen_jointly(filled(options, own), n_texts, n_labels)


def memory_of(prepared: Prepared, options: MachOptions) -> dict[str, int]:
    """Bytes for what is large, beside the texts, which are there already."""
    kind, width = ENCODERS[MachModel.encoder], 4 * options.dimensions
    n_words, n_rows = len(prepared.vocabulary), int(options.buckets or 1)
    n_kept = options.repetitions + 1  # the best epoch of one may be read back beside its last
    return {
        "buckets of labels": n_kept * n_rows * (width + 16) + 4 * options.repetitions * prepared.n_labels,
        "buckets of words": n_kept * min(options.word_buckets, n_words) * width,
        "word vectors": n_words * width,
        "a batch": 4 * int(options.batch_size or 1) * (kind.per_text(options) + 3 * options.dimensions + n_rows),
        "scores": 4 * 512 * n_rows * options.repetitions,
    }
