"""Numbers one can trust: the metrics of extreme classification, with intervals and comparisons."""

from __future__ import annotations

from shortlist.evaluation.compare import Comparison, Difference, compare
from shortlist.evaluation.evaluation import Evaluation, evaluate
from shortlist.evaluation.quantiles import Quantile

__all__ = ["Comparison", "Difference", "Evaluation", "Quantile", "compare", "evaluate"]
