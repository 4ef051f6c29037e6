"""Probabilities and log-odds."""

from __future__ import annotations

import numpy as np

# Nearest to certainty that a probability counts for.
SUREST = 1e-6


def expit(odds: np.ndarray) -> np.ndarray:
    """The probabilities of these log-odds.

    >>> expit(np.array([-np.inf, 0.0, 1000.0])).tolist()
    [0.0, 0.5, 1.0]
    """
    return np.exp(-np.logaddexp(np.float32(0), -odds))


def log_odds(probabilities: np.ndarray) -> np.ndarray:
    """log(p / (1 − p)), within bounds."""
    inside = np.clip(np.asarray(probabilities, np.float32), SUREST, 1 - SUREST)
    return np.log(inside / (1 - inside))
