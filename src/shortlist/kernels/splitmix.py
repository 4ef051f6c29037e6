"""Random numbers without a state to share: every consumer hashes its own counter (SplitMix64).

Threads that draw from such streams need no agreement on who draws first, so the result does not depend
on how many of them there are.
"""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(cache=True, nogil=True, inline="always")
def mix(counter):
    """The pseudo-random 64 bits that belong to this counter (a `uint64`)."""
    bits = counter + np.uint64(0x9E3779B97F4A7C15)
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))


@njit(cache=True, nogil=True, inline="always")
def below(bits, bound):
    """A number in 0..bound-1 from 64 random bits; its bias is below bound / 2**32."""
    return np.int64(((bits >> np.uint64(32)) * np.uint64(bound)) >> np.uint64(32))
