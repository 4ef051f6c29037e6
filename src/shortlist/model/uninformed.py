"""Scores of texts that say nothing to a model, such as "" and "xyzzy"."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from shortlist.stages.allowed import AllowedLabels
from shortlist.stages.calibration import N_RANKED

if TYPE_CHECKING:
    from shortlist.model.model import Model


class RankOptions(NamedTuple):
    """How texts are ranked: the arguments of `Model.raw_rank`."""

    k: int = N_RANKED
    search_effort: float = 1.0
    allowed: AllowedLabels | None = None


DEFAULTS = RankOptions()


def limit_scores(
    probabilities: np.ndarray, first: np.ndarray, known: np.ndarray, model: Model, how: RankOptions
) -> np.ndarray:
    """The probabilities; of texts that say nothing at most the share of texts that have the most frequent label.

    A text says nothing if it has no known word and ranks labels as an empty text does. No such text was in training, so
    a score of its labels can be anything, and calibration has never seen it.

    first  the score before calibration of each text's best label
    known  the share of each text's words that the model knows
    how    how the texts were ranked; the empty text is ranked in the same way
    """
    rows = np.flatnonzero(known == 0)
    data = model.facts.get("data", {})
    if len(rows) and "texts_of_largest_label" in data:
        empty = model.raw_rank([""], *how)[1][0, 0]
        rows = rows[np.isclose(first[rows], empty)]
        most = data["texts_of_largest_label"] / data["texts"]
        probabilities[rows] = np.minimum(probabilities[rows], most)
    return probabilities
