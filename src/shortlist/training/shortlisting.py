"""DeepXML's module II, the phase `candidates`: the labels that are worth scoring for each text.

Features are frozen. The nearest label centres, and the labels of the nearest training texts, are the candidates of a
text, both in training, where those that are wrong are its negatives, and in prediction.
"""

from __future__ import annotations

import logging

import numpy as np

from shortlist.arrays import Ragged
from shortlist.labels.centroids import label_representatives
from shortlist.progress import Progress
from shortlist.recipes.options import Options
from shortlist.stages.candidates import NearestLabels
from shortlist.stages.neighbours import GraphSizes, NeighbourIndex
from shortlist.training.build import Build

log = logging.getLogger("shortlist")

TEXTS_PER_BLOCK = 4096


def candidates(build: Build) -> None:
    """Module II: index the label centres (and texts), and find the candidates of every training text."""
    build.features = build.encoder.encode(build.data.inputs)
    build.candidates = stage = index_labels(build.features, build)
    build.candidates_of = negatives(build.features, stage, build)


def index_labels(features: np.ndarray, build: Build) -> NearestLabels:
    """The stage that finds the nearest label centres, and lets the nearest texts vote, if they are to."""
    data, options = build.data, build.options
    centres, owner = label_representatives(
        features,
        data.labels,
        data.n_labels,
        per_common=options.n_head_centres,
        seed=options.seed,
        n_common=options.n_head_labels if options.n_head_labels >= 0 else None,
        unit=options.unit_centres,
    )
    texts, text_labels = None, None
    if options.vote_weight > 0 or options.classifier == "neighbours":
        voters = voting_texts(data.labels, data.n_labels, options)
        log.info("indexing %s label centres and %s texts", f"{len(centres):,}", f"{len(voters):,}")
        texts, text_labels = index_texts(features[voters], options), data.labels.take(voters)
    return NearestLabels.build(
        centres,
        owner,
        data.n_labels,
        options.n_candidates,
        texts,
        text_labels,
        options.n_neighbours,
        options.vote_weight,
        options.seed,
        options.n_nearest_labels,
        options.voting == "sums",
        GraphSizes.parse(options.centre_graph) if options.centre_graph else None,
    )


def voting_texts(labels: Ragged, n_labels: int, options: Options) -> np.ndarray:
    """The texts that may vote: all that have a label, or few of each label."""
    if options.texts_per_label == 0:
        return np.flatnonzero(labels.counts)
    return few_of_each(labels, n_labels, options.texts_per_label, options.seed)


def index_texts(features: np.ndarray, options: Options) -> NeighbourIndex:
    if not options.text_graph:
        return NeighbourIndex.build(features, search_breadth=options.n_neighbours, seed=options.seed)
    sizes = GraphSizes.parse(options.text_graph)
    return NeighbourIndex.build(features, exact=False, **sizes._asdict(), seed=options.seed)


def few_of_each(labels: Ragged, n_labels: int, most: int, seed: int) -> np.ndarray:
    """Texts that have each label at least `most` times, or as often as it occurs, and not many more."""
    rows: list[int] = []
    counts = [0] * n_labels
    bounds, values = labels.indptr.tolist(), labels.values.tolist()
    for row in np.random.default_rng(seed).permutation(len(labels)).tolist():
        own = values[bounds[row] : bounds[row + 1]]
        if any(counts[label] < most for label in own):
            rows.append(row)
            for label in own:
                counts[label] += 1
    return np.sort(np.asarray(rows, np.int64))


def negatives(features: np.ndarray, stage: NearestLabels, build: Build) -> tuple[np.ndarray, np.ndarray | None]:
    """The labels that each text is trained on beside its own; and their evidence, if they are its candidates."""
    data, options = build.data, build.options
    size = (len(features), min(options.n_candidates, data.n_labels))
    rng = np.random.default_rng(options.seed)
    if options.negative_sampling == "uniform":
        return rng.integers(data.n_labels, size=size, dtype=np.int32), None
    if options.negative_sampling == "frequent":
        weights = data.label_frequencies**0.75
        return rng.choice(data.n_labels, size=size, p=weights / weights.sum()).astype(np.int32), None
    n_searched = stage.n_searched_in_training
    if options.negative_sampling == "slice":
        return stage.nearest_centres(features, n_searched), None
    ids = np.empty(size, np.int32)
    evidence = np.empty((2, *size), np.float16)  # it selects hard negatives, for which three digits will do
    with Progress("candidates", len(features), "texts") as progress:
        for begin in range(0, len(features), TEXTS_PER_BLOCK):
            block = slice(begin, begin + TEXTS_PER_BLOCK)
            found = stage.find(features[block], n_searched)
            ids[block], evidence[:, block] = found.ids, found.evidence
            progress.advance(len(ids[block]))
    return ids, evidence
