"""Training texts that a model stores, if asked to, so that updates can learn what is not a new label."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np

from shortlist.arrays import Ragged
from shortlist.data.dataset import Dataset
from shortlist.errors import ModelError

if TYPE_CHECKING:
    from shortlist.model.model import Model


class KeptText(msgspec.Struct):
    """A line of `texts.jsonl`. Several fields are one text already."""

    text: str
    labels: list[str]


def texts_to_keep(dataset: Dataset, n: int, seed: int) -> bytes:
    """Some texts of the data set, at random, with their labels: one JSON line each."""
    rows, labels, names = np.random.default_rng(seed).permutation(len(dataset))[:n], right(dataset), dataset.label_names
    return b"".join(
        msgspec.json.encode(KeptText(dataset.texts[row], [names[i] for i in labels.row(row)])) + b"\n"
        for row in np.sort(rows).tolist()
    )


def right(dataset: Dataset) -> Ragged:
    """The labels of each text without those that a person has called wrong: weights of 0 or less."""
    labels = dataset.labels
    plain = Ragged(labels.indptr, labels.values)
    return plain if labels.weights is None else plain.keep(labels.weights > 0)


def stored_in(model: Model) -> list[KeptText]:
    try:
        return msgspec.json.Decoder(KeptText).decode_lines(model.kept_texts)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ModelError(f"the texts that the model stores are damaged: {error}") from None


def kept_texts(model: Model) -> Dataset | None:
    """The texts that the model stores; None if it stores none."""
    found = stored_in(model)
    return Dataset.from_lists([one.text for one in found], [one.labels for one in found]) if found else None


def kept_without(model: Model, removed: set[str]) -> bytes:
    """What the model stores once some labels are gone; texts that have no other label go, too."""
    left = [KeptText(one.text, [label for label in one.labels if label not in removed]) for one in stored_in(model)]
    return b"".join(msgspec.json.encode(one) + b"\n" for one in left if one.labels)


def kept_after(model: Model, new: Dataset, n_before: int, seed: int) -> bytes:
    """What the model stores after an update: old and new texts by their shares of all texts so far."""
    lines, n = model.kept_texts.splitlines(keepends=True), model.options.get("keep_texts", 0)
    if not n:
        return b""
    n_new = max(round(n * len(new) / (n_before + len(new))), n - len(lines))  # at least what there is room for
    added = texts_to_keep(new, n_new, seed).splitlines(keepends=True)
    kept = np.random.default_rng(seed).permutation(len(lines))[: n - len(added)]
    return b"".join([*(lines[i] for i in np.sort(kept).tolist()), *added])
