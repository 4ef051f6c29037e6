"""Log-odds of candidates from what speaks for each of them."""

from __future__ import annotations

import math

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def blend_odds(logits, cosines, votes, of_logit, of_cosine, of_votes, bias, least_votes, odds):
    """A weighted sum; −∞ where there is no candidate, whose logit is that."""
    for text in range(len(logits)):
        for i in range(logits.shape[1]):
            if not np.isfinite(logits[text, i]):  # a factor may be zero or below, which would turn −∞ round
                odds[text, i] = -np.inf
                continue
            vote = math.log(max(votes[text, i], least_votes))
            odds[text, i] = of_logit * logits[text, i] + of_cosine * cosines[text, i] + of_votes * vote + bias


@njit(cache=True, nogil=True)
def mixture_odds(probabilities, word_scores, of_first, of_words, bias, surest, odds):
    """A weighted sum of a first stage's log-odds and a score; −∞ where the score is, for there is no candidate."""
    for text in range(len(probabilities)):
        for i in range(probabilities.shape[1]):
            if not np.isfinite(word_scores[text, i]):
                odds[text, i] = -np.inf
                continue
            share = min(max(probabilities[text, i], surest), 1 - surest)
            odds[text, i] = of_first * math.log(share / (1 - share)) + of_words * word_scores[text, i] + bias
