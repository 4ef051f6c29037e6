"""The contract of candidate stages, and the one for few labels: all of them are candidates."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from shortlist.arrays import Arrays
from shortlist.stages.stage import Stage


class Candidates(NamedTuple):
    """The labels to score for each text: all labels, label ids, or clusters of the classifier's rows.

    ids       texts × K label ids, -1 for none; None, and no clusters: every label
    clusters  texts × C clusters; cluster c has the rows `starts[c]` to `starts[c + 1]` of the classifier
    evidence  what else is known about the candidates: cosines and votes of `ids`, or logits of all clusters
    """

    ids: np.ndarray | None = None
    clusters: np.ndarray | None = None
    starts: np.ndarray | None = None
    evidence: tuple[np.ndarray, ...] = ()


class CandidateStage(Stage):
    """Finds candidates. `n_searched` clusters or cells are searched at a search effort of 1, at most `max_searched`."""

    n_searched: int = 1
    max_searched: int = 1
    n_features: int | None = None

    def find(self, features: Any, n_searched: int) -> Candidates:
        raise NotImplementedError

    def evidence(
        self, features: Any, ids: np.ndarray, n_searched: int, found: Candidates | None = None
    ) -> tuple[np.ndarray, ...]:
        """What is known about these labels (texts × K), whether or not they are candidates.

        found  what `find` gave for these features, if it was called already
        """
        return ()

    @property
    def n_searched_in_training(self) -> int:
        """How many clusters or cells are searched for the candidates of training texts."""
        return self.max_searched

    def scaled(self, factor: float) -> CandidateStage:
        """The same stage over the same arrays, with this many times the candidates, if their number is its choice."""
        return self

    def only(self, is_allowed: np.ndarray) -> CandidateStage | None:
        """A stage that finds only these labels, in about the same time; None: there is none."""
        return None

    def multiply_adds(self, n_searched: int) -> float | None:
        """The mean cost of the search for one text. None: unknown."""
        return 0.0

    def n_candidates(self, n_searched: int, n_labels: int) -> float:
        """The mean number of labels to score for one text."""
        return n_labels


class AllLabels(CandidateStage):
    """Every label is a candidate."""

    kind = "all"

    def __init__(self, arrays: Arrays | None = None, config: dict[str, Any] | None = None) -> None:
        super().__init__(arrays or {}, config)

    @property
    def learns_on(self) -> bool:
        return True

    def find(self, features: Any, n_searched: int) -> Candidates:
        return Candidates()
