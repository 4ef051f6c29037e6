"""Buckets for labels and words: dealt out evenly at random, or by a hash function as published for MACH."""

from __future__ import annotations

import numpy as np

# A prime above every id, so small that products of two numbers below it fit into 64 bits.
PRIME = (1 << 31) - 1


def even_buckets(n: int, n_buckets: int, seed: int | list[int]) -> np.ndarray:
    """A random bucket for each of the ids 0 to n - 1; sizes of buckets differ by at most one."""
    return (np.random.default_rng(seed).permutation(n) % n_buckets).astype(np.int32)


def universal_buckets(n: int, n_buckets: int, seed: int | list[int]) -> np.ndarray:
    """((a · id + b) mod p) mod n_buckets with random a and b (Carter and Wegman 1979).

    Two ids share a bucket with a probability of about 1 / n_buckets; some buckets stay empty. It needs no table: a
    label that comes later has its bucket already.

    >>> buckets = universal_buckets(1000, 10, seed=0)
    >>> universal_buckets(2000, 10, seed=0)[:1000].tolist() == buckets.tolist()
    True
    """
    rng = np.random.default_rng(seed)
    a, b = int(rng.integers(1, PRIME)), int(rng.integers(PRIME))
    ids = np.arange(n, dtype=np.int64)
    return ((a * ids + b) % PRIME % n_buckets).astype(np.int32)


HASHINGS = {"even": even_buckets, "universal": universal_buckets}
