"""Propensities against napkinXC and against the formula."""

from __future__ import annotations

import math

import napkinxc.metrics as napkin
import numpy as np
import pytest
from scipy import sparse

from shortlist.errors import OptionError
from shortlist.labels import propensities


@pytest.mark.parametrize(("a", "b"), [(0.55, 1.5), (0.5, 0.4), (0.6, 2.6)])
@pytest.mark.parametrize("n_texts", [3, 50, 2000])
def test_equals_napkinxc(n_texts, a, b):
    truth = sparse.random(n_texts, 40, 0.1, format="csr", random_state=0)
    truth.data[:] = 1
    frequencies = np.bincount(truth.indices, minlength=40)
    ours = propensities(frequencies, n_texts, a, b)
    theirs = napkin.Jain_et_al_inverse_propensity(sparse.csr_matrix(truth), A=a, B=b)
    np.testing.assert_allclose(1 / ours, theirs, rtol=1e-12)


def test_by_hand():
    c = (math.log(1000) - 1) * 2.5**0.55
    expected = [1 / (1 + c * math.exp(-0.55 * math.log(n + 1.5))) for n in (0, 1, 10, 1000)]
    np.testing.assert_allclose(propensities([0, 1, 10, 1000], 1000), expected, rtol=1e-14)


@pytest.mark.parametrize("n_texts", [0, 1, 2])
def test_too_few_texts_give_propensities_of_one(n_texts):
    np.testing.assert_array_equal(propensities([0, 1, 2], n_texts), [1, 1, 1])


def test_propensities_are_probabilities_that_increase_with_frequency():
    values = propensities(np.arange(10_000), 10_000)
    assert (np.diff(values) > 0).all()
    assert values[0] > 0 and values[-1] < 1


def test_no_labels():
    assert propensities([], 10).shape == (0,)


def test_b_must_be_positive():
    with pytest.raises(OptionError, match="b must be positive"):
        propensities([0, 1], 10, b=0)
