"""Log-odds of candidates from what speaks for each of them."""

from __future__ import annotations

import math

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def blend_odds(logits, cosines, votes, of_logit, of_cosine, of_votes, bias, least_votes, odds):
    """A weighted sum; −∞ where there is no candidate, whose logit is that."""
    for i in range(len(logits)):
        if np.isfinite(logits[i]):  # a factor may be zero or below, which would turn −∞ round
            vote = math.log(max(votes[i], least_votes))
            odds[i] = of_logit * logits[i] + of_cosine * cosines[i] + of_votes * vote + bias
        else:
            odds[i] = -np.inf


@njit(cache=True, nogil=True)
def mixture_odds(probabilities, word_scores, of_first, of_words, bias, surest, odds):
    """A weighted sum of a first stage's log-odds and a score; −∞ where the score is, for there is no candidate."""
    for i in range(len(probabilities)):
        if np.isfinite(word_scores[i]):
            share = min(max(probabilities[i], surest), 1 - surest)
            odds[i] = of_first * math.log(share / (1 - share)) + of_words * word_scores[i] + bias
        else:
            odds[i] = -np.inf
