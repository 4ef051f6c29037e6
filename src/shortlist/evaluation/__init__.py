"""Metrics of extreme classification, with confidence intervals, significance tests and calibration error."""

from __future__ import annotations

from shortlist.evaluation.bootstrap import Comparison, Difference, compare
from shortlist.evaluation.evaluation import Evaluation, evaluate
from shortlist.evaluation.metrics import Quantile

__all__ = ["Comparison", "Difference", "Evaluation", "Quantile", "compare", "evaluate"]
