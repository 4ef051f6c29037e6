"""Which labels may answer, and how only these are ranked.

Few labels are scored one by one: nothing is searched, so the ranking is exact. More of them get an index of their own,
which is made once per list. Of most labels, or very many, the search leaves enough.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from shortlist.stages.candidates import CandidateStage
from shortlist.stages.classifier import best_of_scores

# Up to this many labels are all scored; up to the second number only if they cannot have an index (docs/lab-book.md).
SCORE_ALL_UP_TO, WITHOUT_INDEX = 128, 2048
# An index for at most this many labels (12 MB at 300 features), if they are at most this share of all.
INDEX_UP_TO, INDEX_SHARE = 32_768, 0.25
# A search among more labels goes on until this many candidates are expected to be allowed, or twice those wanted.
MIN_EXPECTED = 50
PAIRS_PER_BLOCK = 1 << 16

Score = Callable[[Any, np.ndarray], np.ndarray]


@dataclass(frozen=True, eq=False)
class AllowedLabels:
    """The labels that may answer, as one flag per label.

    >>> some = AllowedLabels(np.array([True, False, True]))
    >>> some.ids.tolist(), some.only(np.array([[1, 2, -1]])).tolist()
    ([0, 2], [[-1, 2, -1]])
    """

    is_allowed: np.ndarray

    @cached_property
    def ids(self) -> np.ndarray:
        return np.flatnonzero(self.is_allowed).astype(np.int32)

    def are_few(self, stages: Sequence[CandidateStage]) -> bool:
        """Whether each of them is scored, rather than searched for by these stages."""
        if not SCORE_ALL_UP_TO < len(self.ids) <= WITHOUT_INDEX:
            return len(self.ids) <= SCORE_ALL_UP_TO
        return not all(self.narrowed(stage) for stage in stages)

    def narrowed(self, stage: CandidateStage) -> CandidateStage | None:
        """A stage that finds only these labels; None: search as usual, and drop the others."""
        if len(self.ids) > min(INDEX_UP_TO, INDEX_SHARE * len(self.is_allowed)):
            return None
        if stage not in self._narrowed:
            self._narrowed[stage] = stage.only(self.is_allowed)
        return self._narrowed[stage]

    @cached_property
    def _narrowed(self) -> dict[CandidateStage, CandidateStage | None]:
        return {}

    def only(self, ids: np.ndarray) -> np.ndarray:
        """The ids with -1 in place of labels that are not allowed."""
        return np.where(self._flags[ids], ids, np.int32(-1))

    @cached_property
    def _flags(self) -> np.ndarray:
        """`is_allowed`, with a last flag that -1 finds."""
        return np.append(self.is_allowed, False)

    def widening(self, n_candidates: float, k: int) -> float:
        """By which factor to enlarge a search that finds `n_candidates`, so that enough of them are allowed."""
        expected = n_candidates * len(self.ids) / len(self.is_allowed)
        return max(1.0, max(MIN_EXPECTED, 2 * k) / max(expected, 1e-9))

    def rank(self, score: Score, inputs: Any, k: int) -> tuple[np.ndarray, np.ndarray]:
        """The k best of all allowed labels and their scores, by scoring each; -1 where no more have a score above 0."""
        n_texts = inputs.shape[0] if hasattr(inputs, "shape") else len(inputs)
        per_block = max(1, PAIRS_PER_BLOCK // max(len(self.ids), 1))
        ids = np.full((n_texts, min(k, len(self.ids))), -1, np.int32)
        scores = np.zeros(ids.shape, np.float32)
        for begin in range(0, n_texts, per_block):
            block = slice(begin, min(begin + per_block, n_texts))
            every = np.tile(self.ids, (block.stop - begin, 1))
            ids[block], scores[block] = best_of_scores(every, score(inputs[block], every), k)
        return np.where(scores > 0, ids, -1).astype(np.int32), scores
