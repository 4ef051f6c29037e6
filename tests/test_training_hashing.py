"""Buckets for labels and words."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from shortlist.training.hashing import HASHINGS, PRIME, even_buckets, universal_buckets


@pytest.mark.parametrize("name", HASHINGS)
def test_seed_decides(name):
    new = HASHINGS[name]
    one = new(100, 7, 0)
    assert one.dtype == np.int32 and one.min() >= 0 and one.max() < 7
    assert (one == new(100, 7, 0)).all()
    assert (one != new(100, 7, 1)).any()
    assert (new(100, 7, [0, 1]) != new(100, 7, [0, 2])).any()


def test_even_buckets_differ_in_size_by_at_most_one():
    sizes = np.bincount(even_buckets(100, 7, seed=0), minlength=7)
    assert (sizes.min(), sizes.max(), sizes.sum()) == (14, 15, 100)


def test_universal_hashing_is_the_formula():
    rng = np.random.default_rng(3)
    a, b = int(rng.integers(1, PRIME)), int(rng.integers(PRIME))
    assert universal_buckets(50, 11, seed=3).tolist() == [((a * i + b) % PRIME) % 11 for i in range(50)]


def test_two_ids_rarely_share_a_bucket_of_a_universal_hashing():
    hashings = np.stack([universal_buckets(30, 8, seed) for seed in range(400)])
    shared = [(hashings[:, i] == hashings[:, j]).mean() for i, j in itertools.combinations(range(30), 2)]
    assert np.mean(shared) == pytest.approx(1 / 8, abs=0.01)
    assert max(shared) < 0.21
