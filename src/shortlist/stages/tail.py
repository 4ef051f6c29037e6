"""Rare labels on demand: candidates ranked by score × (1 / propensity)^tail. The propensity of rare labels is low.

With tail = 1 this is the order that PSP@k rewards: the expected gain of a label is its probability divided by its
propensity. PfastreXML and ProXML learn for the same purpose; here it is a choice at prediction.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from shortlist.arrays import Arrays, ArraySpec
from shortlist.errors import ModelError
from shortlist.labels.propensity import propensities
from shortlist.stages.stage import Stage, finite_number


class TailRanking(Stage):
    """The inverse propensities of all labels, and the tail that held-out texts chose (`auto`; None: nothing chose it).

    >>> ranking = TailRanking.of_frequencies([1000, 1], n_texts=10_000)
    >>> ids, scores = np.array([[0, 1]]), np.array([[0.5, 0.25]])
    >>> ranking.order(ids, scores, tail=0).tolist(), ranking.order(ids, scores, tail=1).tolist()
    ([[0, 1]], [[1, 0]])
    """

    kind = "propensities"
    spec = {"inverse_propensities": ArraySpec("float32", ("n_labels",))}

    def __init__(self, arrays: Arrays, config: dict[str, Any]) -> None:
        super().__init__(arrays, config)
        self.auto = None if config.get("auto") is None else finite_number(config, "auto", 0, 1)
        self._inverse_propensities = arrays["inverse_propensities"]
        if self._inverse_propensities.min(initial=1) < 1:
            raise ModelError("inverse propensities must be at least 1")

    @staticmethod
    def of_frequencies(label_frequencies: Any, n_texts: int, auto: float | None = None) -> TailRanking:
        """From the number of training texts of each label, and of all."""
        inverse = (1 / propensities(label_frequencies, n_texts)).astype(np.float32)
        return TailRanking({"inverse_propensities": inverse}, {"auto": auto})

    def with_auto(self, auto: float | None) -> TailRanking:
        """The same with another chosen tail."""
        return TailRanking(self._arrays, {"auto": auto})

    def order(self, ids: np.ndarray, scores: np.ndarray, tail: float) -> np.ndarray:
        """The columns of each row, best first, for label ids (texts × K, -1 for none) and their scores.

        These are scores before calibration, whose curve may be flat where the order still says something.
        """
        weighted = np.maximum(scores, 0) * self._inverse_propensities[ids] ** np.float32(tail)
        return np.argsort(np.where(ids >= 0, -weighted, np.inf), axis=1, kind="stable")
