"""Random numbers without shared state: each consumer hashes its own counter (SplitMix64).

The results therefore do not depend on the number of threads, nor on which thread draws first.
"""

from __future__ import annotations

import numpy as np

from shortlist.kernels.compile import kernel

INCREMENT = np.uint64(0x9E3779B97F4A7C15)


@kernel(inline="always")
def mix(counter):
    """The 64 pseudo-random bits of a counter (`uint64`)."""
    bits = counter + INCREMENT
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))


@kernel(inline="always")
def below(bits, bound):
    """An integer from 0 to bound - 1 from 64 random bits, with a bias of less than bound / 2**32."""
    return np.int64(((bits >> np.uint64(32)) * np.uint64(bound)) >> np.uint64(32))
