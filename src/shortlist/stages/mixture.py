"""How the evidence for labels adds up to log-odds: for labels that were learnt, and for those known by name only."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shortlist.kernels.evidence import KNOWN_ABOVE, OTHERS_BELOW, evidence_odds
from shortlist.odds import CLIP, expit
from shortlist.stages.evidence import Evidence

NO_PARTS = np.empty((0, 0), np.float32)
STEP_BEHIND = 0.01  # log-odds between a text's best learnt label and those that must not come before it


@dataclass(frozen=True)
class Mixture:
    """How the evidence for a label adds up to its log-odds; held-out texts set the weights.

    first            of the classifier's log-odds
    words            of the score of the label's words
    names            of the similarity of the label's name and the text
    same_name        of its fourth power, which is next to nothing unless name and text are almost the same
    frequency        of the logarithm of the label's frequency, as a share of the largest
    first_frequency  by how much `first` grows with that
    words_frequency  by how much `words` grows with that
    known            for labels of a training text with the same words
    other            for all other labels, where there is such a text
    parts            of the similarity of the label's name and the text in parts of words
    same_parts       of its fourth power

    Labels of a training text with the same words come first in any case (see `evidence_odds`). The defaults count only
    where too few texts could be held out.
    """

    first: float = 0.6
    words: float = 2.5
    names: float = 2.0
    same_name: float = 0.0
    frequency: float = 0.0
    first_frequency: float = 0.0
    words_frequency: float = 0.0
    known: float = 4.0
    other: float = -4.0
    bias: float = 0.4
    parts: float = 0.0
    same_parts: float = 0.0

    def log_odds(
        self,
        evidence: Evidence,
        probabilities: np.ndarray,
        word_scores: np.ndarray,
        frequencies: np.ndarray,
        by_name: ByName | None = None,
    ) -> np.ndarray:
        """Log-odds of the candidates; −∞ where there is none.

        by_name  for labels with a frequency of 0, of which only the name is known; None: there is no such label
        """
        given = evidence, np.asarray(probabilities, np.float32), word_scores, frequencies
        if by_name is None:
            return self._odds(*given, evidence.is_known)
        # Labels of taught texts come first, after all others have their odds.
        odds = self._odds(*given, np.zeros_like(evidence.is_known))
        is_named = (frequencies[evidence.ids] == 0) & (evidence.ids >= 0)
        if is_named.any():
            odds = by_name.mixed(odds, evidence, is_named)
        taught = np.flatnonzero(evidence.is_known)
        if len(taught):
            odds[taught] = self.taught_first(odds[taught], evidence.known[taught])
        return odds

    def _odds(
        self,
        evidence: Evidence,
        probabilities: np.ndarray,
        word_scores: np.ndarray,
        frequencies: np.ndarray,
        is_known: np.ndarray,
    ) -> np.ndarray:
        odds = np.empty(word_scores.shape, np.float32)
        parts = NO_PARTS if evidence.parts is None else evidence.parts
        known = evidence.names, parts, evidence.known, is_known
        weights = tuple(vars(self).values())
        evidence_odds(evidence.ids, probabilities, word_scores, *known, frequencies, weights, CLIP, odds)
        return odds

    def taught_first(self, odds: np.ndarray, known: np.ndarray) -> np.ndarray:
        """The same as the last lines of `evidence_odds`."""
        first = KNOWN_ABOVE + np.logaddexp(0, odds + self.known - KNOWN_ABOVE)
        return np.where(known, first, OTHERS_BELOW - np.logaddexp(0, OTHERS_BELOW - odds - self.other))


@dataclass(frozen=True)
class ByName:
    """How probable a label is of which only the name is known; held-out texts set the weights, as if labels were new.

    names, parts  weights of the similarities of name and text
    bias          of the sum
    margin        by how much its log-odds must exceed those of the text's best learnt label to come before it

    Without a margin, new labels would often come first where a learnt label is right. The classifier's odds do not
    count: it learnt from no text of the label, and they say next to nothing once names count (docs/lab-book.md).
    """

    names: float = 3.8
    parts: float = 7.6
    bias: float = -6.6
    margin: float = 2.0

    def log_odds(self, evidence: Evidence) -> np.ndarray:
        """Log-odds of all candidates by their names."""
        assert evidence.parts is not None
        return self.names * evidence.names + self.parts * evidence.parts + self.bias

    def mixed(self, odds: np.ndarray, evidence: Evidence, is_named: np.ndarray) -> np.ndarray:
        """The log-odds of all labels, with others for those that are known by name only."""
        named = self.log_odds(evidence)
        best = np.where(is_named, -np.inf, odds).max(axis=1, keepdims=True, initial=-np.inf)
        best = np.where(np.isfinite(best), best, np.inf)  # with no other label, all stay as they are
        close = best - STEP_BEHIND * expit(best - named)
        held_back = np.where(named > best - STEP_BEHIND, np.maximum(named - self.margin, close), named)
        return np.where(is_named, held_back, odds).astype(np.float32)
