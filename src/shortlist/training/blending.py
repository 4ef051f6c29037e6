"""How to combine the logits of label rows with the evidence of the candidate stage, decided on held-out texts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from shortlist.evaluation.calibration import is_relevant
from shortlist.kernels.threads import run_shares
from shortlist.odds import fit_logistic
from shortlist.stages.blend import MIN_VOTES, AnyBlend, Blend, MeanBlend
from shortlist.stages.candidates import Candidates
from shortlist.stages.classifier import RowClassifier
from shortlist.training.build import Build
from shortlist.training.data import TEXTS_PER_BLOCK, TrainingData
from shortlist.training.loop import SELECTED_BY

# What the authors of Astec tried for α and β in their program.
WEIGHTS = tuple(round(0.1 * i, 1) for i in range(1, 10))


def fit_blend(build: Build, stage: RowClassifier) -> AnyBlend:
    """The blend that the options ask for; without held-out texts, or evidence to blend, its defaults."""
    data, options = build.data, build.options
    if options.blend == "none":
        return Blend(1.0, 0.0, 0.0, 0.0)
    blend = Blend() if options.blend == "logistic" else published_blend(build, stage)
    if not len(data.held_out) or (options.blend == "mean" and options.alpha):
        return blend
    features = build.encoder.encode(data.held_out_inputs)
    index = build.candidates.quantized()  # as predictions search, and in a third of the time
    near = index.find(features, index.max_searched)
    assert near.ids is not None
    if not near.evidence:
        return blend
    logits = stage.logits_of(features, near.ids)
    if isinstance(blend, MeanBlend):
        return choose_alpha(blend, data, near, logits)
    return fit_weights(data, near, logits)


def published_blend(build: Build, stage: RowClassifier) -> MeanBlend:
    """The mean of two probabilities; half each, unless the options say how much of which."""
    options, rows = build.options, stage.layer.rows
    scale = options.similarity_scale or float(np.linalg.norm(rows[: len(rows)], axis=1).mean())
    return MeanBlend(options.alpha or 0.5, options.vote_weight, scale)


def choose_alpha(blend: MeanBlend, data: TrainingData, near: Candidates, logits: np.ndarray) -> MeanBlend:
    """The blend with the α that ranks the candidates of held-out texts best."""

    def with_alpha(alpha: float) -> MeanBlend:
        return replace(blend, alpha=alpha)

    assert near.ids is not None
    return with_alpha(choose_weight(data, near.ids, lambda alpha: with_alpha(alpha).log_odds(logits, *near.evidence)))


def choose_weight(data: TrainingData, ids: np.ndarray, scores: Callable[[float], np.ndarray]) -> float:
    """The weight, such as the published α and β, whose scores rank the candidates of held-out texts best.

    ids     the candidates (texts × K, -1 for none)
    scores  of these, for a weight

    Of equally good weights, the smallest.
    """
    reached = {w: data.measure_scores(ids, np.where(ids >= 0, scores(w), -np.inf))[SELECTED_BY] for w in WEIGHTS}
    return max(WEIGHTS, key=lambda weight: reached[weight])


def fit_weights(data: TrainingData, near: Candidates, logits: np.ndarray) -> Blend:
    """How much the logit, the cosine and the votes count, by logistic regression on held-out candidates."""
    assert near.ids is not None
    present = near.ids >= 0
    cosines, votes = near.evidence
    log_votes = np.log(np.maximum(votes[present], np.float32(MIN_VOTES)))
    columns = np.stack([logits[present], cosines[present], log_votes], axis=1)
    hits = is_relevant(near.ids, data.held_out_labels, data.n_labels)[present]
    return Blend(*fit_logistic(columns, hits, np.array(list(vars(Blend()).values()))))


def hard_negatives(
    stage: RowClassifier, features: np.ndarray, ids: np.ndarray, evidence: np.ndarray, k: int
) -> np.ndarray:
    """The k candidates of each training text that the classifier ranks best, in 8 bits, as it does in prediction."""
    blend, stage = stage.blend, stage.quantized()
    assert blend is not None
    k = min(k, ids.shape[1])
    best = np.empty((len(features), k), np.int32)

    def choose_block(i: int) -> None:
        block = slice(i * TEXTS_PER_BLOCK, (i + 1) * TEXTS_PER_BLOCK)
        logits = stage.logits_of(features[block], ids[block])
        odds = blend.log_odds(logits, *evidence[:, block].astype(np.float32))
        order = np.argpartition(-odds, k - 1, axis=1)[:, :k]
        best[block] = np.take_along_axis(ids[block], order, axis=1)

    run_shares(choose_block, -(-len(features) // TEXTS_PER_BLOCK))
    return best
