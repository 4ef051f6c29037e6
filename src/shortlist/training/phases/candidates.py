"""DeepXML's module II, the phase `candidates`: the labels that are worth scoring for each text.

Features are frozen. The nearest label centres, and the labels of the nearest training texts, are the candidates of a
text, both in training, where those that are wrong are its negatives, and in prediction.
"""

from __future__ import annotations

import logging

import numpy as np

from shortlist.arrays import Ragged
from shortlist.errors import OptionError
from shortlist.kernels.threads import run_shares
from shortlist.labels.centroids import label_representatives
from shortlist.progress import Progress
from shortlist.recipes.options import Options
from shortlist.stages.candidates import Candidates, CandidateStage, NearestLabels
from shortlist.stages.candidates.neighbours import GraphSizes, NeighbourIndex
from shortlist.training.build import Build
from shortlist.training.data import TEXTS_PER_BLOCK
from shortlist.training.group import Shard
from shortlist.training.sharding import EncodedTexts, ShardedCandidates, own_candidates, shared_cells

log = logging.getLogger("shortlist")


def candidates(build: Build) -> None:
    """Module II: index the label centres (and texts), and find the candidates of every training text."""
    build.features = features = build.encoded_texts()
    build.candidates = stage = index_labels(features, build)
    # In 8 bits the index has short codes for a first look, which predictions use, too.
    if isinstance(stage, ShardedCandidates) and isinstance(features, EncodedTexts):
        build.own_candidates = own_candidates(features, stage.quantized())
    elif isinstance(features, np.ndarray):
        build.candidates_of = negatives(features, stage.quantized(), build)


def index_labels(features: np.ndarray | EncodedTexts, build: Build) -> NearestLabels:
    """The stage that finds the nearest label centres, and lets the nearest texts vote, if they are to."""
    data, options, shard = build.data, build.options, build.shard
    centres, owner = label_representatives(
        features,
        data.labels,
        data.n_labels,
        per_common=options.n_head_centres,
        seed=options.seed,
        n_common=options.n_head_labels if options.n_head_labels >= 0 else None,
        unit=options.unit_centres,
        own=None if shard is None else shard.labels,
    )
    if shard is not None:
        return index_shard(centres, owner, shard, options)
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


def index_shard(centres: np.ndarray, owner: np.ndarray, shard: Shard, options: Options) -> ShardedCandidates:
    """The index of this worker's centres, which belong to the labels `owner`. All workers have the same cells."""
    numbers = centre_numbers(owner, shard)
    own = NearestLabels.build(
        centres,
        shard.row_of_label[owner],
        len(shard.labels),
        options.n_candidates,
        n_nearest=options.n_nearest_labels,
        cells=shared_cells(shard.group, centres, numbers, options.seed),
    )
    return ShardedCandidates(own.arrays(), own.config(), shard, numbers)


def centre_numbers(owner: np.ndarray, shard: Shard) -> np.ndarray:
    """The number of each centre among those of all workers: first one for every label, then those of common labels."""
    n_own = len(shard.labels)
    more = owner[n_own:]
    of_all = np.sort(np.concatenate(shard.group.gather(more)))
    within = np.arange(len(more)) - np.searchsorted(more, more)
    return np.concatenate([owner[:n_own], shard.n_labels + np.searchsorted(of_all, more) + within])


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
    """The labels that each text is trained on besides its own; and their evidence, if they are its candidates."""
    data, options = build.data, build.options
    size = (len(features), min(options.n_candidates, data.n_labels))
    rng = np.random.default_rng(options.seed)
    if options.negative_sampling == "uniform":
        return rng.integers(data.n_labels, size=size, dtype=np.int32), None
    if options.negative_sampling == "frequent":
        weights = data.label_frequencies**0.75
        return rng.choice(data.n_labels, size=size, p=weights / weights.sum()).astype(np.int32), None
    if options.negative_sampling == "slice":
        return stage.nearest_centres(features, stage.n_searched_in_training), None
    return find_candidates(features, stage)


def find_candidates(features: np.ndarray, stage: CandidateStage) -> tuple[np.ndarray, np.ndarray | None]:
    """The candidates of each text, and their evidence, if the stage gives any."""

    def find(begin: int) -> Candidates:
        return stage.find(features[begin : begin + TEXTS_PER_BLOCK], stage.n_searched_in_training)

    first = find(0)
    if first.ids is None:
        raise OptionError(f"candidates of kind {stage.kind!r} are no label ids, which the classifier needs")
    ids = np.empty((len(features), first.ids.shape[1]), np.int32)
    # It selects hard negatives, for which three digits will do.
    evidence = np.empty((len(first.evidence), *ids.shape), np.float16)
    with Progress("candidates", len(features), "texts") as progress:

        def find_block(i: int) -> None:
            block = slice(i * TEXTS_PER_BLOCK, (i + 1) * TEXTS_PER_BLOCK)
            found = find(block.start) if i else first
            assert found.ids is not None
            ids[block] = found.ids
            if found.evidence:
                evidence[:, block] = found.evidence
            progress.advance(len(ids[block]))

        run_shares(find_block, -(-len(features) // TEXTS_PER_BLOCK))
    return ids, evidence if len(evidence) else None
