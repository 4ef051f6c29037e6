"""A model whose labels are divided among several model folders, for models larger than one machine.

Each shard is an ordinary model of some of the labels. All shards rank their own labels for every text, and the best of
all are the answer: this merge is exact. Where the whole model scores all labels, the answers are the same. Where it
searches for candidates, every shard searches as many as the whole model would, so all together find more.

    save_label_shards("model/", "shards/", n_shards=4)   # shards/0/ … shards/3/, and shards/head.json
    model = open_label_shards("shards/")                 # all shards in this process, mapped into memory
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from shortlist.errors import ModelError, OptionError
from shortlist.files import write_folder_atomically
from shortlist.model import Model, load
from shortlist.model.labelling import relabelled
from shortlist.stages.allowed import AllowedLabels
from shortlist.stages.classifier import best_of_scores
from shortlist.stages.relabelling import keep_labels
from shortlist.text import Vocabulary

HEAD = "head.json"
Ranking = tuple[np.ndarray, np.ndarray]
# Calls a method of every shard's pipeline, with one tuple of arguments per shard.
CallShards = Callable[[str, list[tuple[Any, ...]]], Sequence[Any]]


def save_label_shards(model: str | Path | Model, folder: str | Path, n_shards: int) -> None:
    """Divide the labels of a model evenly among `n_shards` model folders: FOLDER/0 and so on. All or nothing."""
    model = model if isinstance(model, Model) else load(model)
    if not 1 <= n_shards <= model.n_labels:
        raise OptionError(f"n_shards is {n_shards}; it can be from 1 to {model.n_labels:,}, the number of labels")
    if Path(folder).exists():
        raise OptionError(f"{folder} already exists. Choose another name.")
    if len(model.pipelines) > 1:
        raise OptionError("an ensemble cannot be divided by labels. Divide one of its members.")
    bounds = [model.n_labels * i // n_shards for i in range(n_shards + 1)]
    with write_folder_atomically(folder) as beside:
        for i in range(n_shards):
            own = np.arange(bounds[i], bounds[i + 1])
            labels = model.label_names[bounds[i] : bounds[i + 1]]
            shard = relabelled(model, [keep_labels(model.pipelines[0], own)], labels, model.display_names, own)
            shard.save(beside / str(i), bits=32)  # as it is: what is in 8 bits stays so
        (beside / HEAD).write_bytes(msgspec.json.encode({"bounds": bounds}))


def shard_folders(folder: str | Path) -> tuple[list[str], list[int]]:
    """The folders of the shards, and the first label of each, with the number of labels behind them."""
    try:
        bounds = msgspec.json.decode((Path(folder) / HEAD).read_bytes(), type=dict[str, list[int]])["bounds"]
    except (OSError, KeyError, msgspec.DecodeError) as error:
        raise ModelError(
            f"{folder}: not a folder of label shards ({error}). Write one with save_label_shards."
        ) from None
    return [str(Path(folder) / str(i)) for i in range(len(bounds) - 1)], bounds


def open_label_shards(folder: str | Path) -> Model:
    """All shards in this process, as one model."""
    pipelines = [load(one).pipelines[0] for one in shard_folders(folder)[0]]

    def call_shards(method: str, calls: list[tuple[Any, ...]]) -> list[Any]:
        return [getattr(pipeline, method)(*call) for pipeline, call in zip(pipelines, calls, strict=True)]

    return merged_model(folder, call_shards)


def merged_model(folder: str | Path, call_shards: CallShards) -> Model:
    """The model of all labels. It asks the shards, and has the vocabulary, the calibration and the names of labels."""
    folders, bounds = shard_folders(folder)
    first = load(folders[0])
    if first.thresholds is not None and first.thresholds.per_label:
        raise OptionError("thresholds per label are not supported by label shards. Store one for all labels.")
    labels, names = list(first.label_names), dict(first.display_names)
    for one in folders[1:]:
        shard = load(one)
        labels += shard.label_names
        names |= shard.display_names
    merged = MergedShards(first.pipelines[0].vocabulary, bounds, call_shards)
    about = first.calibration, first.facts, first.records, first.thresholds
    model = Model(first.recipe, first.options, [merged], labels, names, *about)  # type: ignore[list-item]
    model.hierarchy, model.text_fields = first.hierarchy, first.text_fields
    return model


class MergedShards:
    """Takes the place of a `Pipeline`: the best labels of all shards."""

    def __init__(self, vocabulary: Any, bounds: list[int], call_shards: CallShards) -> None:
        if not isinstance(vocabulary, Vocabulary):
            raise OptionError("label shards take texts, and this model takes features.")
        self.vocabulary, self._bounds, self._call_shards = vocabulary, bounds, call_shards
        self._n_shards = len(bounds) - 1

    def rank(self, inputs: Any, k: int, search_effort: float = 1.0, allowed: AllowedLabels | None = None) -> Ranking:
        if allowed is not None:
            raise OptionError("allow and deny with many labels are not supported by label shards.")
        found = self._call_shards("rank", [(list(inputs), k, search_effort)] * self._n_shards)
        ids = [np.where(own >= 0, own + first, -1) for (own, _), first in zip(found, self._bounds, strict=False)]
        scores = [np.where(own >= 0, values, -np.inf) for own, values in found]
        return best_of_scores(np.concatenate(ids, axis=1).astype(np.int32), np.concatenate(scores, axis=1), k)

    def scores(self, inputs: Any, ids: np.ndarray) -> np.ndarray:
        """The scores of these labels. Every shard scores as many, of which its own count."""
        ranges = list(pairwise(self._bounds))
        own = [np.where((ids >= first) & (ids < end), ids - first, 0).astype(np.int32) for first, end in ranges]
        scored = self._call_shards("scores", [(list(inputs), one) for one in own])
        inside = [(ids >= first) & (ids < end) for first, end in ranges]
        return np.select(inside, list(scored)).astype(np.float32)
