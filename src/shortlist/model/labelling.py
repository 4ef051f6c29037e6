"""Labels that come and go: new ones are known by their names, others are removed or renamed. All else stays the same.

A new label has no texts. Its name shows where they would lie: the model's own encoder reads it like a text. How
much a name counts follows from the labels that the model has learnt and that have names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from shortlist.arrays import Ragged
from shortlist.data.label_names import read_names
from shortlist.errors import OptionError
from shortlist.labels.centroids import normalize_rows
from shortlist.lazy import sparse
from shortlist.model.kept_texts import kept_without
from shortlist.model.label_lookup import entries_of
from shortlist.stages.classifier import RowClassifier
from shortlist.stages.evidence import largest_of_names, remember_more
from shortlist.stages.more_words import with_more_words
from shortlist.stages.pipeline import Pipeline
from shortlist.stages.relabelling import NewLabels, append_labels, keep_labels
from shortlist.stages.reranker import Reranker
from shortlist.stages.tail import TailRanking
from shortlist.stages.thresholds import Thresholds
from shortlist.text import Vocabulary
from shortlist.text.parts import N_PARTS, WordParts
from shortlist.text.texts import Texts

if TYPE_CHECKING:
    from shortlist.model.model import Model

MAX_KNOWN = 2000  # labels with a name that show how much names count


def add_labels(model: Model, names: Mapping[str, Any] | Iterable[str]) -> Model:
    """The model with further labels, which it knows by their names; see `Model.add_labels`."""
    given = names if isinstance(names, Mapping) else dict.fromkeys(entries_of(names, "labels"), "")
    display, others = read_names(given, "add")
    display = {label: name.strip() for label, name in display.items()}
    check_new(model, display)
    if model.vocabulary is None:
        raise OptionError(f"labels are added by their names, and this model takes {model.inputs}: it reads no words")
    if not display:
        return model
    new_names = [[name or label, *others.get(label, ())] for label, name in display.items()]
    pipelines = [_with_names(pipeline, model, new_names) for pipeline in model.pipelines]
    shown = {**model.display_names, **{label: name for label, name in display.items() if name}}
    return relabelled(model, pipelines, [*model.label_names, *display], shown)


def remove_labels(model: Model, labels: Iterable[str] | str) -> Model:
    """The model without these labels; see `Model.remove_labels`."""
    removed = set(model.labels.find(entries_of(labels, "remove"), "remove"))
    kept = np.setdiff1d(np.arange(model.n_labels), list(removed))
    if not len(kept):
        raise OptionError("a model needs at least one label: all would be removed")
    pipelines = [keep_labels(pipeline, kept) for pipeline in model.pipelines]
    names = [model.label_names[i] for i in kept.tolist()]
    changed = relabelled(model, pipelines, names, model.display_names, kept)
    if model.kept_texts:  # or a later label of the same name would learn from them
        changed.kept_texts = kept_without(model, {model.label_names[i] for i in removed})
    return changed


def rename_labels(model: Model, names: Mapping[str, str]) -> Model:
    """The model with other display names; see `Model.rename_labels`."""
    shown = dict(model.display_names)
    for label, name in names.items():
        if label not in model.labels.ids:
            model.labels.find([label], "rename")  # raises, unless it is a name or a prefix
            raise OptionError(
                f"rename: {label!r:.80} is not a label of this model. Give labels, not names or prefixes."
            )
        if not isinstance(name, str) or not name.strip():
            raise OptionError(f"rename: the new name of {label!r:.80} is {name!r:.80}; expected a text")
        shown[label] = name
    return relabelled(model, model.pipelines, model.label_names, shown)


def check_new(model: Model, names: Mapping[str, str]) -> None:
    for label, name in names.items():
        if not label.strip():
            raise OptionError(f"add: {label!r:.80}: {name!r:.80} is not a label and its name")
        if label in model.labels.ids:
            raise OptionError(f"add: the model has the label {label!r:.80} already. To change its name, rename it.")


def relabelled(
    model: Model, pipelines: list[Pipeline], labels: list[str], names: Mapping[str, str], kept: np.ndarray | None = None
) -> Model:
    """A copy of the model with other labels: those `kept`, by default all, followed by new ones."""
    changed, known = copy(model), set(labels)
    changed.forget_lookups()
    changed.pipelines, changed._labels = pipelines, labels
    changed._display_names = {label: name for label, name in names.items() if label in known}
    changed.lists = {name: [one for one in own if one in known] for name, own in model.lists.items()}
    changed.facts = {**model.facts}
    kept = np.arange(model.n_labels) if kept is None else kept
    n_new = len(labels) - len(kept)
    thresholds, tail = model.thresholds, model.tail_ranking
    if thresholds is not None and thresholds.per_label:
        least = np.append(thresholds.arrays()["min_scores"][kept], np.full(n_new, thresholds.min_score))
        changed.thresholds = Thresholds.of(thresholds.min_score, least)
    if tail is not None:  # a label without texts is as rare as the rarest
        inverse = tail.arrays()["inverse_propensities"]
        inverse = np.append(inverse[kept], np.full(n_new, inverse.max(initial=1))).astype(np.float32)
        changed.tail_ranking = TailRanking({"inverse_propensities": inverse}, tail.config())
    return changed


def _with_names(pipeline: Pipeline, model: Model, names: list[list[str]]) -> Pipeline:
    """The pipeline with further labels: one per list of names. Encoders read all names of a label as one text."""
    ids, known_names = _known_names(model)
    every, owner = Texts.from_strings(list(chain(*names))), np.repeat(np.arange(len(names)), list(map(len, names)))
    pipeline = with_more_words(pipeline, every, *word_limits(model), min_count=1, min_subword_count=1)
    features = pipeline.encoder.encode(pipeline._read([" ".join(own) for own in names])[2])
    new = NewLabels(features, np.zeros((len(names), 0), np.float32), np.zeros(len(names), np.float32))
    classifier, reranker = pipeline.classifier, pipeline.reranker
    if isinstance(classifier, RowClassifier):
        known = pipeline.encoder.encode(pipeline._read(known_names)[2])
        new = replace(new, **_rows_of_names(classifier, features, ids, known))
    if isinstance(reranker, Reranker):
        n_features = reranker.features.n_features
        in_words = largest_of_names(reranker.features.rows(every), owner, len(names), n_features)
        new = replace(new, **_words_of_names(reranker, in_words, ids, known_names))
        if isinstance(pipeline.vocabulary, Vocabulary):
            parts = reranker.parts.reader if reranker.parts else WordParts.of(pipeline.vocabulary)
            new = replace(new, parts=(parts, largest_of_names(parts.rows(every), owner, len(names), N_PARTS)))
    pipeline = append_labels(pipeline, new)
    if isinstance(pipeline.reranker, Reranker) and isinstance(pipeline.vocabulary, Vocabulary):
        own = Ragged(np.arange(len(every) + 1), (model.n_labels + owner).astype(np.int32))
        pipeline.reranker = pipeline.reranker.with_arrays(
            remember_more(pipeline.reranker.arrays(), every, own, pipeline.vocabulary.tokenizer)
        )
    return pipeline


def word_limits(model: Model) -> tuple[int, int]:
    """How many texts the model was trained on, and how many words it may know: see `with_more_words`."""
    return model.facts.get("data", {}).get("texts", 0), model.options.get("max_vocabulary", 0)


def _known_names(model: Model) -> tuple[np.ndarray, list[str]]:
    """Some labels of the model and their names."""
    ids = np.unique(np.linspace(0, model.n_labels - 1, MAX_KNOWN).astype(np.int64))
    labels = [model.label_names[i] for i in ids.tolist()]
    return ids, [model.display_names.get(label, label) for label in labels]


def _rows_of_names(classifier: RowClassifier, features: Any, ids: np.ndarray, known: Any) -> dict[str, Any]:
    """Rows in the direction of names, as long as learnt rows are in the direction of their names."""
    learnt, towards = classifier.layer.rows[ids], normalize_rows(classifier.hidden(known))
    length = max(float(np.einsum("ij,ij->i", learnt, towards).mean()), 0.0)
    bias = float(np.median(classifier.layer.biases))
    rows = np.float32(length) * normalize_rows(classifier.hidden(features))
    return {"rows": rows.astype(np.float32), "biases": np.full(len(rows), bias, np.float32)}


def _words_of_names(
    reranker: Reranker, names: sparse.csr_array, ids: np.ndarray, known_names: list[str]
) -> dict[str, Any]:
    """Weights of words in the direction of names, as long as learnt ones are in the direction of their names."""
    known = reranker.features.transform(known_names)
    scores = reranker.word_scores(Ragged.from_csr(known), ids[:, None].astype(np.int32))[:, 0]
    biases = reranker.arrays()["biases"]
    lengths = np.asarray(known.multiply(known).sum(axis=1)).ravel()
    there = lengths > 0
    length = float(((scores - biases[ids])[there] / lengths[there]).mean()) if there.any() else 0.0
    bias = np.full(names.shape[0], np.median(biases), np.float32)
    return {"words": sparse.csr_array(names * np.float32(max(length, 0.0))), "word_biases": bias, "names": names}
