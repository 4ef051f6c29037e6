"""Calibration curves: how they are applied, averaged and checked."""

from __future__ import annotations

import numpy as np
import pytest

from shortlist.errors import ModelError
from shortlist.stages.calibration import Calibration


def read(scores, probabilities):
    return Calibration.from_arrays({"scores": np.asarray(scores), "probabilities": np.asarray(probabilities)}, {})


def test_linear_between_the_points_and_constant_beyond_them():
    curve = Calibration.of_points("isotonic", [0.2, 0.4], [0.1, 0.9])
    applied = curve.apply(np.array([-np.inf, 0.0, 0.3, 0.4, 1.0]))
    assert applied.tolist() == pytest.approx([0.1, 0.1, 0.5, 0.9, 0.9])
    assert applied.dtype == np.float32
    assert curve.apply(np.zeros((0, 5), np.float32)).shape == (0, 5)
    assert (curve.method, curve.config()) == ("isotonic", {"method": "isotonic"})


@pytest.mark.parametrize(
    ("scores", "probabilities", "message"),
    [
        ([0.0, 1.0], [1.0, 0.0], "the probabilities .* never decrease"),
        ([1.0, 0.0], [0.0, 1.0], "the scores .* never decrease"),
        ([0.0, 1.0], [0.0, 1.5], "between 0 and 1"),
        ([0.0, 1.0], [-0.5, 1.0], "between 0 and 1"),
        ([0.0, float("nan")], [0.0, 1.0], "'scores' contains NaN"),
        ([0.0, float("inf")], [0.0, 1.0], "'scores' contains NaN or infinity"),
        ([0.0, 1.0], [0.0, float("nan")], "'probabilities' contains NaN"),
        ([0.0], [0.0], "at least 2"),
        (np.zeros(0), np.zeros(0), "at least 2"),
        ([0.0, 1.0], [0.0], "'probabilities' has shape"),
        (["a", "b"], [0.0, 1.0], "'scores' is str"),
        ([0, 1], [0.0, 1.0], "'scores' is int64"),
        ([[0.0, 1.0]], [[0.0, 1.0]], "'scores' has 2 axes"),
    ],
)
def test_anything_but_a_non_decreasing_curve_is_refused(scores, probabilities, message):
    with pytest.raises(ModelError, match=message):
        read(scores, probabilities)


class TestMean:
    def test_lies_between_its_curves_everywhere(self):
        steep = Calibration.of_points("isotonic", [0.0, 0.3, 1.0], [0.0, 0.9, 1.0])
        flat = Calibration.of_points("isotonic", [0.0, 0.6, 1.0], [0.1, 0.2, 0.3])
        scores = np.linspace(0, 1, 50)
        mean = Calibration.mean([steep, flat, None])
        expected = (steep.apply(scores) + flat.apply(scores) + scores) / 3
        np.testing.assert_allclose(mean.apply(scores), expected, atol=1e-6)
        assert mean.method == "mean"

    def test_of_none_is_none(self):
        assert Calibration.mean([None, None]) is None
