"""How the logit of a label row and what the candidate stage knows about the label become one score."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Protocol

import numpy as np

from shortlist.kernels.classifier import blend_odds
from shortlist.odds import mean_log_odds
from shortlist.stages.stage import finite_number

MIN_VOTES = 0.01  # the logarithm of fewer votes would say more than they do


class AnyBlend(Protocol):
    """Logits, cosines and votes of candidates to log-odds; −∞ where the logit is, because there is no candidate."""

    def log_odds(self, logits: np.ndarray, cosines: np.ndarray, votes: np.ndarray) -> np.ndarray: ...


@dataclass(frozen=True)
class Blend:
    """A candidate's log-odds, from the classifier's logit, its cosine, and the log of its votes."""

    classifier: float = 1.0
    cosine: float = 1.0
    votes: float = 0.1
    bias: float = 0.0

    def log_odds(self, logits: np.ndarray, cosines: np.ndarray, votes: np.ndarray) -> np.ndarray:
        odds = np.empty(logits.shape, np.float32)
        weights = self.classifier, self.cosine, self.votes, self.bias
        blend_odds(logits.ravel(), cosines.ravel(), votes.ravel(), *weights, MIN_VOTES, odds.ravel())
        return odds


@dataclass(frozen=True)
class MeanBlend:
    """A candidate's probability: α · σ(logit) + (1 − α) · σ(scale · similarity), as published for Astec and Slice.

    vote_weight  the similarity is vote_weight · votes + (1 − vote_weight) · cosine
    scale        1 for Astec; for Slice, the mean length of the label rows
    """

    alpha: float = 0.5
    vote_weight: float = 0.0
    scale: float = 1.0

    def log_odds(self, logits: np.ndarray, cosines: np.ndarray, votes: np.ndarray) -> np.ndarray:
        similarities = self.vote_weight * votes + (1 - self.vote_weight) * cosines
        odds = mean_log_odds(self.alpha, logits, self.scale * similarities)
        return np.where(np.isneginf(logits), np.float32(-np.inf), odds)


def blend_of(config: dict[str, Any] | None) -> AnyBlend | None:
    """The blend with these weights; None: only logits count."""
    if config is None:
        return None
    if "alpha" not in config:
        names = [field.name for field in fields(Blend) if field.name in config]
        return Blend(**{name: finite_number(config, name) for name in names})
    alpha, vote_weight = (finite_number(config, name, 0, 1) for name in ("alpha", "vote_weight"))
    return MeanBlend(alpha, vote_weight, finite_number(config, "scale"))
